/* device_eval.c - evaluates a batch on a device.
 *
 * Kernels are launched one by one, unless tensor shards communicate between devices: a kernel that
 * waits for a peer must not run while another one is being loaded, so the first batch waits for
 * each collective, and the others use a captured graph. */
#include <string.h>

#include "exec/device/device_step.h"

static tutti_status eval_shards(tti_exec *x, const tti_device_set *set, bool beside) {
    tti_device_exchange_begin(x->exchange, beside);
    TTI_TRY(tti_device_put_begin(x, set));
    return tti_device_eval_shards(x, set);
}

static tutti_status record_eval(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    TTI_TRY(d->ops->queues.record_begin());
    return tti_device_end_capture(x, eval_shards(x, set, true), &d->eval_captured_graph);
}

/* Exchanges in it make a captured graph of it, from the second batch on, as of a step. */
static tutti_status run_eval(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    if (d->pipe) {
        TTI_TRY(eval_shards(x, set, tti_device_pipe_is_loaded(d->pipe, true)));
        return tti_device_pipe_rest(d->pipe);
    }
    if (!d->axis || !d->has_evaluated || x->profile) {
        d->has_evaluated = true;
        return eval_shards(x, set, false);
    }
    if (!d->eval_captured_graph) TTI_TRY(record_eval(x, set));
    TTI_TRY(tti_device_axis_meet(d->axis));
    TTI_TRY(d->ops->queues.replay(d->eval_captured_graph));
    TTI_TRY(d->ops->queues.mark(TTI_QUEUE_COMPUTE, TTI_MARK_EXCHANGE));
    return tti_device_exchange_await(x->exchange, TTI_MARK_EXCHANGE);
}

static tutti_status eval_batch(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_device *d = x->device;
    tti_device_set *set = &d->sets[0]; /* all are at rest */
    size_t first = (size_t)x->first_shard * TTI_SUMS;
    TTI_ASSERT(d->n_begun == d->n_ended);
    set->desc = *desc;
    TTI_TRY(tti_device_feed(x, set, desc));
    TTI_TRY(tti_exec_device_settle(x));
    TTI_TRY(run_eval(x, set));
    memset(x->sums, 0, x->n_sums * sizeof *x->sums);
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, x->sums + first, d->sums + first,
                                (size_t)tti_device_n_local(x) * TTI_SUMS * sizeof(double)));
    /* Parameters of other workers may have arrived meanwhile. */
    TTI_TRY(d->sharded ? tti_device_sharded_rest(d->sharded) : d->ops->queues.sync());
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}

tutti_status tti_exec_device_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    return tti_exec_device_tell(x, eval_batch(x, desc, result));
}
