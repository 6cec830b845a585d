/* activation.c - non-linearities of networks: y has the shape and dtype of x.
 *
 * The idea to know: relu, relu6, sigmoid and tanh have their gradient in terms of the output y, so
 * the input need not be kept for the backward pass (and relu may run in place, or inside conv2d).
 */
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
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][i] <= 0 ? 0 : a->in[1][i];
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

/* ---- relu6: y = min(max(x, 0), 6); at both bounds the gradient is 0, as in PyTorch ---- */

static void relu6_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double x = a->in[0][i];
        a->out[0][i] = x < 0 ? 0 : x > 6 ? 6 : x;
    }
}

static void relu6_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] = a->in[0][i] <= 0 || a->in[0][i] >= 6 ? 0 : a->in[1][i];
}

static tutti_status relu6_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                               const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "relu6_grad", dy[0], &dx[0]) : TUTTI_OK;
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

double tti_gelu(double x, bool by_tanh) { return x * phi(x, by_tanh); }

double tti_gelu_slope(double x, bool by_tanh) {
    return phi(x, by_tanh) + x * phi_slope(x, by_tanh);
}

static void gelu_reference(const tti_args *a) {
    bool approximate = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = tti_gelu(a->in[0][i], approximate);
}

static void gelu_grad_reference(const tti_args *a) {
    bool approximate = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] = a->in[1][i] * tti_gelu_slope(a->in[0][i], approximate);
}

static tutti_status gelu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "approximate"), {0}};
    dx[0] = tti_grad_emit(g, node, "gelu_grad", (tutti_value *[]){node->in[0], dy[0]}, 2, attrs);
    return tutti_graph_check(g);
}

/* ---- silu: y = x / (1 + e^-x) ---- */

static double sigma(double x) { return 1 / (1 + exp(-x)); }

static double silu_slope(double x) { return sigma(x) * (1 + x * (1 - sigma(x))); }

static void silu_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][i] * sigma(a->in[0][i]);
}

static void silu_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[1][i] * silu_slope(a->in[0][i]);
}

/* dx = OP_grad(x, dy) */
static tutti_status by_input(tutti_graph *g, const tti_node *node, const char *op, tutti_value *dy,
                             tutti_value **dx) {
    *dx = tti_grad_emit(g, node, op, (tutti_value *[]){node->in[0], dy}, 2, NULL);
    return tutti_graph_check(g);
}

static tutti_status silu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    return need[0] ? by_input(g, node, "silu_grad", dy[0], &dx[0]) : TUTTI_OK;
}

/* ---- swiglu (Shazeer 2020): y[..,K] = silu(a) b for x[..,2K] = (a, b) ---- */

/* Input i is [..,2K]; *half is [..,K]. */
static tutti_status halve(const tti_node *node, int i, tutti_shape *half) {
    char text[128];
    *half = *tti_in_shape(node, i);
    if (half->n_dims < 1 || half->dim[half->n_dims - 1] % 2)
        return tti_node_fail(node, "input %d must be [..,2K], is %s", i,
                             tti_type_text(&node->in[i]->type, text, sizeof text));
    half->dim[half->n_dims - 1] /= 2;
    return TUTTI_OK;
}

static tutti_status swiglu_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 1));
    out[0].dtype = node->in[0]->type.dtype;
    return halve(node, 0, &out[0].shape);
}

static tutti_status swiglu_grad_infer(const tti_node *node, tutti_type *out) {
    tutti_shape half;
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(halve(node, 0, &half));
    if (!tti_shape_equal(&half, tti_in_shape(node, 1)))
        return tti_node_fail(node, "dy must have half of x's last dimension");
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static void swiglu_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0),
           k = (size_t)tti_in_dim(a->node, 0, tti_in_shape(a->node, 0)->n_dims - 1) / 2;
    for (size_t i = 0; i < n; i++) {
        const double *x = a->in[0] + i / k * 2 * k + i % k;
        a->out[0][i] = x[0] * sigma(x[0]) * x[k];
    }
}

static void swiglu_grad_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 1),
           k = (size_t)tti_in_dim(a->node, 0, tti_in_shape(a->node, 0)->n_dims - 1) / 2;
    for (size_t i = 0; i < n; i++) {
        const double *x = a->in[0] + i / k * 2 * k + i % k;
        double *dx = a->out[0] + i / k * 2 * k + i % k;
        dx[0] = a->in[1][i] * silu_slope(x[0]) * x[k];
        dx[k] = a->in[1][i] * x[0] * sigma(x[0]);
    }
}

static tutti_status swiglu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    return need[0] ? by_input(g, node, "swiglu_grad", dy[0], &dx[0]) : TUTTI_OK;
}

/* ---- geglu: the same with gelu(a) ---- */

static void geglu_reference(const tti_args *a) {
    bool by_tanh = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_out_n(a->node, 0),
           k = (size_t)tti_in_dim(a->node, 0, tti_in_shape(a->node, 0)->n_dims - 1) / 2;
    for (size_t i = 0; i < n; i++) {
        const double *x = a->in[0] + i / k * 2 * k + i % k;
        a->out[0][i] = tti_gelu(x[0], by_tanh) * x[k];
    }
}

static void geglu_grad_reference(const tti_args *a) {
    bool by_tanh = tti_attr_int(a->node, "approximate") != 0;
    size_t n = tti_in_n(a->node, 1),
           k = (size_t)tti_in_dim(a->node, 0, tti_in_shape(a->node, 0)->n_dims - 1) / 2;
    for (size_t i = 0; i < n; i++) {
        const double *x = a->in[0] + i / k * 2 * k + i % k;
        double *dx = a->out[0] + i / k * 2 * k + i % k;
        dx[0] = a->in[1][i] * tti_gelu_slope(x[0], by_tanh) * x[k];
        dx[k] = a->in[1][i] * tti_gelu(x[0], by_tanh);
    }
}

static tutti_status geglu_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                               const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "approximate"), {0}};
    dx[0] = tti_grad_emit(g, node, "geglu_grad", (tutti_value *[]){node->in[0], dy[0]}, 2, attrs);
    return tutti_graph_check(g);
}

/* The two halves of a row must lie on one worker. */
static tutti_status swiglu_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"dd", "d"}};
    return tti_shard_match(node, rules, 1, in, out, "the halves of a row lie together");
}

/* The halves are packed. */
static bool swiglu_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    int last = tti_in_shape(node, 0)->n_dims - 1;
    (void)n;
    out[0] = (tti_cut){TTI_SPLIT, last, 1};
    return tti_is_packed(in[0], last, 2);
}

/* About what exp, erf and tanh cost on a vector unit. */
static void smooth_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 16.0 * (double)tti_out_n(node, 0), cost);
}

/* ---- builders ---- */

tutti_value *tutti_relu(tutti_graph *g, tutti_value *x) { return tti_build1(g, "relu", x, NULL); }
tutti_value *tutti_relu6(tutti_graph *g, tutti_value *x) { return tti_build1(g, "relu6", x, NULL); }
tutti_value *tutti_sigmoid(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "sigmoid", x, NULL);
}
tutti_value *tutti_tanh(tutti_graph *g, tutti_value *x) { return tti_build1(g, "tanh", x, NULL); }
tutti_value *tutti_gelu(tutti_graph *g, tutti_value *x) { return tti_build1(g, "gelu", x, NULL); }
tutti_value *tutti_gelu_tanh(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "gelu", x, (tti_attr_arg[]){TTI_INT("approximate", 1), {0}});
}
tutti_value *tutti_silu(tutti_graph *g, tutti_value *x) { return tti_build1(g, "silu", x, NULL); }
tutti_value *tutti_swiglu(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "swiglu", x, NULL);
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

static const tti_sample relu6_samples[] = {
    {.in = "f32[3,5]", .lo = -4, .hi = 10},
    {.in = "f32[2,3,5,7]", .lo = 5, .hi = 7},
    {.in = "f64[]"},
    {.in = "f32[0,5]"},
    {.in = "bf16[33]", .lo = -2, .hi = 8},
    {.in = "u8[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample relu6_grad_samples[] = {
    {.in = "f32[3,5] f32[3,5]", .lo = -2, .hi = 8},
    {.in = "f32[2,3,5,7] f32[2,3,5,7]", .lo = 5, .hi = 7},
    {.in = "f32[0,5] f32[0,5]"},
    {.in = "f32[3] f32[4]", .expect = TUTTI_E_INVALID},
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

static const tti_sample swiglu_samples[] = {
    {.in = "f32[4,6]", .lo = -4, .hi = 4},
    {.in = "f32[2,4,10]", .lo = -4, .hi = 4},
    {.in = "bf16[2]"},
    {.in = "f32[0,4]"},
    {.in = "f32[4,0]"},
    {.in = "f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[]", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample swiglu_grad_samples[] = {
    {.in = "f32[4,6] f32[4,3]", .lo = -4, .hi = 4},
    {.in = "f32[2,4,10] f32[2,4,5]", .lo = -4, .hi = 4},
    {.in = "f32[0,4] f32[0,2]"},
    {.in = "f32[4,6] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,5] f32[4,2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample geglu_samples[] = {
    {.in = "f32[4,6]", .lo = -4, .hi = 4},
    {.in = "f32[2,4,10]", .attrs = "approximate=1", .lo = -4, .hi = 4},
    {.in = "bf16[2]"},
    {.in = "f32[0,4]"},
    {.in = "f32[4,0]"},
    {.in = "f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample geglu_grad_samples[] = {
    {.in = "f32[4,6] f32[4,3]", .lo = -4, .hi = 4},
    {.in = "f32[2,4,10] f32[2,4,5]", .attrs = "approximate=1", .lo = -4, .hi = 4},
    {.in = "f32[0,4] f32[0,2]"},
    {.in = "f32[4,6] f32[4,6]", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of this family's records; n is the number of inputs. */
#define ACTIVATION(op_name, n, op_doc)                                         \
    .name = #op_name, .doc = op_doc, .n_in_min = n, .n_in_max = n, .n_out = 1, \
    .traits = TTI_ELEMENTWISE | TTI_IN_PLACE, .reference = op_name##_reference

const tti_op tti_ops_activation[] = {
    {ACTIVATION(relu, 1, "y = max(x, 0)"), .epilogue = TTI_EPILOGUE_RELU, .infer = tti_infer_same,
     .grad = relu_grad, .shard = tti_shard_same, .cost = tti_cost_elementwise, .samples = samples},
    {ACTIVATION(relu_grad, 2, "dx = 0 where y <= 0, else dy; inputs y, dy"),
     .epilogue_grad = TTI_EPILOGUE_RELU, .infer = tti_infer_same, .shard = tti_shard_grad,
     .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(relu6, 1, "y = min(max(x, 0), 6)"), .infer = tti_infer_same, .grad = relu6_grad,
     .shard = tti_shard_same, .cost = tti_cost_elementwise, .samples = relu6_samples},
    {ACTIVATION(relu6_grad, 2, "dx = dy where 0 < y < 6, else 0; inputs y, dy"),
     .infer = tti_infer_same, .shard = tti_shard_grad, .cost = tti_cost_elementwise,
     .samples = relu6_grad_samples},
    {ACTIVATION(sigmoid, 1, "y = 1 / (1 + e^-x)"), .infer = tti_infer_same, .grad = sigmoid_grad,
     .shard = tti_shard_same, .cost = smooth_cost, .samples = samples},
    {ACTIVATION(sigmoid_grad, 2, "dx = dy y (1 - y); inputs y, dy"), .infer = tti_infer_same,
     .shard = tti_shard_grad, .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(tanh, 1, "y = tanh x"), .infer = tti_infer_same, .grad = tanh_grad,
     .shard = tti_shard_same, .cost = smooth_cost, .samples = samples},
    {ACTIVATION(tanh_grad, 2, "dx = dy (1 - y^2); inputs y, dy"), .infer = tti_infer_same,
     .shard = tti_shard_grad, .cost = tti_cost_elementwise, .samples = grad_samples},
    {ACTIVATION(gelu, 1, "y = x Phi(x), Phi: normal distribution function"), .attrs = gelu_attrs,
     .joint = TTI_JOINT_GELU, .infer = gelu_infer, .grad = gelu_grad, .shard = tti_shard_same,
     .cost = smooth_cost, .samples = gelu_samples},
    {ACTIVATION(gelu_grad, 2, "dx = dy (Phi(x) + x Phi'(x)); inputs x, dy"), .attrs = gelu_attrs,
     .joint = TTI_JOINT_GELU_GRAD, .infer = gelu_infer, .shard = tti_shard_grad,
     .cost = smooth_cost, .samples = gelu_grad_samples},
    {ACTIVATION(silu, 1, "y = x / (1 + e^-x)"), .infer = tti_infer_same, .grad = silu_grad,
     .shard = tti_shard_same, .cost = smooth_cost, .samples = samples},
    {ACTIVATION(silu_grad, 2, "dx = dy s (1 + x (1 - s)), s = 1 / (1 + e^-x); inputs x, dy"),
     .infer = tti_infer_same, .shard = tti_shard_grad, .cost = smooth_cost,
     .samples = grad_samples},
    {.name = "swiglu",
     .doc = "y[..,K] = silu(a) b for x[..,2K] = (a, b)",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .traits = TTI_FOLLOWS,
     .infer = swiglu_infer,
     .grad = swiglu_grad,
     .shard = swiglu_shard,
     .cut = swiglu_cut,
     .cost = smooth_cost,
     .reference = swiglu_reference,
     .samples = swiglu_samples},
    {.name = "swiglu_grad",
     .doc = "dx of swiglu; inputs x, dy",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .infer = swiglu_grad_infer,
     .shard = swiglu_shard,
     .cost = smooth_cost,
     .reference = swiglu_grad_reference,
     .samples = swiglu_grad_samples},
    {.name = "geglu",
     .doc = "y[..,K] = gelu(a) b for x[..,2K] = (a, b)",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = gelu_attrs,
     .traits = TTI_FOLLOWS,
     .infer = swiglu_infer,
     .grad = geglu_grad,
     .shard = swiglu_shard,
     .cut = swiglu_cut,
     .cost = smooth_cost,
     .reference = geglu_reference,
     .samples = geglu_samples},
    {.name = "geglu_grad",
     .doc = "dx of geglu; inputs x, dy",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = gelu_attrs,
     .infer = swiglu_grad_infer,
     .shard = swiglu_shard,
     .cost = smooth_cost,
     .reference = geglu_grad_reference,
     .samples = geglu_grad_samples},
    {0},
};
