/* device_report.c - waits for the oldest step in flight and returns its results. */
#include <string.h>

#include "base/clock.h"
#include "exec/device/device_step.h"

tutti_status tti_device_take_sums(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    const char *sums = set->told + sizeof(tti_step_report);
    if (d->reduce || d->axis)
        return tti_device_take_told(x, (const double *)(const void *)sums, set->desc.step);
    if (x->offload && d->host_staged) return TUTTI_OK; /* they were made there */
    memcpy(x->sums, sums, (size_t)d->n_told * sizeof *x->sums);
    return TUTTI_OK;
}

tutti_status tti_device_await(tti_exec *x, const tti_device_set **out) {
    tti_exec_device *d = x->device;
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
                          : d->ops->queues.await(which));
    tti_exec_profile_wait(x, tti_part_wait("waiting for the device"), start, tti_now_ns());
    return TUTTI_OK;
}

void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    tti_exec_device *d = x->device;
    int64_t now = tti_now_ns();
    d->done = set->desc.step + 1;
    /* Excludes waits for other workers, which say nothing about this one's speed. */
    bool waited = d->host_staged && !d->pipe &&
                  tti_device_host_staged_computed(d->host_staged) > set->begun_ns;
    int64_t computed = waited ? tti_device_host_staged_computed(d->host_staged) : now;
    if (tti_offload_streams(x->offload)) computed = tti_offload_came_ns(x->offload);
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
    TTI_TRY(tti_offload_update(x->offload, &set->desc, result));
    x->last_hash = result->own_hash = result->params_hash;
    x->has_hash = true;
    x->device->last_end_ns = tti_now_ns();
    return TUTTI_OK;
}

/* The hash of each worker's own updates: its parameters reach the others with the next step. */
static uint64_t told_hash(tti_exec *x, const tti_device_set *set) {
    const char *sums = set->told + sizeof(tti_step_report);
    uint64_t hash = tti_device_told_hash(x, (const double *)(const void *)sums);
    if (tti_exec_has_sharded_params(x)) {
        x->sharded->hash = hash;
        x->sharded->own_hash = x->sharded->all_hashes[x->rank];
    }
    return hash;
}

/* Records the device's waits at the end of its shards; for pipeline stages they are the bubble. */
static void note_exchange(const tti_exec *x, const tti_step_report *report,
                          tti_step_result *result) {
    if (x->pipe || report->exchange_ns == 0) return;
    result->comm_ns = (int64_t)TTI_MIN(report->exchange_ns, (uint64_t)result->compute_ns);
    result->compute_ns -= result->comm_ns;
    x->device->exchanged_ns += result->comm_ns;
}

tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result) {
    const tti_device_set *set;
    tti_step_report report;
    *result = (tti_step_result){0};
    if (tti_offload_streams(x->offload))
        TTI_TRY(tti_offload_stream(x->offload,
                                   &x->device->sets[tti_device_next_to_end(x->device)].desc));
    TTI_TRY(tti_device_await(x, &set));
    if (x->n_ranks == 1 && !x->divided) x->sums[x->n_sums - 1] = set->desc.vote ? 1 : 0;
    TTI_TRY(tti_device_take_sums(x, set));
    tti_exec_add_sums(x, result);
    tti_device_note_done(x, set, result);
    result->sent_bytes = x->sent_bytes;
    if (x->device->reduce)
        result->sent_bytes += tti_device_reduce_sent(x->device->reduce, set->desc.step);
    if (x->offload) return end_at_host(x, set, result);
    memcpy(&report, set->told, sizeof report);
    note_exchange(x, &report, result);
    result->grad_norm = report.grad_norm;
    if (x->pipe) TTI_TRY(tti_device_pipe_measure(x->device->pipe));
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    if (report.bad) {
        result->skipped = true;
        return report_bad(x, set, report.bad);
    }
    if (x->device->reduce && tti_exec_has_parts(x)) report.params_hash = told_hash(x, set);
    if (!x->device->reduce && tti_exec_has_sharded_params(x)) {
        TTI_TRY(tti_sharded_exchange_hash(x, report.params_hash));
        report.params_hash = x->sharded->hash;
    }
    x->last_hash = result->own_hash = result->params_hash = report.params_hash;
    x->has_hash = true;
    if (tti_local_is_on(x)) return tti_device_local_end(x, &set->desc, result);
    return tti_divided_hash(x->divided, &result->params_hash);
}
