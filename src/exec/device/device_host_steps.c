/* device_host_steps.c - steps of a device that end on the host: local SGD, whose parameters are
 * averaged there, and those with a parameter server.
 *
 * Arrays are copied to memory that other workers read, and are added there in the order of an
 * all-reduce.  Only trainable parameters are copied back, because the rounded mean of equal numbers
 * may differ from that number.  The server reads every worker's partial sums in the worker's
 * memory, in the same process; they are copied to the host first, and the server's parameters are
 * copied back. */
#include "exec/device/device_step.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

tutti_status tti_device_local_begin(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    const double *sums = tti_exec_clear_sums(x);
    if (d->has_own_sums) return TUTTI_OK;
    d->has_own_sums = true; /* earlier steps with an all-reduce left the sums of all workers */
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->sums, sums,
                                tti_n_shard_sums(tti_setup_of(x)) * sizeof *d->sums));
    return d->ops->queues.sync();
}

tutti_status tti_device_local_add_parts(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    double no_votes = 0;
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* fails if a stage is lost */
    if (d->pipe) TTI_TRY(tti_device_pipe_reduce_tied_grads(d->pipe));
    TTI_TRY(tti_device_host_staged_copy_sums(d->host_staged, d->sums));
    int64_t start = tti_now_ns();
    TTI_TRY(tti_divided_sums(setup->divided, tti_exec_sums(x), tti_n_shard_sums(setup), &no_votes));
    tti_exec_waited(x, tti_now_ns() - start);
    return tti_device_host_staged_put_sums(d->host_staged, d->sums);
}

/* ---- means ---- */

/* The next contiguous range of blocks that are not frozen, from block *at on; false: there is
 * none. */
static bool next_range(const tti_plan *plan, int *at, tti_range *range) {
    const tti_update_step *u = plan->updates;
    int i = *at;
    while (i < plan->n_updates && !u[i].node) i++;
    if (i == plan->n_updates) return false;
    *range = (tti_range){u[i].first, u[i].first};
    for (; i < plan->n_updates && u[i].node && u[i].first == range->last; i++)
        range->last += u[i].n_elems;
    *at = i;
    return true;
}

/* Copies these ranges of an array to the host, or back. */
static tutti_status copy_ranges(const tti_setup *setup, tti_exec_device *device, float *array,
                                float *on_host, bool back) {
    const tti_device_ops *ops = device->ops;
    tti_range r;
    for (int at = 0; next_range(setup->desc.plan, &at, &r);)
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, (back ? array : on_host) + r.first,
                                 (back ? on_host : array) + r.first,
                                 (r.last - r.first) * sizeof *array));
    return ops->queues.sync();
}

static tutti_status average(tti_exec *x, float *array) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    float *sum = tti_device_host_staged_sum(device->host_staged), share = 1 / (float)setup->n_ranks;
    size_t n = setup->desc.plan->n_flat;
    TTI_TRY(copy_ranges(setup, device, array, sum, false));
    tti_exec_count_sent(x, tti_exec_reduce_bytes(setup, n * sizeof *sum));
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, sum, sum, n, TUTTI_F32, TUTTI_SUM,
                                  setup->desc.alg));
    for (size_t i = 0; i < n; i++) sum[i] *= share;
    return copy_ranges(setup, device, array, sum, true);
}

/* ---- the rest of a step ---- */

tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    result->partial = !desc->average;
    if (desc->n_rows == 0) /* the update did not run, so nothing was hashed */
        TTI_TRY(tti_device_update_hash(tti_device_of(x)->update, &tally->last_hash));
    if (desc->average) {
        tti_exec_device *device = tti_device_of(x);
        int64_t start = tti_now_ns();
        tti_exec_note(tti_setup_of(x), desc, "average");
        TTI_TRY(average(x, tti_exec_array(x, TTI_STATE_PARAMS)));
        for (int k = 0; desc->average_state && k < tti_setup_of(x)->desc.plan->n_states; k++)
            TTI_TRY(average(x, tti_exec_array(x, k)));
        TTI_TRY(desc->average_state && tti_exec_array(x, TTI_STATE_EMA)
                    ? average(x, tti_exec_array(x, TTI_STATE_EMA))
                    : TUTTI_OK);
        tti_exec_waited(x, tti_now_ns() - start);
        TTI_TRY(tti_device_update_hash(device->update, &tally->last_hash));
        TTI_TRY(tti_exec_reduce_sums(x, desc->vote, NULL));
        TTI_TRY(tti_exec_compare_hashes(x, desc->step));
        tti_exec_set_sums(x, result);
        device->last_end_ns = tti_now_ns();
        result->comm_ns = device->last_end_ns - start;
        tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_AVERAGE), -1, start, tti_now_ns());
    }
    result->own_hash = result->params_hash = tally->last_hash;
    result->sent_bytes = tti_exec_sent_bytes(x);
    return tti_divided_hash(tti_setup_of(x)->divided, &result->params_hash);
}

/* ---- a parameter server ---- */

struct tti_device_server {
    tti_exec *x;
    const tti_device_ops *ops;
    float *partials[TTI_MAX_PARTIALS]; /* [tti_exec_n_partials] */
    float *params;
};

static size_t flat_bytes(const tti_device_server *s) {
    return tti_setup_of(s->x)->desc.plan->n_flat * sizeof(float);
}

static tutti_status alloc_pinned(const tti_device_server *s, float **out) {
    *out = s->ops->memory.alloc_host(flat_bytes(s) + 64);
    return *out ? TUTTI_OK
                : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of pinned memory",
                           flat_bytes(s));
}

tutti_status tti_device_server_create(tti_exec *x, tti_device_server **out) {
    tti_device_server *s = *out = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *s = (tti_device_server){.x = x, .ops = tti_setup_of(x)->desc.backend->device};
    for (int i = 0; i < tti_exec_n_partials(tti_setup_of(s->x)); i++)
        TTI_TRY(alloc_pinned(s, &s->partials[i]));
    return alloc_pinned(s, &s->params);
}

void tti_device_server_destroy(tti_device_server *s) {
    if (!s) return;
    for (int i = 0; i < TTI_MAX_PARTIALS; i++) s->ops->memory.release_host(s->partials[i]);
    s->ops->memory.release_host(s->params);
    free(s);
}

float *tti_exec_partial(const tti_exec *x, int partial) {
    tti_exec_device *device = tti_device_of(x);
    if (device) return device->server->partials[partial];
    return tti_exec_buffer(x, tti_setup_of(x)->acc.partial_buffer[partial]);
}

float *tti_exec_device_pulled(const tti_exec_device *device) { return device->server->params; }

/* ---- a step ---- */

tutti_status tti_device_server_bring(tti_device_server *s) {
    const tti_exec *x = s->x;
    const tti_setup *setup = tti_setup_of(x);
    for (int i = 0; i < tti_exec_n_partials(setup); i++)
        TTI_TRY(s->ops->queues.copy(TTI_QUEUE_COMPUTE, s->partials[i],
                                    tti_exec_buffer(x, setup->acc.partial_buffer[i]),
                                    flat_bytes(s)));
    return tti_profile_upto(s->x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_GRADS, "gradients to the host"), -1);
}

/* The gradient is on the host.  Adds the sums of the shards and returns the total. */
static tutti_status end_gradient(tti_exec *x, const tti_device_set **set, tti_step_result *result) {
    tti_pipe *pipe = tti_pipe_of(x);
    *result = (tti_step_result){0};
    TTI_TRY(tti_device_await(x, set));
    tti_device_note_done(x, *set, result);
    tti_exec_clear_sums(x);
    TTI_TRY(tti_device_read_sums(x, *set));
    TTI_TRY(tti_exec_reduce_sums(x, (*set)->desc.vote, NULL));
    TTI_TRY(tti_exec_compare_hashes(x, (*set)->desc.step));
    tti_exec_set_sums(x, result);
    if (pipe) TTI_TRY(tti_device_pipe_measure(tti_device_of(x)->pipe));
    result->bubble = pipe ? pipe->measured : 0;
    int bad = tti_exec_first_bad_shard(x);
    if (bad < 0) return TUTTI_OK;
    result->skipped = true;
    return tti_exec_bad_loss(x, (*set)->desc.step, bad, "");
}

tutti_status tti_device_server_end(tti_exec *x, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    const tti_device_set *set;
    TTI_TRY(end_gradient(x, &set, result));
    int64_t computed = tti_now_ns();
    tti_exec_note(setup, &set->desc, "update");
    const tti_server_calls *server = tti_calls_of(setup->desc.server);
    TTI_TRY(server->push(x, &set->desc, result->count > 0 ? 1.0 / result->count : 0, result));
    TTI_TRY(server->pull(x));
    tti_exec_report_hash(x, result);
    device->last_end_ns = tti_now_ns();
    result->comm_ns = device->last_end_ns - computed;
    tti_exec_waited(x, result->comm_ns);
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
