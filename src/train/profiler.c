/* profiler.c - tutti_profile: a few steps of a job, timed part by part. */
#include "tutti/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/atomic_file.h"
#include "base/clock.h"
#include "data/loader.h"
#include "train/feeding.h"
#include "train/numerics.h"
#include "train/profile_trace.h"
#include "train/worker_exec.h"

typedef struct profiler {
    const tutti_profile_desc *desc;
    tti_blueprint *b;
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data *shards;
    int64_t step;
} profiler;

static tutti_status open_loader(profiler *p) {
    const tti_job_config *c = &p->b->config;
    TTI_TRY(tti_loader_create(&(tti_loader_desc){.dataset = p->b->train,
                                                 .batch = c->train.batch,
                                                 .n_shards = p->b->n_shards,
                                                 .last_shard = p->b->n_shards,
                                                 .seed = (uint64_t)c->train.seed,
                                                 .mixup = c->data.mixup,
                                                 .n_threads = (int)c->data.threads,
                                                 .n_prefetch = (int)c->data.prefetch},
                              &p->loader));
    tti_feeding_pin(p->loader, p->exec); /* a copy takes what it takes in training */
    p->shards = calloc((size_t)p->b->n_shards, sizeof *p->shards);
    return p->shards ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
}

static tutti_status next_step(profiler *p, tti_step_desc *desc) {
    tti_batch batch;
    TTI_TRY(tti_loader_next(p->loader, &batch));
    for (int i = 0; i < batch.n_shards; i++) p->shards[i] = tti_shard_of(&batch, i, 0);
    *desc = (tti_step_desc){.step = (uint64_t)p->step++,
                            .lr = p->b->config.optimizer.lr * 1e-3, /* nothing is to be learnt */
                            .shards = p->shards,
                            .shard_size = p->b->rows_per_shard,
                            .n_rows = batch.n_rows_global};
    return TUTTI_OK;
}

/* Steps as training runs them; the median time of one. */
static tutti_status run_plain(profiler *p, int n_steps, double *us) {
    double times[64];
    int n = 0;
    for (int i = 0; i < n_steps; i++) {
        tti_step_desc desc;
        tti_step_result result;
        TTI_TRY(next_step(p, &desc));
        int64_t start = tti_now_ns();
        TTI_TRY(tti_exec_step(p->exec, &desc, &result));
        if (n < 64) times[n++] = (double)(tti_now_ns() - start) * 1e-3;
    }
    for (int i = 1; i < n; i++) /* a few: insertion */
        for (int k = i; k > 0 && times[k] < times[k - 1]; k--) {
            double t = times[k];
            times[k] = times[k - 1], times[k - 1] = t;
        }
    *us = n ? times[n / 2] : 0;
    return TUTTI_OK;
}

static double end_of(const tti_span *spans, int n) {
    return n ? spans[n - 1].start_us + spans[n - 1].us : 0;
}

/* The fastest of the timed steps: the others were disturbed. */
static tutti_status run_timed(profiler *p, tti_span **best, int *n_best) {
    int n_steps = p->desc->n_steps > 0 ? p->desc->n_steps : 3;
    for (int i = 0; i < n_steps; i++) {
        tti_step_desc desc;
        tti_step_result result;
        tti_span *spans;
        int n;
        TTI_TRY(next_step(p, &desc));
        TTI_TRY(tti_exec_profile(p->exec, &desc, &spans, &n, &result));
        bool better = !*best || end_of(spans, n) < end_of(*best, *n_best);
        free(better ? *best : spans);
        if (better) *best = spans, *n_best = n;
    }
    return TUTTI_OK;
}

static tutti_status measure(profiler *p, tti_str *out) {
    tti_span *spans = NULL;
    double ignored;
    tti_profiled told = {.max_rows = p->desc->max_rows > 0 ? p->desc->max_rows : 25};
    tutti_dtype dtype = tti_blueprint_target(p->b).compute_dtype;
    tutti_status st = run_plain(p, p->desc->n_warm > 0 ? p->desc->n_warm : 4, &ignored);
    if (st == TUTTI_OK) st = run_plain(p, 8, &told.trained_us);
    if (st == TUTTI_OK) st = run_timed(p, &spans, &told.n_spans);
    if (st == TUTTI_OK) st = tti_ceilings_measure(p->b->devices.backend, dtype, &told.ceilings);
    told.spans = spans;
    told.step_us = end_of(spans, told.n_spans);
    if (st == TUTTI_OK) st = tti_profile_table(&told, out);
    if (st == TUTTI_OK && p->desc->trace_path) {
        tti_str trace = {0};
        tti_profile_trace(&told, &trace);
        st = trace.failed ? tti_fail(TUTTI_E_NOMEM, "profile: out of memory")
                          : tti_atomic_file_save(p->desc->trace_path, trace.text, trace.n_bytes);
        tti_str_free(&trace);
    }
    free(spans);
    return st;
}

tutti_status tutti_profile(tutti_job *job, const tutti_profile_desc *desc, char **text) {
    static const tutti_profile_desc defaults;
    profiler p = {.desc = desc ? desc : &defaults};
    tti_devices devices;
    tti_str out = {0};
    *text = NULL;
    tutti_job_set(job, "parallel.workers=1", "profile");
    TTI_TRY(tti_devices_resolve(job, &devices));
    TTI_TRY(tti_job_resolve(job, 1));
    tutti_status st = tti_blueprint_create(job, &p.b);
    if (st == TUTTI_OK) st = tti_worker_exec_create(p.b, NULL, 0, 1, &p.exec);
    if (st == TUTTI_OK) st = open_loader(&p);
    if (st == TUTTI_OK) st = measure(&p, &out);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    if (p.loader) tti_feeding_unpin(p.loader, p.exec);
    tti_loader_destroy(p.loader);
    tti_exec_destroy(p.exec);
    tti_blueprint_destroy(p.b);
    free(p.shards);
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
    if (ops) TTI_TRY(ops->open(&(tti_device_desc){.index = devices.index[0], .tf32 = tf32}));
    tutti_status st = tti_ceilings_measure(devices.backend, target.compute_dtype, &ceilings);
    if (ops) ops->close();
    *flops = ceilings.flops, *bytes = ceilings.bytes;
    return st;
}
