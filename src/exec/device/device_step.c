/* device_step.c - a step on a device: inputs, shards with joins and overlapped communication, the
 * report; and the evaluation of a batch.  Launches are captured in a graph or run directly. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/device/device_step.h"

static void point_at(tti_exec_device *device, tti_instance *instance, const tti_inputs *inputs,
                     const tti_device_set *set, int s) {
    const tti_gather *g = &device->resident.gather;
    const tti_inputs_shard resident = {g->x + s * g->x_stride, g->y + s * g->y_stride,
                                       g->rows + s * g->rows_stride};
    tti_inputs_point(instance, inputs, set->gathers ? &resident : &set->shards[s],
                     &device->args->loss_scale);
}

/* ---- joins, and timestamps of a profile ---- */

/* A TTI_SYNC step of the training or evaluation program. */
typedef struct join_at {
    const tti_node *node;
    int step;
    bool eval;
} join_at;

/* Joins one value of all shards. */
static tutti_status join(tti_exec *x, const join_at *at) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_span_id id = tti_span_node(TTI_SPAN_SUMS, at->node, "join");
    const tti_join_size size = tti_join_size_of(at->node);
    size_t n = size.n_part, first = (size_t)setup->first_shard;
    int n_local = tti_device_n_local(setup);
    const float *in[TTI_MAX_COMPUTE_THREADS];
    float *out[TTI_MAX_COMPUTE_THREADS];
    for (int s = 0; s < n_local; s++) {
        in[s] = tti_instance_step_in(tti_exec_instance(x, s, at->eval), at->step);
        out[s] = tti_instance_step_out(tti_exec_instance(x, s, at->eval), at->step, 0);
    }
    bool done = false; /* in one kernel, if devices can read each other's memory */
    if (d->reduce && n == size.n_out)
        TTI_TRY(tti_device_reduce_join(d->reduce, at->node, in, out, &done));
    if (done) return tti_profile_upto(x, TTI_ROW_COMPUTE, id, -1);
    for (size_t s = 0; s < (size_t)n_local; s++)
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->sync_parts + (first + s) * n, in[s],
                                    n * sizeof(float)));
    if (d->reduce) TTI_TRY(tti_device_reduce_joins(d->reduce, d->sync_parts, n));
    if (d->host_staged) TTI_TRY(tti_device_host_staged_joins(d->host_staged, d->sync_parts, n));
    TTI_TRY(d->ops->step.join(at->node->op->name, d->sync_parts, (size_t)setup->desc.n_shards, n,
                              d->sync_joined));
    for (size_t s = 0; s < (size_t)n_local; s++)
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, out[s],
                                    d->sync_joined + size.stride * (first + s),
                                    size.n_out * sizeof(float)));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, id, -1);
}

tutti_status tti_device_join_shards(tti_exec *x, int i) {
    const tti_setup *setup = tti_setup_of(x);
    int step = setup->syncs.step[i];
    return join(x, &(join_at){setup->desc.plan->shard.steps[step], step, false});
}

/* A failure shows when the timestamps are read.  Collectives are recorded where they run; here
 * kernels only wait. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard) {
    const tti_node *node = tti_setup_of(x)->desc.plan->shard.steps[step];
    bool stood = node->op->traits & TTI_COLLECTIVE;
    if (stood && tti_device_tp_group(tti_tp_of(x)))
        return; /* the code that waits for the collective records it */
    tti_span_id id = stood
                         ? tti_span_of(TTI_SPAN_WAIT, "waiting for a collective")
                         : tti_span_node(TTI_SPAN_WORK, node, tti_instance_kernel(instance, step));
    tutti_status st = tti_profile_upto(x, TTI_ROW_COMPUTE, id, shard);
    (void)st;
}

/* ---- the shard program ---- */

static tutti_status collect(tti_exec *x, const tti_instance *instance, int shard, bool eval) {
    const tti_exec_device *device = tti_device_of(x);
    int n = tti_n_sums(tti_setup_of(x));
    return tti_inputs_collect(device->ops, instance, eval ? TTI_LOSS_SUMS : n,
                              device->sums + shard * n);
}

/* Copies desc->outputs of this worker's shard number index to host memory, before the next shard
 * uses the instance. */
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

/* The shard that runs now. */
typedef struct running_shard {
    tti_exec *x;
    const tti_instance *instance;
    int shard;
    bool is_first; /* fetched parameters wait for this shard */
    tti_device_sharded *sharded;
} running_shard;

/* True if gradients are summed with other workers, or for the host, while the shard computes. */
static bool sums_overlapped(const tti_exec *x, int shard) {
    const tti_setup *setup = tti_setup_of(x);
    bool by_bucket =
        tti_device_of(x)->reduce || tti_sharded_of(x) || (tti_offload_of(x) && setup->n_ranks == 1);
    return by_bucket && shard == setup->last_shard - 1;
}

static tutti_status sum_overlapped(tti_exec *x, int step) {
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_device_reduce *reduce = device->reduce;
    if (!reduce && tti_sharded_of(x))
        return tti_device_host_staged_after(device->host_staged, step);
    if (!reduce) return tti_offload_after(offload, step);
    tti_device_reduce_after(reduce, step);
    if (!offload) return TUTTI_OK;
    return tti_offload_bring(offload, tti_device_reduce_n_summed(reduce), TTI_QUEUE_COMM);
}

static void after_step(int step, void *user) {
    const running_shard *at = user;
    tti_exec *x = at->x;
    tti_exec_device *device = tti_device_of(x);
    tti_device_time_step(x, at->instance, step, at->shard);
    if (device->overlap_status == TUTTI_OK && tti_offload_wants_sums(tti_offload_of(x), step))
        device->overlap_status = collect(x, at->instance, at->shard, false);
    if (sums_overlapped(x, at->shard) && device->overlap_status == TUTTI_OK)
        device->overlap_status = sum_overlapped(x, step);
    if (at->is_first) tti_device_param_gather_before(device->param_gather, step + 1);
    if (at->sharded) tti_device_sharded_before(at->sharded, step + 1);
}

/* Runs steps first .. last-1 for every shard of a micro-batch group. */
static tutti_status run_steps(tti_exec *x, const tti_device_set *set,
                              const tti_micro_group *micro_group, tti_range steps) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    int first = (int)steps.first, last = (int)steps.last;
    tti_device_sharded *sharded =
        setup->syncs.n > 0 ? NULL : device->sharded; /* each shard moves its own buckets */
    for (int i = 0; i < micro_group->n_shards; i++) {
        int shard = micro_group->first + i, s = shard - setup->first_shard;
        tti_instance *instance = tti_exec_instance(x, i, false);
        tti_exec_point_at_buffer(x, instance, micro_group->buffer[i]);
        point_at(device, instance, &setup->shard_inputs, set, s);
        bool waits_for_parts = device->param_gather && shard == setup->first_shard &&
                               tti_device_param_gather_is_due(device->param_gather);
        running_shard at = {x, instance, shard, waits_for_parts, sharded};
        bool overlapped = sums_overlapped(x, shard) || tti_offload_streams(tti_offload_of(x));
        bool looks = tti_profile_of(x) || overlapped || at.is_first || at.sharded;
        if (at.is_first) tti_device_param_gather_before(device->param_gather, first);
        if (at.sharded) tti_device_sharded_begin(at.sharded, shard == setup->last_shard - 1);
        if (at.sharded) tti_device_sharded_before(at.sharded, first);
        TTI_TRY(tti_instance_run_range(instance, &device->runs[s], first, last,
                                       looks ? after_step : NULL, &at));
        if (last == setup->desc.plan->shard.n_steps) {
            TTI_TRY(collect(x, instance, shard, false));
            if (device->output_step)
                TTI_TRY(tti_device_copy_outputs(x, device->output_step, instance, s));
        }
    }
    return TUTTI_OK;
}

/* In fast mode a worker's partial sums are added, unless a server adds them. */
static void add_partial_sums(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    bool adds = setup->desc.fast && (!setup->desc.server || tti_exec_n_partials(setup) == 1);
    for (int i = 1; adds && i < setup->acc.n_partials; i++)
        setup->desc.backend->accumulate(tti_exec_grads(x),
                                        tti_exec_buffer(x, setup->acc.partial_buffer[i]),
                                        setup->desc.plan->n_flat);
}

static tutti_status run_micro_groups(tti_exec *x, const tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_device_reduce *reduce = device->reduce;
    bool overlapped = reduce ? tti_device_reduce_merges(reduce, setup->acc.n_micro_groups - 1)
                             : sums_overlapped(x, setup->last_shard - 1);
    for (int w = 0; w < setup->acc.n_micro_groups; w++) {
        const tti_micro_group *micro_group = &setup->acc.micro_groups[w];
        for (int part = 0; part <= setup->syncs.n; part++) {
            /* Runs the steps between two joins.  Joined shards share the memory of parameters and
             * gradients, so none continues before all have reached the point where this memory
             * changes. */
            bool joined = setup->syncs.n > 0;
            tti_device_sharded *sharded = joined ? tti_device_of(x)->sharded : NULL;
            int first = part > 0 ? setup->syncs.step[part - 1] + 1 : 0;
            int last =
                part < setup->syncs.n ? setup->syncs.step[part] : setup->desc.plan->shard.n_steps;
            if (sharded && part == 0) tti_device_sharded_begin(sharded, true);
            do {
                int stop = tti_sharded_next_stop(joined ? tti_sharded_of(x) : NULL, first, last);
                if (sharded) tti_device_sharded_before(sharded, first);
                TTI_TRY(run_steps(x, set, micro_group, (tti_range){(size_t)first, (size_t)stop}));
                first = stop;
            } while (first < last);
            if (part < setup->syncs.n) TTI_TRY(tti_device_join_shards(x, part));
        }
        if (overlapped && w == setup->acc.n_micro_groups - 1) return device->overlap_status;
        tti_exec_merge(x, micro_group, 0, setup->desc.plan->n_flat);
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_MERGE), -1));
    }
    add_partial_sums(x);
    return TUTTI_OK;
}

/* Runs the shards of a pipeline stage. */
static tutti_status run_pipe(tti_exec *x, const tti_device_set *set, bool eval) {
    tti_exec_device *d = tti_device_of(x);
    const tti_device_pipe_step step = {.shards = set->shards,
                                       .runs = d->runs,
                                       .loss_scale = &d->args->loss_scale,
                                       .sums = d->sums,
                                       .reduce = eval ? NULL : d->reduce,
                                       .param_gather = eval ? NULL : d->param_gather,
                                       .number = set->desc.step,
                                       .desc = &set->desc,
                                       .eval = eval};
    TTI_TRY(tti_device_pipe_run(d->pipe, &step));
    bool added =
        d->reduce && tti_device_reduce_merges(d->reduce, tti_setup_of(x)->acc.n_micro_groups - 1);
    if (!eval && !added && !tti_sharded_of(x)) add_partial_sums(x);
    return TUTTI_OK;
}

tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set) {
    return tti_device_of(x)->pipe ? run_pipe(x, set, false) : run_micro_groups(x, set);
}

/* ---- evaluation ---- */

/* Runs the shards in turn, from one join to the next. */
static tutti_status eval_joined(tti_exec *x, const tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    const tti_program *program = &setup->desc.plan->eval;
    if (d->reduce) tti_device_reduce_begin(d->reduce, false);
    for (int i = 0, first = 0; i <= setup->eval_syncs.n; i++) {
        bool joins = i < setup->eval_syncs.n;
        int last = joins ? setup->eval_syncs.step[i] : program->n_steps;
        for (int s = 0; s < tti_device_n_local(setup); s++) {
            tti_instance *instance = tti_exec_instance(x, s, true);
            point_at(d, instance, &setup->eval_inputs, set, s);
            TTI_TRY(tti_instance_run_range(instance, &d->runs[s], first, last, NULL, NULL));
            if (!joins) TTI_TRY(collect(x, instance, setup->first_shard + s, true));
            if (!joins) TTI_TRY(tti_device_copy_outputs(x, &set->desc, instance, s));
        }
        if (joins) TTI_TRY(join(x, &(join_at){program->steps[last], last, true}));
        first = last + 1;
    }
    return TUTTI_OK;
}

/* ---- inputs ---- */

static bool takes_bytes(const tti_exec_device *device, const tti_step_desc *desc) {
    return desc->value && device->x_bytes > 0;
}

/* Copies batch and numbers of a step into a set.  Later kernels wait for the copy. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    (void)TTI_FAULT_AT("device.feed", setup->rank, (int64_t)desc->step);
    double t = (double)desc->step + 1;
    *set->args_host =
        (tti_step_args){.step = desc->step,
                        .lr = (float)desc->lr,
                        .loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f,
                        .correction1 = (float)(1 - pow(setup->desc.beta1, t)),
                        .correction2 = (float)(1 - pow(setup->desc.beta2, t)),
                        .keep_bad = desc->stop_on_bad,
                        .vote = desc->vote,
                        .inv_rows = desc->n_rows > 0 ? (float)(1.0 / (double)desc->n_rows) : 0};
    if (d->rows == 0) TTI_TRY(tti_device_put_runs(x, desc->shard_size));
    set->gathers = desc->index != NULL;
    if (set->gathers) {
        tti_resident_note(&d->resident, desc, set->index);
        return TUTTI_OK;
    }
    const tti_bytes_desc bytes = {setup->desc.backend, desc, tti_device_n_local(setup), d->x_bytes,
                                  d->target_bytes};
    TTI_TRY(tti_profile_from(x, TTI_ROW_COPY));
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, set->args, set->args_host, sizeof *set->args));
    if (takes_bytes(d, desc)) TTI_TRY(tti_bytes_copy(&bytes, &d->bytes));
    for (int s = 0; s < tti_device_n_local(setup); s++) {
        const tti_shard_data *data = &desc->shards[s];
        tti_inputs_shard *to = &set->shards[s];
        set->rows_host[s] = data->n_rows;
        if (!desc->value && to->x)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->x, data->x, d->x_bytes));
        if (to->target)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->target, data->target, d->target_bytes));
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->rows, &set->rows_host[s], sizeof(int32_t)));
    }
    /* When this returns the loader may reuse the memory; the device may still compute the previous
     * step. */
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COPY, TTI_EVENT_INPUTS));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_span_of(TTI_SPAN_OTHER, "samples to the device"),
                             -1));
    /* Bytes are converted to floats in the copy queue while the previous step computes. */
    for (int s = 0; takes_bytes(d, bytes.step) && s < tti_device_n_local(setup); s++)
        TTI_TRY(tti_bytes_unpack(&bytes, &d->bytes, s, set->shards[s].target, set->shards[s].x));
    if (takes_bytes(d, desc))
        TTI_TRY(
            tti_profile_upto(x, TTI_ROW_COPY, tti_span_of(TTI_SPAN_OTHER, "bytes to floats"), -1));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return d->ops->queues.await_host_event(TTI_EVENT_INPUTS);
}

/* ---- a step ---- */

tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    if (set->gathers) {
        tti_gather g = d->resident.gather;
        g.args_from = set->args_host, g.index = set->index;
        TTI_TRY(d->ops->step.gather(&g, d->fixed, d->runs));
    } else {
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->args, set->args, sizeof *d->args));
        TTI_TRY(
            d->ops->step.begin(d->args, d->fixed, d->runs, tti_device_n_local(tti_setup_of(x))));
    }
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WORK, "begin"), -1);
}

tutti_status tti_device_copy_gradients_to_host(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    tti_queue sums = d->reduce ? TTI_QUEUE_COMM : TTI_QUEUE_COMPUTE;
    TTI_TRY(tti_offload_bring(tti_offload_of(x), tti_setup_of(x)->desc.plan->n_buckets, sums));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return tti_profile_upto(x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_WAIT, "waiting for gradients at the host"), -1);
}

static tutti_status run_update(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    if (tti_offload_of(x)) return tti_device_copy_gradients_to_host(x);
    TTI_TRY(tti_device_update_run(d->update));
    bool sums_too = tti_device_update_sums(d->update);
    tti_span_id made = sums_too ? tti_span_of(TTI_SPAN_SUMS, "sums and update")
                                : tti_instr_span(TTI_UPDATE_BLOCKS);
    return tti_profile_upto(x, TTI_ROW_COMPUTE, made, -1);
}

tutti_status tti_device_update_and_report(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(run_update(x));
    TTI_TRY(d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WORK, "report to the host"),
                            -1);
}

tutti_status tti_device_sum_gradients(tti_exec *x, const tti_device_set *set, bool overlapped) {
    tti_exec_device *d = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_device_tp_begin(tti_tp_of(x), overlapped);
    if (d->pipe) tti_device_pipe_begin(d->pipe, overlapped);
    if (d->reduce) tti_device_reduce_begin(d->reduce, overlapped);
    if (offload) tti_offload_begin(offload);
    d->overlap_status = TUTTI_OK;
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->param_gather) TTI_TRY(tti_device_param_gather_begin(d->param_gather, overlapped));
    if (d->sharded) TTI_TRY(tti_device_sharded_step(d->sharded, overlapped));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->param_gather) TTI_TRY(tti_device_param_gather_finish(d->param_gather));
    if (d->sharded) TTI_TRY(tti_device_sharded_finish(d->sharded));
    if (tti_exec_has_sharded_params(x)) {
        /* Hashes parameters that no other worker has, before they are updated again. */
        TTI_TRY(tti_device_update_complete(tti_device_of(x)->update, 0,
                                           tti_setup_of(x)->desc.plan->n_updates));
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_HASH), -1));
    }
    if (d->reduce) TTI_TRY(tti_device_reduce_finish(d->reduce, d->args, d->report, d->sums));
    if (d->pipe) TTI_TRY(tti_device_pipe_reduce_tied_grads(d->pipe));
    if (d->axis && !d->reduce) {
        /* Initializes the step's sums if no other workers have other samples. */
        const tti_setup *setup = tti_setup_of(x);
        TTI_TRY(d->ops->collectives.report_sums(
            &(tti_device_step_sums){.sums = d->sums,
                                    .args = d->args,
                                    .report = d->report,
                                    .n_sums = tti_n_sums(setup),
                                    .n_shards = setup->desc.n_shards,
                                    .last_shard = setup->desc.n_shards,
                                    .n_ranks = 1}));
    }
    if (d->axis) TTI_TRY(tti_device_axis_sums(d->axis, d->sums));
    if (d->axis) TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_REPORT), -1));
    return TUTTI_OK;
}

tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool overlapped) {
    TTI_TRY(tti_device_sum_gradients(x, set, overlapped));
    return tti_device_update_and_report(x, set);
}

/* ---- evaluation ---- */

static tutti_status launch_eval(tti_exec *x, const tti_device_set *set, bool overlapped) {
    tti_device_tp_begin(tti_tp_of(x), overlapped);
    TTI_TRY(tti_device_put_begin(x, set));
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    if (d->sharded) TTI_TRY(tti_device_sharded_eval_begin(d->sharded));
    if (d->pipe) return run_pipe(x, set, true);
    if (setup->eval_syncs.n > 0) return eval_joined(x, set);
    for (int s = 0; s < tti_device_n_local(setup); s++) {
        tti_instance *instance = tti_exec_instance(x, 0, true);
        point_at(d, instance, &setup->eval_inputs, set, s);
        TTI_TRY(tti_exec_has_sharded_params(x)
                    ? tti_device_sharded_eval(d->sharded, instance, &d->runs[s])
                    : tti_instance_run(instance, &d->runs[s], NULL, NULL));
        TTI_TRY(collect(x, instance, setup->first_shard + s, true));
        TTI_TRY(tti_device_copy_outputs(x, &set->desc, instance, s));
    }
    return tti_exec_has_sharded_params(x) ? tti_device_sharded_eval_rest(d->sharded) : TUTTI_OK;
}

tutti_status tti_device_end_capture(tti_exec_device *device, tutti_status st,
                                    void **captured_graph) {
    tutti_status ended = device->ops->queues.capture_end(captured_graph);
    TTI_TRY(st);
    return ended;
}

/* A program with collectives is captured as a graph from the second batch on, like a step. */
static tutti_status run_eval(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    if (d->pipe) {
        TTI_TRY(launch_eval(x, set, tti_device_pipe_is_loaded(d->pipe, true)));
        return tti_device_pipe_rest(d->pipe);
    }
    if (!d->axis || !d->has_evaluated || tti_profile_of(x) || set->desc.n_outputs > 0) {
        d->has_evaluated = true;
        return launch_eval(x, set, false);
    }
    if (!d->eval_captured_graph) {
        TTI_TRY(d->ops->queues.capture_begin());
        TTI_TRY(tti_device_end_capture(d, launch_eval(x, set, true), &d->eval_captured_graph));
    }
    TTI_TRY(tti_device_axis_sync_and_barrier(d->axis));
    TTI_TRY(d->ops->queues.replay(d->eval_captured_graph));
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_TP));
    return tti_device_tp_await(tti_tp_of(x), TTI_EVENT_TP);
}

tutti_status tti_device_eval_batch(tti_exec *x, const tti_step_desc *desc,
                                   tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_device_set *set = &d->sets[0]; /* no step is in flight */
    size_t n = (size_t)tti_n_sums(setup), first = (size_t)setup->first_shard * n;
    TTI_ASSERT(d->n_begun == d->n_ended);
    set->desc = *desc;
    TTI_TRY(tti_device_feed(x, set, desc));
    if (d->param_gather) TTI_TRY(tti_device_param_gather_settle(d->param_gather));
    TTI_TRY(run_eval(x, set));
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_clear_sums(x) + first, d->sums + first,
                                (size_t)tti_device_n_local(setup) * n * sizeof(double)));
    /* Parameters of other workers may still be arriving. */
    TTI_TRY(d->sharded ? tti_device_sharded_rest(d->sharded) : d->ops->queues.sync());
    TTI_TRY(tti_exec_reduce_sums(x, desc->vote, NULL));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}
