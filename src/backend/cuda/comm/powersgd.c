/* powersgd.c - PowerSGD of buckets of gradients: the tiles of a bucket, and its tables on the
 * device. */
#include "backend/cuda/comm/powersgd.h"

#include <stdlib.h>

#include "backend/cuda/runtime/device.h"

typedef struct thin {
    tti_thin_view *views; /* [n_buckets] */
    int n_buckets;
    size_t n_tiles;
    void *memory; /* device: slots, then tiles */
    size_t n_bytes;
} thin;

/* The tiles of a slot; tiles NULL: only counts them. */
static size_t cut(const tti_thin_slot *s, int32_t slot, tti_thin_tile *tiles) {
    size_t n = 0;
    for (uint64_t row = 0; row < s->rows; row += TTI_THIN_ROWS)
        for (uint64_t col = 0; col < s->cols; col += TTI_THIN_COLS, n++)
            if (tiles) tiles[n] = (tti_thin_tile){slot, (uint32_t)row, (uint32_t)col};
    return n;
}

/* For each bucket the positions of its slots and tiles, counted from slots and tiles on; tiles are
 * numbered within their buckets, and written to list unless it is NULL. Returns their number. */
static size_t find_tiles(thin *t, const tti_device_thin *d, const tti_thin_slot *slots,
                         const tti_thin_tile *tiles, tti_thin_tile *list) {
    size_t n = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        int first = d->first[b], n_slots = d->first[b + 1] - first;
        size_t begin = n;
        uint32_t r = 0;
        for (int s = 0; s < n_slots; s++) {
            n += cut(&d->slots[first + s], s, list ? list + n : NULL);
            r = TTI_MAX(r, d->slots[first + s].r);
        }
        t->views[b] = (tti_thin_view){.slots = slots ? slots + first : NULL,
                                      .tiles = tiles ? tiles + begin : NULL,
                                      .n_slots = n_slots,
                                      .n_tiles = (int)(n - begin),
                                      .r = (int)r,
                                      .grads = d->grads,
                                      .residual = d->residual,
                                      .message = d->message,
                                      .own = d->own,
                                      .scratch = d->scratch,
                                      .args = d->args};
    }
    return n;
}

/* Tables to the device; what loads there does so now. */
static tutti_status upload(thin *t, const tti_device_thin *d, tti_thin_tile *list) {
    size_t n_slots = (size_t)d->first[d->n_buckets];
    size_t slot_bytes = n_slots * sizeof *d->slots, tile_bytes = t->n_tiles * sizeof *list;
    tti_thin_slot *slots = t->memory;
    find_tiles(t, d, slots, (const tti_thin_tile *)(slots + n_slots), list);
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, slots, d->slots, slot_bytes));
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, slots + n_slots, list, tile_bytes));
    TTI_TRY(tti_cuda_clear(TTI_QUEUE_COMPUTE, d->message, d->n_message * sizeof *d->message));
    for (int b = 0; b < t->n_buckets; b++) TTI_CUDA(tti_launch_thin_load(t->views[b].r));
    return tti_cuda_sync();
}

static tutti_status build(thin *t, const tti_device_thin *d) {
    t->views = calloc((size_t)d->n_buckets + 1, sizeof *t->views);
    if (!t->views) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    t->n_buckets = d->n_buckets;
    t->n_tiles = find_tiles(t, d, NULL, NULL, NULL);
    t->n_bytes =
        (size_t)d->first[d->n_buckets] * sizeof *d->slots + t->n_tiles * sizeof(tti_thin_tile) + 64;
    t->memory = tti_backend_cuda.alloc(t->n_bytes);
    tti_thin_tile *list = calloc(t->n_tiles + 1, sizeof *list);
    tutti_status st = t->memory && list
                          ? upload(t, d, list)
                          : tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes of tables", t->n_bytes);
    free(list);
    return st;
}

tutti_status tti_cuda_thin_create(const tti_device_thin *desc, void **out) {
    thin *t = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    tutti_status st = build(t, desc);
    if (st == TUTTI_OK)
        *out = t;
    else
        tti_cuda_thin_destroy(t);
    return st;
}

void tti_cuda_thin_destroy(void *state) {
    thin *t = state;
    if (!t) return;
    tti_backend_cuda.release(t->memory, t->n_bytes);
    free(t->views);
    free(t);
}

static cudaStream_t stream(void) { return tti_cuda_device()->streams[TTI_QUEUE_COMM]; }

tutti_status tti_cuda_thin_left(void *state, int bucket) {
    const thin *t = state;
    return tti_cuda_check(tti_launch_thin_left(&t->views[bucket], stream()), "thin_left");
}

tutti_status tti_cuda_thin_right(void *state, int bucket) {
    const thin *t = state;
    return tti_cuda_check(tti_launch_thin_right(&t->views[bucket], stream()), "thin_right");
}

tutti_status tti_cuda_thin_end(void *state, int bucket) {
    const thin *t = state;
    return tti_cuda_check(tti_launch_thin_end(&t->views[bucket], stream()), "thin_end");
}
