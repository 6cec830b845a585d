/* device_state.c - inputs, seeds and memory for the shards of a device worker; messages of device
 * failures.
 *
 * Pointers and sizes are fixed as long as the worker has these shards; rebalancing allocates
 * everything again. A device failure shows at a later call, which may be steps later, so the
 * message names all steps in flight. */
#include "exec/device/state/device_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tutti_status tti_device_failure_context(const tti_device_work *work, const tti_device_ops *ops,
                                        tutti_status status) {
    char what[80];
    if (status == TUTTI_E_UNSUPPORTED && ops) {
        /* For calls that a lost device refuses, libraries return their own codes. */
        char text[2048];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        bool is_lost = ops->queues.sync() == TUTTI_E_DEVICE;
        status = tti_fail(is_lost ? TUTTI_E_DEVICE : status, "%s", text);
    }
    if (status != TUTTI_E_DEVICE) return status;
    /* "step 7", or what else was running. */
    size_t n_bytes = sizeof what;
    unsigned long long first = work->done + 1, last = work->newest;
    if (first == last)
        snprintf(what, n_bytes, "step %llu", last);
    else if (first < last)
        snprintf(what, n_bytes, "steps %llu to %llu", first, last);
    else
        snprintf(what, n_bytes, "after step %llu", first - 1);
    tti_fail_context("%s: device %d (%.100s) failed: ", what, work->index, work->name);
    return status;
}

/* ---- memory ---- */

tutti_status tti_device_alloc(const tti_setup *setup, void *where, size_t n_bytes) {
    void *memory = setup->desc.backend->alloc(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK
                  : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of device memory",
                             n_bytes);
}

tutti_status tti_device_alloc_host(tti_exec_device *device, void *where, size_t n_bytes) {
    void *memory = device->ops->memory.alloc_host(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK
                  : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of pinned memory",
                             n_bytes);
}

/* ---- input sets and runs ---- */

tutti_status tti_device_make_set(tti_exec *x, tti_device_set *set, bool is_input) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    size_t n = (size_t)tti_device_n_local(setup);
    set->shards = calloc(n, sizeof *set->shards);
    if (!set->shards) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; is_input && i < n; i++) {
        if (d->x_bytes) TTI_TRY(tti_device_alloc(setup, &set->shards[i].x, d->x_bytes));
        if (d->target_bytes)
            TTI_TRY(tti_device_alloc(setup, &set->shards[i].target, d->target_bytes));
        TTI_TRY(tti_device_alloc(setup, &set->shards[i].rows, sizeof(int32_t)));
    }
    TTI_TRY(tti_device_alloc(setup, &set->args, sizeof *set->args));
    TTI_TRY(tti_device_alloc_host(d, &set->args_host, sizeof *set->args_host));
    TTI_TRY(tti_device_alloc_host(d, &set->rows_host, n * sizeof *set->rows_host));
    return tti_device_alloc_host(d, &set->host_report, d->report_bytes);
}

/* Copies seed and index of every shard, which never change. */
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

/* Allocates the memory for the worker's shards. */
tutti_status tti_device_alloc_shards(tti_exec *x) {
    /* A pipeline stage that reads no samples learns their number of rows in its first step. */
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    size_t n_bytes = (size_t)tti_device_n_local(setup) * sizeof(tti_run);
    TTI_TRY(tti_device_alloc(setup, &d->fixed, n_bytes));
    TTI_TRY(tti_device_alloc(setup, &d->runs, n_bytes));
    int64_t rows = tti_inputs_rows(&setup->desc.plan->shard);
    TTI_TRY(rows > 0 ? tti_device_put_runs(x, rows) : TUTTI_OK);
    for (int i = 0; i < TTI_N_INPUTS; i++)
        TTI_TRY(tti_device_make_set(x, &tti_device_of(x)->sets[i], true));
    return TUTTI_OK;
}

void tti_device_release_shards(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    for (int i = 0; i < TTI_MAX_AHEAD; i++) {
        const tti_device_ops *ops = d->ops;
        const tti_backend *backend = setup->desc.backend;
        ops->queues.release_captured_graph(d->sets[i].captured_graph);
        for (int s = 0; d->sets[i].shards && s < tti_device_n_local(setup); s++) {
            backend->release(d->sets[i].shards[s].x, d->x_bytes);
            backend->release(d->sets[i].shards[s].target, d->target_bytes);
            backend->release(d->sets[i].shards[s].rows, sizeof(int32_t));
        }
        free(d->sets[i].shards);
        backend->release(d->sets[i].args, sizeof *d->sets[i].args);
        ops->memory.release_host(d->sets[i].args_host);
        ops->memory.release_host(d->sets[i].rows_host);
        ops->memory.release_host(d->sets[i].index);
        ops->memory.release_host(d->sets[i].host_report);
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

int tti_device_next_to_end(const tti_exec_device *d) {
    return (int)(d->n_ended % (uint64_t)d->n_sets);
}

tti_device_p2p *tti_device_p2p_of(const tti_exec *x) { return tti_device_of(x)->p2p; }

bool tti_device_is_between(const tti_exec *x) {
    const tti_exec_device *device = tti_device_of(x);
    return device && device->between;
}
