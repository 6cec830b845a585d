/* activation.c - activations and their gradients as elementwise functions (elementwise.c runs
 * them).  The one idea: no branches, and exp, tanh and erf of our own (vmath.h). */
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
FUNCTION(relu_grad, x > 0.0f ? dy : 0.0f)
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
