/* shards.h - the exact sum over virtual shards, for any number of ranks.
 *
 * The terms are the gradients of V shards, V a power of two.  Rank r of W owns shards
 * tti_shard_first(r) .. tti_shard_first(r+1)-1 and has already added them into canonical pieces:
 * complete subtrees of the one binary tree over 0 .. V-1.  The sum is finished between ranks in the
 * order of that tree, so its bits do not depend on W. */
#ifndef TTI_COMM_SHARDS_H
#define TTI_COMM_SHARDS_H

#include "tutti/comm.h"

/* A subtree: shards index*2^level .. (index+1)*2^level - 1. */
typedef struct tti_piece {
    int level, index;
    void *data; /* n_elems elements, best from tutti_comm_alloc; NULL in a list of another rank */
} tti_piece;

enum { TTI_MAX_PIECES = 2 * 20 };

/* First shard of rank r: floor(r*V/W).  The runs differ by at most one shard. */
int tti_shard_first(int rank, int n_ranks, int n_shards);

/* The canonical pieces of shards first .. last-1, in order; returns how many (<= TTI_MAX_PIECES).
 * data is set to NULL. */
int tti_shard_pieces(int first, int last, tti_piece *out);

/* dst[i] = sum over all V shards, in tree order, the same bits for every W and on every rank.
 * pieces: this rank's canonical pieces with their data, as many as tti_shard_pieces says.  The data
 * may be overwritten; dst may be pieces[0].data.  Otherwise as tutti_comm_all_reduce. */
tutti_status tti_comm_reduce_shards(tutti_comm *comm, const tti_piece *pieces, int n_pieces,
                                    void *dst, size_t n_elems, tutti_dtype dtype, int n_shards);

#endif /* TTI_COMM_SHARDS_H */
