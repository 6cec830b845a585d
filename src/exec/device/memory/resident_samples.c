/* resident_samples.c - keeps the samples of a data set on the device. */
#include "exec/device/memory/resident_samples.h"

#include <string.h>

/* Elements of 4 bytes from one shard's values to the next. */
static int64_t stride_of(size_t n_bytes) { return (int64_t)((n_bytes + 255) / 256 * 64); }

static tutti_status take(const tti_resident_desc *d, void *where, size_t n_bytes) {
    void *memory = d->backend->alloc(n_bytes);
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes on the device", n_bytes);
}

/* A copy on the device of an array of the host. */
static tutti_status upload(const tti_resident_desc *d, void *where, const void *from,
                           size_t n_bytes) {
    void *memory;
    TTI_TRY(take(d, &memory, n_bytes));
    memcpy(where, &memory, sizeof memory);
    return d->backend->device->queues.copy(TTI_QUEUE_COMPUTE, memory, from, n_bytes);
}

bool tti_resident_fits(const tti_resident_desc *d) {
    const tti_resident_samples *from = d->samples;
    size_t each = (size_t)from->n_elems + sizeof(int32_t), now, peak, n_free;
    d->backend->device->memory.get_usage(&now, &peak, &n_free);
    return from->n > 0 && (size_t)from->n <= n_free / 4 / each &&
           d->x_bytes == d->target_bytes * (size_t)from->n_elems;
}

tutti_status tti_resident_create(const tti_resident_desc *d, tti_resident *out) {
    const tti_resident_samples *from = d->samples;
    tti_gather *g = &out->gather;
    size_t n = (size_t)d->n_shards, element = sizeof(float), n_samples = (size_t)from->n;
    out->n = n_samples;
    g->args = d->args;
    g->n_shards = d->n_shards;
    g->b = (int32_t)(d->target_bytes / sizeof(int32_t));
    g->x_stride = stride_of(d->x_bytes), g->y_stride = stride_of(d->target_bytes);
    g->rows_stride = stride_of(sizeof(int32_t));
    g->samples.n_elems = from->n_elems, g->samples.n_channels = from->n_channels;
    TTI_TRY(take(d, &g->x, n * (size_t)g->x_stride * element));
    TTI_TRY(take(d, &g->y, n * (size_t)g->y_stride * element));
    TTI_TRY(take(d, &g->rows, n * (size_t)g->rows_stride * element));
    TTI_TRY(upload(d, &g->samples.y, from->y, n_samples * sizeof *from->y));
    TTI_TRY(
        upload(d, &g->samples.value, from->value, (size_t)from->n_channels * sizeof *from->value));
    TTI_TRY(upload(d, &g->samples.x, from->x, n_samples * (size_t)from->n_elems));
    return d->backend->device->queues.sync();
}

void tti_resident_release(const tti_backend *backend, tti_resident *resident) {
    tti_gather *g = &resident->gather;
    size_t n = (size_t)g->n_shards, element = sizeof(float);
    void *x = NULL, *y = NULL, *value = NULL; /* ours, though kernels only read them */
    memcpy(&x, &g->samples.x, sizeof x);
    memcpy(&y, &g->samples.y, sizeof y);
    memcpy(&value, &g->samples.value, sizeof value);
    backend->release(x, resident->n * (size_t)g->samples.n_elems);
    backend->release(y, resident->n * sizeof(int32_t));
    backend->release(value, (size_t)g->samples.n_channels * 256 * sizeof(float));
    backend->release(g->x, n * (size_t)g->x_stride * element);
    backend->release(g->y, n * (size_t)g->y_stride * element);
    backend->release(g->rows, n * (size_t)g->rows_stride * element);
    *resident = (tti_resident){0};
}

size_t tti_resident_index_elems(const tti_resident *resident) {
    return (size_t)resident->gather.n_shards * (size_t)(1 + resident->gather.b);
}

void tti_resident_note(const tti_resident *resident, const tti_step_desc *desc, int32_t *index) {
    size_t b = (size_t)resident->gather.b;
    for (int s = 0; s < resident->gather.n_shards; s++) {
        int32_t *to = index + (size_t)s * (1 + b);
        to[0] = desc->shards[s].n_rows;
        memcpy(to + 1, desc->index + (size_t)s * b, b * sizeof *to);
    }
}
