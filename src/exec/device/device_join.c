/* device_join.c - joins values of all shards inside a step, and times the steps of the program. */
#include "exec/device/device_step.h"

/* In one kernel, if devices read each other's memory. */
static tutti_status join_at_once(tti_exec *x, int i, bool *done) {
    const float *in[TTI_MAX_COMPUTE_THREADS];
    float *out[TTI_MAX_COMPUTE_THREADS];
    *done = false;
    if (!x->device->reduce) return TUTTI_OK;
    for (int s = 0; s < tti_device_n_local(x); s++) {
        in[s] = tti_instance_step_in(x->compute_thread[s].shard, x->syncs[i], 0);
        out[s] = tti_instance_step_out(x->compute_thread[s].shard, x->syncs[i], 0);
    }
    const tti_node *node = x->desc.plan->shard.steps[x->syncs[i]];
    return tti_device_reduce_join(x->device->reduce, node, in, out, done);
}

/* Joins one value of all shards. */
tutti_status tti_device_join_shards(tti_exec *x, int i) {
    tti_exec_device *d = x->device;
    const tti_node *node = x->desc.plan->shard.steps[x->syncs[i]];
    tti_part part = tti_part_node(TTI_SPAN_SUMS, node, "join");
    size_t n = (size_t)tti_value_n_elems(node->out[0]), n_bytes = n * sizeof(float);
    bool done;
    TTI_TRY(join_at_once(x, i, &done));
    if (done) return tti_profile_upto(x, TTI_ROW_COMPUTE, part, -1);
    for (int s = 0; s < tti_device_n_local(x); s++)
        TTI_TRY(d->ops->queues.copy(
            TTI_QUEUE_COMPUTE, d->sync_parts + (size_t)(x->first_shard + s) * n,
            tti_instance_step_in(x->compute_thread[s].shard, x->syncs[i], 0), n_bytes));
    if (d->reduce) TTI_TRY(tti_device_reduce_parts(d->reduce, d->sync_parts, n));
    if (d->host_staged) TTI_TRY(tti_device_host_staged_parts(d->host_staged, d->sync_parts, n));
    TTI_TRY(d->ops->step.join(node->op->name, d->sync_parts, (size_t)x->desc.n_shards, n,
                              d->sync_joined));
    for (int s = 0; s < tti_device_n_local(x); s++)
        TTI_TRY(d->ops->queues.copy(
            TTI_QUEUE_COMPUTE, tti_instance_step_out(x->compute_thread[s].shard, x->syncs[i], 0),
            d->sync_joined, n_bytes));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, part, -1);
}

/* A failure shows when the timestamps are read.  Collectives are recorded where they run: here
 * kernels only waited. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard) {
    const tti_node *node = x->desc.plan->shard.steps[step];
    bool stood = node->op->traits & TTI_COLLECTIVE;
    if (stood && tti_device_exchange_group(x->exchange))
        return; /* the code that waits for it records it */
    tti_part part = stood ? tti_part_wait("waiting for an exchange")
                          : tti_part_node(TTI_SPAN_WORK, node, tti_instance_kernel(instance, step));
    tutti_status st = tti_profile_upto(x, TTI_ROW_COMPUTE, part, shard);
    (void)st;
}
