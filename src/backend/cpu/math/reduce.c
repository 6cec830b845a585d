/* reduce.c - sum, mean, max_reduce with its gradient, and argmax; f32.
 *
 * The walk goes through x in memory order (nd.h), so x is read once; the innermost loop either
 * folds a run into one output (16 lanes) or a row into a row of outputs. */
#include "backend/cpu/nd.h"
#include "backend/cpu/simd.h"

static bool can_run(const tti_node *node) {
    return tti_all_f32(node) && tti_all_plain(node) && tti_n_elems(node->in[0]) > 0;
}

/* Whether dimension d of x is reduced: no axes means all. */
static bool is_reduced(const tti_node *node, int d) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    int n_dims = node->in[0]->type.shape.n_dims;
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] == d || axes->v[i] + n_dims == d) return true;
    return axes->n == 0;
}

/* Operand 0 is x, operand 1 the output with stride 0 where it is reduced. */
static tti_nd make_nd(const tti_node *node) {
    const tutti_shape *shape = &node->in[0]->type.shape;
    tti_nd nd = {.n_dims = shape->n_dims, .n_operands = 2};
    size_t n = 1;
    tti_value_strides(node->in[0], nd.stride[0]);
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        nd.dim[d] = (size_t)shape->dim[d];
        if (is_reduced(node, d)) continue;
        nd.stride[1][d] = n;
        n *= nd.dim[d];
    }
    if (!nd.n_dims) nd.n_dims = 1, nd.dim[0] = 1, nd.stride[0][0] = 1;
    tti_nd_tidy(&nd);
    return nd;
}

typedef void (*fold_fn)(const float *x, size_t n, float *y, size_t y_step);

static void fold_sum(const float *x, size_t n, float *y, size_t y_step) {
    if (y_step == 0) {
        *y += tti_sum_n(x, n);
        return;
    }
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i * y_step] += x[i];
}

/* NaN is kept: comparisons with it are false, so it is never replaced. */
static void fold_max(const float *x, size_t n, float *y, size_t y_step) {
    if (y_step == 0) {
        *y = tti_max_n(x, n, *y);
        return;
    }
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float m = y[i * y_step];
        y[i * y_step] = ((x[i] > m) | (x[i] != x[i])) ? x[i] : m;
    }
}

static void reduce(const tti_kargs *a, float start, fold_fn fold) {
    tti_nd nd = make_nd(a->node);
    int last = nd.n_dims - 1;
    size_t n_outer = tti_nd_n_outer(&nd, 1), n_out = tti_n_elems(a->node->out[0]);
    const float *x = a->in[0];
    float *y = a->out[0];
    tti_nd_at at = {0};
    for (size_t i = 0; i < n_out; i++) y[i] = start;
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at))
        fold(x + at.offset[0], nd.dim[last], y + at.offset[1], nd.stride[1][last]);
}

static tutti_status sum_run(void *state, const tti_kargs *a) {
    (void)state;
    reduce(a, 0.0f, fold_sum);
    return TUTTI_OK;
}

static tutti_status mean_run(void *state, const tti_kargs *a) {
    size_t n_out = tti_n_elems(a->node->out[0]);
    float *y = a->out[0];
    (void)state;
    reduce(a, 0.0f, fold_sum);
    float scale = (float)((double)n_out / (double)tti_n_elems(a->node->in[0]));
    for (size_t i = 0; i < n_out; i++) y[i] *= scale;
    return TUTTI_OK;
}

static tutti_status max_run(void *state, const tti_kargs *a) {
    (void)state;
    reduce(a, -__builtin_inff(), fold_max);
    return TUTTI_OK;
}

/* ---- the gradient of max_reduce: elements that equal the maximum share dy ---- */

static size_t share_bytes(const tti_node *node, const void *state) {
    (void)state;
    return tti_n_elems(node->in[1]) * sizeof(float);
}

static void count_ties(const float *x, size_t n, const float *y, float *ties, size_t step) {
    if (step == 0) {
        size_t found = 0;
        for (size_t i = 0; i < n; i++) found += x[i] == *y;
        *ties += (float)found;
        return;
    }
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) ties[i * step] += x[i] == y[i * step] ? 1.0f : 0.0f;
}

/* NaN where the maximum is. */
static void give_shares(const float *x, size_t n, const float *y, const float *share, size_t step,
                        float *dx) {
    if (step == 0) {
        float top = *y, part = *share;
        TTI_IVDEP
        for (size_t i = 0; i < n; i++) dx[i] = top != top ? top : x[i] == top ? part : 0.0f;
        return;
    }
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float top = y[i * step];
        dx[i] = top != top ? top : x[i] == top ? share[i * step] : 0.0f;
    }
}

static tutti_status max_grad_run(void *state, const tti_kargs *a) {
    tti_nd nd = make_nd(a->node);
    int last = nd.n_dims - 1;
    size_t n_outer = tti_nd_n_outer(&nd, 1), n_groups = tti_n_elems(a->node->in[1]);
    const float *x = a->in[0], *y = a->in[1], *dy = a->in[2];
    float *dx = a->out[0], *share = a->scratch;
    size_t n = nd.dim[last], step = nd.stride[1][last];
    (void)state;
    memset(share, 0, n_groups * sizeof *share);
    tti_nd_at at = {0};
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at))
        count_ties(x + at.offset[0], n, y + at.offset[1], share + at.offset[1], step);
    TTI_IVDEP
    for (size_t k = 0; k < n_groups; k++) share[k] = dy[k] / share[k];
    at = (tti_nd_at){0};
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at))
        give_shares(x + at.offset[0], n, y + at.offset[1], share + at.offset[1], step,
                    dx + at.offset[0]);
    return TUTTI_OK;
}

/* ---- argmax: the first maximum along one axis; NaN is the largest ---- */

static bool argmax_can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && node->out[0]->type.dtype == TUTTI_I32 &&
           tti_all_plain(node) && tti_n_elems(node->in[0]) > 0;
}

static tutti_status argmax_run(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->in[0]->type.shape;
    int64_t axis = tti_attr_int(a->node, "axis");
    size_t outer = 1, inner = 1, n;
    const float *x = a->in[0];
    int32_t *y = a->out[0];
    (void)state;
    if (axis < 0) axis += shape->n_dims;
    for (int d = 0; d < axis; d++) outer *= (size_t)shape->dim[d];
    for (int d = (int)axis + 1; d < shape->n_dims; d++) inner *= (size_t)shape->dim[d];
    n = (size_t)shape->dim[axis];
    for (size_t o = 0; o < outer; o++, x += n * inner)
        for (size_t i = 0; i < inner; i++) {
            size_t best = 0;
            for (size_t k = 1; k < n; k++)
                best = tti_is_larger(x[k * inner + i], x[best * inner + i]) ? k : best;
            *y++ = (int32_t)best;
        }
    return TUTTI_OK;
}

#define ROW(op_name, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_reduce)[];
const tti_kernel TTI_VARIANT(tti_kernels_reduce)[] = {
    ROW("sum", sum_run),
    ROW("mean", mean_run),
    ROW("max_reduce", max_run),
    {.op = "max_reduce_grad",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = share_bytes,
     .run = max_grad_run},
    {.op = "argmax", .name = TTI_ISA_TEXT, .can_run = argmax_can_run, .run = argmax_run},
    {0},
};
