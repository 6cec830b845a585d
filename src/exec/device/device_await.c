/* device_await.c - waits for the oldest step at work, and takes what it has told. */
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
