/* device_launch.c - copies the inputs of a step to the device and launches its kernels, for a
 * captured graph or at once; and evaluates a batch. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "exec/device/device_step.h"

/* ---- inputs ---- */

static void fill_args(const tti_setup *setup, const tti_step_desc *desc, tti_step_args *args) {
    double t = (double)desc->step + 1;
    *args = (tti_step_args){.step = desc->step,
                            .lr = (float)desc->lr,
                            .loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f,
                            .correction1 = (float)(1 - pow(setup->desc.beta1, t)),
                            .correction2 = (float)(1 - pow(setup->desc.beta2, t)),
                            .keep_bad = desc->stop_on_bad,
                            .vote = desc->vote,
                            .inv_rows = desc->n_rows > 0 ? (float)(1.0 / (double)desc->n_rows) : 0};
}

static bool takes_bytes(const tti_exec_device *device, const tti_step_desc *desc) {
    return desc->value && device->x_bytes > 0;
}

/* Bytes are converted to floats in the copy queue, while the previous step computes. */
static tutti_status unpack(const tti_setup *setup, tti_exec_device *device,
                           const tti_device_set *set, const tti_bytes_desc *bytes) {
    for (int s = 0; takes_bytes(device, bytes->step) && s < tti_device_n_local(setup); s++)
        TTI_TRY(
            tti_bytes_unpack(bytes, &device->bytes, s, set->shards[s].target, set->shards[s].x));
    return TUTTI_OK;
}

/* Batch and numbers of a step into a set; what computes next waits for them. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    (void)TTI_FAULT_AT("device.feed", setup->rank, (int64_t)desc->step);
    fill_args(setup, desc, set->args_host);
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
    if (takes_bytes(device, desc)) TTI_TRY(tti_bytes_copy(&bytes, &d->bytes));
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
    /* The loader may use the memory again once this returns; the device still computes the step
     * before meanwhile. */
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COPY, TTI_EVENT_INPUTS));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("samples to the device"), -1));
    TTI_TRY(unpack(setup, device, set, &bytes));
    if (takes_bytes(device, desc))
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("bytes to floats"), -1));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return d->ops->queues.await_host_event(TTI_EVENT_INPUTS);
}

/* ---- a step ---- */

static tutti_status put_begin(const tti_setup *setup, tti_exec_device *device,
                              const tti_device_set *set) {
    tti_exec_device *d = device;
    tti_gather g = d->resident.gather;
    g.args_from = set->args_host, g.index = set->index;
    if (set->gathers) return d->ops->step.gather(&g, d->fixed, d->runs);
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->args, set->args, sizeof *d->args));
    return d->ops->step.begin(d->args, d->fixed, d->runs, tti_device_n_local(setup));
}

tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set) {
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    TTI_TRY(put_begin(tti_setup_of(x), tti_device_of(x), set));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("begin"), -1);
}

/* Or all gradients for the host, which makes the update. */
static tutti_status update(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_queue sums = d->reduce ? TTI_QUEUE_COMM : TTI_QUEUE_COMPUTE;
    if (!offload) {
        TTI_TRY(tti_device_update_run(d->update));
        bool sums_too = tti_device_update_sums(d->update);
        tti_part made = sums_too ? tti_part_sums("sums and update") : tti_part_work("update");
        return tti_profile_upto(x, TTI_ROW_COMPUTE, made, -1);
    }
    TTI_TRY(tti_offload_bring(offload, tti_setup_of(x)->desc.plan->n_buckets, sums));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for gradients at the host"),
                            -1);
}

tutti_status tti_device_update_and_report(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(update(x));
    TTI_TRY(d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("report to the host"), -1);
}

/* The initial values of the step's sums, if no other workers have other samples. */
static tutti_status report_own_sums(const tti_setup *setup, tti_exec_device *device) {
    tti_exec_device *d = device;
    return d->ops->collectives.report_sums(
        &(tti_device_step_sums){.sums = d->sums,
                                .args = d->args,
                                .report = d->report,
                                .n_shards = setup->desc.n_shards,
                                .last_shard = setup->desc.n_shards,
                                .n_ranks = 1});
}

/* Hashes parameters that no other worker has, before they are updated again. */
static tutti_status reread(tti_exec *x) {
    TTI_TRY(tti_device_update_complete(tti_device_of(x)->update, 0,
                                       tti_setup_of(x)->desc.plan->n_updates));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("hash of own parameters"), -1);
}

tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool overlapped) {
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_exec_device *d = device;
    tti_device_tp_begin(tti_tp_of(x), overlapped);
    if (d->pipe) tti_device_pipe_begin(d->pipe, overlapped);
    if (d->reduce) tti_device_reduce_begin(d->reduce, overlapped);
    if (offload) tti_offload_begin(offload);
    d->overlap_status = TUTTI_OK;
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_begin(d->parts, overlapped));
    if (d->sharded) TTI_TRY(tti_device_sharded_step(d->sharded, overlapped));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_finish(d->parts));
    if (d->sharded) TTI_TRY(tti_device_sharded_finish(d->sharded));
    if (tti_exec_has_sharded_params(tti_arrays_of(x))) TTI_TRY(reread(x));
    if (d->reduce) TTI_TRY(tti_device_reduce_finish(d->reduce, d->args, d->report, d->sums));
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    if (d->axis && !d->reduce) TTI_TRY(report_own_sums(tti_setup_of(x), device));
    if (d->axis) TTI_TRY(tti_device_axis_sums(d->axis, d->sums));
    if (d->axis)
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_sums("sums of the step"), -1));
    return tti_device_update_and_report(x, set);
}

/* ---- evaluation ---- */

static tutti_status eval_shards(tti_exec *x, const tti_device_set *set, bool overlapped) {
    tti_device_tp_begin(tti_tp_of(x), overlapped);
    TTI_TRY(tti_device_put_begin(x, set));
    return tti_device_eval_shards(x, set);
}

tutti_status tti_device_end_capture(tti_exec_device *device, tutti_status st,
                                    void **captured_graph) {
    tutti_status ended = device->ops->queues.capture_end(captured_graph);
    TTI_TRY(st);
    return ended;
}

static tutti_status record_eval(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    TTI_TRY(d->ops->queues.capture_begin());
    return tti_device_end_capture(device, eval_shards(x, set, true), &d->eval_captured_graph);
}

/* Exchanges in it make a captured graph of it, from the second batch on, as of a step. */
static tutti_status run_eval(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    if (d->pipe) {
        TTI_TRY(eval_shards(x, set, tti_device_pipe_is_loaded(d->pipe, true)));
        return tti_device_pipe_rest(d->pipe);
    }
    if (!d->axis || !d->has_evaluated || tti_profile_of(x) || set->desc.n_outputs > 0) {
        d->has_evaluated = true;
        return eval_shards(x, set, false);
    }
    if (!d->eval_captured_graph) TTI_TRY(record_eval(x, set));
    TTI_TRY(tti_device_axis_meet(d->axis));
    TTI_TRY(d->ops->queues.replay(d->eval_captured_graph));
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_TP));
    return tti_device_tp_await(tti_tp_of(x), TTI_EVENT_TP);
}

tutti_status tti_device_eval_batch(tti_exec *x, const tti_step_desc *desc,
                                   tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_device_set *set = &d->sets[0]; /* all are at rest */
    size_t first = (size_t)setup->first_shard * TTI_SUMS;
    TTI_ASSERT(d->n_begun == d->n_ended);
    set->desc = *desc;
    TTI_TRY(tti_device_feed(x, set, desc));
    if (d->parts) TTI_TRY(tti_device_parts_settle(d->parts));
    TTI_TRY(run_eval(x, set));
    memset(tally->sums, 0, tally->n_sums * sizeof *tally->sums);
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, tally->sums + first, d->sums + first,
                                (size_t)tti_device_n_local(setup) * TTI_SUMS * sizeof(double)));
    /* Parameters of other workers may have arrived meanwhile. */
    TTI_TRY(d->sharded ? tti_device_sharded_rest(d->sharded) : d->ops->queues.sync());
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}
