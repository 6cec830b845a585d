/* rehearsal.c - lets a process that waits for a place train a few steps alone.
 *
 * It uses the plan of the run, so the kernels of the run are loaded.  One shard is enough, because
 * all shards run the same program. */
#include "train/setup/rehearsal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "train/setup/feeding.h"
#include "train/setup/worker_exec.h"

enum {
    N_STEPS = 3,   /* the first step loads kernels; each set of inputs captures a graph */
    SPARE_ROOM = 2 /* required free memory as a multiple of the rehearsal's, because other processes
                      may allocate too */
};

static tutti_status train(const tti_blueprint *b, tti_exec *exec, tti_loader *loader) {
    tti_batch batch;
    tti_step_result result;
    TTI_TRY(tti_loader_next(loader, &batch));
    const tti_shard_data shard = tti_shard_of(&batch, 0, 0);
    tti_step_desc desc = {.shards = &shard,
                          .shard_size = b->rows_per_shard,
                          .n_rows = batch.n_rows_global,
                          .loss_scale = 1};
    tti_feeding_describe(loader, &desc);
    for (; desc.step < N_STEPS; desc.step++) TTI_TRY(tti_exec_step(exec, &desc, &result));
    return TUTTI_OK;
}

/* Creates the context of the device. *n_free: free bytes of its memory. */
static tutti_status visit(const tti_blueprint *b, int index, size_t *n_free) {
    const tti_device_ops *ops = b->devices.backend->device;
    tti_device_desc desc = tti_worker_device_desc(b, index);
    size_t now, peak;
    TTI_TRY(ops->open(&desc));
    ops->memory.get_usage(&now, &peak, n_free);
    ops->close();
    return TUTTI_OK;
}

/* True if the device has room, with a reserve for other processes of this machine. */
static bool has_room(const tti_blueprint *b, size_t n_free) {
    tti_exec_desc exec = tti_worker_exec_desc(b);
    tti_exec_memory need = {0};
    exec.n_compute_threads = exec.n_shards = 1;
    exec.zero = 0;
    if (tti_exec_memory_plan(&exec, 0, 1, &need) != TUTTI_OK) return false;
    size_t n_bytes = need.params + need.states + need.grads + need.arena + need.ema;
    return n_free / SPARE_ROOM >= n_bytes;
}

static tutti_status rehearse_at(const tti_blueprint *whole, int place) {
    tti_blueprint b = *whole; /* a shallow copy; pointers are borrowed */
    const tti_worker_desc worker = {.device_place = place,
                                    .local_rank = place % whole->n_workers, /* selects its cores */
                                    .local_n_ranks = whole->n_workers};
    tti_exec *exec = NULL;
    tti_loader *loader = NULL;
    b.n_shards = b.n_workers = 1;
    b.has_shard_map = false;
    b.config.parallel.workers = 1;
    b.config.parallel.zero = 0;
    b.config.train.batch = b.rows_per_shard;
    tutti_status st = tti_worker_exec_create(&b, &worker, &exec);
    if (st == TUTTI_OK)
        st = tti_feeding_open(&(tti_loader_desc){.dataset = b.train,
                                                 .batch = b.config.train.batch,
                                                 .n_shards = 1,
                                                 .last_shard = 1,
                                                 .seed = (uint64_t)b.config.train.seed,
                                                 .mixup = b.config.data.mixup},
                              exec, &loader);
    if (st == TUTTI_OK) st = train(&b, exec, loader);
    if (st == TUTTI_OK) (void)TTI_FAULT_AT("train.rehearsed", place, -1);
    tti_loader_destroy(loader);
    tti_exec_destroy(exec);
    return st;
}

static bool is_exclusive(const tti_blueprint *b, int index) {
    const tti_device_ops *ops = b->devices.backend->device;
    return ops->is_exclusive && ops->is_exclusive(index);
}

void tti_rehearse(const tti_blueprint *b, int place, void (*note)(void *user, const char *text),
                  void *user) {
    const tti_devices *d = &b->devices;
    bool is_whole = b->n_model_ranks == 0 && !d->mixed && !b->compares_samples;
    int only = place >= 0 ? tti_devices_place(d, place) : -1;
    char text[700];
    for (int i = 0; i < d->n; i++) {
        size_t n_free = 0;
        if (place >= 0 && d->index[i] != only) continue;
        if (is_exclusive(b, d->index[i])) {
            snprintf(text, sizeof text,
                     "device %d is in exclusive mode: this worker joins without having tried it, "
                     "and the others wait longer",
                     d->index[i]);
            note(user, text);
            return; /* all devices of a machine have the same mode */
        }
        tutti_status st = visit(b, d->index[i], &n_free);
        if (st == TUTTI_OK && is_whole && (place >= 0 || has_room(b, n_free)))
            st = rehearse_at(b, place >= 0 ? place : i);
        if (st != TUTTI_OK) {
            snprintf(text, sizeof text, "this worker joins without having tried device %d: %.500s",
                     d->index[i], tutti_last_error());
            note(user, text);
        }
        tti_clear_error();
    }
}
