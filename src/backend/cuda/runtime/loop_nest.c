/* loop_nest.c - builds the loop nests of loop_nest.h.
 *
 * No elements are touched here: the kernels convert the number of an element to offsets.  Once
 * loops are sorted and joined, nearly everything is one or two loops. */
#include "backend/cuda/runtime/loop_nest.h"

#include "ir/graph.h"

void tti_cuda_strides(const tutti_value *value, uint64_t stride[TUTTI_MAX_DIMS]) {
    const tutti_shape *shape = &value->type.shape;
    if (shape->n_dims == 4 && value->layout == TTI_CHANNELS_LAST_BYTES) {
        uint64_t c = (uint64_t)shape->dim[1], h = (uint64_t)shape->dim[2];
        uint64_t w = (uint64_t)shape->dim[3];
        stride[0] = h * w * c, stride[1] = 1, stride[2] = w * c, stride[3] = c;
        return;
    }
    uint64_t n = 1;
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        stride[d] = n;
        n *= (uint64_t)shape->dim[d];
    }
}

bool tti_cuda_same_order(const tutti_value *a, const tutti_value *b) {
    uint64_t x[TUTTI_MAX_DIMS], y[TUTTI_MAX_DIMS];
    const tutti_shape *shape = &a->type.shape;
    if (!tti_shape_equal(shape, &b->type.shape)) return false;
    tti_cuda_strides(a, x);
    tti_cuda_strides(b, y);
    for (int d = 0; d < shape->n_dims; d++)
        if (shape->dim[d] > 1 && x[d] != y[d]) return false;
    return true;
}

static void swap_loops(tti_nest *nest, int a, int b) {
    uint64_t t = nest->dim[a];
    nest->dim[a] = nest->dim[b], nest->dim[b] = t;
    for (int k = 0; k < nest->n_operands; k++) {
        t = nest->stride[k][a];
        nest->stride[k][a] = nest->stride[k][b], nest->stride[k][b] = t;
    }
}

/* True if loop d and the next one are one run in every operand. */
static bool can_join(const tti_nest *nest, int d) {
    for (int k = 0; k < nest->n_operands; k++)
        if (nest->stride[k][d] != nest->stride[k][d + 1] * nest->dim[d + 1]) return false;
    return true;
}

static void remove_loop(tti_nest *nest, int d) {
    nest->n_dims--;
    for (; d < nest->n_dims; d++) {
        nest->dim[d] = nest->dim[d + 1];
        for (int k = 0; k < nest->n_operands; k++) nest->stride[k][d] = nest->stride[k][d + 1];
    }
}

void tti_cuda_nest_tidy(tti_nest *nest) {
    for (int d = nest->n_dims - 1; d >= 0 && nest->n_dims > 1; d--)
        if (nest->dim[d] == 1) remove_loop(nest, d);
    for (int i = 1; i < nest->n_dims; i++)
        for (int d = i; d > 0 && nest->stride[0][d] > nest->stride[0][d - 1]; d--)
            swap_loops(nest, d, d - 1);
    for (int d = nest->n_dims - 2; d >= 0; d--) {
        if (!can_join(nest, d)) continue;
        nest->dim[d + 1] *= nest->dim[d];
        remove_loop(nest, d);
    }
}

tti_nest tti_cuda_nest(const tutti_shape *full, const tutti_value *const *operand, int n_operands) {
    tti_nest nest = {.n_dims = full->n_dims, .n_operands = n_operands};
    for (int d = 0; d < full->n_dims; d++) nest.dim[d] = (uint64_t)full->dim[d];
    for (int k = 0; k < n_operands; k++) {
        uint64_t stride[TUTTI_MAX_DIMS] = {0};
        const tutti_shape *shape = &operand[k]->type.shape;
        int skip = full->n_dims - shape->n_dims;
        tti_cuda_strides(operand[k], stride);
        for (int d = 0; d < shape->n_dims; d++)
            nest.stride[k][d + skip] = shape->dim[d] == 1 ? 0 : stride[d];
    }
    if (nest.n_dims == 0) nest.n_dims = 1, nest.dim[0] = 1;
    tti_cuda_nest_tidy(&nest);
    return nest;
}
