/* shape.c - the rows of the kernel table for elements that move: shape.cu does the work. */
#include "backend/cuda/ops/shape.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/loop_nest.h"
#include "backend/cuda/runtime/plain.h"

static size_t elem_bytes(const tutti_value *value) { return tutti_dtype_bytes(value->type.dtype); }

static tutti_status copy(const tti_kargs *a) {
    size_t n_bytes = tti_value_n_bytes(a->node->in[0]);
    if (a->in[0] == a->out[0] || n_bytes == 0) return TUTTI_OK;
    TTI_CUDA(
        cudaMemcpyAsync(a->out[0], a->in[0], n_bytes, cudaMemcpyDeviceToDevice, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status reshape_run(void *state, const tti_kargs *a) {
    (void)state;
    return copy(a);
}

static tutti_status turn(const tti_kargs *a, const tti_turn *t) {
    if (tti_cuda_n_elems(a->node->in[0]) == 0) return TUTTI_OK;
    return tti_cuda_check(tti_launch_turn(t, a->in[0], a->out[0], tti_cuda_stream()),
                          a->node->op->name);
}

static tutti_status to_layout_run(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0], *y = a->node->out[0];
    const int64_t *d = x->type.shape.dim;
    (void)state;
    if (x->type.shape.n_dims != 4 || x->layout == y->layout) return copy(a);
    tti_turn t = {.n_dims = 3, .dim = {d[0], d[1], d[2] * d[3]}, .perm = {0, 2, 1}};
    t.elem = elem_bytes(x);
    if (x->layout == TTI_CHANNELS_LAST_BYTES) t.dim[1] = d[2] * d[3], t.dim[2] = d[1];
    return turn(a, &t);
}

static tutti_status transpose_run(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0];
    const tti_attr *perm = tti_attr_get(a->node, "perm");
    tti_turn t = {.n_dims = x->type.shape.n_dims, .elem = elem_bytes(x)};
    (void)state;
    for (int d = 0; d < t.n_dims; d++) t.dim[d] = x->type.shape.dim[d], t.perm[d] = (int)perm->v[d];
    return turn(a, &t);
}

/* ---- runs along an axis ---- */

/* A value around the axis, in the order of its bytes: n_outer runs of axis elements of inner bytes
 * each. */
typedef struct runs {
    size_t n_outer, inner, axis;
} runs;

static runs runs_of(const tti_node *node, const tutti_value *value) {
    const tutti_shape *s = &value->type.shape;
    int axis = (int)tti_attr_int(node, "axis");
    static const int last_order[4] = {0, 2, 3, 1};
    bool last = s->n_dims == 4 && value->layout == TTI_CHANNELS_LAST_BYTES;
    runs r = {1, elem_bytes(value), 0};
    if (axis < 0) axis += s->n_dims;
    bool after = false;
    for (int i = 0; i < s->n_dims; i++) {
        int d = last ? last_order[i] : i;
        if (d == axis)
            after = true, r.axis = (size_t)s->dim[d];
        else if (after)
            r.inner *= (size_t)s->dim[d];
        else
            r.n_outer *= (size_t)s->dim[d];
    }
    return r;
}

static tutti_status strips(const tti_kargs *a, const tti_strips *s, int n, size_t n_outer) {
    return tti_cuda_check(tti_launch_strips(s, n, n_outer, tti_cuda_stream()), a->node->op->name);
}

static tutti_status slice_run(void *state, const tti_kargs *a) {
    runs x = runs_of(a->node, a->node->in[0]), y = runs_of(a->node, a->node->out[0]);
    size_t start = (size_t)tti_attr_int(a->node, "start") * x.inner, n = y.axis * y.inner;
    (void)state;
    return strips(a,
                  &(tti_strips){.src = (const char *)a->in[0] + start,
                                .dst = a->out[0],
                                .src_pitch = x.axis * x.inner,
                                .dst_pitch = n,
                                .n = n,
                                .hi = n},
                  1, x.n_outer);
}

/* The part `index` of n equal ones along dim. */
static tutti_status tensor_slice_run(void *state, const tti_kargs *a) {
    const tutti_value *y = a->node->out[0];
    const tutti_shape *shape = &y->type.shape;
    int dim = (int)tti_attr_int(a->node, "dim");
    size_t n_outer = 1, part = elem_bytes(y), n = (size_t)tti_attr_int(a->node, "n");
    for (int d = 0; d < dim; d++) n_outer *= (size_t)shape->dim[d];
    for (int d = dim; d < shape->n_dims; d++) part *= (size_t)shape->dim[d];
    (void)state;
    return strips(
        a,
        &(tti_strips){.src = (const char *)a->in[0] + (size_t)tti_attr_int(a->node, "index") * part,
                      .dst = a->out[0],
                      .src_pitch = n * part,
                      .dst_pitch = part,
                      .n = part,
                      .hi = part},
        1, n_outer);
}

static tutti_status slice_grad_run(void *state, const tti_kargs *a) {
    runs dy = runs_of(a->node, a->node->in[0]), dx = runs_of(a->node, a->node->out[0]);
    size_t start = (size_t)tti_attr_int(a->node, "start") * dx.inner, n = dx.axis * dx.inner;
    (void)state;
    return strips(a,
                  &(tti_strips){.src = a->in[0],
                                .dst = a->out[0],
                                .src_pitch = dy.axis * dy.inner,
                                .dst_pitch = n,
                                .n = n,
                                .lo = start,
                                .hi = start + dy.axis * dy.inner},
                  1, dx.n_outer);
}

static tutti_status concat_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    runs y = runs_of(node, node->out[0]);
    tti_strips s[TTI_MAX_STRIPS];
    char *dst = a->out[0];
    (void)state;
    for (int i = 0; i < node->n_in; i++) {
        runs x = runs_of(node, node->in[i]);
        size_t n = x.axis * x.inner;
        s[i] = (tti_strips){.src = a->in[i],
                            .dst = dst,
                            .src_pitch = n,
                            .dst_pitch = y.axis * y.inner,
                            .n = n,
                            .hi = n};
        dst += n;
    }
    return strips(a, s, node->n_in, y.n_outer);
}

_Static_assert((int)TTI_MAX_STRIPS >= (int)TTI_MAX_IN, "concat takes all inputs at once");

/* A value that has the same bytes in both layouts does not decide. */
static bool has_one_layout(const tti_node *node) {
    return tti_cuda_all_plain(node) || tti_cuda_lies_as(node, TTI_CHANNELS_LAST_BYTES);
}

/* Dimensions of more than one element have the same strides before and after. */
static bool is_view(const tti_node *node) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    const tutti_shape *y = &node->out[0]->type.shape;
    uint64_t from[TUTTI_MAX_DIMS], to[TUTTI_MAX_DIMS];
    tti_cuda_strides(node->in[0], from);
    tti_cuda_strides(node->out[0], to);
    for (int d = 0; d < y->n_dims; d++)
        if (y->dim[d] > 1 && from[perm->v[d]] != to[d]) return false;
    return true;
}

const tti_kernel tti_cuda_shape_kernels[] = {
    {.op = "to_layout", .name = "cuda", .run = to_layout_run},
    {.op = "reshape", .name = "cuda", .can_run = tti_cuda_all_plain, .run = reshape_run},
    {.op = "transpose", .name = "cuda", .can_run = tti_cuda_all_plain, .run = transpose_run},
    {.op = "permute_view", .name = "cuda", .can_run = is_view, .run = reshape_run},
    {.op = "slice", .name = "cuda", .can_run = has_one_layout, .run = slice_run},
    {.op = "slice_grad", .name = "cuda", .can_run = has_one_layout, .run = slice_grad_run},
    {.op = "tensor_slice", .name = "cuda", .can_run = tti_cuda_all_plain, .run = tensor_slice_run},
    {.op = "concat", .name = "cuda", .can_run = has_one_layout, .run = concat_run},
    {0},
};
