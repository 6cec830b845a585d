/* shards.h - the exact sum over virtual shards, for any number of ranks.
 *
 * The terms are the gradients of V shards, V a power of two.  Each rank owns a run of them
 * (shard_map.h) and has already added it into canonical partial sums: complete subtrees of the
 * binary tree over 0
 * .. V-1.  The ranks finish the sum in the order of that tree, so its bits depend neither on the
 * number of ranks nor on the runs.  For f16 and bf16 that needs desc.rounds, and partial sums that
 * their ranks have rounded after each addition. */
#ifndef TTI_COMM_SHARDS_H
#define TTI_COMM_SHARDS_H

#include "comm/shard_map.h"
#include "tutti/comm.h"

/* A subtree: shards index*2^level .. (index+1)*2^level - 1. */
typedef struct tti_partial {
    int level, index;
    void *data; /* n_elems elements, best from tutti_comm_alloc; NULL in a list of another rank */
} tti_partial;

enum { TTI_MAX_PARTIALS = 2 * 20, TTI_MAX_SHARDS = 1 << 20 };

/* The canonical partial sums of shards first .. last-1, in order; returns how many (<=
 * TTI_MAX_PARTIALS). data is set to NULL. */
int tti_shard_partials(int first, int last, tti_partial *out);

typedef struct tti_reduce_desc {
    const tti_partial
        *partials;        /* this rank's canonical partial sums with their data, as many as     */
    int n_partials;       /* tti_shard_partials says; the data may be overwritten           */
    void *dst;            /* n_elems elements; may be partial sums[0].data, else no overlap     */
    size_t n_elems;       /* 0: nothing is sent                                           */
    tutti_dtype dtype;    /* f16 and bf16 accumulate in f32                               */
    int n_shards;         /* V, a power of two, W <= V <= TTI_MAX_SHARDS                  */
    tutti_comm_alg alg;   /* AUTO, DIRECT or TREE, which give the same bits; RING is
                             TUTTI_E_INVALID: its order depends on the number of ranks    */
    const size_t *bounds; /* [n_ranks + 1], rising from 0 to n_elems: rank r gets elements
                             bounds[r] .. bounds[r+1]-1 alone, and the others of its dst are
                             undefined; NULL: every rank gets all                         */
    const tti_shard_map *shard_map; /* the shard map, the same on every rank; NULL: equal runs */
    bool rounds;         /* of bf16: each partial sum is rounded to bf16 as it is made, so that
                            the bits do not depend on the number of ranks; false: once      */
    int32_t digest;      /* tti_bounds_digest of bounds that were checked; 0: not known  */
    bool keeps_partials; /* with bounds: after the call the data of partial sums stay as they are,
                            but for the own part of dst, until another collective has ended; then
                            ranks need not wait until all have read them */
} tti_reduce_desc;

/* dst[i] = sum over all V shards, in tree order, the same bits for every W, on every rank, with
 * every algorithm and transport.  A collective: errors as in tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_reduce_shards(tutti_comm *comm, const tti_reduce_desc *desc);

#endif /* TTI_COMM_SHARDS_H */
