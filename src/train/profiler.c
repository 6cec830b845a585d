/* profiler.c - tutti_profile: a few steps of a job, timed part by part while they run as ever.
 *
 * Workers are threads, each with its part of the batch, as in training; what they noted is told
 * when all have ended. */
#include "tutti/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/atomic_file.h"
#include "base/clock.h"
#include "data/loader.h"
#include "train/feeding.h"
#include "train/numerics.h"
#include "train/profile_trace.h"
#include "train/shares.h"
#include "train/worker_exec.h"

enum { N_WARM = 4, N_PLAIN = 8, N_TIMED = 3 };

/* What all workers share; rank 0 writes the figures. */
typedef struct profiler {
    const tutti_profile_desc *desc;
    tti_blueprint *b;
    tutti_comm_group *group; /* NULL: alone */
    tti_profiled told;
} profiler;

typedef struct worker {
    profiler *p;
    int rank;
    pthread_t thread;
    tutti_comm *comm;
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data *shards;
    int64_t n_begun, wait_ns;
    tutti_status status;
    char error[2048];
} worker;

/* ---- one worker ---- */

static tutti_status open_worker(worker *w) {
    const tti_blueprint *b = tti_blueprint_of(w->p->b, w->rank);
    const tti_job_config *c = &b->config;
    if (w->p->group)
        TTI_TRY(tutti_comm_create(&(tutti_comm_desc){.group = w->p->group,
                                                     .rank = w->rank,
                                                     .n_ranks = b->n_workers,
                                                     .timeout_ms = (int)c->parallel.timeout_ms},
                                  &w->comm));
    const tti_worker_desc desc = {
        .comm = w->comm, .local_rank = w->rank, .local_n_ranks = b->n_workers};
    TTI_TRY(tti_worker_exec_create(b, &desc, &w->exec));
    TTI_TRY(tti_feeding_open(&(tti_loader_desc){.dataset = b->train,
                                                .batch = c->train.batch,
                                                .n_shards = b->n_shards,
                                                .first_shard = tti_exec_first_shard(w->exec),
                                                .last_shard = tti_exec_last_shard(w->exec),
                                                .seed = (uint64_t)c->train.seed,
                                                .mixup = c->data.mixup,
                                                .n_threads = (int)c->data.threads,
                                                .n_prefetch = (int)c->data.prefetch},
                             w->exec, &w->loader));
    tti_feeding_pin(w->loader, w->exec); /* a copy takes what it takes in training */
    w->shards = calloc((size_t)b->n_shards, sizeof *w->shards);
    return w->shards ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
}

static tutti_status begin_step(worker *w) {
    const tti_blueprint *b = w->p->b;
    tti_batch batch;
    int64_t start = tti_now_ns();
    TTI_TRY(tti_loader_next(w->loader, &batch));
    int64_t end = tti_now_ns();
    w->wait_ns += end - start;
    tti_exec_profile_wait(w->exec, "waiting for samples", start, end);
    int first = tti_exec_first_shard(w->exec);
    for (int i = 0; i < batch.n_shards; i++) w->shards[i] = tti_shard_of(&batch, i, first);
    tti_step_desc desc = {.step = (uint64_t)w->n_begun++,
                          .lr = b->config.optimizer.lr * 1e-3, /* nothing is to be learnt */
                          .shards = w->shards,
                          .shard_size = b->rows_per_shard,
                          .n_rows = batch.n_rows_global};
    tti_feeding_tell(w->loader, &desc);
    return tti_exec_begin(w->exec, &desc);
}

/* Steps as training runs them, as many at work as may be.  *us: from the end of the first to that
 * of the last, for each. */
static tutti_status run_steps(worker *w, int n_steps, double *us) {
    int depth = tti_exec_depth(w->exec), n_begun = 0;
    int64_t first_ns = 0;
    for (int n_ended = 0; n_ended < n_steps; n_ended++) {
        tti_step_result result;
        for (; n_begun < n_steps && n_begun - n_ended < depth; n_begun++) TTI_TRY(begin_step(w));
        TTI_TRY(tti_exec_end(w->exec, &result));
        if (n_ended == 0) first_ns = tti_now_ns(), w->wait_ns = 0;
    }
    if (us && n_steps > 1) *us = (double)(tti_now_ns() - first_ns) * 1e-3 / (n_steps - 1);
    return TUTTI_OK;
}

static tutti_status measure(worker *w) {
    const tutti_profile_desc *desc = w->p->desc;
    tti_profiled *told = &w->p->told;
    double trained_us = 0;
    TTI_TRY(run_steps(w, desc->n_warm > 0 ? desc->n_warm : N_WARM, NULL));
    TTI_TRY(run_steps(w, N_PLAIN, &trained_us));
    double wait_us = (double)w->wait_ns * 1e-3 / (N_PLAIN - 1);
    TTI_TRY(tti_exec_profile_begin(w->exec, told->n_steps));
    tutti_status st = run_steps(w, told->n_steps, NULL);
    tutti_status ended = tti_exec_profile_end(w->exec, &told->ranks[w->rank]);
    TTI_TRY(st);
    TTI_TRY(ended);
    if (w->rank != 0) return TUTTI_OK;
    told->trained_us = trained_us, told->wait_us = wait_us;
    const tti_blueprint *b = tti_blueprint_of(w->p->b, w->rank);
    return tti_ceilings_measure(b->devices.backend, tti_blueprint_target(b).compute_dtype,
                                &told->ceilings);
}

static void close_worker(worker *w) {
    if (w->loader && w->exec) tti_feeding_unpin(w->loader, w->exec);
    tti_loader_destroy(w->loader);
    tti_exec_destroy(w->exec);
    tutti_comm_destroy(w->comm);
    free(w->shards);
}

static void *run_worker(void *arg) {
    worker *w = arg;
    w->status = open_worker(w);
    if (w->status == TUTTI_OK) w->status = measure(w);
    if (w->status != TUTTI_OK) {
        snprintf(w->error, sizeof w->error, "%s", tutti_last_error());
        if (w->p->group) tutti_comm_group_abort(w->p->group, w->rank, w->error);
    }
    close_worker(w);
    return NULL;
}

/* ---- all of them ---- */

/* The cause, not what the others heard of it. */
static tutti_status first_failure(const worker *workers, int n) {
    const worker *first = NULL;
    for (int r = 0; r < n; r++)
        if (workers[r].status != TUTTI_OK && (!first || first->status == TUTTI_E_PEER))
            first = &workers[r];
    return first ? tti_fail(first->status, "%s", first->error) : TUTTI_OK;
}

/* Rank 0 runs on the calling thread. */
static tutti_status run_workers(profiler *p, worker *workers, int n) {
    int n_started = 1;
    for (int r = 0; r < n; r++) workers[r] = (worker){.p = p, .rank = r};
    while (n_started < n &&
           pthread_create(&workers[n_started].thread, NULL, run_worker, &workers[n_started]) == 0)
        n_started++;
    if (n_started == n)
        run_worker(&workers[0]);
    else
        tutti_comm_group_abort(p->group, -1, "a worker thread cannot be started");
    for (int r = 1; r < n_started; r++) pthread_join(workers[r].thread, NULL);
    if (n_started < n) return tti_fail(TUTTI_E_NOMEM, "profile: cannot start %d workers", n);
    return first_failure(workers, n);
}

static tutti_status profile_all(profiler *p) {
    int n = p->b->n_workers;
    worker *workers = calloc((size_t)n, sizeof *workers);
    p->told.ranks = calloc((size_t)n, sizeof *p->told.ranks);
    tutti_status st =
        workers && p->told.ranks ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    if (st == TUTTI_OK && n > 1) st = tutti_comm_group_create(n, &p->group);
    if (st == TUTTI_OK) st = run_workers(p, workers, n);
    tutti_comm_group_destroy(p->group);
    free(workers);
    return st;
}

static tutti_status save_trace(const profiler *p, const char *path) {
    tti_str trace = {0};
    tti_profile_trace(&p->told, &trace);
    tutti_status st = trace.failed ? tti_fail(TUTTI_E_NOMEM, "profile: out of memory")
                                   : tti_atomic_file_save(path, trace.text, trace.n_bytes);
    tti_str_free(&trace);
    return st;
}

/* Whether another key says how many workers there are. */
static bool has_workers(const tti_job_config *c) {
    return c->parallel.workers != -1 || c->parallel.data > 0 ||
           tti_shares_kind_of(c) == TTI_SHARES_GIVEN;
}

/* One worker unless the job says how many. */
static tutti_status resolve(tutti_job *job) {
    tti_devices devices;
    TTI_TRY(tutti_job_check(job));
    if (job->config.parallel.tensor * job->config.parallel.pipeline > 1)
        return tti_fail(TUTTI_E_CONFIG,
                        "profile: looks at workers that have the whole model; give "
                        "parallel.tensor=1 parallel.pipeline=1");
    bool mixed = tti_devices_mixed_from(job->config.parallel.devices) > 0;
    if (!has_workers(&job->config) && !mixed)
        tutti_job_set(job, "parallel.workers=1", "profile, unless -n says more");
    TTI_TRY(tti_devices_resolve(job, &devices));
    return tti_job_resolve(job, mixed ? devices.n : 1);
}

tutti_status tutti_profile(tutti_job *job, const tutti_profile_desc *desc, char **text) {
    static const tutti_profile_desc defaults;
    profiler p = {.desc = desc ? desc : &defaults};
    tti_str out = {0};
    *text = NULL;
    TTI_TRY(resolve(job));
    TTI_TRY(tti_blueprint_create(job, &p.b));
    p.told.max_rows = p.desc->max_rows > 0 ? p.desc->max_rows : 25;
    p.told.n_steps = p.desc->n_steps > 0 ? p.desc->n_steps : N_TIMED;
    p.told.n_ranks = p.b->n_workers;
    p.told.devices = &p.b->devices;
    tutti_status st = profile_all(&p);
    if (st == TUTTI_OK) st = tti_profile_table(&p.told, &out);
    if (st == TUTTI_OK && p.desc->trace_path) st = save_trace(&p, p.desc->trace_path);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int r = 0; p.told.ranks && r < p.told.n_ranks; r++) free(p.told.ranks[r].spans);
    free(p.told.ranks);
    tti_blueprint_destroy(p.b);
    if (st != TUTTI_OK) tti_str_free(&out);
    *text = out.text;
    return st;
}

tutti_status tutti_measure_ceilings(tutti_job *job, double *flops, double *bytes) {
    tti_devices devices;
    tti_target target = {0};
    tti_ceilings ceilings;
    TTI_TRY(tti_devices_resolve(job, &devices));
    TTI_TRY(tti_job_resolve(job, devices.n ? devices.n : tti_cores_usable()));
    tti_numerics_target(&job->config, &target);
    const tti_device_ops *ops = devices.backend->device;
    bool tf32 = strcmp(job->config.train.precision, "tf32") == 0;
    if (ops)
        TTI_TRY(ops->open(&(tti_device_desc){.index = tti_devices_first(&devices), .tf32 = tf32}));
    tutti_status st = tti_ceilings_measure(devices.backend, target.compute_dtype, &ceilings);
    if (ops) ops->close();
    *flops = ceilings.flops, *bytes = ceilings.bytes;
    return st;
}
