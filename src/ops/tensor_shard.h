/* tensor_shard.h - tensor shards of parameters.
 *
 * The attributes cut_dim, cut_n, cut_index and cut_groups of a parameter or buffer describe the
 * part that its node holds: dimension cut_dim of the whole is seen as [cut_groups, extent /
 * cut_groups], each group is divided into cut_n equal parts, and the tensor shard has part
 * cut_index of every group. cut_dim -1: the node holds the whole.  Names, initial values and
 * checkpoints are those of the whole. */
#ifndef TTI_OPS_TENSOR_SHARD_H
#define TTI_OPS_TENSOR_SHARD_H

#include "ir/graph.h"

/* Which shard: of a parameter, a buffer, or the masks of a random op. */
typedef struct tti_tensor_shard {
    int dim; /* -1: the whole; n, groups are 1 then, index 0 */
    int n, index, groups;
} tti_tensor_shard;

/* Reads the attributes of param; an op without them has whole parameters. */
tti_tensor_shard tti_tensor_shard_of(const tti_node *param);

/* Fails with TUTTI_E_INVALID where the attributes of a node with values of n_dims dimensions make
 * no sense, or the whole would be too large. */
tutti_status tti_tensor_shard_check(const tti_node *node, const tutti_shape *shard);

/* The shape of the whole. */
tutti_shape tti_tensor_shard_whole(const tti_node *param);

/* Elements that follow each other both in the whole and in the shard. */
typedef struct tti_tensor_shard_run {
    size_t in_whole, in_shard, n_elems;
} tti_tensor_shard_run;

/* Runs of a shard, in order of both; of a whole there is one. */
size_t tti_tensor_shard_n_runs(const tti_node *param);
tti_tensor_shard_run tti_tensor_shard_run_at(const tti_node *param, size_t i);

#endif /* TTI_OPS_TENSOR_SHARD_H */
