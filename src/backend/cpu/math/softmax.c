/* softmax.c - softmax and log_softmax along the last axis, with gradients; f32, plain layout.
 * Other axes go to the reference.  Each row: maximum, exponentials, one fixed sum. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

static bool can_run(const tti_node *node) {
    int64_t axis = tti_attr_int(node, "axis");
    int n_dims = node->in[0]->type.shape.n_dims;
    return tti_all_f32(node) && tti_all_plain(node) && (axis == -1 || axis == n_dims - 1);
}

typedef void (*row_fn)(const float *a, const float *b, float *y, size_t n);

static tutti_status rows(const tti_kargs *args, row_fn fn) {
    const tutti_shape *shape = &args->node->out[0]->type.shape;
    size_t n = shape->n_dims ? (size_t)shape->dim[shape->n_dims - 1] : 1;
    size_t n_all = tti_n_elems(args->node->out[0]);
    const float *a = args->in[0], *b = args->node->n_in > 1 ? args->in[1] : a;
    float *y = args->out[0];
    for (size_t i = 0; n && i < n_all; i += n) fn(a + i, b + i, y + i, n);
    return TUTTI_OK;
}

static void softmax_row(const float *x, const float *unused, float *y, size_t n) {
    float m = tti_max_n(x, n, x[0]);
    (void)unused;
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = tti_vexp(x[i] - m);
    float scale = 1.0f / tti_sum_n(y, n);
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] *= scale;
}

/* Needs y apart from x: the exponentials are summed before x is read again. */
static void log_softmax_row(const float *x, const float *unused, float *y, size_t n) {
    float m = tti_max_n(x, n, x[0]);
    (void)unused;
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = tti_vexp(x[i] - m);
    float log_sum = tti_vlog(tti_sum_n(y, n));
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - m) - log_sum;
}

/* dx = y (dy - sum dy y) */
static void softmax_grad_row(const float *y, const float *dy, float *dx, size_t n) {
    float dot;
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) acc += tti_load16(y + i) * tti_load16(dy + i);
    tti_store16(lane, acc);
    for (size_t l = 0; i + l < n; l++) lane[l] += y[i + l] * dy[i + l];
    dot = tti_sum_lanes(lane);
    TTI_IVDEP
    for (i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
}

/* dx = dy - e^y sum dy */
static void log_softmax_grad_row(const float *y, const float *dy, float *dx, size_t n) {
    float sum = tti_sum_n(dy, n);
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) dx[i] = dy[i] - tti_vexp(y[i]) * sum;
}

static tutti_status softmax_run(void *state, const tti_kargs *a) {
    (void)state;
    return rows(a, softmax_row);
}

static tutti_status log_softmax_run(void *state, const tti_kargs *a) {
    (void)state;
    return rows(a, log_softmax_row);
}

static tutti_status softmax_grad_run(void *state, const tti_kargs *a) {
    (void)state;
    return rows(a, softmax_grad_row);
}

static tutti_status log_softmax_grad_run(void *state, const tti_kargs *a) {
    (void)state;
    return rows(a, log_softmax_grad_row);
}

#define ROW(op_name, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_softmax)[];
const tti_kernel TTI_VARIANT(tti_kernels_softmax)[] = {
    ROW("softmax", softmax_run),
    ROW("softmax_grad", softmax_grad_run),
    ROW("log_softmax", log_softmax_run),
    ROW("log_softmax_grad", log_softmax_grad_run),
    {0},
};
