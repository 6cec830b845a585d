/* join.h - values that are joined over all shards of the batch (TTI_SYNC). */
#ifndef TTI_EXEC_JOIN_H
#define TTI_EXEC_JOIN_H

#include "exec/program/instance.h"

/* Numbers of elements of a joined value: of a shard's part, of all parts, and of a shard's result,
 * which begins at stride times the shard's number. */
typedef struct tti_join_size {
    size_t n_part, n_joined, n_out, stride;
} tti_join_size;

tti_join_size tti_join_size_of(const tti_node *node);

/* Copies an instance's part of the value at a step, whose inputs are complete, to part [n_part]. */
void tti_join_take(const tti_instance *instance, int step, const tti_join_size *size, float *part);

/* Copies the shard's result of the step from joined [n_joined] to the instance. */
void tti_join_give(tti_instance *instance, int step, const tti_join_size *size, int shard,
                   const float *joined);

#endif /* TTI_EXEC_JOIN_H */
