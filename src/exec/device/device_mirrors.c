/* device_mirrors.c - copies flat arrays to the host and back.
 *
 * Arrays of state are as long as this worker's partition of them; a mirror has the layout of its
 * array. */
#include <stdlib.h>

#include "exec/device/device_step.h"

static float *device_array(const tti_arrays *arrays, int which) {
    return which == 0 ? arrays->params : which == 1 ? arrays->ema : arrays->states[which - 2];
}

static size_t flat_bytes(const tti_setup *setup) {
    return setup->desc.plan->n_flat * sizeof(float);
}

static size_t state_bytes(const tti_setup *setup) { return setup->share.n_elems * sizeof(float); }

static size_t param_bytes(const tti_setup *setup, const tti_arrays *arrays) {
    return tti_exec_has_sharded_params(arrays) ? state_bytes(setup) : flat_bytes(setup);
}

void tti_device_mirrors_fini(tti_exec_device *device) {
    for (int i = 0; i < TTI_N_MIRRORS; i++) free(device->mirrors[i]);
    free(device->staging);
}

static tutti_status take(float **memory, size_t n_bytes) {
    if (!*memory) *memory = calloc(1, n_bytes + 64);
    return *memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of the host", n_bytes);
}

/* The first n arrays that the device has to the host, or what there is of them back. */
static tutti_status copy(tti_exec *x, bool push, int n) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_device_parts *parts = device->parts;
    if (parts && push) tti_device_parts_written(parts, true);
    if (parts && !push) TTI_TRY(tti_device_parts_settle(parts));
    const tti_device_ops *ops = setup->desc.backend->device;
    float **mirror = device->mirrors;
    for (int i = 0; i < n; i++) {
        float *array = device_array(arrays, i);
        size_t n_bytes = i == 0 ? param_bytes(setup, arrays) : state_bytes(setup);
        if (!array || (push && !mirror[i])) continue;
        TTI_TRY(take(&mirror[i], n_bytes));
        void *dst = push ? array : mirror[i], *src = push ? mirror[i] : array;
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, dst, src, n_bytes));
    }
    return ops->queues.sync();
}

float *tti_exec_device_mirror(tti_exec_device *device, int which) { return device->mirrors[which]; }

tutti_status tti_exec_device_pull(tti_exec *x) {
    if (tti_offload_of(x)) return TUTTI_OK; /* nothing is newer than on the host */
    return tti_device_failure(x, copy(x, false, TTI_N_MIRRORS));
}

tutti_status tti_exec_device_pull_params(tti_exec *x) {
    return tti_device_failure(x, copy(x, false, 1));
}

tutti_status tti_exec_device_pull_ema(tti_exec *x) {
    return tti_device_failure(x, copy(x, false, 2));
}

tutti_status tti_exec_device_push(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    if (offload) return tti_device_failure(x, tti_offload_put_params(offload));
    tti_device_of(x)->has_low = false;
    return tti_device_failure(x, copy(x, true, TTI_N_MIRRORS));
}

tutti_status tti_exec_device_staging(tti_exec *x, float **staging) {
    tti_exec_device *device = tti_device_of(x);
    TTI_TRY(take(&device->staging, flat_bytes(tti_setup_of(x))));
    *staging = device->staging;
    return TUTTI_OK;
}

tutti_status tti_exec_device_put_staging(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_device_ops *ops = setup->desc.backend->device;
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_grads(x), tti_device_of(x)->staging,
                             flat_bytes(setup)));
    return ops->queues.sync();
}

/* ---- hashes ---- */

/* By the blocks of the update, as the update hashes them. */
static uint64_t hash_mirror(const tti_setup *setup, const tti_exec_device *device) {
    uint64_t hash = 0;
    for (int i = 0; i < setup->desc.plan->n_updates; i++) {
        const tti_update_step *step = &setup->desc.plan->updates[i];
        hash += tti_hash_block(&tti_backend_cpu, step, device->mirrors[0] + step->first);
    }
    return hash;
}

tutti_status tti_exec_device_settle(tti_exec *x) {
    tti_device_parts *parts = tti_device_of(x)->parts;
    return parts ? tti_device_failure(x, tti_device_parts_settle(parts)) : TUTTI_OK;
}

tutti_status tti_exec_device_own_hash(tti_exec *x, uint64_t *hash) {
    return tti_device_failure(x, tti_device_update_hash(tti_device_of(x)->update, hash));
}

tutti_status tti_exec_device_hash(tti_exec *x, uint64_t *hash) {
    tti_exec_device *device = tti_device_of(x);
    TTI_TRY(tti_exec_device_settle(x));
    if (!tti_offload_of(x))
        return tti_device_failure(x, tti_device_update_hash(device->update, hash));
    TTI_TRY(tti_exec_device_pull_params(x));
    *hash = hash_mirror(tti_setup_of(x), device);
    return TUTTI_OK;
}
