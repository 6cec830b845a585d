/* join.c - sizes and copies of values that are joined over all shards. */
#include "exec/program/join.h"

#include <string.h>

tti_join_size tti_join_size_of(const tti_node *node) {
    size_t n_in = (size_t)tti_value_n_elems(node->in[0]);
    size_t n_out = (size_t)tti_value_n_elems(node->out[0]);
    return (tti_join_size){n_in, TTI_MAX(n_in, n_out), n_out, n_out < n_in ? n_out : 0};
}

/* + 0: a sum with the zeros of other workers turns -0 into 0, so a single worker must do the
 * same. */
void tti_join_take(const tti_instance *instance, int step, const tti_join_size *size, float *part) {
    const float *own = tti_instance_step_in(instance, step);
    for (size_t k = 0; k < size->n_part; k++) part[k] = own[k] + 0.0f;
}

void tti_join_give(tti_instance *instance, int step, const tti_join_size *size, int shard,
                   const float *joined) {
    memcpy(tti_instance_step_out(instance, step, 0), joined + size->stride * (size_t)shard,
           size->n_out * sizeof *joined);
}
