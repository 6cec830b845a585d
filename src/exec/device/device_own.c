/* device_own.c - memory of a worker's device, and what is told of its failures. */
#include <string.h>

#include "exec/device/device_failure.h"
#include "exec/device/device_step.h"

tutti_status tti_device_take(tti_exec *x, void *where, size_t n_bytes) {
    void *memory = x->desc.backend->alloc(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes on the device", n_bytes);
}

tutti_status tti_device_take_host(tti_exec *x, void *where, size_t n_bytes) {
    void *memory = x->device->ops->memory.alloc_host(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of pinned memory", n_bytes);
}

tutti_status tti_exec_device_tell(tti_exec *x, tutti_status st) {
    const tti_exec_device *d = x->device;
    const tti_device_work work = {.name = tti_str_text(&d->name),
                                  .index = x->desc.device.index,
                                  .done = d->done,
                                  .newest = d->newest};
    bool waits_for_peers = d->reduce || d->axis || d->pipe;
    return tti_device_tell(&work, waits_for_peers ? NULL : d->ops, st);
}
