/* device_failure.c - reports which device failed, and in which step.
 *
 * Failures show at a later call to the device, which may be steps later: all steps in flight are
 * named. */
#include "exec/device/state/device_failure.h"

#include <stdio.h>

/* "step 7", or what else was at work. */
static void describe_work(const tti_device_work *work, char *out, size_t n_bytes) {
    unsigned long long first = work->done + 1, last = work->newest;
    if (first == last)
        snprintf(out, n_bytes, "step %llu", last);
    else if (first < last)
        snprintf(out, n_bytes, "steps %llu to %llu", first, last);
    else
        snprintf(out, n_bytes, "after step %llu", first - 1);
}

/* Libraries return their own codes for calls that a lost device refuses. */
static tutti_status ask(const tti_device_ops *ops, tutti_status status) {
    char text[2048];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    bool is_lost = ops->queues.sync() == TUTTI_E_DEVICE;
    return tti_fail(is_lost ? TUTTI_E_DEVICE : status, "%s", text);
}

tutti_status tti_device_failure_context(const tti_device_work *work, const tti_device_ops *ops,
                                        tutti_status status) {
    char what[80];
    if (status == TUTTI_E_UNSUPPORTED && ops) status = ask(ops, status);
    if (status != TUTTI_E_DEVICE) return status;
    describe_work(work, what, sizeof what);
    tti_fail_context("%s: device %d (%.100s) failed: ", what, work->index, work->name);
    return status;
}
