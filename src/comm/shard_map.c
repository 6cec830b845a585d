/* shard_map.c - distributes shards over ranks of unequal speed.
 *
 * Shards are assigned one at a time, each to the rank that would finish it first.  A rank with more
 * shards never finishes earlier, so no other division gives the slowest rank an earlier end. */
#include "comm/shard_map.h"

#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

int tti_shard_first(int rank, int n_ranks, int n_shards) {
    return (int)((int64_t)rank * n_shards / n_ranks);
}

int tti_shard_map_n_shards(const tti_shard_map *shard_map) {
    return shard_map->first[shard_map->n_ranks];
}

int tti_shard_map_n_of(const tti_shard_map *shard_map, int rank) {
    return shard_map->first[rank + 1] - shard_map->first[rank];
}

bool tti_shard_map_same(const tti_shard_map *a, const tti_shard_map *b) {
    size_t n = (size_t)a->n_ranks + 1;
    return a->n_ranks == b->n_ranks && memcmp(a->first, b->first, n * sizeof *a->first) == 0;
}

bool tti_shard_map_is_even(const tti_shard_map *shard_map) {
    for (int r = 1; r < shard_map->n_ranks; r++)
        if (tti_shard_map_n_of(shard_map, r) != tti_shard_map_n_of(shard_map, 0)) return false;
    return true;
}

void tti_shard_map_equally(int n_ranks, int n_shards, tti_shard_map *out) {
    *out = (tti_shard_map){.n_ranks = n_ranks};
    for (int r = 0; r <= n_ranks; r++) out->first[r] = tti_shard_first(r, n_ranks, n_shards);
}

static int power_of_two_from(int n) {
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

/* Half of a tree is full of ranks, one for each leaf, and the others share the other half. */
void tti_shard_map_subtrees(int n_ranks, tti_shard_map *out) {
    *out = (tti_shard_map){.n_ranks = n_ranks};
    int left = power_of_two_from(n_ranks), rank = 0;
    while (rank < n_ranks) {
        int power = power_of_two_from(n_ranks - rank), each = left / power;
        int n = power == n_ranks - rank ? power : power / 2;
        for (int i = 0; i < n; i++, rank++) out->first[rank + 1] = out->first[rank] + each;
        left -= n * each;
    }
}

/* When rank is done with n shards. */
typedef double (*done_fn)(const void *of, int rank, int n);

static double done_by_weight(const void *of, int rank, int n) {
    return (double)n / ((const double *)of)[rank];
}

static double done_by_throughput(const void *of, int rank, int n) {
    const tti_throughput *p = (const tti_throughput *)of + rank;
    int n_shard_groups = (n + p->n_compute_threads - 1) / p->n_compute_threads;
    return p->group_s * n_shard_groups;
}

/* The rank that finishes first; of equal ranks the one with the fewest shards. */
static int next_rank(const int *n, int n_ranks, done_fn done, const void *of) {
    int best = 0;
    double best_s = done(of, 0, n[0] + 1);
    for (int r = 1; r < n_ranks; r++) {
        double s = done(of, r, n[r] + 1);
        if (s < best_s || (!(s > best_s) && n[r] < n[best])) best = r, best_s = s;
    }
    return best;
}

static void give_out(int n_ranks, int n_shards, done_fn done, const void *of, tti_shard_map *out) {
    int n[TTI_MAX_RANKS];
    TTI_ASSERT(n_ranks >= 1 && n_ranks <= TTI_MAX_RANKS && n_ranks <= n_shards);
    for (int r = 0; r < n_ranks; r++) n[r] = 1;
    for (int left = n_shards - n_ranks; left > 0; left--) n[next_rank(n, n_ranks, done, of)]++;
    *out = (tti_shard_map){.n_ranks = n_ranks};
    for (int r = 0; r < n_ranks; r++) out->first[r + 1] = out->first[r] + n[r];
}

void tti_shard_map_by_weight(const double *weights, int n_ranks, int n_shards, tti_shard_map *out) {
    bool equal = true;
    for (int r = 1; r < n_ranks; r++)
        equal &= !(weights[r] < weights[0] || weights[r] > weights[0]);
    if (equal)
        tti_shard_map_equally(n_ranks, n_shards, out);
    else
        give_out(n_ranks, n_shards, done_by_weight, weights, out);
}

void tti_shard_map_by_throughput(const tti_throughput *throughputs, int n_ranks, int n_shards,
                                 tti_shard_map *out) {
    give_out(n_ranks, n_shards, done_by_throughput, throughputs, out);
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
    if (shard_map->n_ranks != n_ranks || n_ranks < 1 || n_ranks > TTI_MAX_RANKS)
        return tti_fail(TUTTI_E_INVALID, "the shard map has %d ranks, and there are %d",
                        shard_map->n_ranks, n_ranks);
    if (shard_map->first[0] != 0 || shard_map->first[n_ranks] != n_shards)
        return tti_fail(TUTTI_E_INVALID, "the shard map has shards %d to %d, and there are %d",
                        shard_map->first[0], shard_map->first[n_ranks] - 1, n_shards);
    for (int r = 0; r < n_ranks; r++)
        if (tti_shard_map_n_of(shard_map, r) < 1)
            return tti_fail(TUTTI_E_INVALID,
                            "the shard map gives rank %d %d shards, each needs one", r,
                            tti_shard_map_n_of(shard_map, r));
    return TUTTI_OK;
}

int tti_shard_map_digest(const tti_shard_map *shard_map) {
    size_t n = (size_t)shard_map->n_ranks + 1;
    int digest = (int)(tti_crc32c(0, shard_map->first, n * sizeof *shard_map->first) & 0x7FFFFFFF);
    return digest ? digest : 1;
}
