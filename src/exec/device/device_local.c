/* device_local.c - averages parameters of several devices on the host.
 *
 * Arrays are copied to memory that other workers read and are added there in the order of any
 * all-reduce.  Only trainable parameters are copied back, because a mean of equal numbers need not
 * be that number. */
#include "exec/device/device_local.h"

#include <string.h>

#include "base/clock.h"
#include "exec/device/device_step.h"

tutti_status tti_device_local_begin(tti_exec *x) {
    tti_exec_device *d = x->device;
    memset(x->sums, 0, x->n_sums * sizeof *x->sums);
    if (d->has_own_sums) return TUTTI_OK;
    d->has_own_sums = true; /* earlier all-reduce steps left the sums of all workers */
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->sums, x->sums,
                                (size_t)x->desc.n_shards * TTI_SUMS * sizeof *d->sums));
    return d->ops->queues.sync();
}

tutti_status tti_device_local_add_parts(tti_exec *x) {
    tti_exec_device *d = x->device;
    double no_votes = 0;
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* which ends with a lost stage */
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_host_staged_bring_sums(d->host_staged, d->sums));
    int64_t start = tti_now_ns();
    TTI_TRY(tti_divided_sums(x->divided, x->sums, (size_t)x->desc.n_shards * TTI_SUMS, &no_votes));
    tti_exec_waited(x, tti_now_ns() - start);
    return tti_device_host_staged_put_sums(d->host_staged, d->sums);
}

/* ---- means ---- */

/* The next range without gaps that is not frozen, from block *at on; false: there is none. */
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
static tutti_status copy_ranges(tti_exec *x, float *array, float *on_host, bool back) {
    const tti_device_ops *ops = x->device->ops;
    tti_range r;
    for (int at = 0; next_range(x->desc.plan, &at, &r);)
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, (back ? array : on_host) + r.first,
                                 (back ? on_host : array) + r.first,
                                 (r.last - r.first) * sizeof *array));
    return ops->queues.sync();
}

static tutti_status average(tti_exec *x, float *array) {
    float *sum = tti_device_host_staged_sum(x->device->host_staged), share = 1 / (float)x->n_ranks;
    size_t n = x->desc.plan->n_flat;
    TTI_TRY(copy_ranges(x, array, sum, false));
    x->sent_bytes += tti_exec_reduce_bytes(x, n * sizeof *sum);
    TTI_TRY(tutti_comm_all_reduce(x->desc.comm, sum, sum, n, TUTTI_F32, TUTTI_SUM, x->desc.alg));
    for (size_t i = 0; i < n; i++) sum[i] *= share;
    return copy_ranges(x, array, sum, true);
}

static tutti_status average_all(tti_exec *x, const tti_step_desc *desc) {
    TTI_TRY(average(x, x->params));
    for (int k = 0; desc->average_state && k < x->desc.plan->n_states; k++)
        TTI_TRY(average(x, x->states[k]));
    return desc->average_state && x->ema ? average(x, x->ema) : TUTTI_OK;
}

/* ---- the rest of a step ---- */

static tutti_status meet(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    int64_t start = tti_now_ns();
    tti_exec_note(x, desc, "average");
    TTI_TRY(average_all(x, desc));
    tti_exec_waited(x, tti_now_ns() - start);
    TTI_TRY(tti_device_update_hash(x->device->update, &x->last_hash));
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    TTI_TRY(tti_exec_compare_hashes(x, desc->step));
    result->loss_sum = result->count = result->correct = 0;
    tti_exec_add_sums(x, result);
    x->device->last_end_ns = tti_now_ns();
    result->comm_ns = x->device->last_end_ns - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("mean of parameters"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    result->partial = !desc->average;
    if (desc->n_rows == 0) /* nothing was updated or hashed */
        TTI_TRY(tti_device_update_hash(x->device->update, &x->last_hash));
    if (desc->average) TTI_TRY(meet(x, desc, result));
    result->own_hash = result->params_hash = x->last_hash;
    result->sent_bytes = x->sent_bytes;
    return tti_divided_hash(x->divided, &result->params_hash);
}
