/* device_queue.c - puts the kernels of a whole step into the queues of the device, for a captured
 * graph or at once. */
#include "exec/device/device_step.h"

static tutti_status put_begin(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    tti_gather g = d->resident.gather;
    g.args_from = set->args_host, g.index = set->index;
    if (set->gathers) return d->ops->step.gather(&g, d->fixed, d->runs);
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->args, set->args, sizeof *d->args));
    return d->ops->step.begin(d->args, d->fixed, d->runs, tti_device_n_local(x));
}

tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set) {
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    TTI_TRY(put_begin(x, set));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("begin"), -1);
}

/* Or all gradients for the host, which makes the update. */
static tutti_status update(tti_exec *x) {
    tti_exec_device *d = x->device;
    tti_queue sums = d->reduce ? TTI_QUEUE_COMM : TTI_QUEUE_COMPUTE;
    if (!x->offload) {
        TTI_TRY(tti_device_update_run(d->update));
        bool sums_too = tti_device_update_sums(d->update);
        tti_part made = sums_too ? tti_part_sums("sums and update") : tti_part_work("update");
        return tti_profile_upto(x, TTI_ROW_COMPUTE, made, -1);
    }
    TTI_TRY(tti_offload_bring(x->offload, x->desc.plan->n_buckets, sums));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for gradients at the host"),
                            -1);
}

tutti_status tti_device_update_and_tell(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    TTI_TRY(update(x));
    TTI_TRY(d->ops->step.report(d->report, d->sums, d->n_told, set->told));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("report to the host"), -1);
}

/* The initial values of the step's sums, if no other workers have other samples. */
static tutti_status tell_own(tti_exec *x) {
    tti_exec_device *d = x->device;
    return d->ops->collectives.report_sums(&(tti_device_told){.sums = d->sums,
                                                              .args = d->args,
                                                              .report = d->report,
                                                              .n_shards = x->desc.n_shards,
                                                              .last_shard = x->desc.n_shards,
                                                              .n_ranks = 1});
}

/* Hashes parameters that no other worker has, before they are updated again. */
static tutti_status reread(tti_exec *x) {
    TTI_TRY(tti_device_update_complete(x->device->update, 0, x->desc.plan->n_updates));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("hash of own parameters"), -1);
}

tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool beside) {
    tti_exec_device *d = x->device;
    tti_device_exchange_begin(x->exchange, beside);
    if (d->pipe) tti_device_pipe_begin(d->pipe, beside);
    if (d->reduce) tti_device_reduce_begin(d->reduce, beside);
    if (x->offload) tti_offload_begin(x->offload);
    d->beside = TUTTI_OK;
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_begin(d->parts, beside));
    if (d->sharded) TTI_TRY(tti_device_sharded_step(d->sharded, beside));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_finish(d->parts));
    if (d->sharded) TTI_TRY(tti_device_sharded_finish(d->sharded));
    if (tti_exec_has_sharded_params(x)) TTI_TRY(reread(x));
    if (d->reduce) TTI_TRY(tti_device_reduce_finish(d->reduce, d->args, d->report, d->sums));
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    if (d->axis && !d->reduce) TTI_TRY(tell_own(x));
    if (d->axis) TTI_TRY(tti_device_axis_sums(d->axis, d->sums));
    if (d->axis)
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_sums("sums of the step"), -1));
    return tti_device_update_and_tell(x, set);
}
