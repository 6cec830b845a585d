/* shard_map.h - the shard map: assigns a contiguous run of shards, at least one, to each rank.
 *
 * Every shard map gives the same bits, because the tree of the sum is over the shards.  So ranks of
 * unequal speed may have runs of unequal length. */
#ifndef TTI_COMM_SHARD_MAP_H
#define TTI_COMM_SHARD_MAP_H

#include <stdbool.h>

#include "tutti/status.h"

/* TTI_MAX_RANKS: for a communicator over several hosts.  TTI_MAX_HOST_RANKS: for a communicator in
 * the shared memory of one host. */
enum { TTI_MAX_RANKS = 65536, TTI_MAX_HOST_RANKS = 4096 };

/* A copy of the struct borrows the array of the original.  Equal runs and the runs of
 * tti_shard_map_subtrees are computed on demand and own no memory. */
typedef struct tti_shard_map {
    int n_ranks, n_shards;
    int *first; /* [n_ranks + 1], rank r has shards first[r] .. first[r+1]-1; NULL: computed */
    bool is_subtrees; /* computed runs: those of tti_shard_map_subtrees, not equal ones */
} tti_shard_map;

/* The throughput of a rank. */
typedef struct tti_throughput {
    double group_s;        /* seconds per micro-batch group, > 0 */
    int n_compute_threads; /* shards per micro-batch group, >= 1 */
} tti_throughput;

/* First shard of rank r: floor(r*V/W).  The runs differ by at most one shard. */
int tti_shard_first(int rank, int n_ranks, int n_shards);

/* The first shard of rank, 0 <= rank <= n_ranks; V for rank n_ranks. */
int tti_shard_map_first(const tti_shard_map *shard_map, int rank);

/* The rank that has a shard. */
int tti_shard_map_owner(const tti_shard_map *shard_map, int shard);

/* The number of shards V, and the number of shards of one rank. */
int tti_shard_map_n_shards(const tti_shard_map *shard_map);
int tti_shard_map_n_of(const tti_shard_map *shard_map, int rank);
bool tti_shard_map_same(const tti_shard_map *a, const tti_shard_map *b);

/* True if all ranks have the same number of shards. */
bool tti_shard_map_is_even(const tti_shard_map *shard_map);

/* True if every rank has one subtree, all of the same size. */
bool tti_shard_map_is_uniform(const tti_shard_map *shard_map);

/* The length of the longest run. */
int tti_shard_map_most(const tti_shard_map *shard_map);

/* Copies a map with its own array; frees the array of *to, which must be zero or a map that owns
 * its array.  TUTTI_E_NOMEM: *to is unchanged. */
TUTTI_NODISCARD tutti_status tti_shard_map_copy(const tti_shard_map *from, tti_shard_map *to);

/* Frees the array of a shard map that owns one, and sets all to zero. */
void tti_shard_map_free(tti_shard_map *shard_map);

/* The runs of tti_shard_first.  1 <= n_ranks <= n_shards. */
void tti_shard_map_equally(int n_ranks, int n_shards, tti_shard_map *out);

/* Gives each rank one subtree of shards, such that the tree over the shards adds the ranks in the
 * order of tti_sum_order_ranks.  The number of shards, a power of two, follows from n_ranks. */
void tti_shard_map_subtrees(int n_ranks, tti_shard_map *out);

/* Assigns runs in proportion to weights (> 0, [n_ranks]): minimizes the largest ratio of shards to
 * weight.  Equal weights give runs of equal length.  The caller frees out.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_shard_map_by_weight(const double *weights, int n_ranks,
                                                     int n_shards, tti_shard_map *out);

/* Assigns runs such that the slowest rank finishes its micro-batch groups as early as possible.
 * Shards that do not affect this go to the rank that finishes them first.  The result depends only
 * on the throughputs.  The caller frees out.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_shard_map_by_throughput(const tti_throughput *throughputs,
                                                         int n_ranks, int n_shards,
                                                         tti_shard_map *out);

/* Seconds until the slowest rank has finished its micro-batch groups. */
double tti_shard_map_seconds(const tti_shard_map *shard_map, const tti_throughput *throughputs);

/* Returns TUTTI_E_INVALID unless the map assigns n_shards shards to n_ranks ranks, in order, at
 * least one to each. */
TUTTI_NODISCARD tutti_status tti_shard_map_check(const tti_shard_map *shard_map, int n_ranks,
                                                 int n_shards);

/* A digest of the runs, for ranks to compare; never 0. */
int tti_shard_map_digest(const tti_shard_map *shard_map);

#endif /* TTI_COMM_SHARD_MAP_H */
