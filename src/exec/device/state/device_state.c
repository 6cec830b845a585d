/* device_state.c - inputs, seeds and memory for the shards of a device worker.
 *
 * Pointers and sizes are fixed as long as the worker has these shards; after rebalancing
 * (exec/worker/mixed.h) everything is made again. */
#include <stdlib.h>
#include <string.h>

#include "exec/device/state/device_state.h"

/* ---- memory ---- */

tutti_status tti_device_take(const tti_setup *setup, void *where, size_t n_bytes) {
    void *memory = setup->desc.backend->alloc(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes on the device", n_bytes);
}

tutti_status tti_device_take_host(tti_exec_device *device, void *where, size_t n_bytes) {
    void *memory = device->ops->memory.alloc_host(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of pinned memory", n_bytes);
}

/* ---- sets of inputs, and runs ---- */

tutti_status tti_device_make_set(tti_exec *x, tti_device_set *set, bool is_input) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    size_t n = (size_t)tti_device_n_local(setup);
    set->shards = calloc(n, sizeof *set->shards);
    if (!set->shards) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; is_input && i < n; i++) {
        if (d->x_bytes) TTI_TRY(tti_device_take(setup, &set->shards[i].x, d->x_bytes));
        if (d->target_bytes)
            TTI_TRY(tti_device_take(setup, &set->shards[i].target, d->target_bytes));
        TTI_TRY(tti_device_take(setup, &set->shards[i].rows, sizeof(int32_t)));
    }
    TTI_TRY(tti_device_take(setup, &set->args, sizeof *set->args));
    TTI_TRY(tti_device_take_host(device, &set->args_host, sizeof *set->args_host));
    TTI_TRY(tti_device_take_host(device, &set->rows_host, n * sizeof *set->rows_host));
    return tti_device_take_host(device, &set->host_report, d->report_bytes);
}

/* Seed and place of every shard: what never changes of their runs. */
tutti_status tti_device_put_runs(tti_exec *x, int64_t rows) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    size_t n_bytes = (size_t)tti_device_n_local(setup) * sizeof(tti_run);
    tti_run *runs = calloc(1, n_bytes + 1);
    if (!runs) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int s = 0; s < tti_device_n_local(setup); s++)
        runs[s] =
            tti_exec_shard_run(setup, &(tti_step_desc){.shard_size = rows}, setup->first_shard + s);
    d->rows = rows;
    tutti_status st = d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->fixed, runs, n_bytes);
    if (st == TUTTI_OK) st = d->ops->queues.sync();
    free(runs);
    return st;
}

/* Stages of a pipeline that read no samples hear with the first step how many these are. */
static tutti_status make_runs(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    size_t n_bytes = (size_t)tti_device_n_local(setup) * sizeof(tti_run);
    TTI_TRY(tti_device_take(setup, &d->fixed, n_bytes));
    TTI_TRY(tti_device_take(setup, &d->runs, n_bytes));
    int64_t rows = tti_inputs_rows(&setup->desc.plan->shard);
    return rows > 0 ? tti_device_put_runs(x, rows) : TUTTI_OK;
}

/* Allocates the memory for the worker's shards. */
tutti_status tti_device_take_shards(tti_exec *x) {
    TTI_TRY(make_runs(x));
    for (int i = 0; i < TTI_N_INPUTS; i++)
        TTI_TRY(tti_device_make_set(x, &tti_device_of(x)->sets[i], true));
    return TUTTI_OK;
}

static void release_set(const tti_setup *setup, tti_exec_device *device, tti_device_set *set) {
    const tti_device_ops *ops = device->ops;
    const tti_backend *backend = setup->desc.backend;
    ops->queues.release_captured_graph(set->captured_graph);
    for (int s = 0; set->shards && s < tti_device_n_local(setup); s++) {
        backend->release(set->shards[s].x, device->x_bytes);
        backend->release(set->shards[s].target, device->target_bytes);
        backend->release(set->shards[s].rows, sizeof(int32_t));
    }
    free(set->shards);
    backend->release(set->args, sizeof *set->args);
    ops->memory.release_host(set->args_host);
    ops->memory.release_host(set->rows_host);
    ops->memory.release_host(set->index);
    ops->memory.release_host(set->host_report);
}

void tti_device_release_shards(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    for (int i = 0; i < TTI_MAX_AHEAD; i++) {
        release_set(setup, device, &d->sets[i]);
        d->sets[i] = (tti_device_set){0};
        d->ops->queues.release_captured_graph(d->chains[i]);
        d->chains[i] = NULL;
    }
    tti_bytes_release(setup->desc.backend, &d->bytes);
    setup->desc.backend->release(d->fixed, (size_t)tti_device_n_local(setup) * sizeof(tti_run));
    setup->desc.backend->release(d->runs, (size_t)tti_device_n_local(setup) * sizeof(tti_run));
    d->fixed = d->runs = NULL;
}

/* ---- failures ---- */

tutti_status tti_device_failure(const tti_exec *x, tutti_status st) {
    const tti_exec_device *d = tti_device_of(x);
    const tti_device_work work = {.name = tti_str_text(&d->name),
                                  .index = tti_setup_of(x)->desc.device.index,
                                  .done = d->done,
                                  .newest = d->newest};
    bool waits_for_peers = d->reduce || d->axis || d->pipe;
    return tti_device_failure_context(&work, waits_for_peers ? NULL : d->ops, st);
}
