/* sum_order.h - the one fixed order in which terms are added.
 *
 * Terms are leaves, or complete subtrees, of a binary tree over 0 .. V-1, listed from left to
 * right.  As a stack machine: push term i, then n_adds[i] times replace the two topmost entries a,
 * b by a + b.  If subtrees are missing at the right end (the number of ranks is not a power of
 * two), their sibling is used unchanged: 5 ranks give ((0+1)+(2+3))+4. */
#ifndef TTI_COMM_SUM_ORDER_H
#define TTI_COMM_SUM_ORDER_H

#include "base/sum_leaves.h"
#include "comm/shard_map.h"
#include "tutti/status.h"

typedef struct tti_term {
    int rank;    /* rank that holds the term */
    int partial; /* index among the terms of that rank */
    int n_adds;  /* additions after pushing this term                       */
} tti_term;

/* The subtrees that are complete so far, from left to right. */
typedef struct tti_subtrees {
    int level[TTI_SUM_DEPTH], index[TTI_SUM_DEPTH];
    int n;
} tti_subtrees;

typedef struct tti_sum_order {
    tti_term *terms; /* owned */
    int n_terms;
    int n_shards; /* 0: one term per rank */
} tti_sum_order;

/* Creates the order with one term per rank.  On success the caller frees *out.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_sum_order_ranks(int n_ranks, tti_sum_order *out);

/* The same, but does nothing if *order, which must be zero at first, was already created. */
TUTTI_NODISCARD tutti_status tti_sum_order_ranks_once(int n_ranks, tti_sum_order *order);

/* Creates the order whose terms are the canonical partial sums of each rank's shards.  On success
 * the caller frees *out.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_sum_order_shards(const tti_shard_map *shard_map,
                                                  tti_sum_order *out);

void tti_sum_order_free(tti_sum_order *order);

/* Iterates over the terms of tti_sum_order_shards, in memory that does not grow with the number of
 * ranks. */
typedef struct tti_sum_walk {
    const tti_shard_map *shard_map; /* borrowed */
    int rank, shard;                /* the rank and the first shard of the next term */
    int partial;                    /* index of the next term among those of its rank */
    tti_subtrees done;
} tti_sum_walk;

tti_sum_walk tti_sum_walk_begin(const tti_shard_map *shard_map);

/* Writes the next term; false: there are no more terms. */
bool tti_sum_walk_next(tti_sum_walk *walk, tti_term *term);

/* The number of terms that rank holds. */
int tti_sum_order_n_partials(const tti_sum_order *order, int rank);

#endif /* TTI_COMM_SUM_ORDER_H */
