/* shape.c - moves elements: reshape, transpose, to_layout, slice, slice_grad, concat.
 *
 * Each is a copy between two strided views (nd.h).  If the contiguous loop of the source is not
 * that of the destination, these two loops are processed in squares that stay in cache; this
 * includes the N,C,H,W <-> N,H,W,C transposition. */
#include "backend/cpu/nd.h"
#include "backend/cpu/simd.h"

enum { SQUARE = 16 };

/* to[j*to_step + i] = from[i*from_step + j], i < n_i, j < n_j, for elements of type. */
#define SQUARES(type)                                                                              \
    static void squares_##type(type *to, size_t to_step, size_t n_i, const type *from,             \
                               size_t from_step, size_t n_j) {                                     \
        for (size_t j0 = 0; j0 < n_j; j0 += SQUARE)                                                \
            for (size_t i0 = 0; i0 < n_i; i0 += SQUARE) {                                          \
                size_t j1 = TTI_MIN(n_j, j0 + SQUARE), i1 = TTI_MIN(n_i, i0 + SQUARE);             \
                if (j1 - j0 == SQUARE && i1 - i0 == SQUARE) {                                      \
                    for (size_t j = 0; j < SQUARE; j++)                                            \
                        for (size_t i = 0; i < SQUARE; i++)                                        \
                            to[(j0 + j) * to_step + i0 + i] = from[(i0 + i) * from_step + j0 + j]; \
                    continue;                                                                      \
                }                                                                                  \
                for (size_t j = j0; j < j1; j++)                                                   \
                    for (size_t i = i0; i < i1; i++)                                               \
                        to[j * to_step + i] = from[i * from_step + j];                             \
            }                                                                                      \
    }                                                                                              \
    static void strided_##type(type *to, size_t to_step, const type *from, size_t from_step,       \
                               size_t n) {                                                         \
        for (size_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];                      \
    }

SQUARES(uint8_t)
SQUARES(uint16_t)
SQUARES(uint32_t)
SQUARES(uint64_t)

static void copy_square(size_t width, char *to, size_t to_step, size_t n_i, const char *from,
                        size_t from_step, size_t n_j) {
    switch (width) {
        case 1:
            squares_uint8_t((void *)to, to_step, n_i, (const void *)from, from_step, n_j);
            break;
        case 2:
            squares_uint16_t((void *)to, to_step, n_i, (const void *)from, from_step, n_j);
            break;
        case 4:
            squares_uint32_t((void *)to, to_step, n_i, (const void *)from, from_step, n_j);
            break;
        default:
            squares_uint64_t((void *)to, to_step, n_i, (const void *)from, from_step, n_j);
    }
}

static void copy_row(size_t width, char *to, size_t to_step, const char *from, size_t from_step,
                     size_t n) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, n * width);
        return;
    }
    switch (width) {
        case 1:
            strided_uint8_t((void *)to, to_step, (const void *)from, from_step, n);
            break;
        case 2:
            strided_uint16_t((void *)to, to_step, (const void *)from, from_step, n);
            break;
        case 4:
            strided_uint32_t((void *)to, to_step, (const void *)from, from_step, n);
            break;
        default:
            strided_uint64_t((void *)to, to_step, (const void *)from, from_step, n);
    }
}

/* Moves the loop that is contiguous in the source (operand 1) next to the last; false if that is
 * the last one already, or none. */
static bool move_source_loop_inward(tti_nd *nd) {
    int last = nd->n_dims - 1, found = -1;
    for (int d = 0; d < last; d++)
        if (nd->stride[1][d] == 1) found = d;
    if (found < 0 || nd->stride[0][last] != 1 || nd->stride[1][last] <= 1) return false;
    tti_nd from = *nd;
    for (int d = found; d < last - 1; d++) {
        nd->dim[d] = from.dim[d + 1];
        for (int k = 0; k < 2; k++) nd->stride[k][d] = from.stride[k][d + 1];
    }
    nd->dim[last - 1] = from.dim[found];
    for (int k = 0; k < 2; k++) nd->stride[k][last - 1] = from.stride[k][found];
    return true;
}

/* Copies the elements of the nest {to, from}; width bytes each. */
static void copy_nd(tti_nd nd, size_t width, char *to, const char *from) {
    int n_inner = move_source_loop_inward(&nd) ? 2 : 1, last = nd.n_dims - 1;
    size_t n_outer = tti_nd_n_outer(&nd, n_inner);
    tti_nd_at at = {0};
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, n_inner, &at)) {
        char *y = to + at.offset[0] * width;
        const char *x = from + at.offset[1] * width;
        if (n_inner == 2)
            copy_square(width, y, nd.stride[0][last - 1], nd.dim[last], x, nd.stride[1][last],
                        nd.dim[last - 1]);
        else
            copy_row(width, y, nd.stride[0][last], x, nd.stride[1][last], nd.dim[last]);
    }
}

/* A nest over shape with the strides of two views. */
static tti_nd make_nd(const tutti_shape *shape, const size_t *to, const size_t *from) {
    tti_nd nd = {.n_dims = shape->n_dims, .n_operands = 2};
    for (int d = 0; d < shape->n_dims; d++) {
        nd.dim[d] = (size_t)shape->dim[d];
        nd.stride[0][d] = to[d], nd.stride[1][d] = from[d];
    }
    if (!nd.n_dims) nd.n_dims = 1, nd.dim[0] = 1;
    tti_nd_tidy(&nd);
    return nd;
}

static size_t width_of(const tutti_value *value) { return tutti_dtype_bytes(value->type.dtype); }

static tutti_status to_layout_run(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0], *y = a->node->out[0];
    (void)state;
    copy_nd(tti_nd_make(&y->type.shape, (const tutti_value *[]){y, x}, 2), width_of(x), a->out[0],
            a->in[0]);
    return TUTTI_OK;
}

/* The output's bytes are row-major, unless both sides are N,H,W,C. */
static bool reshape_can_run(const tti_node *node) {
    return !tti_is_last(node->out[0]) || !tti_is_last(node->in[0]);
}

static tutti_status reshape_run(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0], *y = a->node->out[0];
    bool from_last = tti_is_last(x);
    tutti_value plain = from_last ? *x : *y;
    const tutti_value *to = from_last ? &plain : y, *from = from_last ? x : &plain;
    (void)state;
    plain.layout = TTI_PLAIN;
    if (a->in[0] == a->out[0]) return TUTTI_OK;
    copy_nd(tti_nd_make(&plain.type.shape, (const tutti_value *[]){to, from}, 2), width_of(x),
            a->out[0], a->in[0]);
    return TUTTI_OK;
}

static tutti_status transpose_run(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0], *y = a->node->out[0];
    const tti_attr *perm = tti_attr_get(a->node, "perm");
    size_t to[TUTTI_MAX_DIMS], from[TUTTI_MAX_DIMS], permuted[TUTTI_MAX_DIMS] = {0};
    (void)state;
    tti_value_strides(x, from);
    tti_value_strides(y, to);
    for (int d = 0; d < y->type.shape.n_dims; d++) permuted[d] = from[perm->v[d]];
    copy_nd(make_nd(&y->type.shape, to, permuted), width_of(x), a->out[0], a->in[0]);
    return TUTTI_OK;
}

static int axis_of(const tti_node *node) {
    int64_t axis = tti_attr_int(node, "axis");
    return (int)(axis < 0 ? axis + node->in[0]->type.shape.n_dims : axis);
}

/* Copies the elements of x from start on along axis. */
static tutti_status cut_out(const tti_kargs *a, int axis, size_t start) {
    const tutti_value *x = a->node->in[0], *y = a->node->out[0];
    size_t to[TUTTI_MAX_DIMS], from[TUTTI_MAX_DIMS];
    tti_value_strides(x, from);
    tti_value_strides(y, to);
    size_t skip = start * from[axis];
    copy_nd(make_nd(&y->type.shape, to, from), width_of(x), a->out[0],
            (const char *)a->in[0] + skip * width_of(x));
    return TUTTI_OK;
}

static tutti_status slice_run(void *state, const tti_kargs *a) {
    (void)state;
    return cut_out(a, axis_of(a->node), (size_t)tti_attr_int(a->node, "start"));
}

static tutti_status tensor_slice_run(void *state, const tti_kargs *a) {
    int dim = (int)tti_attr_int(a->node, "dim");
    size_t part = (size_t)a->node->out[0]->type.shape.dim[dim];
    (void)state;
    return cut_out(a, dim, (size_t)tti_attr_int(a->node, "index") * part);
}

static tutti_status slice_grad_run(void *state, const tti_kargs *a) {
    const tutti_value *dy = a->node->in[0], *dx = a->node->out[0];
    size_t to[TUTTI_MAX_DIMS], from[TUTTI_MAX_DIMS];
    (void)state;
    tti_value_strides(dy, from);
    tti_value_strides(dx, to);
    size_t skip = (size_t)tti_attr_int(a->node, "start") * to[axis_of(a->node)];
    memset(a->out[0], 0, tti_n_elems(dx) * width_of(dx));
    copy_nd(make_nd(&dy->type.shape, to, from), width_of(dy),
            (char *)a->out[0] + skip * width_of(dy), a->in[0]);
    return TUTTI_OK;
}

static tutti_status concat_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    size_t to[TUTTI_MAX_DIMS], from[TUTTI_MAX_DIMS], width = width_of(node->out[0]);
    int axis = axis_of(node);
    char *y = a->out[0];
    (void)state;
    tti_value_strides(node->out[0], to);
    for (int i = 0; i < node->n_in; i++) {
        const tutti_shape *shape = &node->in[i]->type.shape;
        tti_value_strides(node->in[i], from);
        copy_nd(make_nd(shape, to, from), width, y, a->in[i]);
        y += (size_t)shape->dim[axis] * to[axis] * width;
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_shape)[];
const tti_kernel TTI_VARIANT(tti_kernels_shape)[] = {
    {.op = "to_layout", .name = TTI_ISA_TEXT, .run = to_layout_run},
    {.op = "reshape", .name = TTI_ISA_TEXT, .can_run = reshape_can_run, .run = reshape_run},
    {.op = "transpose", .name = TTI_ISA_TEXT, .run = transpose_run},
    {.op = "slice", .name = TTI_ISA_TEXT, .run = slice_run},
    {.op = "tensor_slice", .name = TTI_ISA_TEXT, .run = tensor_slice_run},
    {.op = "slice_grad", .name = TTI_ISA_TEXT, .run = slice_grad_run},
    {.op = "concat", .name = TTI_ISA_TEXT, .run = concat_run},
    {0},
};
