/* device_memory.c - computes the memory of a step before anything is allocated; batches of bytes
 * and resident samples.
 *
 * Shards of half the rows have half the activations, and at most one more gradient buffer, because
 * the tree of the sum grows by a level; scratch of kernels, which may be a workspace of fixed size,
 * is assumed to stay the same. */
#include "exec/device/memory/device_memory.h"

#include <string.h>

#include "base/str.h"

static size_t shard_bytes(const tti_bytes_desc *d) { return d->x_bytes / sizeof(float); }

static tutti_status alloc_memory(const tti_bytes_desc *d, tti_bytes *bytes) {
    if (bytes->x) return TUTTI_OK;
    int32_t n_channels = d->step->n_channels;
    size_t b = d->target_bytes / sizeof(int32_t), n = shard_bytes(d);
    if (n_channels < 1 || n_channels > TTI_MAX_BYTE_TABLES || b == 0 || n % b != 0 ||
        n / b % (size_t)n_channels != 0)
        return tti_fail(TUTTI_E_INVALID, "exec: %zu bytes do not hold %zu samples of %d channels",
                        n, b, (int)n_channels);
    bytes->n_bytes = n * (size_t)d->n_shards;
    bytes->x = d->backend->alloc(bytes->n_bytes);
    bytes->value = d->backend->alloc(TTI_MAX_BYTE_TABLES * 256 * sizeof(float));
    if (bytes->x && bytes->value) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of device memory",
                    bytes->n_bytes);
}

tutti_status tti_bytes_copy(const tti_bytes_desc *d, tti_bytes *bytes) {
    const tti_device_ops *ops = d->backend->device;
    size_t n = shard_bytes(d), table = (size_t)d->step->n_channels * 256 * sizeof(float);
    TTI_TRY(alloc_memory(d, bytes));
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

/* ---- keeps the samples of a data set on the device ---- */

/* Distance between two shards' values, in elements of 4 bytes. */
static int64_t stride_of(size_t n_bytes) { return (int64_t)((n_bytes + 255) / 256 * 64); }

static tutti_status store_memory(void *memory, void *where, size_t n_bytes) {
    memcpy(where, &memory, sizeof memory);
    return memory ? TUTTI_OK
                  : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of device memory",
                             n_bytes);
}

static tutti_status alloc_on_device(const tti_resident_desc *d, void *where, size_t n_bytes) {
    return store_memory(d->backend->alloc(n_bytes), where, n_bytes);
}

/* Copies a host array to the device. */
static tutti_status upload(const tti_resident_desc *d, void *where, const void *from,
                           size_t n_bytes) {
    void *memory =
        d->lasting ? d->backend->device->memory.alloc_lasting(n_bytes) : d->backend->alloc(n_bytes);
    TTI_TRY(store_memory(memory, where, n_bytes));
    return d->backend->device->queues.copy(TTI_QUEUE_COMPUTE, memory, from, n_bytes);
}

bool tti_resident_fits(const tti_resident_desc *d) {
    const tti_resident_samples *from = d->samples;
    if (d->lasting && d->lasting->device) return true;
    size_t each = (size_t)from->n_elems + sizeof(int32_t), now, peak, n_free;
    d->backend->device->memory.get_usage(&now, &peak, &n_free);
    return from->n > 0 && (size_t)from->n <= n_free / 4 / each &&
           d->x_bytes == d->target_bytes * (size_t)from->n_elems;
}

static tutti_status upload_samples(const tti_resident_desc *d, tti_samples *to) {
    const tti_resident_samples *from = d->samples;
    size_t n = (size_t)from->n;
    to->n_elems = from->n_elems, to->n_channels = from->n_channels;
    TTI_TRY(upload(d, &to->y, from->y, n * sizeof *from->y));
    TTI_TRY(upload(d, &to->value, from->value, (size_t)from->n_channels * sizeof *from->value));
    TTI_TRY(upload(d, &to->x, from->x, n * (size_t)from->n_elems));
    return d->backend->device->queues.sync();
}

static tutti_status fill_lasting(const tti_resident_desc *d) {
    *d->lasting = (tti_lasting_samples){.device = d->backend->device, .n = (size_t)d->samples->n};
    tutti_status st = upload_samples(d, &d->lasting->samples);
    if (st != TUTTI_OK) tti_lasting_samples_free(d->lasting);
    return st;
}

tutti_status tti_resident_create(const tti_resident_desc *d, tti_resident *out) {
    tti_gather *g = &out->gather;
    size_t n = (size_t)d->n_shards, element = sizeof(float);
    out->lasts = d->lasting;
    g->args = d->args;
    g->n_shards = d->n_shards;
    g->b = (int32_t)(d->target_bytes / sizeof(int32_t));
    g->x_stride = stride_of(d->x_bytes), g->y_stride = stride_of(d->target_bytes);
    g->rows_stride = stride_of(sizeof(int32_t));
    TTI_TRY(alloc_on_device(d, &g->x, n * (size_t)g->x_stride * element));
    TTI_TRY(alloc_on_device(d, &g->y, n * (size_t)g->y_stride * element));
    TTI_TRY(alloc_on_device(d, &g->rows, n * (size_t)g->rows_stride * element));
    out->n = d->lasting && d->lasting->device ? d->lasting->n : (size_t)d->samples->n;
    if (!d->lasting) return upload_samples(d, &g->samples);
    if (!d->lasting->device) TTI_TRY(fill_lasting(d));
    g->samples = d->lasting->samples;
    return TUTTI_OK;
}

/* Memory that was allocated here, though kernels only read it. */
static void *writable(const void *memory) {
    void *own;
    memcpy(&own, &memory, sizeof own);
    return own;
}

void tti_lasting_samples_free(tti_lasting_samples *lasting) {
    const tti_samples *samples = &lasting->samples;
    if (lasting->device) {
        lasting->device->memory.release_lasting(writable(samples->x));
        lasting->device->memory.release_lasting(writable(samples->y));
        lasting->device->memory.release_lasting(writable(samples->value));
    }
    *lasting = (tti_lasting_samples){0};
}

void tti_resident_release(const tti_backend *backend, tti_resident *resident) {
    tti_gather *g = &resident->gather;
    size_t n = (size_t)g->n_shards, element = sizeof(float);
    if (!resident->lasts) {
        backend->release(writable(g->samples.x), resident->n * (size_t)g->samples.n_elems);
        backend->release(writable(g->samples.y), resident->n * sizeof(int32_t));
        backend->release(writable(g->samples.value),
                         (size_t)g->samples.n_channels * 256 * sizeof(float));
    }
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

/* ---- the memory of a step ---- */

static size_t params_of(const tti_device_need *n) { return n->params ? n->params : n->flat; }

static size_t grads_of(const tti_device_need *n) {
    return n->grads ? n->grads : n->flat * (size_t)n->n_grads;
}

size_t tti_device_need_bytes(const tti_device_need *n) {
    size_t n_states = (size_t)n->n_states + (size_t)n->n_emas;
    return params_of(n) + n->low_copies + grads_of(n) + n_states * n->state +
           (size_t)n->n_arenas * n->arena + n->inputs + n->residuals + n->scratch;
}

static void print_bytes(tti_str *str, size_t n_bytes) {
    double mib = (double)n_bytes / (1 << 20);
    if (mib < 1024)
        tti_str_printf(str, "%.1f MiB", mib);
    else
        tti_str_printf(str, "%.2f GiB", mib / 1024);
}

/* The same step with factor times as many shards; false: not possible. */
static bool cut(const tti_device_need *n, int factor, tti_device_need *out) {
    if (factor > n->rows || n->n_shards > n->most_shards / factor) return false;
    *out = *n;
    out->n_shards *= factor;
    out->rows = (n->rows + factor - 1) / factor;
    out->arena = n->arena / (size_t)factor;
    for (int f = factor; f > 1; f /= 2) out->n_grads++, out->grads += n->grads ? n->flat : 0;
    return true;
}

/* The step with sharded optimizer state, from level 2 on gradients too, with level 3 also
 * parameters. false: it is so already, or not possible. */
static bool split(const tti_device_need *n, int level, tti_device_need *out) {
    *out = *n;
    out->state = n->flat / (size_t)TTI_MAX(n->n_ranks, 1);
    if (level == 1) return n->state == n->flat && out->state < n->flat;
    out->params = n->partitioned[level - 2].params, out->grads = n->partitioned[level - 2].grads;
    return out->grads > 0;
}

/* The step with the optimizer state on the host; false: it is there already, or not possible. */
static bool offload(const tti_device_need *n, tti_device_need *out) {
    *out = *n;
    out->n_states = out->n_emas = 0;
    return n->offloads && n->n_states > 0;
}

/* Suggests alternatives: the lowest ZeRO stage that suffices, or offload; the smallest number of
 * shards that fits. */
static void suggest(const tti_device_need *n, size_t n_free, tti_str *str) {
    tti_device_need smaller;
    for (int level = 1; level <= 3; level++) {
        if (!split(n, level, &smaller) || tti_device_need_bytes(&smaller) > n_free) continue;
        tti_str_printf(str, "parallel.zero=%d would need about ", level);
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str, ".  ");
        break;
    }
    if (offload(n, &smaller) && tti_device_need_bytes(&smaller) <= n_free) {
        tti_str_add(str, "parallel.offload=optimizer would need about ");
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str, ".  ");
    }
    smaller = *n;
    for (int factor = 2; cut(n, factor, &smaller); factor *= 2) {
        if (tti_device_need_bytes(&smaller) > n_free) continue;
        tti_str_printf(str, "parallel.shards=%d would need about ", smaller.n_shards);
        print_bytes(str, tti_device_need_bytes(&smaller));
        tti_str_add(str,
                    "; a smaller train.batch, train.recompute=block or train.precision=bf16 "
                    "help too");
        return;
    }
    tti_str_add(
        str,
        "No number of shards fits: use a smaller model or train.batch, train.recompute=block, "
        "train.precision=bf16, parallel.tensor or parallel.pipeline, which divide the model, or a "
        "device with more memory; tutti plan shows the memory of each layout");
}

tutti_status tti_device_need_check(const tti_device_need *n, size_t n_free) {
    tti_str str = {0};
    if (tti_device_need_bytes(n) <= n_free) return TUTTI_OK;
    const struct {
        const char *text;
        size_t n_bytes;
    } parts[] = {
        {"the step needs ", tti_device_need_bytes(n)},
        {" of device memory, more than the free ", n_free},
        {": activations of a shard ", n->arena},
        {", parameters ", params_of(n) + n->low_copies},
        {", optimizer state ", n->state * (size_t)(n->n_states + n->n_emas)},
        {", gradients ", grads_of(n) + n->residuals},
        {", samples ", n->inputs},
        {", scratch of kernels ", n->scratch},
    };
    for (size_t i = 0; i < TTI_COUNT(parts) - (n->scratch == 0); i++) {
        tti_str_add(&str, parts[i].text);
        print_bytes(&str, parts[i].n_bytes);
    }
    tti_str_add(&str, ".  ");
    suggest(n, n_free, &str);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "%s", tti_str_text(&str));
    tti_str_free(&str);
    return st;
}
