/* nd.c - builds and steps the loop nests of nd.h.
 *
 * No elements are touched here; the kernels write the innermost loop.  Once loops are sorted and
 * joined, broadcasting, channel sums and layout changes are all a short outer loop around a long
 * inner run. */
#include "backend/cpu/nd.h"

void tti_value_strides(const tutti_value *value, size_t stride[TUTTI_MAX_DIMS]) {
    const tutti_shape *shape = &value->type.shape;
    if (shape->n_dims == 4 && value->layout == TTI_CHANNELS_LAST_BYTES) {
        size_t c = (size_t)shape->dim[1], h = (size_t)shape->dim[2], w = (size_t)shape->dim[3];
        stride[0] = h * w * c, stride[1] = 1, stride[2] = w * c, stride[3] = c;
        return;
    }
    size_t n = 1;
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        stride[d] = n;
        n *= (size_t)shape->dim[d];
    }
}

static void swap_loops(tti_nd *nd, int a, int b) {
    size_t t = nd->dim[a];
    nd->dim[a] = nd->dim[b], nd->dim[b] = t;
    for (int k = 0; k < nd->n_operands; k++) {
        t = nd->stride[k][a];
        nd->stride[k][a] = nd->stride[k][b], nd->stride[k][b] = t;
    }
}

/* True if loop d and the next one are one run in every operand. */
static bool can_join(const tti_nd *nd, int d) {
    for (int k = 0; k < nd->n_operands; k++)
        if (nd->stride[k][d] != nd->stride[k][d + 1] * nd->dim[d + 1]) return false;
    return true;
}

static void remove_loop(tti_nd *nd, int d) {
    nd->n_dims--;
    for (; d < nd->n_dims; d++) {
        nd->dim[d] = nd->dim[d + 1];
        for (int k = 0; k < nd->n_operands; k++) nd->stride[k][d] = nd->stride[k][d + 1];
    }
}

void tti_nd_tidy(tti_nd *nd) {
    for (int d = nd->n_dims - 1; d >= 0 && nd->n_dims > 1; d--)
        if (nd->dim[d] == 1) remove_loop(nd, d);
    for (int i = 1; i < nd->n_dims; i++)
        for (int d = i; d > 0 && nd->stride[0][d] > nd->stride[0][d - 1]; d--)
            swap_loops(nd, d, d - 1);
    for (int d = nd->n_dims - 2; d >= 0; d--) {
        if (!can_join(nd, d)) continue;
        nd->dim[d + 1] *= nd->dim[d];
        remove_loop(nd, d);
    }
}

tti_nd tti_nd_make(const tutti_shape *full, const tutti_value *const *operand, int n_operands) {
    tti_nd nd = {.n_dims = full->n_dims, .n_operands = n_operands};
    for (int d = 0; d < full->n_dims; d++) nd.dim[d] = (size_t)full->dim[d];
    for (int k = 0; k < n_operands; k++) {
        size_t stride[TUTTI_MAX_DIMS] = {0};
        const tutti_shape *shape = &operand[k]->type.shape;
        int skip = full->n_dims - shape->n_dims;
        tti_value_strides(operand[k], stride);
        for (int d = 0; d < shape->n_dims; d++)
            nd.stride[k][d + skip] = shape->dim[d] == 1 ? 0 : stride[d];
    }
    if (nd.n_dims == 0) nd.n_dims = 1, nd.dim[0] = 1;
    tti_nd_tidy(&nd);
    return nd;
}

size_t tti_nd_n_outer(const tti_nd *nd, int n_inner) {
    size_t n = 1;
    for (int d = 0; d < nd->n_dims; d++)
        if (d < nd->n_dims - n_inner || !nd->dim[d]) n *= nd->dim[d];
    return n;
}

void tti_nd_next(const tti_nd *nd, int n_inner, tti_nd_at *at) {
    for (int d = nd->n_dims - n_inner - 1; d >= 0; d--) {
        at->index[d]++;
        for (int k = 0; k < nd->n_operands; k++) at->offset[k] += nd->stride[k][d];
        if (at->index[d] < nd->dim[d]) return;
        for (int k = 0; k < nd->n_operands; k++) at->offset[k] -= nd->stride[k][d] * nd->dim[d];
        at->index[d] = 0;
    }
}
