/* device_shards.c - the shards of a step on a device, one after the other: their kernels,
 * joins between them, and overlapped communication. */
#include "exec/device/device_step.h"

static bool is_alone(const tti_setup *setup) { return setup->n_ranks == 1; }

static void point_at(tti_exec_device *device, tti_instance *instance, const tti_inputs *inputs,
                     const tti_device_set *set, int s) {
    const tti_gather *g = &device->resident.gather;
    const tti_inputs_shard resident = {g->x + s * g->x_stride, g->y + s * g->y_stride,
                                       g->rows + s * g->rows_stride};
    tti_inputs_point(instance, inputs, set->gathers ? &resident : &set->shards[s],
                     &device->args->loss_scale);
}

/* ---- joins, and timestamps of a profile ---- */

/* A TTI_SYNC step of the program of training or evaluation. */
typedef struct join_at {
    const tti_node *node;
    int step;
    bool eval;
} join_at;

static tti_instance *instance_of(tti_exec *x, const join_at *at, int s) {
    const tti_compute_thread *thread = &tti_threads_of(x)->thread[s];
    return at->eval ? thread->eval : thread->shard;
}

/* In one kernel, if devices read each other's memory. */
static tutti_status join_at_once(tti_exec *x, const join_at *at, bool *done) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    const tti_join_size size = tti_join_size_of(at->node);
    const float *in[TTI_MAX_COMPUTE_THREADS];
    float *out[TTI_MAX_COMPUTE_THREADS];
    *done = false;
    if (!device->reduce || size.n_part != size.n_out) return TUTTI_OK;
    for (int s = 0; s < tti_device_n_local(setup); s++) {
        in[s] = tti_instance_step_in(instance_of(x, at, s), at->step, 0);
        out[s] = tti_instance_step_out(instance_of(x, at, s), at->step, 0);
    }
    return tti_device_reduce_join(device->reduce, at->node, in, out, done);
}

static tutti_status join(tti_exec *x, const join_at *at) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    const tti_node *node = at->node;
    tti_part part = tti_part_node(TTI_SPAN_SUMS, node, "join");
    const tti_join_size size = tti_join_size_of(node);
    size_t n = size.n_part;
    bool done;
    TTI_TRY(join_at_once(x, at, &done));
    if (done) return tti_profile_upto(x, TTI_ROW_COMPUTE, part, -1);
    for (int s = 0; s < tti_device_n_local(setup); s++)
        TTI_TRY(d->ops->queues.copy(
            TTI_QUEUE_COMPUTE, d->sync_parts + (size_t)(setup->first_shard + s) * n,
            tti_instance_step_in(instance_of(x, at, s), at->step, 0), n * sizeof(float)));
    if (d->reduce) TTI_TRY(tti_device_reduce_parts(d->reduce, d->sync_parts, n));
    if (d->host_staged) TTI_TRY(tti_device_host_staged_parts(d->host_staged, d->sync_parts, n));
    TTI_TRY(d->ops->step.join(node->op->name, d->sync_parts, (size_t)setup->desc.n_shards, n,
                              d->sync_joined));
    for (int s = 0; s < tti_device_n_local(setup); s++)
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE,
                                    tti_instance_step_out(instance_of(x, at, s), at->step, 0),
                                    d->sync_joined + size.stride * (size_t)(setup->first_shard + s),
                                    size.n_out * sizeof(float)));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, part, -1);
}

/* Joins one value of all shards. */
tutti_status tti_device_join_shards(tti_exec *x, int i) {
    const tti_setup *setup = tti_setup_of(x);
    int step = setup->syncs.step[i];
    return join(x, &(join_at){setup->desc.plan->shard.steps[step], step, false});
}

/* A failure shows when the timestamps are read.  Collectives are recorded where they run: here
 * kernels only waited. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard) {
    const tti_node *node = tti_setup_of(x)->desc.plan->shard.steps[step];
    bool stood = node->op->traits & TTI_COLLECTIVE;
    if (stood && tti_device_tp_group(tti_tp_of(x)))
        return; /* the code that waits for it records it */
    tti_part part = stood ? tti_part_wait("waiting for an exchange")
                          : tti_part_node(TTI_SPAN_WORK, node, tti_instance_kernel(instance, step));
    tutti_status st = tti_profile_upto(x, TTI_ROW_COMPUTE, part, shard);
    (void)st;
}

/* ---- the shard program ---- */

static tutti_status collect(tti_exec_device *device, const tti_instance *instance, int shard) {
    double *sums = device->sums + (size_t)shard * TTI_SUMS;
    return tti_inputs_collect(device->ops, instance, sums);
}

/* desc->outputs of shard number index of this worker, to the memory of the host, before the next
 * shard uses the instance. */
tutti_status tti_device_copy_outputs(tti_exec *x, const tti_step_desc *desc,
                                     const tti_instance *instance, int index) {
    for (int i = 0; i < desc->n_outputs; i++) {
        const tti_output_copy *copy = &desc->outputs[i];
        if (!tti_instance_has_output(instance, copy->name)) continue;
        TTI_TRY(tti_device_of(x)->ops->queues.copy(
            TTI_QUEUE_COMPUTE, (char *)copy->to + (size_t)index * copy->n_bytes,
            tti_instance_output(instance, copy->name), copy->n_bytes));
    }
    return TUTTI_OK;
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
static bool sums_overlapped(const tti_exec *x, int shard) {
    const tti_setup *setup = tti_setup_of(x);
    bool by_bucket = tti_device_of(x)->reduce || tti_arrays_of(x)->sharded ||
                     (tti_offload_of(x) && is_alone(setup));
    return by_bucket && shard == setup->last_shard - 1;
}

static tutti_status sum_overlapped(tti_exec *x, int step) {
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_device_reduce *reduce = device->reduce;
    if (!reduce && tti_arrays_of(x)->sharded)
        return tti_device_host_staged_after(device->host_staged, step);
    if (!reduce) return tti_offload_after(offload, step);
    tti_device_reduce_after(reduce, step);
    if (!offload) return TUTTI_OK;
    return tti_offload_bring(offload, tti_device_reduce_n_summed(reduce), TTI_QUEUE_COMM);
}

static void after_step(int step, void *user) {
    const shard_at_work *at = user;
    tti_exec *x = at->x;
    tti_exec_device *device = tti_device_of(x);
    tti_device_time_step(x, at->instance, step, at->shard);
    if (device->overlap_status == TUTTI_OK && tti_offload_wants_sums(tti_offload_of(x), step))
        device->overlap_status = collect(device, at->instance, at->shard);
    if (sums_overlapped(x, at->shard) && device->overlap_status == TUTTI_OK)
        device->overlap_status = sum_overlapped(x, step);
    if (at->is_first) tti_device_parts_before(device->parts, step + 1);
    if (at->sharded) tti_device_sharded_before(at->sharded, step + 1);
}

static bool waits_for_parts(const tti_setup *setup, const tti_exec_device *device, int shard) {
    const tti_device_parts *parts = device->parts;
    return parts && shard == setup->first_shard && tti_device_parts_are_due(parts);
}

/* Steps first .. last-1, for every shard of a micro-batch group. */
static tutti_status run_steps(tti_exec *x, const tti_device_set *set,
                              const tti_shard_group *shard_group, tti_range steps) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    int first = (int)steps.first, last = (int)steps.last;
    tti_device_sharded *sharded =
        setup->syncs.n > 0 ? NULL : device->sharded; /* its moves are each shard's */
    for (int i = 0; i < shard_group->n_shards; i++) {
        int shard = shard_group->first + i, s = shard - setup->first_shard;
        tti_instance *instance = tti_threads_of(x)->thread[i].shard;
        tti_exec_point_at_buffer(tti_arrays_of(x), instance, shard_group->buffer[i]);
        point_at(device, instance, &setup->shard_inputs, set, s);
        shard_at_work at = {x, instance, shard, waits_for_parts(setup, device, shard), sharded};
        bool overlapped = sums_overlapped(x, shard) || tti_offload_streams(tti_offload_of(x));
        bool looks = tti_profile_of(x) || overlapped || at.is_first || at.sharded;
        if (at.is_first) tti_device_parts_before(device->parts, first);
        if (at.sharded) tti_device_sharded_begin(at.sharded, shard == setup->last_shard - 1);
        if (at.sharded) tti_device_sharded_before(at.sharded, first);
        TTI_TRY(tti_instance_run_range(instance, &device->runs[s], first, last,
                                       looks ? after_step : NULL, &at));
        if (last == setup->desc.plan->shard.n_steps) TTI_TRY(collect(device, instance, shard));
    }
    return TUTTI_OK;
}

/* The steps between two joins.  Joined shards use the same memory of parameters and gradients: none
 * continues before all have reached the point where this memory changes. */
static tutti_status run_part(tti_exec *x, const tti_device_set *set,
                             const tti_shard_group *shard_group, int part) {
    const tti_setup *setup = tti_setup_of(x);
    bool joined = setup->syncs.n > 0;
    tti_device_sharded *sharded = joined ? tti_device_of(x)->sharded : NULL;
    int first = part > 0 ? setup->syncs.step[part - 1] + 1 : 0;
    int last = part < setup->syncs.n ? setup->syncs.step[part] : setup->desc.plan->shard.n_steps;
    if (sharded && part == 0) tti_device_sharded_begin(sharded, true);
    do {
        int stop = tti_sharded_next_stop(joined ? tti_arrays_of(x)->sharded : NULL, first, last);
        if (sharded) tti_device_sharded_before(sharded, first);
        TTI_TRY(run_steps(x, set, shard_group, (tti_range){(size_t)first, (size_t)stop}));
        first = stop;
    } while (first < last);
    return TUTTI_OK;
}

/* In fast mode a worker's partial sums are added, unless a server does it. */
static void add_pieces(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    bool adds = setup->desc.fast && (!setup->desc.server || tti_exec_n_partials(setup) == 1);
    for (int i = 1; adds && i < setup->acc.n_pieces; i++)
        setup->desc.backend->accumulate(tti_exec_grads(x),
                                        tti_arrays_of(x)->buffers[setup->acc.piece_buffer[i]],
                                        setup->desc.plan->n_flat);
}

static tutti_status run_shard_groups(tti_exec *x, const tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_device_reduce *reduce = device->reduce;
    bool overlapped = reduce ? tti_device_reduce_merges(reduce, setup->acc.n_shard_groups - 1)
                             : sums_overlapped(x, setup->last_shard - 1);
    for (int w = 0; w < setup->acc.n_shard_groups; w++) {
        const tti_shard_group *shard_group = &setup->acc.shard_groups[w];
        for (int part = 0; part <= setup->syncs.n; part++) {
            TTI_TRY(run_part(x, set, shard_group, part));
            if (part < setup->syncs.n) TTI_TRY(tti_device_join_shards(x, part));
        }
        if (overlapped && w == setup->acc.n_shard_groups - 1) return device->overlap_status;
        tti_exec_merge(x, shard_group, 0, setup->desc.plan->n_flat);
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("add gradients of shards"), -1));
    }
    add_pieces(x);
    return TUTTI_OK;
}

/* The parts of a stage of a pipeline. */
static tutti_status run_pipe(tti_exec *x, const tti_device_set *set, bool eval) {
    tti_exec_device *d = tti_device_of(x);
    const tti_device_pipe_step step = {.shards = set->shards,
                                       .runs = d->runs,
                                       .loss_scale = &d->args->loss_scale,
                                       .sums = d->sums,
                                       .reduce = eval ? NULL : d->reduce,
                                       .parts = eval ? NULL : d->parts,
                                       .number = set->desc.step,
                                       .desc = &set->desc,
                                       .eval = eval};
    TTI_TRY(tti_device_pipe_run(d->pipe, &step));
    bool added =
        d->reduce && tti_device_reduce_merges(d->reduce, tti_setup_of(x)->acc.n_shard_groups - 1);
    if (!eval && !added && !tti_arrays_of(x)->sharded) add_pieces(x);
    return TUTTI_OK;
}

tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set) {
    return tti_device_of(x)->pipe ? run_pipe(x, set, false) : run_shard_groups(x, set);
}

/* ---- evaluation ---- */

static tutti_status eval_shard(tti_arrays *arrays, tti_exec_device *device, tti_instance *instance,
                               const tti_run *run) {
    if (!tti_exec_has_sharded_params(arrays)) return tti_instance_run(instance, run, NULL, NULL);
    return tti_device_sharded_eval(device->sharded, instance, run);
}

/* The shards in turn, from one join to the next. */
static tutti_status eval_joined(tti_exec *x, const tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    const tti_program *program = &setup->desc.plan->eval;
    if (d->reduce) tti_device_reduce_begin(d->reduce, false);
    for (int i = 0, first = 0; i <= setup->eval_syncs.n; i++) {
        bool joins = i < setup->eval_syncs.n;
        int last = joins ? setup->eval_syncs.step[i] : program->n_steps;
        for (int s = 0; s < tti_device_n_local(setup); s++) {
            tti_instance *instance = tti_threads_of(x)->thread[s].eval;
            point_at(d, instance, &setup->eval_inputs, set, s);
            TTI_TRY(tti_instance_run_range(instance, &d->runs[s], first, last, NULL, NULL));
            if (!joins) TTI_TRY(collect(d, instance, setup->first_shard + s));
            if (!joins) TTI_TRY(tti_device_copy_outputs(x, &set->desc, instance, s));
        }
        if (joins) TTI_TRY(join(x, &(join_at){program->steps[last], last, true}));
        first = last + 1;
    }
    return TUTTI_OK;
}

tutti_status tti_device_eval_shards(tti_exec *x, const tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    if (d->sharded) TTI_TRY(tti_device_sharded_eval_begin(d->sharded));
    if (d->pipe) return run_pipe(x, set, true);
    if (setup->eval_syncs.n > 0) return eval_joined(x, set);
    for (int s = 0; s < tti_device_n_local(setup); s++) {
        tti_instance *instance = tti_threads_of(x)->thread[0].eval;
        point_at(device, instance, &setup->eval_inputs, set, s);
        TTI_TRY(eval_shard(arrays, device, instance, &d->runs[s]));
        TTI_TRY(collect(device, instance, setup->first_shard + s));
        TTI_TRY(tti_device_copy_outputs(x, &set->desc, instance, s));
    }
    return tti_exec_has_sharded_params(arrays) ? tti_device_sharded_eval_rest(d->sharded)
                                               : TUTTI_OK;
}
