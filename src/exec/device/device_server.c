/* device_server.c - sends gradients from a device to the parameter server, and parameters back.
 *
 * The server reads every worker's partial sums in the worker's memory, in the same process.  For a
 * device they are copied to the host first, and the server's parameters are copied back.  Each copy
 * is one long one. */
#include "exec/device/device_server.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/device/device_step.h"

struct tti_device_server {
    tti_exec *x;
    const tti_device_ops *ops;
    float *pieces[TTI_MAX_PARTIALS]; /* [tti_exec_n_partials] */
    float *params;
};

static size_t flat_bytes(const tti_device_server *s) {
    return tti_setup_of(s->x)->desc.plan->n_flat * sizeof(float);
}

static tutti_status take(const tti_device_server *s, float **out) {
    *out = s->ops->memory.alloc_host(flat_bytes(s) + 64);
    return *out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu pinned bytes", flat_bytes(s));
}

static tutti_status take_all(tti_device_server *s) {
    for (int i = 0; i < tti_exec_n_partials(tti_setup_of(s->x)); i++)
        TTI_TRY(take(s, &s->pieces[i]));
    return take(s, &s->params);
}

tutti_status tti_device_server_create(tti_exec *x, tti_device_server **out) {
    *out = NULL;
    tti_device_server *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *s = (tti_device_server){.x = x, .ops = tti_setup_of(x)->desc.backend->device};
    tutti_status st = take_all(s);
    if (st == TUTTI_OK)
        *out = s;
    else
        tti_device_server_destroy(s);
    return st;
}

void tti_device_server_destroy(tti_device_server *s) {
    if (!s) return;
    for (int i = 0; i < TTI_MAX_PARTIALS; i++) s->ops->memory.release_host(s->pieces[i]);
    s->ops->memory.release_host(s->params);
    free(s);
}

float *tti_exec_partial(const tti_exec *x, int piece) {
    tti_exec_device *device = tti_device_of(x);
    if (device) return device->server->pieces[piece];
    return tti_arrays_of(x)->buffers[tti_setup_of(x)->acc.piece_buffer[piece]];
}

float *tti_exec_device_pulled(const tti_exec_device *device) { return device->server->params; }

/* ---- a step ---- */

tutti_status tti_device_server_bring(tti_device_server *s) {
    const tti_exec *x = s->x;
    const tti_setup *setup = tti_setup_of(x);
    for (int i = 0; i < tti_exec_n_partials(setup); i++)
        TTI_TRY(s->ops->queues.copy(TTI_QUEUE_COMPUTE, s->pieces[i],
                                    tti_arrays_of(x)->buffers[setup->acc.piece_buffer[i]],
                                    flat_bytes(s)));
    return tti_profile_upto(s->x, TTI_ROW_COMPUTE, tti_part_grads("gradients to the host"), -1);
}

/* The gradient is on the host: adds the sums of the shards, and returns the total. */
static tutti_status end_gradient(tti_exec *x, const tti_device_set **set, tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    tti_pipe *pipe = tti_pipe_of(x);
    *result = (tti_step_result){0};
    TTI_TRY(tti_device_await(x, set));
    tti_device_note_done(x, *set, result);
    memset(tally->sums, 0, tally->n_sums * sizeof *tally->sums);
    TTI_TRY(tti_device_take_sums(x, *set));
    TTI_TRY(tti_exec_exchange_sums(x, (*set)->desc.vote));
    TTI_TRY(tti_exec_compare_hashes(x, (*set)->desc.step));
    tti_exec_add_sums(x, result);
    if (pipe) TTI_TRY(tti_device_pipe_measure(tti_device_of(x)->pipe));
    result->bubble = pipe ? tti_pipe_bubble_measured(pipe) : 0;
    int bad = tti_exec_first_bad_shard(x);
    if (bad < 0) return TUTTI_OK;
    result->skipped = true;
    return tti_exec_bad_loss(x, (*set)->desc.step, bad, "");
}

tutti_status tti_device_server_end(tti_exec *x, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *device = tti_device_of(x);
    const tti_device_set *set;
    TTI_TRY(end_gradient(x, &set, result));
    int64_t computed = tti_now_ns();
    tti_exec_note(setup, &set->desc, "update");
    const tti_server_calls *server = tti_calls_of(setup->desc.server);
    TTI_TRY(server->push(x, &set->desc, result->count > 0 ? 1.0 / result->count : 0, result));
    TTI_TRY(server->pull(x));
    tally->has_hash = true;
    result->params_hash = result->own_hash = tally->last_hash;
    device->last_end_ns = tti_now_ns();
    result->comm_ns = device->last_end_ns - computed;
    tti_exec_waited(tally, result->comm_ns);
    return TUTTI_OK;
}

tutti_status tti_device_server_gradient(tti_exec *x, tti_step_result *result) {
    const tti_device_set *set;
    return end_gradient(x, &set, result);
}

tutti_status tti_device_server_put(const tti_device_server *s, float *array, const float *from) {
    TTI_TRY(s->ops->queues.copy(TTI_QUEUE_COMPUTE, array, from, flat_bytes(s)));
    return s->ops->queues.sync();
}
