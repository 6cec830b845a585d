/* plain.h - queries about values, for the op families. */
#ifndef TTI_CUDA_PLAIN_H
#define TTI_CUDA_PLAIN_H

#include "ir/graph.h"

/* Every input and output lies so, or both layouts are the same bytes. */
static inline bool tti_cuda_lies_as(const tti_node *node, tti_layout layout) {
    for (int i = 0; i < node->n_in + node->op->n_out; i++) {
        const tutti_value *value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        const int64_t *d = value->type.shape.dim;
        bool is_free = value->type.shape.n_dims != 4 || d[1] == 1 || d[2] * d[3] == 1;
        if (value->layout != layout && !is_free) return false;
    }
    return true;
}

/* Every input and output of the node is row-major. */
static inline bool tti_cuda_all_plain(const tti_node *node) {
    return tti_cuda_lies_as(node, TTI_PLAIN);
}

static inline bool tti_cuda_is_float(const tutti_value *value) {
    return value->type.dtype <= TUTTI_BF16; /* the floating ones come first */
}

static inline size_t tti_cuda_n_elems(const tutti_value *value) {
    return (size_t)tti_value_n_elems(value);
}

#endif /* TTI_CUDA_PLAIN_H */
