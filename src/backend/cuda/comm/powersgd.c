/* powersgd.c - PowerSGD of buckets of gradients: the tiles of a bucket, and its tables on the
 * device. */
#include "backend/cuda/comm/powersgd.h"

#include <stdlib.h>

#include "backend/cuda/runtime/device.h"

typedef struct powersgd {
    tti_powersgd_view *views; /* [n_buckets] */
    int n_buckets;
    size_t n_tiles;
    void *memory; /* device: slots, then tiles */
    size_t n_bytes;
} powersgd;

/* The tiles of a slot; tiles NULL: only counts them. */
static size_t cut(const tti_powersgd_slot *s, int32_t slot, tti_powersgd_tile *tiles) {
    size_t n = 0;
    for (uint64_t row = 0; row < s->rows; row += TTI_POWERSGD_ROWS)
        for (uint64_t col = 0; col < s->cols; col += TTI_POWERSGD_COLS, n++)
            if (tiles) tiles[n] = (tti_powersgd_tile){slot, (uint32_t)row, (uint32_t)col};
    return n;
}

/* For each bucket the positions of its slots and tiles, counted from slots and tiles on; tiles are
 * numbered within their buckets, and written to list unless it is NULL. Returns their number. */
static size_t find_tiles(powersgd *t, const tti_powersgd_desc *d, const tti_powersgd_slot *slots,
                         const tti_powersgd_tile *tiles, tti_powersgd_tile *list) {
    size_t n = 0;
    for (int b = 0; b < d->n_buckets; b++) {
        int first = d->first[b], n_slots = d->first[b + 1] - first;
        size_t begin = n;
        uint32_t r = 0;
        for (int s = 0; s < n_slots; s++) {
            n += cut(&d->slots[first + s], s, list ? list + n : NULL);
            r = TTI_MAX(r, d->slots[first + s].r);
        }
        t->views[b] = (tti_powersgd_view){.slots = slots ? slots + first : NULL,
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
static tutti_status upload(powersgd *t, const tti_powersgd_desc *d, tti_powersgd_tile *list) {
    size_t n_slots = (size_t)d->first[d->n_buckets];
    size_t slot_bytes = n_slots * sizeof *d->slots, tile_bytes = t->n_tiles * sizeof *list;
    tti_powersgd_slot *slots = t->memory;
    find_tiles(t, d, slots, (const tti_powersgd_tile *)(slots + n_slots), list);
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, slots, d->slots, slot_bytes));
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, slots + n_slots, list, tile_bytes));
    TTI_TRY(tti_cuda_clear(TTI_QUEUE_COMPUTE, d->message, d->n_message * sizeof *d->message));
    for (int b = 0; b < t->n_buckets; b++) TTI_CUDA(tti_launch_powersgd_load(t->views[b].r));
    return tti_cuda_sync();
}

static tutti_status build(powersgd *t, const tti_powersgd_desc *d) {
    t->views = calloc((size_t)d->n_buckets + 1, sizeof *t->views);
    if (!t->views) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    t->n_buckets = d->n_buckets;
    t->n_tiles = find_tiles(t, d, NULL, NULL, NULL);
    t->n_bytes = (size_t)d->first[d->n_buckets] * sizeof *d->slots +
                 t->n_tiles * sizeof(tti_powersgd_tile) + 64;
    t->memory = tti_backend_cuda.alloc(t->n_bytes);
    tti_powersgd_tile *list = calloc(t->n_tiles + 1, sizeof *list);
    tutti_status st = t->memory && list
                          ? upload(t, d, list)
                          : tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes of tables", t->n_bytes);
    free(list);
    return st;
}

tutti_status tti_cuda_powersgd_create(const tti_powersgd_desc *desc, void **out) {
    powersgd *t = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    tutti_status st = build(t, desc);
    if (st == TUTTI_OK)
        *out = t;
    else
        tti_cuda_powersgd_destroy(t);
    return st;
}

void tti_cuda_powersgd_destroy(void *state) {
    powersgd *t = state;
    if (!t) return;
    tti_backend_cuda.release(t->memory, t->n_bytes);
    free(t->views);
    free(t);
}

static cudaStream_t stream(void) { return tti_cuda_stream_of(TTI_QUEUE_COMM); }

tutti_status tti_cuda_powersgd_left(void *state, int bucket) {
    const powersgd *t = state;
    return tti_cuda_check(tti_launch_powersgd_left(&t->views[bucket], stream()), "powersgd_left");
}

tutti_status tti_cuda_powersgd_right(void *state, int bucket) {
    const powersgd *t = state;
    return tti_cuda_check(tti_launch_powersgd_right(&t->views[bucket], stream()), "powersgd_right");
}

tutti_status tti_cuda_powersgd_end(void *state, int bucket) {
    const powersgd *t = state;
    return tti_cuda_check(tti_launch_powersgd_end(&t->views[bucket], stream()), "powersgd_end");
}
