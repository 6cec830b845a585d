/* device_timed.c - captured graphs with timestamps, for a profile. */
#include <stdlib.h>

#include "exec/device/device_step.h"
#include "exec/worker/pipe_ends.h"

enum { MAX_MOMENTS = 1 << 21 }; /* each is an event of the device */

/* Maximum number of timestamps in a step: of nodes, joins, sums, copies, fetches for each shard (at
 * least one), and between them. */
static int64_t most_moments(const tti_exec *x) {
    const tti_program *program = &x->desc.plan->shard;
    int64_t n_shards = x->last_shard - x->first_shard, trades = 0;
    int64_t nodes = (int64_t)(program->n_steps + 8) * n_shards;
    for (int s = 0; s < program->n_steps; s++)
        trades += program->steps[s]->op->traits & TTI_COLLECTIVE ? n_shards : 0;
    if (x->pipe) nodes += 4 * x->pipe->train.schedule.n_actions;
    if (x->pipe && x->sharded) /* shards that are joined go on in turns */
        nodes += 3 * (2 * x->sharded->train.n_uses + x->sharded->grads.n_uses) * n_shards;
    if (x->sharded)
        nodes +=
            (x->sharded->train.n_uses + x->desc.plan->n_buckets) * 2 * x->sharded->n_shard_groups;
    return 2 * (nodes + trades) + 6 * x->desc.plan->n_buckets + 4 * x->acc.n_shard_groups + 64;
}

/* Every step replays a graph once, so each timestamp belongs to one step.  If graphs do not support
 * timestamps, kernels are launched one by one. */
tutti_status tti_exec_device_profile_begin(tti_exec *x, int n_steps) {
    tti_exec_device *d = x->device;
    TTI_ASSERT(d->n_begun == d->n_ended && d->n_begun > 0);
    if (most_moments(x) > MAX_MOMENTS / n_steps)
        return tti_fail(TUTTI_E_INVALID,
                        "profile: %d steps of up to %lld moments each are too many; give fewer, or "
                        "fewer parallel.shards",
                        n_steps, (long long)most_moments(x));
    int n_moments = n_steps * (int)most_moments(x);
    TTI_TRY(tti_profile_zero(x, n_moments));
    uint64_t last = d->newest + (uint64_t)n_steps - 1;
    bool turns = d->reduce && tti_device_reduce_turns(d->reduce, last); /* in between */
    /* On all workers, if some have no device; or with a server, or stages. */
    bool by_kernels =
        turns || d->host_staged || d->server || d->pipe || tti_offload_streams(x->offload);
    if (by_kernels) return TUTTI_OK;
    bool records = tti_profile_records(x);
    TTI_TRY(tti_device_agree(x, &records));
    if (!records) return tti_profile_zero(x, n_moments);
    d->timed = calloc((size_t)n_steps, sizeof *d->timed);
    if (!d->timed) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < n_steps; i++) {
        tti_device_set *set = &d->sets[(d->n_begun + (uint64_t)i) % (uint64_t)d->n_sets];
        set->gathers = false;
        tti_profile_next_step(x);
        TTI_TRY(tti_device_record(x, set, &d->timed[i]));
        d->n_timed++;
    }
    if (d->axis)
        TTI_TRY(tti_device_axis_meet(d->axis));
    else if (d->reduce)
        TTI_TRY(tti_device_reduce_meet(d->reduce));
    return tti_profile_zero(x, n_moments);
}

void tti_exec_device_profile_end(tti_exec *x) {
    tti_exec_device *d = x->device;
    for (int i = 0; i < d->n_timed; i++) d->ops->queues.release_captured_graph(d->timed[i]);
    free(d->timed);
    d->timed = NULL;
    d->n_timed = d->next_timed = 0;
}
