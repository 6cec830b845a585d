/* activation.c - non-linearities of networks: y has the shape and dtype of x.
 *
 * The idea to know: relu, sigmoid and tanh have their gradient in terms of the output y, so the
 * input need not be kept for the backward pass (and relu may run in place, or inside conv2d). */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* ---- relu: y = max(x, 0); NaN passes through ---- */

static void relu_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][i] < 0 ? 0 : a->in[0][i];
}

static void relu_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][i] > 0 ? a->in[1][i] : 0;
}

/* dx = OP_grad(y, dy) */
static tutti_status by_output(tutti_graph *g, const tti_node *node, const char *op, tutti_value *dy,
                              tutti_value **dx) {
    *dx = tti_grad_emit(g, node, op, (tutti_value *[]){node->out[0], dy}, 2, NULL);
    return tutti_graph_check(g);
}

static tutti_status relu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "relu_grad", dy[0], &dx[0]) : TUTTI_OK;
}

/* ---- sigmoid: y = 1 / (1 + e^-x) ---- */

static void sigmoid_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = 1 / (1 + exp(-a->in[0][i]));
}

static void sigmoid_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double y = a->in[0][i];
        a->out[0][i] = a->in[1][i] * y * (1 - y);
    }
}

static tutti_status sigmoid_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "sigmoid_grad", dy[0], &dx[0]) : TUTTI_OK;
}

/* ---- tanh ---- */

static void tanh_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = tanh(a->in[0][i]);
}

static void tanh_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double y = a->in[0][i];
        a->out[0][i] = a->in[1][i] * (1 - y * y);
    }
}

static tutti_status tanh_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "tanh_grad", dy[0], &dx[0]) : TUTTI_OK;
}

/* ---- gelu (Hendrycks & Gimpel 2016): y = x Phi(x), exact or by tanh ---- */

static const tti_attr_spec gelu_attrs[] = {
    {"approximate", TTI_ATTR_INT, 0, "1: Phi by tanh(sqrt(2/pi) (x + 0.044715 x^3))"}, {0}};

static const double sqrt_2_pi = 0.79788456080286535588, sqrt_1_2 = 0.70710678118654752440;

static tutti_status gelu_infer(const tti_node *node, tutti_type *out) {
    int64_t approximate = tti_attr_int(node, "approximate");
    if (approximate != 0 && approximate != 1)
        return tti_node_fail(node, "approximate must be 0 or 1, is %lld", (long long)approximate);
    return tti_infer_same(node, out);
}

/* Phi(x), exact or by tanh. */
static double phi(double x, bool approximate) {
    if (!approximate) return 0.5 * (1 + erf(x * sqrt_1_2));
    return 0.5 * (1 + tanh(sqrt_2_pi * (x + 0.044715 * x * x * x)));
}

/* d Phi / d x */
static double phi_slope(double x, bool approximate) {
    if (!approximate) return 0.5 * sqrt_2_pi * exp(-0.5 * x * x);
    double t = tanh(sqrt_2_pi * (x + 0.044715 * x * x * x));
    return 0.5 * (1 - t * t) * sqrt_2_pi * (1 + 3 * 0.044715 * x * x);
}

static void gelu_reference(const tti_args *a) {
    bool approximate = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][i] * phi(a->in[0][i], approximate);
}

static void gelu_grad_reference(const tti_args *a) {
    bool approximate = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double x = a->in[0][i];
        a->out[0][i] = a->in[1][i] * (phi(x, approximate) + x * phi_slope(x, approximate));
    }
}

static tutti_status gelu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "approximate"), {0}};
    dx[0] = tti_grad_emit(g, node, "gelu_grad", (tutti_value *[]){node->in[0], dy[0]}, 2, attrs);
    return tutti_graph_check(g);
}

/* About what exp, erf and tanh cost on a vector unit. */
static void smooth_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 16.0 * (double)tti_out_n(node, 0), cost);
}

/* ---- builders ---- */

tutti_value *tutti_relu(tutti_graph *g, tutti_value *x) { return tti_build1(g, "relu", x, NULL); }
tutti_value *tutti_sigmoid(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "sigmoid", x, NULL);
}
tutti_value *tutti_tanh(tutti_graph *g, tutti_value *x) { return tti_build1(g, "tanh", x, NULL); }
tutti_value *tutti_gelu(tutti_graph *g, tutti_value *x) { return tti_build1(g, "gelu", x, NULL); }
tutti_value *tutti_gelu_tanh(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "gelu", x, (tti_attr_arg[]){TTI_INT("approximate", 1), {0}});
}

/* ---- records ---- */

static const tti_sample samples[] = {
    {.in = "f32[3,5]", .lo = -4, .hi = 4},
    {.in = "f32[2,3,5,7]"},
    {.in = "f64[]"},
    {.in = "f32[0,5]"},
    {.in = "bf16[33]", .lo = -2, .hi = 2},
    {.in = "u8[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_samples[] = {
    {.in = "f32[3,5] f32[3,5]", .lo = -0.9, .hi = 0.9},
    {.in = "f32[2,3,5,7] f32[2,3,5,7]", .lo = -0.9, .hi = 0.9},
    {.in = "f64[] f64[]"},
    {.in = "f32[0,5] f32[0,5]"},
    {.in = "f32[3] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3] f64[3]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gelu_samples[] = {
    {.in = "f32[3,5]", .lo = -4, .hi = 4},
    {.in = "f32[2,3,5,7]", .attrs = "approximate=1", .lo = -4, .hi = 4},
    {.in = "f64[]"},
    {.in = "f32[0,5]"},
    {.in = "f32[3]", .attrs = "approximate=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gelu_grad_samples[] = {
    {.in = "f32[3,5] f32[3,5]", .lo = -4, .hi = 4},
    {.in = "f32[2,7] f32[2,7]", .attrs = "approximate=1", .lo = -4, .hi = 4},
    {.in = "f32[0,5] f32[0,5]"},
    {.in = "f32[5] f32[1]", .expect = TUTTI_E_INVALID},
    {0},
};

/* What every record of this family has; n is the number of inputs. */
#define ACTIVATION(op_name, n, op_doc)                                         \
    .name = #op_name, .doc = op_doc, .n_in_min = n, .n_in_max = n, .n_out = 1, \
    .traits = TTI_ELEMENTWISE | TTI_IN_PLACE, .reference = op_name##_reference

const tti_op tti_ops_activation[] = {
    {ACTIVATION(relu, 1, "y = max(x, 0)"), .epilogue = TTI_EPILOGUE_RELU, .infer = tti_infer_same,
     .grad = relu_grad, .shard = tti_shard_same, .cost = tti_cost_elementwise, .samples = samples},
    {ACTIVATION(relu_grad, 2, "dx = dy where y > 0, else 0; inputs y, dy"), .infer = tti_infer_same,
     .shard = tti_shard_grad, .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(sigmoid, 1, "y = 1 / (1 + e^-x)"), .infer = tti_infer_same, .grad = sigmoid_grad,
     .shard = tti_shard_same, .cost = smooth_cost, .samples = samples},
    {ACTIVATION(sigmoid_grad, 2, "dx = dy y (1 - y); inputs y, dy"), .infer = tti_infer_same,
     .shard = tti_shard_grad, .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(tanh, 1, "y = tanh x"), .infer = tti_infer_same, .grad = tanh_grad,
     .shard = tti_shard_same, .cost = smooth_cost, .samples = samples},
    {ACTIVATION(tanh_grad, 2, "dx = dy (1 - y^2); inputs y, dy"), .infer = tti_infer_same,
     .shard = tti_shard_grad, .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(gelu, 1, "y = x Phi(x), Phi: normal distribution function"), .attrs = gelu_attrs,
     .infer = gelu_infer, .grad = gelu_grad, .shard = tti_shard_same, .cost = smooth_cost,
     .samples = gelu_samples},
    {ACTIVATION(gelu_grad, 2, "dx = dy (Phi(x) + x Phi'(x)); inputs x, dy"), .attrs = gelu_attrs,
     .infer = gelu_infer, .shard = tti_shard_grad, .cost = smooth_cost,
     .samples = gelu_grad_samples},
    {0},
};
