/* calibrate.c - a second or two of this machine, from which the time of every layout is made.
 *
 * What is measured is the job's own shard program, one on each core at once: kernels, caches and
 * memory are those of training.  Programs that were not measured are scaled by what their
 * operations cost at the ceilings. */
#include "planner/calibrate.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "data/dataset.h"
#include "train/ceilings.h"
#include "train/feeding.h"
#include "train/numerics.h"
#include "train/worker_exec.h"
#include "tutti/bench.h"

enum { MIN_STEPS = 3, MAX_STEPS = 12, SMALL_BYTES = 4096, LARGE_BYTES = 16 << 20, SUM_MS = 60 };

/* Programs that have to share the budget, more or less. */
static const double SHARES = 20;

/* Of a program that does nothing: what is scaled by costs stays a number. */
static const double MIN_COST_S = 1e-12;

double tti_program_cost_s(const tti_calibration *c, const tti_program *program) {
    double s = 0;
    for (int i = 0; i < program->n_steps; i++) {
        const tti_node *node = program->steps[i];
        if (node->op->traits & TTI_COLLECTIVE) continue;
        tti_cost cost = {.flops = (double)tti_value_n_elems(node->out[0])};
        if (node->op->cost) node->op->cost(node, &cost);
        s += fmax(cost.flops / c->flops, cost.bytes / c->bytes);
    }
    return s;
}

/* ---- the machine ---- */

static void keep_row(const tutti_bench_comm_row *row, void *user) {
    tti_calibration *c = user;
    if (row->n_bytes <= SMALL_BYTES)
        c->sum_latency_s = row->latency_us * 1e-6;
    else
        c->sum_bytes_s = row->bus_gb_s * 1e9;
}

static void keep_device_row(const tutti_bench_devices_row *row, void *user) {
    tti_calibration *c = user;
    if (row->wire != TUTTI_F32) return;
    if (row->n_bytes > SMALL_BYTES)
        c->sum_bytes_s = fmax(c->sum_bytes_s, row->bus_gb_s * 1e9);
    else if (c->sum_latency_s == 0 || row->us * 1e-6 < c->sum_latency_s)
        c->sum_latency_s = row->us * 1e-6;
}

static tutti_status measure_sums(tti_calibration *c) {
    c->sum_latency_s = 0, c->sum_bytes_s = 0;
    if (c->n_ranks < 2) return TUTTI_OK;
    if (c->is_device && c->n_ranks <= c->n_cores)
        return tutti_bench_devices(
            &(tutti_bench_devices_desc){
                .n_devices = c->n_ranks, .min_bytes = SMALL_BYTES, .max_bytes = LARGE_BYTES},
            keep_device_row, c);
    static const size_t sizes[] = {SMALL_BYTES, LARGE_BYTES};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++)
        TTI_TRY(tutti_bench_comm(&(tutti_bench_comm_desc){.n_ranks = c->n_ranks,
                                                          .min_bytes = sizes[i],
                                                          .max_bytes = sizes[i],
                                                          .min_ms = SUM_MS},
                                 keep_row, c));
    return TUTTI_OK;
}

/* Bytes of this process in memory now, and of these those of files. */
static double read_resident(double *of_files) {
    double pages = 0, file_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    *of_files = 0;
    if (!file) return 0;
    if (fscanf(file, "%*s %lf %lf", &pages, &file_pages) != 2) pages = file_pages = 0;
    fclose(file);
    *of_files = file_pages * (double)sysconf(_SC_PAGESIZE);
    return pages * (double)sysconf(_SC_PAGESIZE);
}

double tti_in_pages(double n_bytes, double n_arrays) {
    const double page = 2 << 20;
    double each = n_arrays > 0 ? n_bytes / n_arrays : 0;
    return each >= page ? n_arrays * page * ceil(each / page) : n_bytes;
}

double tti_kept_in_pages(const tti_exec_memory *m, const tti_plan *plan) {
    return tti_in_pages((double)m->params, 1) + tti_in_pages((double)m->ema, 1) +
           tti_in_pages((double)m->states, plan->n_states);
}

double tti_used_in_pages(const tti_exec_memory *m, const tti_plan *plan, bool is_alone) {
    double flat = (double)plan->n_flat * sizeof(float), grads = (double)m->grads;
    double arena = (double)TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes);
    if (is_alone && flat > 0) grads = tti_in_pages(grads, grads / flat);
    if (arena > 0) arena = tti_in_pages((double)m->arena, (double)m->arena / arena);
    return grads + arena + (double)m->gathered;
}

double tti_process_bytes(void) {
    double of_files;
    return read_resident(&of_files);
}

static tutti_status measure_add(const tti_backend *backend, tti_calibration *c) {
    enum { N = 1 << 20, ROUNDS = 8 };
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    if (a && b && !backend->device) {
        int64_t start = tti_now_ns();
        for (int i = 0; i < ROUNDS; i++) backend->accumulate(a, b, N);
        c->add_s = (double)(tti_now_ns() - start) * 1e-9 / N / ROUNDS;
    }
    tutti_status st = a && b ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    free(a);
    free(b);
    return st;
}

tutti_status tti_calibrate_machine(const tti_blueprint *b, int n_ranks, double budget_s,
                                   double base_bytes, tti_calibration *c) {
    const tti_backend *backend = b->devices.backend;
    tti_ceilings ceilings;
    *c = (tti_calibration){.n_cores = backend->device ? b->devices.n : tti_cores_usable(),
                           .is_device = backend->device != NULL,
                           .n_ranks = n_ranks,
                           .slice_s = budget_s / SHARES,
                           .base_bytes = base_bytes};
    if (backend->device)
        TTI_TRY(backend->device->open(&(tti_device_desc){.index = tti_devices_first(&b->devices)}));
    tutti_status st =
        tti_ceilings_measure(backend, tti_blueprint_target(b).compute_dtype, &ceilings);
    if (backend->device) backend->device->close();
    TTI_TRY(st);
    c->flops = ceilings.flops, c->bytes = ceilings.bytes;
    TTI_TRY(measure_add(backend, c));
    TTI_TRY(measure_sums(c));
    malloc_trim(0);
    c->start_bytes = read_resident(&c->start_file_bytes);
    return TUTTI_OK;
}

/* ---- waves ---- */

typedef struct rig {
    tti_blueprint b; /* with as many shards as run at once; what it points to is borrowed */
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data shards[TTI_MAX_WORKERS];
    tti_wave wave;
    double spent_s, slice_s;
    int64_t n_steps;
} rig;

static tutti_status open_rig(rig *r) {
    const tti_job_config *c = &r->b.config;
    TTI_TRY(tti_worker_exec_create(&r->b, &(tti_worker_desc){.local_n_ranks = 1}, &r->exec));
    return tti_feeding_open(&(tti_loader_desc){.dataset = r->b.train,
                                               .batch = r->b.rows_per_shard * r->b.n_shards,
                                               .n_shards = r->b.n_shards,
                                               .last_shard = r->b.n_shards,
                                               .seed = (uint64_t)c->train.seed,
                                               .mixup = c->data.mixup},
                            r->exec, &r->loader);
}

static tutti_status run_step(rig *r, uint64_t step, tti_step_result *result) {
    tti_batch batch;
    int64_t start = tti_now_ns();
    TTI_TRY(tti_loader_next(r->loader, &batch));
    r->wave.load_s =
        (double)(tti_now_ns() - start) * 1e-9 / (double)(r->b.rows_per_shard * r->b.n_shards);
    for (int i = 0; i < batch.n_shards; i++) r->shards[i] = tti_shard_of(&batch, i, 0);
    tti_step_desc desc = {.step = step,
                          .lr = r->b.config.optimizer.lr * 1e-3, /* nothing is to be learnt */
                          .shards = r->shards,
                          .shard_size = r->b.rows_per_shard,
                          .n_rows = batch.n_rows_global};
    tti_feeding_tell(r->loader, &desc);
    TTI_TRY(tti_exec_step(r->exec, &desc, result));
    r->spent_s += (double)(tti_now_ns() - start) * 1e-9;
    r->n_steps++;
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
static tutti_status time_steps(rig *r) {
    double waves[MAX_STEPS], updates[MAX_STEPS], loads[MAX_STEPS];
    tti_step_result result;
    int n = 0;
    TTI_TRY(run_step(r, 0, &result));
    for (; n < MAX_STEPS && (n < MIN_STEPS || r->spent_s < r->slice_s); n++) {
        TTI_TRY(run_step(r, (uint64_t)n + 1, &result));
        waves[n] = (double)result.compute_ns * 1e-9;
        updates[n] = (double)result.update_ns * 1e-9;
        loads[n] = r->wave.load_s;
    }
    r->wave.s = median(waves, n), r->wave.update_s = median(updates, n);
    r->wave.load_s = median(loads, n);
    return TUTTI_OK;
}

/* Samples that are made as they are first read stay in memory. */
static double bytes_read(const rig *r) {
    double rows = (double)(r->n_steps * r->b.rows_per_shard * r->b.n_shards);
    double all = (double)tutti_dataset_get_info(r->b.train)->n_samples;
    return fmin(rows / all, 1) * (double)r->b.train->late_bytes;
}

/* What the first wave has read of libraries, and what all of them of samples, is there once; the
 * rest is each lane's. */
static void measure_hidden(rig *r, tti_calibration *c) {
    tti_exec_memory m = tti_exec_memory_use(r->exec);
    double of_files, known = tti_kept_in_pages(&m, r->b.plan);
    known += tti_used_in_pages(&m, r->b.plan, true);
    if (c->is_device) return;
    double grown = read_resident(&of_files) - c->start_bytes;
    c->code_bytes = fmax(c->code_bytes, of_files - c->start_file_bytes);
    c->read_bytes = fmin(c->read_bytes + bytes_read(r), (double)r->b.train->late_bytes);
    r->wave.hidden_bytes =
        (grown - (of_files - c->start_file_bytes) - c->read_bytes - known) / r->b.n_shards;
}

static tutti_status run_rig(rig *r, tti_calibration *c) {
    TTI_TRY(open_rig(r));
    TTI_TRY(time_steps(r));
    measure_hidden(r, c);
    return TUTTI_OK;
}

static int shards_at_once(const tti_calibration *c) {
    int n = 1;
    while (!c->is_device && n * 2 <= c->n_cores && n * 2 <= TTI_MAX_WORKERS) n *= 2;
    return n;
}

static const tti_wave *find_wave(const tti_calibration *c, int64_t rows, const char *recompute) {
    for (int i = 0; i < c->n_waves; i++)
        if (c->waves[i].rows == rows && strcmp(c->waves[i].recompute, recompute) == 0)
            return &c->waves[i];
    return NULL;
}

/* What a few steps would take, from the nearest wave that is known. */
static bool is_too_long(const tti_calibration *c, const tti_wave *wave, double left_s) {
    bool is_measured;
    tti_wave guess =
        tti_calibrated_wave(c, wave->rows, wave->recompute, wave->cost_s, &is_measured);
    return guess.s * (MIN_STEPS + 1) > left_s;
}

tutti_status tti_calibrate_wave(const tti_blueprint *b, tti_calibration *c, double left_s,
                                double *spent_s) {
    rig r = {.b = *b, .slice_s = c->slice_s};
    *spent_s = 0;
    r.b.n_shards = shards_at_once(c);
    r.b.config.parallel.zero = 0;
    r.wave = (tti_wave){.rows = b->rows_per_shard,
                        .recompute = b->config.train.recompute,
                        .cost_s = fmax(tti_program_cost_s(c, &b->plan->shard), MIN_COST_S)};
    if (c->n_waves == TTI_MAX_WAVES || find_wave(c, r.wave.rows, r.wave.recompute) ||
        is_too_long(c, &r.wave, left_s))
        return TUTTI_OK;
    int64_t start = tti_now_ns();
    tutti_status st = run_rig(&r, c);
    tti_loader_destroy(r.loader);
    tti_exec_destroy(r.exec);
    malloc_trim(0); /* what a wave has left is not the next one's */
    TTI_TRY(st);
    c->waves[c->n_waves++] = r.wave;
    *spent_s = (double)(tti_now_ns() - start) * 1e-9;
    return TUTTI_OK;
}

static double distance(const tti_wave *wave, const char *recompute, double cost_s) {
    bool other = strcmp(wave->recompute, recompute) != 0;
    return fabs(log(wave->cost_s / cost_s)) + (other ? 1 : 0);
}

tti_wave tti_calibrated_wave(const tti_calibration *c, int64_t rows, const char *recompute,
                             double cost_s, bool *is_measured) {
    const tti_wave *nearest = NULL;
    cost_s = fmax(cost_s, MIN_COST_S);
    tti_wave wave = {.rows = rows, .recompute = recompute, .cost_s = cost_s, .s = cost_s};
    for (int i = 0; i < c->n_waves; i++)
        if (!nearest ||
            distance(&c->waves[i], recompute, cost_s) < distance(nearest, recompute, cost_s))
            nearest = &c->waves[i];
    *is_measured = false;
    if (!nearest) return wave;
    *is_measured = nearest->rows == rows && strcmp(nearest->recompute, recompute) == 0 &&
                   fabs(nearest->cost_s / cost_s - 1) < 1e-9;
    double scale = cost_s / nearest->cost_s;
    wave.s = nearest->s * scale;
    wave.update_s = nearest->update_s;
    wave.load_s = nearest->load_s;
    wave.hidden_bytes = nearest->hidden_bytes;
    return wave;
}

/* ---- known devices ---- */

const tti_backend *tti_paper_device(void) {
    static const tti_device_ops none;
    static const tti_backend paper = {.name = "paper", .device = &none, .fuses_training = true};
    return &paper;
}

/* docs/performance.md: ceilings of `tutti doctor`, sums over the memory of the other device. */
static const struct {
    const char *name;
    double flops, bytes, share, sum_latency_s, sum_bytes_s;
} known[] = {{"h200", 690e12, 4.07e12, 0.82, 5.2e-6, 335e9}};

tutti_status tti_calibration_of(const char *device, int n_ranks, tti_calibration *out) {
    for (size_t i = 0; i < TTI_COUNT(known); i++) {
        if (strcmp(device, known[i].name) != 0) continue;
        *out = (tti_calibration){.n_cores = n_ranks,
                                 .flops = known[i].flops * known[i].share,
                                 .bytes = known[i].bytes * known[i].share,
                                 .sum_latency_s = known[i].sum_latency_s,
                                 .sum_bytes_s = known[i].sum_bytes_s,
                                 .n_ranks = n_ranks,
                                 .is_device = true};
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_INVALID, "plan: no figures of device '%s'; there are measured, h200",
                    device);
}
