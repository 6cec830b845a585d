/* feeding.c - converts shards of a batch, as bytes or floats, to inputs of the executor. */
#include "train/setup/feeding.h"

#include "base/affinity.h"
#include "base/error.h"

tti_shard_data tti_shard_of(const tti_batch *batch, int i, int first_shard) {
    int64_t left = batch->n_rows_global - (first_shard + i) * batch->rows_per_shard;
    tti_shard_data shard = {.n_rows = (int32_t)TTI_MAX(0, TTI_MIN(left, batch->rows_per_shard))};
    if (!batch->x) return shard;
    shard.x = tti_batch_x(batch, i);
    shard.target = tti_batch_y(batch, i);
    return shard;
}

/* Lets the calling thread, which is bound to the core of the first compute thread, use all cores of
 * the worker until tti_cores_return. */
static void take_all_cores(const tti_exec *exec, tti_cores *before) {
    tti_cores all;
    tti_exec_cores(exec, &all);
    tti_cores_widen(&all, before);
}

tutti_status tti_feeding_open(const tti_loader_desc *desc, const tti_exec *exec,
                              tti_loader **loader) {
    tti_loader_desc taken = *desc;
    tti_cores before;
    taken.bytes = tti_exec_takes_bytes(exec);
    take_all_cores(exec, &before);
    tutti_status st = tti_loader_create(&taken, loader);
    tti_cores_return(&before);
    return st;
}

tutti_status tti_feeding_load(const tutti_dataset *ds, int n_threads, const tti_exec *exec,
                              tti_resident *out) {
    tti_cores before;
    take_all_cores(exec, &before);
    tutti_status st = tti_resident_load(ds, n_threads, out);
    tti_cores_return(&before);
    return st;
}

void tti_feeding_describe(const tti_loader *loader, tti_step_desc *step) {
    const tti_pixel_table *pixels = loader ? tti_loader_pixels(loader) : NULL;
    if (!pixels) return;
    step->value = pixels->value;
    step->n_channels = pixels->n_channels;
}

static void pin(void *memory, size_t n_bytes, void *user) { tti_exec_pin(user, memory, n_bytes); }

static void unpin(void *memory, size_t n_bytes, void *user) {
    (void)n_bytes;
    tti_exec_unpin(user, memory);
}

void tti_feeding_pin(const tti_loader *loader, tti_exec *exec) {
    tti_loader_memory(loader, pin, exec);
}

void tti_feeding_unpin(const tti_loader *loader, tti_exec *exec) {
    tti_loader_memory(loader, unpin, exec);
}
