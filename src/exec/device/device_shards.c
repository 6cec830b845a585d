/* device_shards.c - the shards of a step on a device, one after the other: their kernels,
 * joins between them, and overlapped communication. */
#include "exec/device/device_step.h"

static bool is_alone(const tti_exec *x) { return x->n_ranks == 1; }

static void point_at(tti_exec *x, tti_instance *instance, const tti_inputs *inputs,
                     const tti_device_set *set, int s) {
    const tti_gather *g = &x->device->resident.gather;
    const tti_inputs_shard resident = {g->x + s * g->x_stride, g->y + s * g->y_stride,
                                       g->rows + s * g->rows_stride};
    tti_inputs_point(instance, inputs, set->gathers ? &resident : &set->shards[s],
                     &x->device->args->loss_scale);
}

/* ---- joins, and timestamps of a profile ---- */

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

/* ---- the shard program ---- */

static tutti_status collect(tti_exec *x, const tti_instance *instance, int shard) {
    double *sums = x->device->sums + (size_t)shard * TTI_SUMS;
    return tti_inputs_collect(x->device->ops, instance, sums);
}

/* A shard at work. */
typedef struct shard_at_work {
    tti_exec *x;
    const tti_instance *instance;
    int shard;
    bool is_first; /* which parameters of others wait for */
    tti_device_sharded *sharded;
} shard_at_work;

/* Whether it is summed with other workers, or for the host, while the shard computes. */
static bool is_summed_beside(const tti_exec *x, int shard) {
    bool by_bucket = x->device->reduce || x->sharded || (x->offload && is_alone(x));
    return by_bucket && shard == x->last_shard - 1;
}

static tutti_status sum_beside(tti_exec *x, int step) {
    tti_device_reduce *reduce = x->device->reduce;
    if (!reduce && x->sharded) return tti_device_host_staged_after(x->device->host_staged, step);
    if (!reduce) return tti_offload_after(x->offload, step);
    tti_device_reduce_after(reduce, step);
    if (!x->offload) return TUTTI_OK;
    return tti_offload_bring(x->offload, tti_device_reduce_n_summed(reduce), TTI_QUEUE_COMM);
}

static void after_step(int step, void *user) {
    const shard_at_work *at = user;
    tti_exec *x = at->x;
    tti_device_time_step(x, at->instance, step, at->shard);
    if (x->device->beside == TUTTI_OK && tti_offload_wants_sums(x->offload, step))
        x->device->beside = collect(x, at->instance, at->shard);
    if (is_summed_beside(x, at->shard) && x->device->beside == TUTTI_OK)
        x->device->beside = sum_beside(x, step);
    if (at->is_first) tti_device_parts_before(x->device->parts, step + 1);
    if (at->sharded) tti_device_sharded_before(at->sharded, step + 1);
}

static bool waits_for_parts(const tti_exec *x, int shard) {
    const tti_device_parts *parts = x->device->parts;
    return parts && shard == x->first_shard && tti_device_parts_are_due(parts);
}

/* Steps first .. last-1, for every shard of a micro-batch group. */
static tutti_status run_steps(tti_exec *x, const tti_device_set *set,
                              const tti_shard_group *shard_group, tti_range steps) {
    int first = (int)steps.first, last = (int)steps.last;
    tti_device_sharded *sharded =
        x->n_syncs > 0 ? NULL : x->device->sharded; /* its moves are each shard's */
    for (int i = 0; i < shard_group->n_shards; i++) {
        int shard = shard_group->first + i, s = shard - x->first_shard;
        tti_instance *instance = x->compute_thread[i].shard;
        tti_exec_point_at_buffer(x, instance, shard_group->buffer[i]);
        point_at(x, instance, &x->shard_inputs, set, s);
        shard_at_work at = {x, instance, shard, waits_for_parts(x, shard), sharded};
        bool beside = is_summed_beside(x, shard) || tti_offload_streams(x->offload);
        bool looks = x->profile || beside || at.is_first || at.sharded;
        if (at.is_first) tti_device_parts_before(x->device->parts, first);
        if (at.sharded) tti_device_sharded_begin(at.sharded, shard == x->last_shard - 1);
        if (at.sharded) tti_device_sharded_before(at.sharded, first);
        TTI_TRY(tti_instance_run_range(instance, &x->device->runs[s], first, last,
                                       looks ? after_step : NULL, &at));
        if (last == x->desc.plan->shard.n_steps) TTI_TRY(collect(x, instance, shard));
    }
    return TUTTI_OK;
}

/* The steps between two joins.  Joined shards use the same memory of parameters and gradients: none
 * continues before all have reached the point where this memory changes. */
static tutti_status run_part(tti_exec *x, const tti_device_set *set,
                             const tti_shard_group *shard_group, int part) {
    bool joined = x->n_syncs > 0;
    tti_device_sharded *sharded = joined ? x->device->sharded : NULL;
    int first = part > 0 ? x->syncs[part - 1] + 1 : 0;
    int last = part < x->n_syncs ? x->syncs[part] : x->desc.plan->shard.n_steps;
    if (sharded && part == 0) tti_device_sharded_begin(sharded, true);
    do {
        int stop = tti_sharded_next_stop(joined ? x->sharded : NULL, first, last);
        if (sharded) tti_device_sharded_before(sharded, first);
        TTI_TRY(run_steps(x, set, shard_group, (tti_range){(size_t)first, (size_t)stop}));
        first = stop;
    } while (first < last);
    return TUTTI_OK;
}

/* In fast mode a worker's partial sums are added, unless a server does it. */
static void add_pieces(tti_exec *x) {
    bool adds = x->desc.fast && (!x->desc.server || tti_exec_n_pieces(x) == 1);
    for (int i = 1; adds && i < x->acc.n_pieces; i++)
        x->desc.backend->accumulate(tti_exec_grads(x), x->buffers[x->acc.piece_buffer[i]],
                                    x->desc.plan->n_flat);
}

static tutti_status run_shard_groups(tti_exec *x, const tti_device_set *set) {
    tti_device_reduce *reduce = x->device->reduce;
    bool beside = reduce ? tti_device_reduce_merges(reduce, x->acc.n_shard_groups - 1)
                         : is_summed_beside(x, x->last_shard - 1);
    for (int w = 0; w < x->acc.n_shard_groups; w++) {
        const tti_shard_group *shard_group = &x->acc.shard_groups[w];
        for (int part = 0; part <= x->n_syncs; part++) {
            TTI_TRY(run_part(x, set, shard_group, part));
            if (part < x->n_syncs) TTI_TRY(tti_device_join_shards(x, part));
        }
        if (beside && w == x->acc.n_shard_groups - 1) return x->device->beside;
        tti_exec_merge(x, shard_group, 0, x->desc.plan->n_flat);
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("add gradients of shards"), -1));
    }
    add_pieces(x);
    return TUTTI_OK;
}

/* The parts of a stage of a pipeline. */
static tutti_status run_pipe(tti_exec *x, const tti_device_set *set, bool eval) {
    tti_exec_device *d = x->device;
    const tti_device_pipe_step step = {.shards = set->shards,
                                       .runs = d->runs,
                                       .loss_scale = &d->args->loss_scale,
                                       .sums = d->sums,
                                       .reduce = eval ? NULL : d->reduce,
                                       .parts = eval ? NULL : d->parts,
                                       .number = set->desc.step,
                                       .eval = eval};
    TTI_TRY(tti_device_pipe_run(d->pipe, &step));
    bool added = d->reduce && tti_device_reduce_merges(d->reduce, x->acc.n_shard_groups - 1);
    if (!eval && !added && !x->sharded) add_pieces(x);
    return TUTTI_OK;
}

tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set) {
    return x->device->pipe ? run_pipe(x, set, false) : run_shard_groups(x, set);
}

/* ---- evaluation ---- */

static tutti_status eval_shard(tti_exec *x, tti_instance *instance, const tti_run *run) {
    if (!tti_exec_has_sharded_params(x)) return tti_instance_run(instance, run, NULL, NULL);
    return tti_device_sharded_eval(x->device->sharded, instance, run);
}

tutti_status tti_device_eval_shards(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    if (d->sharded) TTI_TRY(tti_device_sharded_eval_begin(d->sharded));
    if (d->pipe) return run_pipe(x, set, true);
    for (int s = 0; s < tti_device_n_local(x); s++) {
        tti_instance *instance = x->compute_thread[0].eval;
        point_at(x, instance, &x->eval_inputs, set, s);
        TTI_TRY(eval_shard(x, instance, &d->runs[s]));
        TTI_TRY(collect(x, instance, x->first_shard + s));
    }
    return tti_exec_has_sharded_params(x) ? tti_device_sharded_eval_rest(d->sharded) : TUTTI_OK;
}
