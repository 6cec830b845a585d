/* bench_data.c - measures how fast training samples are loaded: stage by stage on one thread, then
 * as batches from the loader, then how long training waits for them (train/loop/trial.h).  The
 * stages are those of a loader thread (data/loader/loader.c), timed separately, on samples in the
 * order of training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/error.h"
#include "data/loader/loader.h"
#include "data/loader/sampler.h"
#include "train/job/job_data.h"
#include "train/loop/trial.h"
#include "tutti/bench.h"

enum { STAGE_READ, STAGE_DECODE, STAGE_STEPS, N_STAGES };

typedef struct clocks {
    int64_t n_samples, n_bytes;
    int64_t ns[N_STAGES];
} clocks;

typedef struct bench {
    const tutti_dataset *ds;
    uint64_t seed;
    int64_t batch, limit_ns;
    double mixup;
    tti_workspace workspace;
    void *scratch[2];
    void *x;
    int32_t *y;
    clocks clocks;
} bench;

/* Loads one sample through all stages; a skipped sample counts as read. */
static tutti_status load_sample(bench *b, const tti_sample_key *key) {
    const tutti_dataset *ds = b->ds;
    int64_t t[N_STAGES + 1] = {tti_now_ns()};
    const void *bytes;
    size_t n_read;
    tutti_status st = tti_dataset_fetch(ds, (int64_t)key->index, &b->workspace, b->scratch[0], b->y,
                                        &bytes, &n_read);
    t[1] = tti_now_ns();
    if (st == TUTTI_OK) st = tti_dataset_unpack(ds, key, &b->workspace, b->scratch[0]);
    t[2] = tti_now_ns();
    size_t n_bytes = tti_type_bytes(tti_dataset_stored(ds));
    if (st == TUTTI_OK) tti_chain_apply(tti_dataset_decode(ds), key, b->scratch, n_bytes, b->x);
    t[3] = tti_now_ns();
    if (st != TUTTI_OK && !tti_dataset_skips(ds, st)) return st;
    for (int i = 0; i < N_STAGES; i++) b->clocks.ns[i] += t[i + 1] - t[i];
    b->clocks.n_samples++;
    b->clocks.n_bytes += (int64_t)n_read;
    return TUTTI_OK;
}

static tutti_status run_stages(bench *b) {
    uint64_t n = (uint64_t)tutti_dataset_get_info(b->ds)->n_samples;
    int64_t end_ns = tti_now_ns() + b->limit_ns;
    for (uint64_t i = 0; tti_now_ns() < end_ns || i == 0; i++) {
        tti_sample_key key = {b->seed, i / n, tti_sampler_at(n, b->seed, i / n, i % n)};
        TTI_TRY(load_sample(b, &key));
        if (i == 0) b->clocks = (clocks){0}; /* the first sample also allocates memory */
    }
    return TUTTI_OK;
}

static tutti_status run_loader(bench *b, int n_threads, double *per_s) {
    tti_loader *loader;
    TTI_TRY(tti_loader_create(&(tti_loader_desc){.dataset = b->ds,
                                                 .batch = b->batch,
                                                 .n_shards = 1,
                                                 .last_shard = 1,
                                                 .seed = b->seed,
                                                 .n_threads = n_threads,
                                                 .n_prefetch = 4,
                                                 .mixup = b->mixup},
                              &loader));
    tti_batch batch;
    int64_t n_samples = 0, start_ns = 0, now_ns = 0;
    tutti_status st = tti_loader_next(loader, &batch);
    start_ns = tti_now_ns();
    while (st == TUTTI_OK && (n_samples == 0 || now_ns - start_ns < b->limit_ns)) {
        st = tti_loader_next(loader, &batch);
        n_samples += batch.n_rows;
        now_ns = tti_now_ns();
    }
    tti_loader_destroy(loader);
    if (st == TUTTI_OK) *per_s = (double)n_samples / ((double)(now_ns - start_ns) * 1e-9);
    return st;
}

/* Measures training with these samples; sets out->why_not if it cannot run. */
static void run_training(const bench *b, const tutti_job *job, tutti_bench_data_result *out) {
    tti_trial trial = {0};
    tutti_status st = tti_trial_run(job, (int)(b->limit_ns / TTI_NS_PER_MS), &trial);
    if (st != TUTTI_OK) snprintf(out->why_not, sizeof out->why_not, "%s", tutti_last_error());
    out->train_per_s = trial.per_s;
    out->wait_share = trial.wait_share;
    out->n_workers = trial.n_workers;
}

static tutti_status alloc_memory(bench *b) {
    tutti_type x;
    size_t n_bytes;
    TTI_TRY(tti_chain_infer(tti_dataset_decode(b->ds), tti_dataset_stored(b->ds), &x, &n_bytes));
    size_t n_y =
        (size_t)tutti_shape_n_elems(&tutti_dataset_get_info(b->ds)->y.shape) * sizeof *b->y;
    b->scratch[0] = malloc(n_bytes + 64);
    b->scratch[1] = malloc(n_bytes + 64);
    b->x = malloc(n_bytes + 64);
    b->y = malloc(n_y + 64);
    bool fits = b->scratch[0] && b->scratch[1] && b->x && b->y;
    return fits ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "bench: out of memory for a sample");
}

static double rate(const clocks *c, int64_t ns) {
    return ns > 0 ? (double)c->n_samples / ((double)ns * 1e-9) : 0;
}

static tutti_bench_data_result summarise(const bench *b, double loader_per_s, int n_threads) {
    const clocks *c = &b->clocks;
    tutti_bench_data_result result = {
        .n_samples = tutti_dataset_get_info(b->ds)->n_samples,
        .n_skipped = tutti_dataset_n_skipped(b->ds),
        .sample_bytes = c->n_samples ? (double)c->n_bytes / (double)c->n_samples : 0,
        .read_per_s = rate(c, c->ns[STAGE_READ]),
        .decode_per_s = tti_dataset_is_flat(b->ds) ? 0 : rate(c, c->ns[STAGE_DECODE]),
        .steps_per_s = tti_dataset_decode(b->ds)->n ? rate(c, c->ns[STAGE_STEPS]) : 0,
        .thread_per_s = rate(c, c->ns[STAGE_READ] + c->ns[STAGE_DECODE] + c->ns[STAGE_STEPS]),
        .loader_per_s = loader_per_s,
        .n_threads = n_threads};
    return result;
}

tutti_status tutti_bench_data(tutti_job *job, const tutti_bench_data_desc *desc,
                              tutti_bench_data_result *out) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(desc, __func__, "desc"));
    TTI_TRY(tti_need(out, __func__, "out"));
    if (desc->n_threads < 0 || desc->min_ms < 0)
        return tti_fail(TUTTI_E_INVALID, "bench: n_threads or min_ms is negative");
    tutti_dataset *ds;
    TTI_TRY(tutti_job_open_dataset(job, TUTTI_TRAIN, &ds));
    bench b = {.ds = ds,
               .seed = (uint64_t)tti_job_config_of(job)->train.seed,
               .batch = tti_job_config_of(job)->train.batch,
               .mixup = tti_job_config_of(job)->data.mixup,
               .limit_ns = (desc->min_ms > 0 ? desc->min_ms : 2000) * TTI_NS_PER_MS};
    int n_threads = desc->n_threads > 0 ? desc->n_threads : tti_cores_usable();
    double loader_per_s = 0;
    tutti_status st;
    TTI_TRY_GOTO(alloc_memory(&b), cleanup);
    TTI_TRY_GOTO(run_stages(&b), cleanup);
    TTI_TRY_GOTO(run_loader(&b, n_threads, &loader_per_s), cleanup);
    *out = summarise(&b, loader_per_s, n_threads);
    if (!desc->no_training) run_training(&b, job, out);
cleanup:
    tti_workspace_free(&b.workspace);
    free(b.scratch[0]);
    free(b.scratch[1]);
    free(b.x);
    free(b.y);
    tutti_dataset_destroy(ds);
    return st;
}
