/* shard_map.c - distributes shards over ranks of unequal speed.
 *
 * Shards are assigned one at a time, each to the rank that would finish it first.  A rank with more
 * shards never finishes earlier, so no other assignment lets the slowest rank finish earlier. */
#include "comm/shard_map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

int tti_shard_first(int rank, int n_ranks, int n_shards) {
    return (int)((int64_t)rank * n_shards / n_ranks);
}

static int power_of_two_from(int n) {
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

/* One half of the tree has one rank per leaf; the remaining ranks share the other half. */
static int subtree_first(int rank, int n_ranks) {
    int left = power_of_two_from(n_ranks), first = 0;
    while (rank > 0) {
        int power = power_of_two_from(n_ranks), each = left / power;
        int n = TTI_MIN(rank, power == n_ranks ? power : power / 2);
        first += n * each;
        left -= n * each;
        n_ranks -= n;
        rank -= n;
    }
    return first;
}

int tti_shard_map_first(const tti_shard_map *shard_map, int rank) {
    if (shard_map->first) return shard_map->first[rank];
    if (shard_map->is_subtrees) return subtree_first(rank, shard_map->n_ranks);
    return tti_shard_first(rank, shard_map->n_ranks, shard_map->n_shards);
}

int tti_shard_map_owner(const tti_shard_map *shard_map, int shard) {
    int low = 0, high = shard_map->n_ranks - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (tti_shard_map_first(shard_map, middle) <= shard)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int tti_shard_map_n_shards(const tti_shard_map *shard_map) { return shard_map->n_shards; }

int tti_shard_map_n_of(const tti_shard_map *shard_map, int rank) {
    return tti_shard_map_first(shard_map, rank + 1) - tti_shard_map_first(shard_map, rank);
}

static bool is_equal(const tti_shard_map *m) { return !m->first && !m->is_subtrees; }

bool tti_shard_map_same(const tti_shard_map *a, const tti_shard_map *b) {
    if (a->n_ranks != b->n_ranks || a->n_shards != b->n_shards) return false;
    if (a->first == b->first && a->is_subtrees == b->is_subtrees) return true;
    for (int r = 0; r < a->n_ranks; r++)
        if (tti_shard_map_first(a, r) != tti_shard_map_first(b, r)) return false;
    return true;
}

bool tti_shard_map_is_even(const tti_shard_map *shard_map) {
    if (is_equal(shard_map)) return shard_map->n_shards % shard_map->n_ranks == 0;
    for (int r = 1; r < shard_map->n_ranks; r++)
        if (tti_shard_map_n_of(shard_map, r) != tti_shard_map_n_of(shard_map, 0)) return false;
    return true;
}

bool tti_shard_map_is_uniform(const tti_shard_map *m) {
    int each = m->n_shards / m->n_ranks;
    return is_equal(m) && m->n_shards % m->n_ranks == 0 && (each & (each - 1)) == 0;
}

int tti_shard_map_most(const tti_shard_map *m) {
    int most = 0;
    if (is_equal(m)) return (m->n_shards + m->n_ranks - 1) / m->n_ranks;
    for (int r = 0; r < m->n_ranks; r++) most = TTI_MAX(most, tti_shard_map_n_of(m, r));
    return most;
}

tutti_status tti_shard_map_copy(const tti_shard_map *from, tti_shard_map *to) {
    tti_shard_map copy = *from;
    if (from->first) {
        size_t n_bytes = ((size_t)from->n_ranks + 1) * sizeof *copy.first;
        copy.first = malloc(n_bytes);
        if (!copy.first)
            return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for a shard map of %d ranks",
                            from->n_ranks);
        memcpy(copy.first, from->first, n_bytes);
    }
    tti_shard_map_free(to);
    *to = copy;
    return TUTTI_OK;
}

void tti_shard_map_free(tti_shard_map *shard_map) {
    free(shard_map->first);
    *shard_map = (tti_shard_map){0};
}

void tti_shard_map_equally(int n_ranks, int n_shards, tti_shard_map *out) {
    *out = (tti_shard_map){.n_ranks = n_ranks, .n_shards = n_shards};
}

void tti_shard_map_subtrees(int n_ranks, tti_shard_map *out) {
    *out = (tti_shard_map){
        .n_ranks = n_ranks, .n_shards = power_of_two_from(n_ranks), .is_subtrees = true};
}

/* Returns the time in seconds at which rank has finished n shards. */
typedef double (*done_fn)(const void *of, int rank, int n);

static double done_by_weight(const void *of, int rank, int n) {
    return (double)n / ((const double *)of)[rank];
}

static double done_by_throughput(const void *of, int rank, int n) {
    const tti_throughput *p = (const tti_throughput *)of + rank;
    int n_micro_groups = (n + p->n_compute_threads - 1) / p->n_compute_threads;
    return p->group_s * n_micro_groups;
}

/* A rank that could get the next shard. */
typedef struct candidate {
    double done_s; /* time at which it would finish one more shard */
    int rank, n;   /* shards that it has */
} candidate;

/* True if a finishes first.  Among equals, the rank with fewer shards comes first, then the lower
 * rank. */
static bool comes_before(const candidate *a, const candidate *b) {
    if (a->done_s < b->done_s || a->done_s > b->done_s) return a->done_s < b->done_s;
    return a->n < b->n || (a->n == b->n && a->rank < b->rank);
}

/* Restores the heap after the entry at changed. */
static void sink(candidate *heap, int n_ranks, int at) {
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < n_ranks; child++)
            if (comes_before(&heap[child], &heap[least])) least = child;
        if (least == at) return;
        candidate swap = heap[at];
        heap[at] = heap[least];
        heap[least] = swap;
        at = least;
    }
}

static tutti_status give_out(int n_ranks, int n_shards, done_fn done, const void *of,
                             tti_shard_map *out) {
    TTI_ASSERT(n_ranks >= 1 && n_ranks <= n_shards);
    candidate *heap = calloc((size_t)n_ranks, sizeof *heap);
    int *first = calloc((size_t)n_ranks + 1, sizeof *first);
    if (!heap || !first) {
        free(heap);
        free(first);
        return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for a shard map of %d ranks", n_ranks);
    }
    for (int r = 0; r < n_ranks; r++) heap[r] = (candidate){done(of, r, 2), r, 1};
    for (int at = n_ranks / 2; at >= 0; at--) sink(heap, n_ranks, at);
    for (int left = n_shards - n_ranks; left > 0; left--) {
        heap[0].n++;
        heap[0].done_s = done(of, heap[0].rank, heap[0].n + 1);
        sink(heap, n_ranks, 0);
    }
    for (int i = 0; i < n_ranks; i++) first[heap[i].rank + 1] = heap[i].n;
    for (int r = 0; r < n_ranks; r++) first[r + 1] += first[r];
    free(heap);
    *out = (tti_shard_map){.n_ranks = n_ranks, .n_shards = n_shards, .first = first};
    return TUTTI_OK;
}

tutti_status tti_shard_map_by_weight(const double *weights, int n_ranks, int n_shards,
                                     tti_shard_map *out) {
    bool equal = true;
    for (int r = 1; r < n_ranks; r++)
        equal &= !(weights[r] < weights[0] || weights[r] > weights[0]);
    if (!equal) return give_out(n_ranks, n_shards, done_by_weight, weights, out);
    tti_shard_map_equally(n_ranks, n_shards, out);
    return TUTTI_OK;
}

tutti_status tti_shard_map_by_throughput(const tti_throughput *throughputs, int n_ranks,
                                         int n_shards, tti_shard_map *out) {
    return give_out(n_ranks, n_shards, done_by_throughput, throughputs, out);
}

double tti_shard_map_seconds(const tti_shard_map *shard_map, const tti_throughput *throughputs) {
    double most = 0;
    for (int r = 0; r < shard_map->n_ranks; r++) {
        double s = done_by_throughput(throughputs, r, tti_shard_map_n_of(shard_map, r));
        if (s > most) most = s;
    }
    return most;
}

tutti_status tti_shard_map_check(const tti_shard_map *shard_map, int n_ranks, int n_shards) {
    if (shard_map->n_ranks != n_ranks || n_ranks < 1)
        return tti_fail(TUTTI_E_INVALID, "the shard map has %d ranks, and there are %d",
                        shard_map->n_ranks, n_ranks);
    int first = tti_shard_map_first(shard_map, 0), end = tti_shard_map_first(shard_map, n_ranks);
    if (first != 0 || end != n_shards || shard_map->n_shards != n_shards)
        return tti_fail(TUTTI_E_INVALID, "the shard map has shards %d to %d, and there are %d",
                        first, end - 1, n_shards);
    if (is_equal(shard_map) && n_shards >= n_ranks) return TUTTI_OK;
    for (int r = 0; r < n_ranks; r++)
        if (tti_shard_map_n_of(shard_map, r) < 1)
            return tti_fail(
                TUTTI_E_INVALID,
                "the shard map gives rank %d %d shards, but each rank needs at least one", r,
                tti_shard_map_n_of(shard_map, r));
    return TUTTI_OK;
}

/* Hashes the runs, not the array, because one rank may store the runs that another rank
 * computes. */
int tti_shard_map_digest(const tti_shard_map *shard_map) {
    tti_shard_map equal;
    tti_shard_map_equally(shard_map->n_ranks, shard_map->n_shards, &equal);
    int n[] = {shard_map->n_ranks, shard_map->n_shards};
    uint32_t crc = tti_crc32c(0, n, sizeof n);
    bool is_listed = !tti_shard_map_same(shard_map, &equal);
    for (int r = 1; is_listed && r < n[0]; r++) {
        int first = tti_shard_map_first(shard_map, r);
        crc = tti_crc32c(crc, &first, sizeof first);
    }
    int digest = (int)(crc & 0x7FFFFFFF);
    return digest ? digest : 1;
}
