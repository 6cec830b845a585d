/* plain.h - questions that the families ask about values. */
#ifndef TTI_CUDA_PLAIN_H
#define TTI_CUDA_PLAIN_H

#include "ir/graph.h"

/* Row-major bytes: the plain layout, or one that is the same bytes. */
static inline bool tti_cuda_is_plain(const tutti_value *value) {
    const tutti_shape *s = &value->type.shape;
    if (value->layout == TTI_PLAIN || s->n_dims != 4) return true;
    return s->dim[1] == 1 || s->dim[2] * s->dim[3] == 1;
}

/* Every input and output of the node is row-major. */
static inline bool tti_cuda_all_plain(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (!tti_cuda_is_plain(node->in[i])) return false;
    for (int k = 0; k < node->op->n_out; k++)
        if (!tti_cuda_is_plain(node->out[k])) return false;
    return true;
}

static inline bool tti_cuda_is_float(const tutti_value *value) {
    return value->type.dtype <= TUTTI_BF16; /* the floating ones come first */
}

static inline size_t tti_cuda_n_elems(const tutti_value *value) {
    return (size_t)tti_value_n_elems(value);
}

#endif /* TTI_CUDA_PLAIN_H */
