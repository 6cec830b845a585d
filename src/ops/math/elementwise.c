/* elementwise.c - functions of one input, element by element: y has the shape and dtype of x.
 *
 * Non-linearities of networks are in activation.c.  The idea to know: gradients are written with
 * other ops of the table (exp: dy * y), so that fusion and in-place planning see ordinary nodes. */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* name, y for x, in the reference */
#define MAP(name, y)                                  \
    static void name##_reference(const tti_args *a) { \
        size_t n = tti_in_n(a->node, 0);              \
        for (size_t i = 0; i < n; i++) {              \
            double x = a->in[0][i];                   \
            a->out[0][i] = (y);                       \
        }                                             \
    }

static double sign_of(double x) { return isnan(x) ? x : (double)((x > 0) - (x < 0)); }

MAP(neg, -x)
MAP(exp, exp(x))
MAP(log, log(x))
MAP(sqrt, sqrt(x))
MAP(abs, fabs(x))
MAP(square, x *x)
MAP(sign, sign_of(x))
MAP(sin, sin(x))
MAP(cos, cos(x))
MAP(erf, erf(x))
MAP(log1p, log1p(x))
MAP(expm1, expm1(x))
MAP(floor, floor(x))
MAP(round, nearbyint(x))
#undef MAP

static tutti_value *scaled(tutti_graph *g, const tti_node *node, tutti_value *x, double alpha) {
    return tti_grad_emit(g, node, "affine", &x, 1,
                         (tti_attr_arg[]){TTI_FLOAT("alpha", alpha), {0}});
}

static tutti_value *both(tutti_graph *g, const tti_node *node, const char *op, tutti_value *a,
                         tutti_value *b) {
    return tti_grad_emit(g, node, op, (tutti_value *[]){a, b}, 2, NULL);
}

static tutti_status neg_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = tti_grad_emit(g, node, "neg", dy, 1, NULL);
    return tutti_graph_check(g);
}

static tutti_status exp_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "mul", dy[0], node->out[0]);
    return tutti_graph_check(g);
}

static tutti_status log_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "div", dy[0], node->in[0]);
    return tutti_graph_check(g);
}

static tutti_status sqrt_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "div", scaled(g, node, dy[0], 0.5), node->out[0]);
    return tutti_graph_check(g);
}

static tutti_status abs_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    dx[0] = both(g, node, "mul", dy[0], tti_grad_emit(g, node, "sign", node->in, 1, NULL));
    return tutti_graph_check(g);
}

static tutti_status square_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "mul", scaled(g, node, dy[0], 2), node->in[0]);
    return tutti_graph_check(g);
}

static tutti_status sin_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    dx[0] = both(g, node, "mul", dy[0], tti_grad_emit(g, node, "cos", node->in, 1, NULL));
    return tutti_graph_check(g);
}

static tutti_status cos_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tutti_value *slope = tti_grad_emit(g, node, "sin", node->in, 1, NULL);
    dx[0] = both(g, node, "mul", scaled(g, node, dy[0], -1), slope);
    return tutti_graph_check(g);
}

/* 2 / sqrt(pi) e^(-x^2) */
static tutti_status erf_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tutti_value *square = tti_grad_emit(g, node, "square", node->in, 1, NULL);
    square = scaled(g, node, square, -1);
    tutti_value *bell = tti_grad_emit(g, node, "exp", &square, 1, NULL);
    dx[0] = both(g, node, "mul", scaled(g, node, dy[0], 1.1283791670955126), bell);
    return tutti_graph_check(g);
}

/* x + 1 or y + 1 */
static tutti_value *plus_one(tutti_graph *g, const tti_node *node, tutti_value *x) {
    return tti_grad_emit(g, node, "affine", &x, 1, (tti_attr_arg[]){TTI_FLOAT("beta", 1), {0}});
}

static tutti_status log1p_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                               const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "div", dy[0], plus_one(g, node, node->in[0]));
    return tutti_graph_check(g);
}

static tutti_status expm1_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                               const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = both(g, node, "mul", dy[0], plus_one(g, node, node->out[0]));
    return tutti_graph_check(g);
}

/* ---- affine ---- */

static const tti_attr_spec affine_attrs[] = {
    {"alpha", TTI_ATTR_FLOAT, 1, "factor"}, {"beta", TTI_ATTR_FLOAT, 0, "added after"}, {0}};

static void affine_reference(const tti_args *a) {
    double alpha = tti_attr_float(a->node, "alpha"), beta = tti_attr_float(a->node, "beta");
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = alpha * a->in[0][i] + beta;
}

static tutti_status affine_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = scaled(g, node, dy[0], tti_attr_float(node, "alpha"));
    return tutti_graph_check(g);
}

/* beta must be added once, so a term of a sum passes only without it. */
static tutti_status affine_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    if (tti_attr_float(node, "beta") != 0) return tti_shard_same(node, in, out);
    return tti_shard_linear(node, in, out);
}

/* ---- cast ---- */

static const tti_attr_spec cast_attrs[] = {
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype of the result"}, {0}};

static tutti_status cast_infer(const tti_node *node, tutti_type *out) {
    int64_t dtype = tti_attr_int(node, "dtype");
    if (dtype < 0 || dtype >= TUTTI_N_DTYPES)
        return tti_node_fail(node, "dtype %lld does not exist", (long long)dtype);
    out[0] = (tutti_type){(tutti_dtype)dtype, *tti_in_shape(node, 0)};
    return TUTTI_OK;
}

/* Floating to floating is exact here: rounding is a matter of the storage.  To an integer the
 * value is cut towards zero; NaN gives 0, and values are held at the ends of the range. */
static void cast_reference(const tti_args *a) {
    tutti_dtype dtype = (tutti_dtype)tti_attr_int(a->node, "dtype");
    size_t n = tti_in_n(a->node, 0);
    double lo = dtype == TUTTI_U8 ? 0 : dtype == TUTTI_I32 ? -0x1p31 : -0x1p63;
    double hi = dtype == TUTTI_U8 ? 255 : dtype == TUTTI_I32 ? 0x1p31 - 1 : 0x1.fffffffffffffp62;
    for (size_t i = 0; i < n; i++) {
        double x = a->in[0][i];
        if (!tti_is_float(dtype)) x = isnan(x) ? 0 : trunc(fmin(fmax(x, lo), hi));
        a->out[0][i] = x;
    }
}

static tutti_status cast_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    tutti_dtype from = node->in[0]->type.dtype;
    if (!need[0] || !tti_is_float(from) || !tti_is_float(node->out[0]->type.dtype)) return TUTTI_OK;
    dx[0] = tti_grad_emit(g, node, "cast", dy, 1, (tti_attr_arg[]){TTI_INT("dtype", from), {0}});
    return tutti_graph_check(g);
}

static tutti_status cast_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    bool floats = tti_is_float(node->in[0]->type.dtype) &&
                  tti_is_float((tutti_dtype)tti_attr_int(node, "dtype"));
    return floats ? tti_shard_linear(node, in, out) : tti_shard_same(node, in, out);
}

/* ---- builders ---- */

tutti_value *tutti_neg(tutti_graph *g, tutti_value *x) { return tti_build1(g, "neg", x, NULL); }
tutti_value *tutti_exp(tutti_graph *g, tutti_value *x) { return tti_build1(g, "exp", x, NULL); }
tutti_value *tutti_log(tutti_graph *g, tutti_value *x) { return tti_build1(g, "log", x, NULL); }
tutti_value *tutti_sqrt(tutti_graph *g, tutti_value *x) { return tti_build1(g, "sqrt", x, NULL); }
tutti_value *tutti_abs(tutti_graph *g, tutti_value *x) { return tti_build1(g, "abs", x, NULL); }
tutti_value *tutti_sign(tutti_graph *g, tutti_value *x) { return tti_build1(g, "sign", x, NULL); }
tutti_value *tutti_square(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "square", x, NULL);
}
tutti_value *tutti_sin(tutti_graph *g, tutti_value *x) { return tti_build1(g, "sin", x, NULL); }
tutti_value *tutti_cos(tutti_graph *g, tutti_value *x) { return tti_build1(g, "cos", x, NULL); }
tutti_value *tutti_erf(tutti_graph *g, tutti_value *x) { return tti_build1(g, "erf", x, NULL); }
tutti_value *tutti_log1p(tutti_graph *g, tutti_value *x) { return tti_build1(g, "log1p", x, NULL); }
tutti_value *tutti_expm1(tutti_graph *g, tutti_value *x) { return tti_build1(g, "expm1", x, NULL); }
tutti_value *tutti_floor(tutti_graph *g, tutti_value *x) { return tti_build1(g, "floor", x, NULL); }
tutti_value *tutti_round(tutti_graph *g, tutti_value *x) { return tti_build1(g, "round", x, NULL); }
tutti_value *tutti_affine(tutti_graph *g, tutti_value *x, double alpha, double beta) {
    return tti_build1(g, "affine", x,
                      (tti_attr_arg[]){TTI_FLOAT("alpha", alpha), TTI_FLOAT("beta", beta), {0}});
}
tutti_value *tutti_cast(tutti_graph *g, tutti_value *x, tutti_dtype dtype) {
    return tti_build1(g, "cast", x, (tti_attr_arg[]){TTI_INT("dtype", (int64_t)dtype), {0}});
}

/* ---- records ---- */

static const tti_sample any_samples[] = {
    {.in = "f32[3,5]", .lo = -3, .hi = 3},
    {.in = "f32[2,3,5,7]"},
    {.in = "f64[]"},
    {.in = "f32[0,5]"}, /* an empty batch */
    {.in = "bf16[17]"},
    {.in = "i32[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample positive_samples[] = {
    {.in = "f32[3,5]", .lo = 0.1, .hi = 9},
    {.in = "f32[2,3,5,7]", .lo = 0.5, .hi = 2},
    {.in = "f64[1]", .lo = 1, .hi = 2},
    {.in = "f32[0,5]"},
    {.in = "u8[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

/* Large arguments too, as positions times frequencies are. */
static const tti_sample turn_samples[] = {
    {.in = "f32[3,5]", .lo = -3, .hi = 3},
    {.in = "f32[2,3,5,7]", .lo = -30, .hi = 30},
    {.in = "f64[]"},
    {.in = "f32[0,5]"},
    {.in = "i32[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample step_samples[] = {
    {.in = "f32[3,5]", .lo = -9, .hi = 9},
    {.in = "f32[2,3,5,7]", .lo = -3, .hi = 3},
    {.in = "f64[4]", .lo = -9, .hi = 9},
    {.in = "f32[0,5]"},
    {.in = "i32[3]", .int_hi = 9, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample affine_samples[] = {
    {.in = "f32[3,5]", .attrs = "alpha=-2.5 beta=0.75"},
    {.in = "f32[2,4]", .attrs = "alpha=3"},
    {.in = "f64[]", .attrs = "beta=1"},
    {.in = "f32[0,5]"},
    {.in = "i64[2]", .int_hi = 3, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample cast_samples[] = {
    {.in = "f32[3,5]", .attrs = "dtype=3"},
    {.in = "f32[5,9]", .attrs = "dtype=2", .lo = -70000, .hi = 70000},
    {.in = "f16[2,3,2,2]", .attrs = "dtype=0"},
    {.in = "f64[4]", .attrs = "dtype=4", .lo = -9, .hi = 9},
    {.in = "u8[4,2]", .attrs = "dtype=0", .int_hi = 255},
    {.in = "f32[0]", .attrs = "dtype=1"},
    {.in = "f32[3]", .attrs = "dtype=7", .expect = TUTTI_E_INVALID},
    {.in = "f32[3]", .attrs = "dtype=-1", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of records of functions of one input. */
#define MAP_OP(op_name, op_doc)                                                \
    .name = #op_name, .doc = op_doc, .n_in_min = 1, .n_in_max = 1, .n_out = 1, \
    .cost = tti_cost_elementwise, .reference = op_name##_reference

enum { MAP_TRAITS = TTI_ELEMENTWISE | TTI_IN_PLACE };

const tti_op tti_ops_elementwise[] = {
    {MAP_OP(neg, "y = -x"), .traits = MAP_TRAITS, .infer = tti_infer_same, .grad = neg_grad,
     .shard = tti_shard_linear, .samples = any_samples},
    {MAP_OP(exp, "y = e^x"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = exp_grad, .shard = tti_shard_same, .samples = any_samples},
    {MAP_OP(log, "y = ln x"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = log_grad, .shard = tti_shard_same, .samples = positive_samples},
    {MAP_OP(sqrt, "y = x^(1/2)"), .traits = MAP_TRAITS, .infer = tti_infer_same, .grad = sqrt_grad,
     .shard = tti_shard_same, .samples = positive_samples},
    {MAP_OP(abs, "y = |x|; slope 0 at 0"), .traits = MAP_TRAITS, .infer = tti_infer_same,
     .grad = abs_grad, .shard = tti_shard_same, .samples = any_samples},
    {MAP_OP(square, "y = x^2"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = square_grad, .shard = tti_shard_same, .samples = any_samples},
    {MAP_OP(sign, "y = -1, 0 or 1; no gradient"), .traits = MAP_TRAITS, .infer = tti_infer_same,
     .grad = tti_grad_zero, .shard = tti_shard_same, .samples = any_samples},
    {MAP_OP(sin, "y = sin x"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = sin_grad, .shard = tti_shard_same, .samples = turn_samples},
    {MAP_OP(cos, "y = cos x"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = cos_grad, .shard = tti_shard_same, .samples = turn_samples},
    {MAP_OP(erf, "y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x"),
     .traits = MAP_TRAITS, .infer = tti_infer_same, .grad = erf_grad, .shard = tti_shard_same,
     .samples = any_samples},
    {MAP_OP(log1p, "y = ln(1 + x)"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = log1p_grad, .shard = tti_shard_same, .samples = positive_samples},
    {MAP_OP(expm1, "y = e^x - 1"), .traits = MAP_TRAITS | TTI_WIDE, .infer = tti_infer_same,
     .grad = expm1_grad, .shard = tti_shard_same, .samples = any_samples},
    {MAP_OP(floor, "the largest integer up to x; no gradient"), .traits = MAP_TRAITS,
     .infer = tti_infer_same, .grad = tti_grad_zero, .shard = tti_shard_same,
     .samples = step_samples},
    {MAP_OP(round, "the nearest integer, the even one of two; no gradient"), .traits = MAP_TRAITS,
     .infer = tti_infer_same, .grad = tti_grad_zero, .shard = tti_shard_same,
     .samples = step_samples},
    {MAP_OP(affine, "y = alpha x + beta"), .traits = MAP_TRAITS, .attrs = affine_attrs,
     .infer = tti_infer_same, .grad = affine_grad, .shard = affine_shard,
     .samples = affine_samples},
    {MAP_OP(cast,
            "y = x in another dtype; to integers: rounded towards zero, limited to the range"),
     .traits = MAP_TRAITS, .joint = TTI_JOINT_WIDE, .attrs = cast_attrs, .infer = cast_infer,
     .grad = cast_grad, .shard = cast_shard, .samples = cast_samples},
    {0},
};
