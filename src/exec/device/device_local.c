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
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *d = tti_device_of(x);
    memset(tally->sums, 0, tally->n_sums * sizeof *tally->sums);
    if (d->has_own_sums) return TUTTI_OK;
    d->has_own_sums = true; /* earlier all-reduce steps left the sums of all workers */
    TTI_TRY(
        d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->sums, tally->sums,
                            (size_t)tti_setup_of(x)->desc.n_shards * TTI_SUMS * sizeof *d->sums));
    return d->ops->queues.sync();
}

tutti_status tti_device_local_add_parts(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *d = tti_device_of(x);
    double no_votes = 0;
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* which ends with a lost stage */
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_host_staged_bring_sums(d->host_staged, d->sums));
    int64_t start = tti_now_ns();
    TTI_TRY(tti_divided_sums(setup->divided, tally->sums, (size_t)setup->desc.n_shards * TTI_SUMS,
                             &no_votes));
    tti_exec_waited(tally, tti_now_ns() - start);
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
    tti_tally_of(x)->sent_bytes += tti_exec_reduce_bytes(setup, n * sizeof *sum);
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, sum, sum, n, TUTTI_F32, TUTTI_SUM,
                                  setup->desc.alg));
    for (size_t i = 0; i < n; i++) sum[i] *= share;
    return copy_ranges(setup, device, array, sum, true);
}

static tutti_status average_all(tti_exec *x, const tti_step_desc *desc) {
    tti_arrays *arrays = tti_arrays_of(x);
    TTI_TRY(average(x, arrays->params));
    for (int k = 0; desc->average_state && k < tti_setup_of(x)->desc.plan->n_states; k++)
        TTI_TRY(average(x, arrays->states[k]));
    return desc->average_state && arrays->ema ? average(x, arrays->ema) : TUTTI_OK;
}

/* ---- the rest of a step ---- */

static tutti_status meet(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *device = tti_device_of(x);
    int64_t start = tti_now_ns();
    tti_exec_note(tti_setup_of(x), desc, "average");
    TTI_TRY(average_all(x, desc));
    tti_exec_waited(tally, tti_now_ns() - start);
    TTI_TRY(tti_device_update_hash(device->update, &tally->last_hash));
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    TTI_TRY(tti_exec_compare_hashes(x, desc->step));
    result->loss_sum = result->count = result->correct = 0;
    tti_exec_add_sums(x, result);
    device->last_end_ns = tti_now_ns();
    result->comm_ns = device->last_end_ns - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("mean of parameters"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    result->partial = !desc->average;
    if (desc->n_rows == 0) /* nothing was updated or hashed */
        TTI_TRY(tti_device_update_hash(tti_device_of(x)->update, &tally->last_hash));
    if (desc->average) TTI_TRY(meet(x, desc, result));
    result->own_hash = result->params_hash = tally->last_hash;
    result->sent_bytes = tally->sent_bytes;
    return tti_divided_hash(tti_setup_of(x)->divided, &result->params_hash);
}
