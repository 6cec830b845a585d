/* topk.c - top-k of buckets of gradients: their tiles, and tables and counts on the device.
 *
 * Bins, bounds and tallies are shared by all buckets, which run one after the other in one queue.
 */
#include "backend/cuda/comm/topk.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/device.h"

typedef struct topk {
    tti_topk_view *views; /* [n_buckets] */
    char *host, *memory;  /* tables, here until they are there; and with counts on the device */
    size_t n_bytes;
    size_t n_tiles, n_first, most_slots, most_tiles; /* most: of a bucket */
} topk;

/* The offsets of the arrays, in bytes. */
typedef struct places {
    size_t slots, tiles, first_tile, tallies, bounds, bins, end;
} places;

static size_t n_tiles_of(const tti_topk_slot *s) {
    return ((size_t)s->n + TTI_TOPK_TILE - 1) / TTI_TOPK_TILE;
}

static void count(topk *p, const tti_topk_desc *d) {
    for (int b = 0; b < d->n_buckets; b++) {
        size_t n_slots = (size_t)(d->first[b + 1] - d->first[b]), n_tiles = 0;
        for (int s = d->first[b]; s < d->first[b + 1]; s++) n_tiles += n_tiles_of(&d->slots[s]);
        p->n_tiles += n_tiles;
        p->n_first += n_slots + 1;
        p->most_slots = TTI_MAX(p->most_slots, n_slots);
        p->most_tiles = TTI_MAX(p->most_tiles, n_tiles);
    }
}

static size_t take(size_t *at, size_t n_bytes) {
    size_t place = *at;
    *at += (n_bytes + 63) & ~(size_t)63;
    return place;
}

static places lay_out(const topk *p, const tti_topk_desc *d) {
    places at = {0};
    at.slots = take(&at.end, (size_t)d->first[d->n_buckets] * sizeof *d->slots);
    at.tiles = take(&at.end, p->n_tiles * sizeof(tti_topk_tile));
    at.first_tile = take(&at.end, p->n_first * sizeof(int32_t));
    at.tallies = take(&at.end, p->most_tiles * sizeof(tti_topk_tally));
    at.bounds = take(&at.end, p->most_slots * sizeof(tti_topk_bound));
    at.bins = take(&at.end, p->most_slots * TTI_TOPK_BINS * sizeof(uint32_t));
    return at;
}

/* Views of all buckets, and the tables that they point to, in the host's copy. */
static void fill(topk *p, const tti_topk_desc *d, const places *at) {
    tti_topk_tile *tiles = (tti_topk_tile *)(void *)(p->host + at->tiles);
    int32_t *first_tile = (int32_t *)(void *)(p->host + at->first_tile);
    size_t n_tiles = 0, n_first = 0;
    memcpy(p->host + at->slots, d->slots, (size_t)d->first[d->n_buckets] * sizeof *d->slots);
    for (int b = 0; b < d->n_buckets; b++) {
        int first = d->first[b], n_slots = d->first[b + 1] - first;
        char *m = p->memory;
        size_t begin = n_tiles;
        tti_topk_view *v = &p->views[b];
        *v = (tti_topk_view){.slots = (const tti_topk_slot *)(void *)(m + at->slots) + first,
                             .tiles = (const tti_topk_tile *)(void *)(m + at->tiles) + begin,
                             .first_tile = (const int32_t *)(void *)(m + at->first_tile) + n_first,
                             .n_slots = n_slots,
                             .n_ranks = d->n_ranks,
                             .grads = d->grads,
                             .residual = d->residual,
                             .own = d->own,
                             .all = d->all,
                             .first_pair = d->pairs[b],
                             .n_pairs = d->pairs[b + 1] - d->pairs[b],
                             .bins = (uint32_t *)(void *)(m + at->bins),
                             .bounds = (tti_topk_bound *)(void *)(m + at->bounds),
                             .tallies = (tti_topk_tally *)(void *)(m + at->tallies),
                             .args = d->args};
        for (int s = 0; s < n_slots; s++) {
            first_tile[n_first++] = (int32_t)(n_tiles - begin);
            for (size_t t = 0; t < n_tiles_of(&d->slots[first + s]); t++)
                tiles[n_tiles++] = (tti_topk_tile){s, (uint32_t)(t * TTI_TOPK_TILE)};
        }
        first_tile[n_first++] = v->n_tiles = (int32_t)(n_tiles - begin);
    }
}

static tutti_status build(topk *p, const tti_topk_desc *d) {
    count(p, d);
    places at = lay_out(p, d);
    p->n_bytes = at.end;
    p->views = calloc((size_t)d->n_buckets + 1, sizeof *p->views);
    p->host = calloc(1, at.tallies + 1);
    p->memory = tti_backend_cuda.alloc(at.end);
    if (!p->views || !p->host || !p->memory)
        return tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes of tables", at.end);
    fill(p, d, &at);
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, p->memory, p->host, at.tallies));
    TTI_CUDA(tti_launch_topk_load());
    return tti_cuda_sync();
}

tutti_status tti_cuda_topk_create(const tti_topk_desc *desc, void **out) {
    topk *p = calloc(1, sizeof *p);
    if (!p) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    tutti_status st = build(p, desc);
    free(p->host);
    p->host = NULL;
    if (st == TUTTI_OK)
        *out = p;
    else
        tti_cuda_topk_destroy(p);
    return st;
}

void tti_cuda_topk_destroy(void *state) {
    topk *p = state;
    if (!p) return;
    tti_backend_cuda.release(p->memory, p->n_bytes);
    free(p->views);
    free(p);
}

static cudaStream_t stream(void) { return tti_cuda_stream_of(TTI_QUEUE_COMM); }

tutti_status tti_cuda_topk_choose(void *state, int bucket) {
    const topk *p = state;
    return tti_cuda_check(tti_launch_topk_choose(&p->views[bucket], stream()), "topk_choose");
}

tutti_status tti_cuda_topk_add(void *state, int bucket) {
    const topk *p = state;
    return tti_cuda_check(tti_launch_topk_add(&p->views[bucket], stream()), "topk_add");
}
