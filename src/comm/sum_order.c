/* sum_order.c - the canonical binary tree as a list of terms with the additions of a stack machine.
 *
 * Complete subtrees are pushed from left to right on a stack on which equal siblings merge at once.
 * This works like a binary counter, whose merges are exactly the additions of the tree. */
#include "comm/sum_order.h"

#include <stdlib.h>

#include "base/error.h"
#include "comm/shards.h"

/* The level of the largest subtree that starts at shard first and ends at or before last. */
static int level_at(int first, int last) {
    int level = 0;
    while (first % (2 << level) == 0 && first + (2 << level) <= last) level++;
    return level;
}

int tti_shard_partials(int first, int last, tti_partial *out) {
    int n = 0;
    while (first < last) {
        int level = level_at(first, last);
        out[n++] = (tti_partial){level, first >> level, NULL};
        first += 1 << level;
    }
    return n;
}

/* Pushes a subtree and merges siblings; returns the number of merges. */
static int push_subtree(tti_subtrees *c, int level, int index) {
    int n_adds = 0;
    TTI_ASSERT(c->n < TTI_SUM_DEPTH);
    c->level[c->n] = level;
    c->index[c->n++] = index;
    while (c->n >= 2) {
        int a = c->n - 2, b = c->n - 1;
        if (c->level[a] != c->level[b] || c->index[a] + 1 != c->index[b] || c->index[a] % 2 != 0)
            break;
        c->level[a]++;
        c->index[a] /= 2;
        c->n--;
        n_adds++;
    }
    return n_adds;
}

tutti_status tti_sum_order_ranks(int n_ranks, tti_sum_order *out) {
    tti_term *terms = calloc((size_t)n_ranks, sizeof *terms);
    if (!terms) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %d terms", n_ranks);
    tti_subtrees c = {.n = 0};
    for (int r = 0; r < n_ranks; r++)
        terms[r] = (tti_term){.rank = r, .n_adds = push_subtree(&c, 0, r)};
    terms[n_ranks - 1].n_adds +=
        c.n - 1; /* no siblings are left: add the remaining subtrees from the right */
    *out = (tti_sum_order){.terms = terms, .n_terms = n_ranks};
    return TUTTI_OK;
}

tutti_status tti_sum_order_ranks_once(int n_ranks, tti_sum_order *order) {
    return order->terms ? TUTTI_OK : tti_sum_order_ranks(n_ranks, order);
}

tutti_status tti_sum_order_shards(const tti_shard_map *shard_map, tti_sum_order *out) {
    tti_partial partials[TTI_MAX_PARTIALS];
    int n_terms = 0, n_ranks = shard_map->n_ranks;
    for (int r = 0; r < n_ranks; r++)
        n_terms += tti_shard_partials(tti_shard_map_first(shard_map, r),
                                      tti_shard_map_first(shard_map, r + 1), partials);
    tti_term *terms = calloc((size_t)n_terms, sizeof *terms);
    if (!terms) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %d terms", n_terms);
    tti_subtrees c = {.n = 0};
    for (int r = 0, t = 0; r < n_ranks; r++) {
        int n = tti_shard_partials(tti_shard_map_first(shard_map, r),
                                   tti_shard_map_first(shard_map, r + 1), partials);
        for (int k = 0; k < n; k++)
            terms[t++] = (tti_term){r, k, push_subtree(&c, partials[k].level, partials[k].index)};
    }
    *out = (tti_sum_order){terms, n_terms, tti_shard_map_n_shards(shard_map)};
    return TUTTI_OK;
}

tti_sum_walk tti_sum_walk_begin(const tti_shard_map *shard_map) {
    return (tti_sum_walk){.shard_map = shard_map};
}

bool tti_sum_walk_next(tti_sum_walk *w, tti_term *term) {
    if (w->rank == w->shard_map->n_ranks) return false;
    int last = tti_shard_map_first(w->shard_map, w->rank + 1);
    int level = level_at(w->shard, last);
    *term = (tti_term){w->rank, w->partial++, push_subtree(&w->done, level, w->shard >> level)};
    w->shard += 1 << level;
    if (w->shard < last) return true;
    w->rank++;
    w->partial = 0;
    return true;
}

void tti_sum_order_free(tti_sum_order *order) {
    free(order->terms);
    *order = (tti_sum_order){0};
}

int tti_sum_order_n_partials(const tti_sum_order *order, int rank) {
    int n = 0;
    for (int t = 0; t < order->n_terms; t++) n += order->terms[t].rank == rank;
    return n;
}
