/* session_worker.c - opens and closes one worker of a session, on its own thread. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/fields.h"
#include "session/session_state.h"
#include "train/loop/worker_threads.h"
#include "train/setup/pretrained.h"
#include "train/setup/worker_exec.h"

static size_t round_up(size_t n_bytes) { return (n_bytes + 63) & ~(size_t)63; }

static tutti_status connect_workers(tti_session_worker *w) {
    tutti_session *s = w->session;
    w->comm = s->comm;
    if (s->comm) return TUTTI_OK;
    return tti_worker_threads_join(s->group, w->rank, s->n_workers, &s->b->config, &w->comm);
}

static tutti_status create_exec(tti_session_worker *w) {
    tutti_session *s = w->session;
    bool divided = w->b->n_model_ranks > 0;
    if (divided) TTI_TRY(tti_mesh_init(w->comm, &w->b->mesh, &w->mesh));
    w->server = s->server.server;
    const tti_worker_desc desc = {
        .comm = w->comm,
        .mesh = divided ? &w->mesh : NULL,
        .rank = w->rank,
        .local_rank = w->local_rank,
        .device_place = w->local_rank,
        .local_n_ranks = s->comm ? s->core_n_ranks : s->n_workers,
        .serves_in_ranks = !w->server && tti_job_has_server(&w->b->config),
        .server = w->server,
        .shared_params = s->shared_params};
    return tti_worker_exec_create(w->b, &desc, &w->exec);
}

/* Bytes of a shard's samples: the inputs, and the seeds of the caller's loss. */
static size_t shard_bytes(const tti_session_worker *w) {
    const tutti_session *s = w->session;
    const tutti_dataset_info *info = tutti_dataset_get_info(w->b->train);
    int64_t rows = w->b->rows_per_shard;
    const tutti_field x = {"x", info->x};
    size_t n_bytes = info->n_fields > 0 ? tti_field_offset(info->fields, info->n_fields, rows)
                                        : tti_field_offset(&x, 1, rows);
    if (s->loss) n_bytes = s->count_seed + round_up((size_t)rows * sizeof(float));
    return n_bytes;
}

static size_t target_bytes(const tti_session_worker *w) {
    const tutti_dataset_info *info = tutti_dataset_get_info(w->b->train);
    int64_t n = info->n_fields > 0 ? 1 : tutti_shape_n_elems(&info->y.shape);
    return round_up((size_t)(n * w->b->rows_per_shard) * sizeof(int32_t));
}

static tutti_status alloc_memory(tti_session_worker *w) {
    const tutti_session *s = w->session;
    w->n_shards = tti_exec_last_shard(w->exec) - tti_exec_first_shard(w->exec);
    size_t n = (size_t)w->n_shards;
    w->shard_rows = w->b->rows_per_shard;
    w->samples_bytes = shard_bytes(w);
    w->targets_bytes = target_bytes(w);
    w->shards = calloc(n + 1, sizeof *w->shards);
    w->samples = aligned_alloc(64, n * w->samples_bytes + 64);
    w->targets = aligned_alloc(64, n * w->targets_bytes + 64);
    w->outputs = aligned_alloc(64, round_up(n * s->outputs_bytes) + 64);
    if (!w->shards || !w->samples || !w->targets || !w->outputs)
        return tti_fail(TUTTI_E_NOMEM, "session: out of memory for a batch");
    memset(w->samples, 0, n * w->samples_bytes + 64);
    tti_exec_pin(w->exec, w->samples, n * w->samples_bytes);
    return TUTTI_OK;
}

tutti_status tti_session_worker_open(tti_session_worker *w, void *arg) {
    static const tutti_train_desc no_events;
    (void)arg;
    TTI_TRY(connect_workers(w));
    TTI_TRY(create_exec(w));
    w->loop = (tti_worker_loop_desc){.blueprint = w->b,
                                     .train = &no_events,
                                     .comm = w->comm,
                                     .progress = w->comm,
                                     .server = w->server,
                                     .rank = w->rank};
    tti_phases_init(&w->phases, &w->loop);
    TTI_TRY(alloc_memory(w));
    return tti_first_weights_load(w->b, w->exec);
}

tutti_status tti_session_worker_close(tti_session_worker *w, void *arg) {
    (void)arg;
    if (w->loader && w->exec) tti_feeding_unpin(w->loader, w->exec);
    if (w->samples && w->exec) tti_exec_unpin(w->exec, w->samples);
    tti_device_tensors_release(w);
    tti_loader_destroy(w->loader);
    tti_exec_destroy(w->exec);
    tti_mesh_fini(&w->mesh);
    if (w->comm != w->session->comm) tutti_comm_destroy(w->comm);
    free(w->shards);
    free(w->samples);
    free(w->targets);
    free(w->outputs);
    w->loader = NULL;
    w->exec = NULL;
    w->comm = NULL;
    w->shards = NULL;
    w->samples = w->targets = w->outputs = NULL;
    return TUTTI_OK;
}
