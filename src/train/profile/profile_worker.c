/* profile_worker.c - runs and times the steps of one worker as training does.
 *
 * Synchronous workers begin and end steps, with as many in flight as possible.  Workers of an
 * asynchronous parameter server take batches and push gradients, in stretches that end with a
 * synchronization.  A faster worker takes more batches. */
#include "train/profile/profile_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/loader/loader.h"
#include "train/loop/averaging.h"
#include "train/setup/feeding.h"
#include "train/setup/worker_exec.h"

enum { N_PLAIN = 8 };

typedef struct worker {
    const tti_profile_worker_desc *desc;
    const tti_blueprint *b; /* blueprint for the place of this worker */
    tti_mesh mesh;
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data *shards;
    bool is_async;
    int64_t n_begun; /* number of steps begun; for asynchronous workers, batches of all workers */
    int64_t wait_ns;
    double bubble; /* sum over the steps since it was set to 0 */
} worker;

/* ---- from begin to end ---- */

static tutti_status open_exec(worker *w) {
    const tti_profile_worker_desc *d = w->desc;
    bool divided = d->b->n_model_ranks > 0;
    bool has_server = tti_job_has_server(&w->b->config);
    w->is_async = d->server && tti_server_is_async(d->server);
    if (divided) TTI_TRY(tti_mesh_init(d->comm, &d->b->mesh, &w->mesh));
    const tti_worker_desc desc = {.comm = w->is_async ? NULL : d->comm,
                                  .mesh = divided ? &w->mesh : NULL,
                                  .rank = d->rank,
                                  .local_rank = d->rank,
                                  .device_place = d->rank,
                                  .local_n_ranks = d->b->n_workers,
                                  .serves_in_ranks = !d->server && has_server,
                                  .server = d->server,
                                  .shared_params = d->shared_params};
    return tti_worker_exec_create(w->b, &desc, &w->exec);
}

static tutti_status open_loader(worker *w) {
    const tti_job_config *c = &w->b->config;
    tti_loader_desc desc = {.dataset = w->b->train,
                            .batch = c->train.batch,
                            .n_shards = w->b->n_shards,
                            .first_shard = tti_exec_first_shard(w->exec),
                            .last_shard = tti_exec_last_shard(w->exec),
                            .seed = (uint64_t)c->train.seed,
                            .mixup = c->data.mixup,
                            .n_threads = w->is_async ? 0 : (int)c->data.threads,
                            .n_prefetch = (int)c->data.prefetch};
    TTI_TRY(tti_feeding_open(&desc, w->exec, &w->loader));
    tti_feeding_pin(w->loader,
                    w->exec); /* pins memory, so that copies are as fast as in training */
    w->shards = calloc((size_t)w->b->n_shards, sizeof *w->shards);
    return w->shards ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
}

/* Loads the next batch into a step. */
static tutti_status load(worker *w, tti_batch *batch, tti_step_desc *step) {
    int64_t start = tti_now_ns();
    TTI_TRY(tti_loader_next(w->loader, batch));
    int64_t end = tti_now_ns();
    w->wait_ns += end - start;
    tti_exec_profile_wait(w->exec, tti_span_of(TTI_SPAN_WAIT, "waiting for samples"), start, end);
    int first = tti_exec_first_shard(w->exec);
    for (int i = 0; i < batch->n_shards; i++) w->shards[i] = tti_shard_of(batch, i, first);
    *step = (tti_step_desc){.lr = w->b->config.optimizer.lr * 1e-3, /* parameters hardly change */
                            .shards = w->shards,
                            .shard_size = w->b->rows_per_shard,
                            .n_rows = batch->n_rows_global};
    tti_feeding_describe(w->loader, step);
    return TUTTI_OK;
}

/* Returns the time per step of several steps. */
typedef struct throughput {
    double us, wait_us;
} throughput;

/* ---- synchronous workers ---- */

static tutti_status begin_step(worker *w) {
    tti_batch batch;
    tti_step_desc desc;
    TTI_TRY(load(w, &batch, &desc));
    desc.step = (uint64_t)w->n_begun++;
    desc.average = tti_averaging_is_due(w->b, w->n_begun, &desc.average_state);
    return tti_exec_begin(w->exec, &desc);
}

/* Runs synchronous steps. out->us: from the end of the first step to the end of the last. */
static tutti_status run_in_step(worker *w, int n_steps, throughput *out) {
    int depth = tti_exec_depth(w->exec), n_begun = 0;
    int64_t first_ns = 0;
    for (int n_ended = 0; n_ended < n_steps; n_ended++) {
        tti_step_result result;
        for (; n_begun < n_steps && n_begun - n_ended < depth; n_begun++) TTI_TRY(begin_step(w));
        TTI_TRY(tti_exec_end(w->exec, &result));
        w->bubble += result.bubble;
        if (n_ended == 0) first_ns = tti_now_ns(), w->wait_ns = 0;
    }
    if (n_steps < 2) return TUTTI_OK;
    out->us = (double)(tti_now_ns() - first_ns) * 1e-3 / (n_steps - 1);
    out->wait_us = (double)w->wait_ns * 1e-3 / (n_steps - 1);
    return TUTTI_OK;
}

/* ---- asynchronous workers ---- */

static double rate(void *user, int64_t step) {
    const worker *w = user;
    (void)step;
    return w->b->config.optimizer.lr * 1e-3;
}

static tutti_status give(worker *w, const tti_lease *lease) {
    tti_batch batch;
    tti_step_desc desc;
    tti_arrival arrival;
    tti_loader_seek(w->loader, lease->batch / w->b->steps_per_epoch,
                    lease->batch % w->b->steps_per_epoch);
    TTI_TRY(load(w, &batch, &desc));
    desc.step = (uint64_t)lease->batch;
    desc.loss_scale = 1;
    const tti_pushed_gradient pushed = {&desc, batch.wait_ns, rate, w};
    return tti_server_push_gradient(w->exec, &pushed, &arrival);
}

static tutti_status synchronize(const worker *w) {
    return w->desc->comm ? tutti_comm_barrier(w->desc->comm) : TUTTI_OK;
}

/* Runs n_steps batches per worker; with backup workers all workers share each batch. out->us: time
 * of the batches that this worker processed. */
static tutti_status run_as_they_come(worker *w, int n_steps, throughput *out) {
    tti_server *server = w->desc->server;
    bool by_all = w->b->config.parallel.backup_workers > 0;
    int64_t first = w->n_begun, n = by_all ? n_steps : (int64_t)n_steps * w->b->n_workers, made = 0;
    w->n_begun += n;
    w->wait_ns = 0;
    tti_server_rate(server, rate, w);
    TTI_TRY(synchronize(
        w)); /* after this the server has the initial parameters and the learning rate */
    TTI_TRY(tti_server_open(server, first, first + n));
    int64_t start_ns = tti_now_ns();
    for (;; made++) {
        tti_lease lease;
        TTI_TRY(tti_server_lease(w->exec, &lease));
        if (!lease.any) break;
        TTI_TRY(give(w, &lease));
    }
    out->us = (double)(tti_now_ns() - start_ns) * 1e-3 / (double)TTI_MAX(made, 1);
    out->wait_us = (double)w->wait_ns * 1e-3 / (double)TTI_MAX(made, 1);
    return synchronize(w);
}

/* ---- a profile ---- */

static tutti_status run_steps(worker *w, int n_steps, throughput *out) {
    return w->is_async ? run_as_they_come(w, n_steps, out) : run_in_step(w, n_steps, out);
}

static tutti_status time_steps(worker *w, tti_worker_spans *spans) {
    tti_timeline timeline = {0};
    throughput unused;
    w->bubble = 0;
    int most = w->desc->n_steps * (w->is_async ? w->b->n_workers : 1);
    TTI_TRY(tti_exec_profile_begin(w->exec, most));
    tutti_status st = run_steps(w, w->desc->n_steps, &unused);
    tutti_status ended = tti_exec_profile_end(w->exec, &timeline);
    if (st == TUTTI_OK) st = ended;
    if (st == TUTTI_OK) st = tti_spans_make(&timeline, spans);
    spans->head.bubble = w->bubble / w->desc->n_steps;
    free(timeline.spans);
    return st;
}

static tutti_status measure(worker *w, tti_worker_spans *spans, tti_ceilings *ceilings) {
    throughput plain = {0};
    TTI_TRY(run_steps(w, w->desc->n_warm, &plain));
    TTI_TRY(run_steps(w, N_PLAIN, &plain));
    TTI_TRY(time_steps(w, spans));
    spans->head.trained_us = plain.us;
    spans->head.wait_us = plain.wait_us;
    spans->head.expected_bubble = tti_exec_expected_bubble(w->exec);
    TTI_TRY(synchronize(w)); /* other workers may still read this worker's memory */
    if (w->desc->rank != 0) return TUTTI_OK;
    return tti_ceilings_measure(w->b->devices.backend, tti_blueprint_target(w->b).compute_dtype,
                                ceilings);
}

tutti_status tti_profile_worker_run(const tti_profile_worker_desc *desc, tti_worker_spans *spans,
                                    tti_ceilings *ceilings) {
    worker w = {.desc = desc, .b = tti_blueprint_of(desc->b, desc->rank)};
    tutti_status st = open_exec(&w);
    if (st == TUTTI_OK) st = open_loader(&w);
    if (st == TUTTI_OK) st = measure(&w, spans, ceilings);
    if (w.loader && w.exec) tti_feeding_unpin(w.loader, w.exec);
    tti_loader_destroy(w.loader);
    tti_exec_destroy(w.exec);
    tti_mesh_fini(&w.mesh);
    free(w.shards);
    return st;
}
