/* reduce.c - rows for sum, mean, max_reduce and its gradient, sum_to, argmax.
 *
 * All of them are a loop nest over x in which y is constant along the reduced loops. */
#include "backend/cuda/ops/reduce.h"

#include <stdlib.h>

#include "backend/cuda/runtime/cuda.h"

typedef struct reduce_state {
    tti_reduce_plan plan;
    tti_nest grad_nest; /* of the gradient: dx, x, y, dy */
} reduce_state;

static bool is_number(const tutti_value *value) {
    tutti_dtype dtype = value->type.dtype;
    return dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16 || dtype == TUTTI_F64;
}

static bool can_run(const tti_node *node) { return is_number(node->in[0]); }

/* Whether dimension d of x is folded: no axes means all. */
static bool is_folded(const tti_node *node, int d) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    int n_dims = node->in[0]->type.shape.n_dims;
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] == d || axes->v[i] + n_dims == d) return true;
    return axes->n == 0;
}

/* Strides of a value with the shape of the result, for the dimensions of x. */
static void result_strides(const tti_node *node, const tutti_value *y,
                           uint64_t stride[TUTTI_MAX_DIMS]) {
    uint64_t own[TUTTI_MAX_DIMS] = {0};
    bool keep = tti_attr_int(node, "keep") != 0;
    tti_cuda_strides(y, own);
    for (int d = 0, e = 0; d < node->in[0]->type.shape.n_dims; d++) {
        bool folded = is_folded(node, d);
        stride[d] = folded ? 0 : own[keep ? d : e];
        e += !folded;
    }
}

/* Raw loops over x's dimensions. */
static tti_nest nest_over(const tutti_value *x) {
    tti_nest nest = {.n_dims = x->type.shape.n_dims};
    for (int d = 0; d < nest.n_dims; d++) nest.dim[d] = (uint64_t)x->type.shape.dim[d];
    if (nest.n_dims == 0) nest.n_dims = 1, nest.dim[0] = 1;
    return nest;
}

/* Operands x and y, which is like the result. */
static tti_nest fold_nest(const tti_node *node, const tutti_value *y) {
    tti_nest nest = nest_over(node->in[0]);
    nest.n_operands = 2;
    tti_cuda_strides(node->in[0], nest.stride[0]);
    result_strides(node, y, nest.stride[1]);
    tti_cuda_nest_tidy(&nest);
    return nest;
}

static tutti_status new_state(const tti_node *node, reduce_state **state) {
    *state = calloc(1, sizeof **state);
    if (!*state)
        return tti_fail(TUTTI_E_NOMEM, "%s '%s': out of memory", node->op->name, node->name);
    return TUTTI_OK;
}

/* ---- sums and maxima ---- */

static tutti_status prepare(const tti_node *node, tti_fold fold, void **state) {
    reduce_state *s;
    TTI_TRY(new_state(node, &s));
    tti_nest nest = fold_nest(node, node->out[0]);
    tti_cuda_reduce_make(fold, node->in[0]->type.dtype, &nest, &s->plan);
    *state = s;
    return TUTTI_OK;
}

static tutti_status sum_prepare(const tti_node *node, void **state) {
    return prepare(node, TTI_FOLD_SUM, state);
}

static tutti_status max_prepare(const tti_node *node, void **state) {
    return prepare(node, TTI_FOLD_MAX, state);
}

static tutti_status sum_to_prepare(const tti_node *node, void **state) {
    reduce_state *s;
    TTI_TRY(new_state(node, &s));
    tti_nest nest = tti_cuda_nest(&node->in[0]->type.shape,
                                  (const tutti_value *[]){node->in[0], node->out[0]}, 2);
    tti_cuda_reduce_make(TTI_FOLD_SUM, node->in[0]->type.dtype, &nest, &s->plan);
    *state = s;
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)node;
    return tti_cuda_reduce_scratch(&((const reduce_state *)state)->plan);
}

static tutti_status mean_prepare(const tti_node *node, void **state) {
    TTI_TRY(prepare(node, TTI_FOLD_SUM, state));
    reduce_state *s = *state;
    s->plan.divisor = (double)s->plan.n_folded;
    return TUTTI_OK;
}

static tutti_status run_reduce(void *state, const tti_kargs *a) {
    const reduce_state *s = state;
    if (tti_value_n_elems(a->node->out[0]) == 0) return TUTTI_OK;
    cudaError_t error =
        tti_cuda_reduce(&s->plan, a->in[0], NULL, a->out[0], a->scratch, tti_cuda_stream());
    return tti_cuda_check(error, a->node->op->name);
}

/* ---- the gradient of a maximum: ties first ---- */

static tutti_status grad_prepare(const tti_node *node, void **state) {
    reduce_state *s;
    TTI_TRY(new_state(node, &s));
    tti_nest nest = fold_nest(node, node->in[1]);
    tti_cuda_reduce_make(TTI_FOLD_COUNT, node->in[0]->type.dtype, &nest, &s->plan);
    s->plan.y_dtype = s->plan.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    s->grad_nest = nest_over(node->in[0]);
    s->grad_nest.n_operands = 4;
    tti_cuda_strides(node->out[0], s->grad_nest.stride[0]);
    tti_cuda_strides(node->in[0], s->grad_nest.stride[1]);
    result_strides(node, node->in[1], s->grad_nest.stride[2]);
    result_strides(node, node->in[2], s->grad_nest.stride[3]);
    tti_cuda_nest_tidy(&s->grad_nest);
    *state = s;
    return TUTTI_OK;
}

/* Ties of every element of y, in whole cache lines. */
static size_t tie_bytes(const tti_node *node) {
    size_t each = node->in[0]->type.dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    return ((size_t)tti_value_n_elems(node->in[1]) * each + 63) / 64 * 64;
}

static size_t grad_scratch_bytes(const tti_node *node, const void *state) {
    return tie_bytes(node) + scratch_bytes(node, state);
}

static tutti_status grad_run(void *state, const tti_kargs *a) {
    const reduce_state *s = state;
    const tti_node *node = a->node;
    tutti_dtype dtype = node->in[0]->type.dtype;
    char *parts = (char *)a->scratch + tie_bytes(node);
    if (tti_value_n_elems(node->out[0]) == 0) return TUTTI_OK;
    TTI_CUDA(tti_cuda_reduce(&s->plan, a->in[0], a->in[1], a->scratch, parts, tti_cuda_stream()));
    TTI_CUDA(tti_cuda_max_grad(dtype, &s->grad_nest, (const void *const *)a->in, a->scratch,
                               a->out[0], tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- argmax ---- */

static tutti_status argmax_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    const tutti_shape *shape = &node->in[0]->type.shape;
    uint64_t x[TUTTI_MAX_DIMS] = {0}, y[TUTTI_MAX_DIMS] = {0};
    tti_nest kept = {.n_operands = 2};
    int axis = (int)tti_attr_int(node, "axis");
    (void)state;
    if (axis < 0) axis += shape->n_dims;
    tti_cuda_strides(node->in[0], x);
    tti_cuda_strides(node->out[0], y);
    for (int d = 0; d < shape->n_dims; d++) {
        if (d == axis) continue;
        kept.stride[0][kept.n_dims] = x[d], kept.stride[1][kept.n_dims] = y[kept.n_dims];
        kept.dim[kept.n_dims++] = (uint64_t)shape->dim[d];
    }
    if (kept.n_dims == 0) kept.n_dims = 1, kept.dim[0] = 1;
    tti_cuda_nest_tidy(&kept);
    cudaError_t error = tti_cuda_argmax(node->in[0]->type.dtype, &kept, (uint64_t)shape->dim[axis],
                                        x[axis], a->in[0], a->out[0], tti_cuda_stream());
    return tti_cuda_check(error, "argmax");
}

#define FOLD(op_name, prepare_fn)                                                 \
    {                                                                             \
        .op = op_name, .name = "cuda", .can_run = can_run, .prepare = prepare_fn, \
        .scratch_bytes = scratch_bytes, .run = run_reduce, .release = free        \
    }

const tti_kernel tti_cuda_reduce_kernels[] = {
    FOLD("sum", sum_prepare),
    FOLD("mean", mean_prepare),
    FOLD("max_reduce", max_prepare),
    FOLD("sum_to", sum_to_prepare),
    {.op = "max_reduce_grad",
     .name = "cuda",
     .can_run = can_run,
     .prepare = grad_prepare,
     .scratch_bytes = grad_scratch_bytes,
     .run = grad_run,
     .release = free},
    {.op = "argmax", .name = "cuda", .can_run = can_run, .run = argmax_run},
    {0},
};
