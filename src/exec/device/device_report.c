/* device_report.c - waits for the oldest step in flight and returns its results. */
#include <string.h>

#include "base/clock.h"
#include "exec/device/device_step.h"

tutti_status tti_device_take_sums(tti_exec *x, const tti_device_set *set) {
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *d = tti_device_of(x);
    const char *sums = set->host_report + sizeof(tti_step_report);
    if (d->reduce || d->axis)
        return tti_device_store_reported(x, (const double *)(const void *)sums, set->desc.step);
    if (tti_offload_of(x) && d->host_staged) return TUTTI_OK; /* they were made there */
    memcpy(tally->sums, sums, (size_t)d->n_reported * sizeof *tally->sums);
    return TUTTI_OK;
}

tutti_status tti_device_await(tti_exec *x, const tti_device_set **out) {
    tti_exec_device *d = tti_device_of(x);
    int which = tti_device_next_to_end(d);
    tti_device_set *set = &d->sets[which];
    TTI_ASSERT(set->at_work);
    TTI_TRY(tti_device_chain_before_end(x));
    set->at_work = false;
    d->n_ended++;
    *out = set;
    int64_t start = tti_now_ns();
    if (d->axis && (d->pipe || !d->reduce))
        TTI_TRY(tti_device_axis_await(d->axis, which));
    else
        TTI_TRY(d->reduce ? tti_device_reduce_await(d->reduce, which)
                          : d->ops->queues.await_host_event(which));
    tti_profile_add(x, TTI_ROW_HOST, tti_part_wait("waiting for the device"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    tti_offload *offload = tti_offload_of(x);
    tti_exec_device *d = tti_device_of(x);
    int64_t now = tti_now_ns();
    d->done = set->desc.step + 1;
    /* Excludes waits for other workers, which say nothing about this one's speed. */
    bool waited = d->host_staged && !d->pipe &&
                  tti_device_host_staged_computed(d->host_staged) > set->begun_ns;
    int64_t computed = waited ? tti_device_host_staged_computed(d->host_staged) : now;
    if (tti_offload_streams(offload)) computed = tti_offload_came_ns(offload);
    if (waited) result->comm_ns = tti_device_host_staged_summed(d->host_staged) - computed;
    result->compute_ns = computed - TTI_MAX(set->begun_ns, d->last_end_ns);
    d->last_end_ns = now;
}

/* ---- the report of a step ---- */

/* A worker has the sums of all shards, but not where in the program a bad one began. */
static tutti_status report_bad(tti_exec *x, const tti_device_set *set, uint32_t bad) {
    if (bad & TTI_BAD_LOSS)
        return tti_exec_bad_loss(x, set->desc.step, TTI_MAX(0, tti_exec_first_bad_shard(x)), "");
    return tti_exec_bad_gradient(set->desc.step, "");
}

/* The host makes the update. */
static tutti_status end_at_host(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    TTI_TRY(tti_offload_update(tti_offload_of(x), &set->desc, result));
    tally->last_hash = result->own_hash = result->params_hash;
    tally->has_hash = true;
    tti_device_of(x)->last_end_ns = tti_now_ns();
    return TUTTI_OK;
}

/* The hash of each worker's own updates: its parameters reach the others with the next step. */
static uint64_t reported_hash(const tti_setup *setup, tti_arrays *arrays,
                              const tti_device_set *set) {
    const char *sums = set->host_report + sizeof(tti_step_report);
    uint64_t hash = tti_device_reported_hash(setup, (const double *)(const void *)sums);
    if (tti_exec_has_sharded_params(arrays)) {
        arrays->sharded->hash = hash;
        arrays->sharded->own_hash = arrays->sharded->all_hashes[setup->rank];
    }
    return hash;
}

/* Records the device's waits at the end of its shards; for pipeline stages they are the bubble. */
static void note_exchange(tti_exec_device *device, const tti_pipe *pipe,
                          const tti_step_report *report, tti_step_result *result) {
    if (pipe || report->waited_ns == 0) return;
    result->comm_ns = (int64_t)TTI_MIN(report->waited_ns, (uint64_t)result->compute_ns);
    result->compute_ns -= result->comm_ns;
    device->waited_ns += result->comm_ns;
}

tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_pipe *pipe = tti_pipe_of(x);
    const tti_device_set *set;
    tti_step_report report;
    *result = (tti_step_result){0};
    if (tti_offload_streams(offload))
        TTI_TRY(tti_offload_stream(offload, &device->sets[tti_device_next_to_end(device)].desc));
    TTI_TRY(tti_device_await(x, &set));
    if (setup->n_ranks == 1 && !setup->divided)
        tally->sums[tally->n_sums - 1] = set->desc.vote ? 1 : 0;
    TTI_TRY(tti_device_take_sums(x, set));
    tti_exec_add_sums(x, result);
    tti_device_note_done(x, set, result);
    result->sent_bytes = tally->sent_bytes;
    if (device->reduce)
        result->sent_bytes += tti_device_reduce_sent(device->reduce, set->desc.step);
    if (offload) return end_at_host(x, set, result);
    memcpy(&report, set->host_report, sizeof report);
    note_exchange(device, pipe, &report, result);
    result->grad_norm = report.grad_norm;
    if (pipe) TTI_TRY(tti_device_pipe_measure(device->pipe));
    result->bubble = pipe ? tti_pipe_bubble_measured(pipe) : 0;
    if (report.bad) {
        result->skipped = true;
        return report_bad(x, set, report.bad);
    }
    if (device->reduce && tti_exec_has_parts(setup))
        report.params_hash = reported_hash(setup, arrays, set);
    if (!device->reduce && tti_exec_has_sharded_params(arrays)) {
        TTI_TRY(tti_sharded_exchange_hash(x, report.params_hash));
        report.params_hash = arrays->sharded->hash;
    }
    tally->last_hash = result->own_hash = result->params_hash = report.params_hash;
    tally->has_hash = true;
    if (tti_local_is_on(x)) return tti_device_local_end(x, &set->desc, result);
    return tti_divided_hash(setup->divided, &result->params_hash);
}
