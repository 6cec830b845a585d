/* activation.c - activations and their gradients as elementwise functions (elementwise.c runs
 * them), and gated units.  No branches; exp, tanh and erf are our own (vmath.h). */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

/* p: first input (x or y), q: second (dy); a function of one input has q == p. */
#define FUNCTION(name, expr)                                                               \
    static void name(const tti_node *node, const float *const *in, float *out, size_t n) { \
        const float *p = in[0], *q = in[node->n_in - 1];                                   \
        TTI_IVDEP                                                                          \
        for (size_t i = 0; i < n; i++) {                                                   \
            float x = p[i], dy = q[i];                                                     \
            (void)dy;                                                                      \
            out[i] = (expr);                                                               \
        }                                                                                  \
    }

static const float root_half = 0.70710678f;  /* 1/sqrt(2)    */
static const float root_2_pi = 0.79788456f;  /* sqrt(2/pi)   */
static const float root_1_2pi = 0.39894228f; /* 1/sqrt(2 pi) */
static const float cubic = 0.044715f;        /* of the tanh form */

static inline float gelu_erf(float x) { return 0.5f * x * (1.0f + tti_verf(x * root_half)); }

/* (1 + tanh u) / 2 is the logistic function of 2 u. */
static inline float gelu_gate(float x) {
    return tti_vsigmoid(2.0f * root_2_pi * (x + cubic * x * x * x));
}

static inline float gelu_tanh(float x) { return x * gelu_gate(x); }

static inline float gelu_erf_slope(float x) {
    return 0.5f * (1.0f + tti_verf(x * root_half)) + x * root_1_2pi * tti_vexp(-0.5f * x * x);
}

static inline float gelu_tanh_slope(float x) {
    float s = gelu_gate(x);
    return s + x * s * (1.0f - s) * (2.0f * root_2_pi) * (1.0f + 3.0f * cubic * x * x);
}

/* d/dx of x s(x), s the logistic function. */
static inline float silu_slope(float x) {
    float s = tti_vsigmoid(x);
    return s + x * s * (1.0f - s);
}

FUNCTION(relu, x < 0.0f ? 0.0f : x)
FUNCTION(relu_grad, x <= 0.0f ? 0.0f : dy)
FUNCTION(relu6, x<0.0f ? 0.0f : x> 6.0f ? 6.0f : x)
FUNCTION(relu6_grad, x <= 0.0f || x >= 6.0f ? 0.0f : dy)
FUNCTION(sigmoid, tti_vsigmoid(x))
FUNCTION(sigmoid_grad, dy *x *(1.0f - x))
FUNCTION(tanh_, tti_vtanh(x))
FUNCTION(tanh_grad, dy *(1.0f - x * x))
FUNCTION(gelu_exact, gelu_erf(x))
FUNCTION(gelu_approximate, gelu_tanh(x))
FUNCTION(gelu_exact_grad, dy *gelu_erf_slope(x))
FUNCTION(gelu_approximate_grad, dy *gelu_tanh_slope(x))

FUNCTION(silu, x *tti_vsigmoid(x))
FUNCTION(silu_grad, dy *silu_slope(x))

static void gelu(const tti_node *node, const float *const *in, float *out, size_t n) {
    (tti_attr_int(node, "approximate") ? gelu_approximate : gelu_exact)(node, in, out, n);
}

static void gelu_grad(const tti_node *node, const float *const *in, float *out, size_t n) {
    (tti_attr_int(node, "approximate") ? gelu_approximate_grad : gelu_exact_grad)(node, in, out, n);
}

const tti_elem TTI_VARIANT(tti_elems_activation)[] = {
    {"relu", relu},
    {"relu_grad", relu_grad},
    {"relu6", relu6},
    {"relu6_grad", relu6_grad},
    {"sigmoid", sigmoid},
    {"sigmoid_grad", sigmoid_grad},
    {"tanh", tanh_},
    {"tanh_grad", tanh_grad},
    {"gelu", gelu},
    {"gelu_grad", gelu_grad},
    {"silu", silu},
    {"silu_grad", silu_grad},
    {0},
};

/* ---- swiglu: rows of (a, b) -> silu(a) b, which is not elementwise ---- */

static bool swiglu_can_run(const tti_node *node) {
    return tti_all_f32(node) && tti_all_plain(node);
}

/* The elements of half a row of input 0; rows are the rest. */
static size_t half_row(const tti_node *node) {
    const tutti_shape *x = &node->in[0]->type.shape;
    return (size_t)x->dim[x->n_dims - 1] / 2;
}

static void swiglu_row(const float *x, float *y, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = x[i] * tti_vsigmoid(x[i]) * x[n + i];
}

static void swiglu_grad_row(const float *x, const float *dy, float *dx, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float s = tti_vsigmoid(x[i]), d = dy[i];
        dx[i] = d * (s + x[i] * s * (1.0f - s)) * x[n + i];
        dx[n + i] = d * x[i] * s;
    }
}

static tutti_status swiglu_run(void *state, const tti_kargs *a) {
    size_t n = half_row(a->node), n_all = tti_n_elems(a->node->out[0]);
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t i = 0; i < n_all; i += n) swiglu_row(x + 2 * i, y + i, n);
    return TUTTI_OK;
}

static tutti_status swiglu_grad_run(void *state, const tti_kargs *a) {
    size_t n = half_row(a->node), n_all = tti_n_elems(a->node->in[1]);
    const float *x = a->in[0], *dy = a->in[1];
    float *dx = a->out[0];
    (void)state;
    for (size_t i = 0; i < n_all; i += n) swiglu_grad_row(x + 2 * i, dy + i, dx + 2 * i, n);
    return TUTTI_OK;
}

/* ---- geglu: gelu(a) b ---- */

#define GEGLU_ROWS(name, value, slope)                                                  \
    static void name##_row(const float *x, float *y, size_t n) {                        \
        TTI_IVDEP                                                                       \
        for (size_t i = 0; i < n; i++) y[i] = value(x[i]) * x[n + i];                   \
    }                                                                                   \
    static void name##_grad_row(const float *x, const float *dy, float *dx, size_t n) { \
        TTI_IVDEP                                                                       \
        for (size_t i = 0; i < n; i++) {                                                \
            dx[i] = dy[i] * slope(x[i]) * x[n + i];                                     \
            dx[n + i] = dy[i] * value(x[i]);                                            \
        }                                                                               \
    }

GEGLU_ROWS(geglu_exact, gelu_erf, gelu_erf_slope)
GEGLU_ROWS(geglu_tanh, gelu_tanh, gelu_tanh_slope)

static tutti_status geglu_run(void *state, const tti_kargs *a) {
    bool by_tanh = tti_attr_int(a->node, "approximate") != 0;
    size_t n = half_row(a->node), n_all = tti_n_elems(a->node->out[0]);
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t i = 0; i < n_all; i += n)
        (by_tanh ? geglu_tanh_row : geglu_exact_row)(x + 2 * i, y + i, n);
    return TUTTI_OK;
}

static tutti_status geglu_grad_run(void *state, const tti_kargs *a) {
    bool by_tanh = tti_attr_int(a->node, "approximate") != 0;
    size_t n = half_row(a->node), n_all = tti_n_elems(a->node->in[1]);
    const float *x = a->in[0], *dy = a->in[1];
    float *dx = a->out[0];
    (void)state;
    for (size_t i = 0; i < n_all; i += n)
        (by_tanh ? geglu_tanh_grad_row : geglu_exact_grad_row)(x + 2 * i, dy + i, dx + 2 * i, n);
    return TUTTI_OK;
}

#define ROW(op_name, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = swiglu_can_run, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_activation)[];
const tti_kernel TTI_VARIANT(tti_kernels_activation)[] = {
    ROW("swiglu", swiglu_run),
    ROW("swiglu_grad", swiglu_grad_run),
    ROW("geglu", geglu_run),
    ROW("geglu_grad", geglu_grad_run),
    {0},
};
