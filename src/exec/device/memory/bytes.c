/* bytes.c - sends a batch to the device as bytes, a quarter of the size of floats.
 *
 * The copy queue is in order: a batch may overwrite the previous one, so one buffer suffices for
 * all input sets. */
#include "exec/device/memory/bytes.h"

static size_t shard_bytes(const tti_bytes_desc *d) { return d->x_bytes / sizeof(float); }

static tutti_status take_memory(const tti_bytes_desc *d, tti_bytes *bytes) {
    if (bytes->x) return TUTTI_OK;
    int32_t n_channels = d->step->n_channels;
    size_t b = d->target_bytes / sizeof(int32_t), n = shard_bytes(d);
    if (n_channels < 1 || n_channels > TTI_MAX_BYTE_TABLES || b == 0 || n % b != 0 ||
        n / b % (size_t)n_channels != 0)
        return tti_fail(TUTTI_E_INVALID, "exec: %zu bytes are no %zu samples of %d channels", n, b,
                        (int)n_channels);
    bytes->n_bytes = n * (size_t)d->n_shards;
    bytes->x = d->backend->alloc(bytes->n_bytes);
    bytes->value = d->backend->alloc(TTI_MAX_BYTE_TABLES * 256 * sizeof(float));
    if (bytes->x && bytes->value) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes on the device", bytes->n_bytes);
}

tutti_status tti_bytes_copy(const tti_bytes_desc *d, tti_bytes *bytes) {
    const tti_device_ops *ops = d->backend->device;
    size_t n = shard_bytes(d), table = (size_t)d->step->n_channels * 256 * sizeof(float);
    TTI_TRY(take_memory(d, bytes));
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COPY, bytes->value, d->step->value, table));
    for (int s = 0; s < d->n_shards; s++)
        TTI_TRY(
            ops->queues.copy(TTI_QUEUE_COPY, bytes->x + (size_t)s * n, d->step->shards[s].x, n));
    return TUTTI_OK;
}

tutti_status tti_bytes_unpack(const tti_bytes_desc *d, const tti_bytes *bytes, int s,
                              const void *target, void *x) {
    int32_t b = (int32_t)(d->target_bytes / sizeof(int32_t));
    const tti_unpack unpack = {.x = bytes->x + (size_t)s * shard_bytes(d),
                               .y = target,
                               .value = bytes->value,
                               .n_rows = b,
                               .n_elems = (int32_t)(shard_bytes(d) / (size_t)b),
                               .n_channels = d->step->n_channels,
                               .out = x};
    return d->backend->device->step.unpack(TTI_QUEUE_COPY, &unpack);
}

void tti_bytes_release(const tti_backend *backend, tti_bytes *bytes) {
    backend->release(bytes->x, bytes->n_bytes);
    backend->release(bytes->value, TTI_MAX_BYTE_TABLES * 256 * sizeof(float));
    *bytes = (tti_bytes){0};
}
