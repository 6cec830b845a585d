/* join.h - values that are joined over all shards of the batch (TTI_SYNC). */
#ifndef TTI_EXEC_JOIN_H
#define TTI_EXEC_JOIN_H

#include "exec/program/instance.h"

/* Elements of a joined value: what a shard gives, what all of them make, and what a shard receives,
 * which begins at stride times the number of the shard. */
typedef struct tti_join_size {
    size_t n_part, n_joined, n_out, stride;
} tti_join_size;

tti_join_size tti_join_size_of(const tti_node *node);

/* Copies what an instance gives at a step, whose inputs are complete, into part [n_part]. */
void tti_join_take(const tti_instance *instance, int step, const tti_join_size *size, float *part);

/* Gives the instance of a shard its output of the step, from joined [n_joined]. */
void tti_join_give(tti_instance *instance, int step, const tti_join_size *size, int shard,
                   const float *joined);

#endif /* TTI_EXEC_JOIN_H */
