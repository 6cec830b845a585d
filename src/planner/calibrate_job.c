/* calibrate_job.c - runs shards of the job briefly, and estimates the time of programs that did not
 * run.
 *
 * On a host one process computes a shard on each of its cores. Devices compute one shard each at
 * the same time, because the devices of one host share its power. The slowest device counts. */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/dataset.h"
#include "planner/calibrate.h"
#include "planner/device_costs.h"
#include "planner/scratch.h"
#include "train/setup/feeding.h"
#include "train/setup/worker_exec.h"

enum { MIN_STEPS = 3, MAX_STEPS = 12, MAX_DEVICE_STEPS = 48, WHY_BYTES = 512 };

/* A cold device is faster than in a long run, so it computes this long before it is timed. */
static const double WARM_S = 0.8;

/* Cost of an empty program, so that scaling by costs stays finite. */
static const double MIN_COST_S = 1e-12;

enum { MAX_AT_ONCE = 64 }; /* shards that run at the same time */

typedef struct rig {
    tti_blueprint b; /* with the number of shards that run at once; its pointers are borrowed */
    tti_worker_desc worker;
    tti_exec *exec;
    tti_loader *loader;
    tti_batch batch; /* the newest batch that was loaded */
    tti_shard_data shards[MAX_AT_ONCE];
    tti_group_cost micro_group;
    double spent_s, slice_s;
    int64_t n_begun, n_loaded;
    pthread_t thread;
    tutti_status status;
    char why[WHY_BYTES];
} rig;

static bool is_device(const rig *r) { return r->b.devices.backend->device != NULL; }

static tutti_status open_rig(rig *r) {
    const tti_job_config *c = &r->b.config;
    TTI_TRY(tti_worker_exec_create(&r->b, &r->worker, &r->exec));
    TTI_TRY(tti_feeding_open(&(tti_loader_desc){.dataset = r->b.train,
                                                .batch = r->b.rows_per_shard * r->b.n_shards,
                                                .n_shards = r->b.n_shards,
                                                .last_shard = r->b.n_shards,
                                                .seed = (uint64_t)c->train.seed,
                                                .mixup = c->data.mixup},
                             r->exec, &r->loader));
    tti_feeding_pin(r->loader, r->exec);
    return TUTTI_OK;
}

static void close_rig(rig *r) {
    if (r->loader) tti_feeding_unpin(r->loader, r->exec);
    tti_loader_destroy(r->loader);
    tti_exec_destroy(r->exec);
}

static tutti_status load(rig *r) {
    int64_t start = tti_now_ns();
    TTI_TRY(tti_loader_next(r->loader, &r->batch));
    r->micro_group.load_s =
        (double)(tti_now_ns() - start) * 1e-9 / (double)(r->b.rows_per_shard * r->b.n_shards);
    for (int i = 0; i < r->batch.n_shards; i++) r->shards[i] = tti_shard_of(&r->batch, i, 0);
    r->n_loaded++;
    return TUTTI_OK;
}

static tutti_status begin_step(rig *r) {
    tti_step_desc desc = {.step = (uint64_t)r->n_begun++,
                          .lr = r->b.config.optimizer.lr * 1e-3, /* parameters hardly change */
                          .shards = r->shards,
                          .shard_size = r->b.rows_per_shard,
                          .n_rows = r->batch.n_rows_global};
    tti_feeding_describe(r->loader, &desc);
    return tti_exec_begin(r->exec, &desc);
}

static tutti_status run_step(rig *r, tti_step_result *result) {
    int64_t start = tti_now_ns();
    TTI_TRY(load(r));
    TTI_TRY(begin_step(r));
    TTI_TRY(tti_exec_end(r->exec, result));
    r->spent_s += (double)(tti_now_ns() - start) * 1e-9;
    return TUTTI_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* The first step warms up; the others count. */
static tutti_status time_on_host(rig *r) {
    double micro_groups[MAX_STEPS], updates[MAX_STEPS], loads[MAX_STEPS];
    tti_step_result result;
    int n = 0;
    TTI_TRY(run_step(r, &result));
    for (; n < MAX_STEPS && (n < MIN_STEPS || r->spent_s < r->slice_s); n++) {
        TTI_TRY(run_step(r, &result));
        micro_groups[n] = (double)result.compute_ns * 1e-9;
        updates[n] = (double)result.update_ns * 1e-9;
        loads[n] = r->micro_group.load_s;
    }
    r->micro_group.s = median(micro_groups, n), r->micro_group.update_s = median(updates, n);
    r->micro_group.load_s = median(loads, n);
    return TUTTI_OK;
}

/* Trains repeatedly on the same samples. As in training, the host prepares a step while the
 * previous one runs, if possible. The first two steps run uncaptured or capture the graph, so they
 * are not timed. Each step includes the update; its estimated time is subtracted, unless the host
 * executes the update. */
static tutti_status time_on_device(rig *r, const tti_calibration *c) {
    double micro_groups[MAX_DEVICE_STEPS], updates[MAX_DEVICE_STEPS];
    tti_step_result result;
    int n = 0, ahead = tti_exec_depth(r->exec) > 1;
    for (int i = 0; i < 3; i++) TTI_TRY(run_step(r, &result));
    int64_t start = tti_now_ns();
    for (int i = 0; i < ahead; i++) TTI_TRY(begin_step(r));
    for (; n < MAX_DEVICE_STEPS; n++) {
        double spent_s = (double)(tti_now_ns() - start) * 1e-9;
        if (n >= MIN_STEPS && spent_s > r->slice_s) break;
        TTI_TRY(begin_step(r));
        TTI_TRY(tti_exec_end(r->exec, &result));
        micro_groups[n] = (double)result.compute_ns * 1e-9;
        updates[n] = (double)result.update_ns * 1e-9;
    }
    for (int i = 0; i < ahead; i++) TTI_TRY(tti_exec_end(r->exec, &result));
    double step_s = median(micro_groups, n), host_staged_s_per_byte = median(updates, n);
    r->micro_group.update_s = host_staged_s_per_byte > 0
                                  ? host_staged_s_per_byte
                                  : fmin(tti_update_cost_s(c, r->b.plan), 0.5 * step_s);
    r->micro_group.s = host_staged_s_per_byte > 0 ? step_s : step_s - r->micro_group.update_s;
    return TUTTI_OK;
}

/* Bytes of samples read so far: samples that are generated on first use stay in memory. */
static double bytes_read(const rig *r) {
    double rows = (double)(r->n_loaded * r->b.rows_per_shard * r->b.n_shards);
    double all = (double)tutti_dataset_get_info(r->b.train)->n_samples;
    return fmin(rows / all, 1) * (double)tti_dataset_late_bytes(r->b.train);
}

/* Library pages that the first micro-batch group loads, and samples, exist once per process; all
 * other memory is counted per compute thread. */
static void measure_hidden(rig *r, tti_calibration *c) {
    tti_exec_memory m = tti_exec_memory_use(r->exec);
    double of_files, known = tti_resident_page_bytes(&m, r->b.plan);
    known += tti_working_page_bytes(&m, r->b.plan, true);
    double grown = tti_process_bytes(&of_files) - c->start_bytes;
    c->code_bytes = fmax(c->code_bytes, of_files - c->start_file_bytes);
    c->read_bytes = fmin(c->read_bytes + bytes_read(r), (double)tti_dataset_late_bytes(r->b.train));
    r->micro_group.hidden_bytes =
        (grown - (of_files - c->start_file_bytes) - c->read_bytes - known) / r->b.n_shards;
}

/* Measures the scratch memory of kernels, and other memory beyond the planned arrays. */
static tutti_status measure_scratch(rig *r) {
    tti_exec_memory m = tti_exec_memory_use(r->exec);
    double known = tti_bytes_of_arrays(&m) + tti_device_extra_bytes(r->b.plan, r->b.n_shards);
    r->micro_group.hidden_bytes = fmax((double)m.device_peak - known, 0);
    return tti_scratch_query(&r->b, r->b.plan, &r->micro_group.scratch_bytes);
}

static tutti_status run_rig(rig *r, tti_calibration *c) {
    static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER; /* guards c, which rigs share */
    TTI_TRY(open_rig(r));
    if (is_device(r)) {
        TTI_TRY(time_on_device(r, c));
        return measure_scratch(r);
    }
    TTI_TRY(time_on_host(r));
    pthread_mutex_lock(&measuring);
    measure_hidden(r, c);
    pthread_mutex_unlock(&measuring);
    return TUTTI_OK;
}

/* ---- one on each device ---- */

typedef struct rig_thread {
    rig *rig;
    tti_calibration *c; /* written only by workers on the host, one at a time */
} rig_thread;

static void *run_thread(void *arg) {
    rig_thread *t = arg;
    t->rig->status = run_rig(t->rig, t->c);
    if (t->rig->status != TUTTI_OK)
        snprintf(t->rig->why, sizeof t->rig->why, "%s", tutti_last_error());
    close_rig(t->rig);
    return NULL;
}

/* Runs all rigs at the same time, the first one on the calling thread. */
static tutti_status run_all(rig_thread *runs, int n) {
    int n_started = 1;
    while (n_started < n &&
           pthread_create(&runs[n_started].rig->thread, NULL, run_thread, &runs[n_started]) == 0)
        n_started++;
    run_thread(&runs[0]);
    for (int i = 1; i < n_started; i++) pthread_join(runs[i].rig->thread, NULL);
    if (n_started < n) return tti_fail(TUTTI_E_NOMEM, "plan: cannot start %d threads", n);
    for (int i = 0; i < n; i++)
        if (runs[i].rig->status != TUTTI_OK)
            return tti_fail(runs[i].rig->status, "%s", runs[i].rig->why);
    return TUTTI_OK;
}

static bool is_slower(const rig *r, const rig *than) {
    return !than || r->micro_group.s / r->b.n_shards > than->micro_group.s / than->b.n_shards;
}

/* Copies the slowest device's measurement, or this host's, to *c; copies that of host workers next
 * to devices to *host (NULL: none). */
static void find_slowest(const rig *rigs, int n, tti_calibration *c, tti_calibration *host) {
    const rig *on_device = NULL, *on_host = NULL;
    for (int i = 0; i < n; i++) {
        const rig **slowest = is_device(&rigs[i]) == c->is_device ? &on_device : &on_host;
        if (is_slower(&rigs[i], *slowest)) *slowest = &rigs[i];
    }
    if (on_device) c->micro_groups[c->n_micro_groups++] = on_device->micro_group;
    if (on_host && host) host->micro_groups[host->n_micro_groups++] = on_host->micro_group;
}

/* ---- all micro-batch groups ---- */

static int power_of_two_upto(int n) {
    int power = 1;
    while (power * 2 <= n && power * 2 <= MAX_AT_ONCE) power *= 2;
    return power;
}

static const tti_group_cost *find_micro_group(const tti_calibration *c, int64_t rows,
                                              const char *recompute) {
    for (int i = 0; i < c->n_micro_groups; i++)
        if (c->micro_groups[i].rows == rows && strcmp(c->micro_groups[i].recompute, recompute) == 0)
            return &c->micro_groups[i];
    return NULL;
}

/* True if a few steps would exceed the budget, estimated from the nearest known micro-batch
 * group. */
static bool is_too_long(const tti_calibration *c, const tti_group_cost *micro_group,
                        double left_s) {
    bool is_measured;
    tti_group_cost guess = tti_calibrated_micro_group(c, micro_group->rows, micro_group->recompute,
                                                      micro_group->cost_s, &is_measured);
    return left_s <= 0 || guess.s * (MIN_STEPS + 1) > left_s;
}

/* Initializes the rig of worker i of n, with as many shards as it computes at the same time. */
static void init_rig(rig *r, const tti_blueprint *b, int i, int n, const tti_calibration *c,
                     double slice_s) {
    tti_core_share share;
    *r = (rig){.b = *b, .slice_s = slice_s};
    r->worker =
        (tti_worker_desc){.rank = i, .local_rank = i, .device_place = i, .local_n_ranks = n};
    r->b.config.parallel.zero = 0;
    tti_worker_cores(b, i, n, &share);
    r->b.n_shards = is_device(r) ? 1 : power_of_two_upto(n > 1 ? share.n_threads : c->n_cores);
    r->micro_group =
        (tti_group_cost){.rows = b->rows_per_shard,
                         .recompute = b->config.train.recompute,
                         .cost_s = fmax(tti_program_cost_s(c, &b->plan->shard), MIN_COST_S)};
}

static tutti_status run_rigs(const tti_blueprint *b, int n, double slice_s, tti_calibration *c,
                             tti_calibration *host) {
    rig *rigs = calloc((size_t)n, sizeof *rigs);
    rig_thread *runs = calloc((size_t)n, sizeof *runs);
    tutti_status st = rigs && runs ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; st == TUTTI_OK && i < n; i++) {
        const tti_blueprint *own = tti_blueprint_of(b, i);
        tti_calibration *of = own == b ? c : host;
        init_rig(&rigs[i], own, i, n, of, slice_s);
        runs[i] = (rig_thread){&rigs[i], of};
    }
    if (st == TUTTI_OK) st = run_all(runs, n);
    if (st == TUTTI_OK) find_slowest(rigs, n, c, host);
    free(rigs);
    free(runs);
    return st;
}

/* The number of rigs: on a host one process with all cores; otherwise a worker for each device, at
 * most n_workers. */
static int count_rigs(const tti_calibration *c, const tti_calibration *host, int n_workers) {
    if (host) return n_workers;
    return c->is_device ? TTI_MAX(1, TTI_MIN(n_workers, c->n_cores)) : 1;
}

tutti_status tti_calibrate_micro_groups(const tti_blueprint *b, int n_workers, tti_calibration *c,
                                        tti_calibration *host, double left_s, double *spent_s) {
    double slice_s = c->is_device ? fmin(fmax(c->slice_s, WARM_S), left_s / 2) : c->slice_s;
    const tti_group_cost micro_group = {.rows = b->rows_per_shard,
                                        .recompute = b->config.train.recompute,
                                        .cost_s = tti_program_cost_s(c, &b->plan->shard)};
    *spent_s = 0;
    if (c->n_micro_groups == TTI_MAX_MICRO_GROUPS ||
        find_micro_group(c, micro_group.rows, micro_group.recompute) ||
        is_too_long(c, &micro_group, left_s))
        return TUTTI_OK;
    int64_t start = tti_now_ns();
    tutti_status st = run_rigs(b, count_rigs(c, host, n_workers), slice_s, c, host);
    malloc_trim(0); /* freed memory of one micro-batch group must not count for the next */
    *spent_s = (double)(tti_now_ns() - start) * 1e-9;
    if (st == TUTTI_E_NOMEM && c->is_device) { /* a smaller batch may fit */
        tti_clear_error();
        return TUTTI_OK;
    }
    return st;
}

tutti_status tti_calibrate_micro_group(const tti_blueprint *b, tti_calibration *c, double left_s,
                                       double *spent_s) {
    return tti_calibrate_micro_groups(b, c->n_ranks, c, NULL, left_s, spent_s);
}

static double distance(const tti_group_cost *micro_group, const char *recompute, double cost_s) {
    bool other = strcmp(micro_group->recompute, recompute) != 0;
    return fabs(log(micro_group->cost_s / cost_s)) + (other ? 1 : 0);
}

tti_group_cost tti_calibrated_micro_group(const tti_calibration *c, int64_t rows,
                                          const char *recompute, double cost_s, bool *is_measured) {
    const tti_group_cost *nearest = NULL;
    cost_s = fmax(cost_s, MIN_COST_S);
    tti_group_cost micro_group = {
        .rows = rows, .recompute = recompute, .cost_s = cost_s, .s = cost_s};
    for (int i = 0; i < c->n_micro_groups; i++)
        if (!nearest ||
            distance(&c->micro_groups[i], recompute, cost_s) < distance(nearest, recompute, cost_s))
            nearest = &c->micro_groups[i];
    *is_measured = false;
    if (!nearest) return micro_group;
    *is_measured = nearest->rows == rows && strcmp(nearest->recompute, recompute) == 0 &&
                   fabs(nearest->cost_s / cost_s - 1) < 1e-9;
    double scale = cost_s / nearest->cost_s;
    micro_group.s = nearest->s * scale;
    micro_group.update_s = nearest->update_s;
    micro_group.load_s = nearest->load_s;
    micro_group.hidden_bytes = nearest->hidden_bytes;
    micro_group.scratch_bytes = nearest->scratch_bytes;
    double rows_share = (double)rows / (double)nearest->rows;
    if (c->is_device)
        micro_group.hidden_bytes *= rows_share, micro_group.scratch_bytes *= rows_share;
    return micro_group;
}
