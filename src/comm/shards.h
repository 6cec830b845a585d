/* shards.h - the exact sum over virtual shards, for any number of ranks.
 *
 * The terms are the gradients of V shards, V a power of two.  Each rank owns a run of shards
 * (shard_map.h) and has already added their gradients into canonical partial sums: complete
 * subtrees of the binary tree over the shards.  The ranks finish the sum in the order of that tree,
 * so its bits depend neither on the number of ranks nor on the runs.  For f16 and bf16 this holds
 * only with desc.rounds and partial sums that were rounded after each addition. */
#ifndef TTI_COMM_SHARDS_H
#define TTI_COMM_SHARDS_H

#include "comm/shard_map.h"
#include "tutti/comm.h"

/* A subtree: shards index*2^level .. (index+1)*2^level - 1. */
typedef struct tti_partial {
    int level, index;
    void *data; /* n_elems elements, fastest if from tutti_comm_alloc; NULL for partial sums of
                   another rank */
} tti_partial;

enum { TTI_MAX_PARTIALS = 2 * 20, TTI_MAX_SHARDS = 1 << 20 };

/* Writes the canonical partial sums of shards first .. last-1 to out, in order, with data NULL.
 * Returns their number, at most TTI_MAX_PARTIALS. */
int tti_shard_partials(int first, int last, tti_partial *out);

typedef struct tti_reduce_desc {
    const tti_partial
        *partials;        /* this rank's canonical partial sums with their data, in the number */
    int n_partials;       /* that tti_shard_partials returns; the data may be overwritten */
    void *dst;            /* n_elems elements; may be partials[0].data, else no overlap */
    size_t n_elems;       /* 0: nothing is sent                                           */
    tutti_dtype dtype;    /* f16 and bf16 accumulate in f32                               */
    int n_shards;         /* V, a power of two, W <= V <= TTI_MAX_SHARDS                  */
    tutti_comm_alg alg;   /* AUTO, DIRECT or TREE, which give the same bits; RING is
                             TUTTI_E_INVALID: its order depends on the number of ranks    */
    const size_t *bounds; /* [n_ranks + 1], ascending from 0 to n_elems: rank r gets only elements
                             bounds[r] .. bounds[r+1]-1, and the other elements of its dst are
                             undefined; NULL: every rank gets all elements */
    const tti_shard_map *shard_map; /* the shard map, the same on every rank; NULL: equal runs */
    bool rounds; /* for bf16: each partial sum is rounded to bf16, so that the bits do not depend on
                    the number of ranks; false: only the result is rounded */
    int32_t digest; /* tti_bounds_digest of bounds that were already checked; 0: not computed */
    bool keeps_partials; /* with bounds: the caller does not change the data of partial sums, except
                            for its own part of dst, until another collective has ended; so this
                            call need not wait until all ranks have read them */
} tti_reduce_desc;

/* Computes dst[i] = sum over all V shards, in tree order.  The bits are the same for every number
 * of ranks, on every rank, with every algorithm and transport.  A collective: errors as in
 * tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_reduce_shards(tutti_comm *comm, const tti_reduce_desc *desc);

#endif /* TTI_COMM_SHARDS_H */
