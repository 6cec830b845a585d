/* norm.c - normalisation of each sample by itself: layer, RMS and group norm.
 *
 * All three normalize rows of x to mean 0 (not RMS) and variance 1, then scale by gamma and shift
 * by beta, which are selected by the position in the row.  A row is the last dimension (layer, RMS)
 * or a group of channels with their positions (group). gamma, beta, mean and rstd are f32 whatever
 * x is. mean and rstd are outputs, so that the gradient does not sum over x again; no gradient
 * flows back from them (saved_out). */
#include <math.h>
#include <string.h>

#include "ops/norm/rows.h"
#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec eps_attrs[] = {{"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
                                          {0}};
static const tti_attr_spec group_attrs[] = {
    {"groups", TTI_ATTR_INT, 1, "divides the channels"},
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
    {0},
};
static const tti_attr_spec group_grad_attrs[] = {{"groups", TTI_ATTR_INT, 1, "as group_norm"}, {0}};

static bool is_group(const tti_node *node) { return tti_attr_has(node, "groups"); }

tti_rows tti_rows_of(const tti_node *node, int i) {
    const tutti_shape *x = tti_in_shape(node, i);
    tti_rows v = {.groups = 1, .inner = 1, .n_rows = 1};
    v.centred = strncmp(node->op->name, "rms", 3) != 0;
    if (is_group(node)) {
        v.groups = (size_t)tti_attr_int(node, "groups");
        v.per_group = (size_t)x->dim[1] / v.groups;
        v.n_rows = (size_t)x->dim[0] * v.groups;
        for (int d = 2; d < x->n_dims; d++) v.inner *= (size_t)x->dim[d];
    } else {
        v.per_group = (size_t)x->dim[x->n_dims - 1];
        for (int d = 0; d < x->n_dims - 1; d++) v.n_rows *= (size_t)x->dim[d];
    }
    v.width = v.per_group * v.inner;
    return v;
}

static size_t param_index(const tti_rows *v, size_t row, size_t e) {
    return row % v->groups * v->per_group + e / v->inner;
}

/* ---- infer ---- */

static tutti_status check_group(const tti_node *node, const tutti_shape *x) {
    int64_t groups = tti_attr_int(node, "groups");
    if (x->n_dims < 2) return tti_node_fail(node, "the input must be [N,C,..]");
    if (groups < 1 || x->dim[1] % groups)
        return tti_node_fail(node, "groups %lld must divide %lld channels", (long long)groups,
                             (long long)x->dim[1]);
    return TUTTI_OK;
}

/* Input i can be seen as rows; *n_params is the number of elements of gamma. */
static tutti_status check_rows(const tti_node *node, int i, int64_t *n_params) {
    const tutti_shape *x = tti_in_shape(node, i);
    TTI_TRY(tti_need_floats(node, i, i + 1));
    if (is_group(node)) TTI_TRY(check_group(node, x));
    if (x->n_dims < 1) return tti_node_fail(node, "input %d is a scalar, so it has no rows", i);
    *n_params = x->dim[is_group(node) ? 1 : x->n_dims - 1];
    return TUTTI_OK;
}

/* One number for each row: [..] of x[..,K], or [N,G]. */
static tutti_shape stats_shape(const tti_node *node, const tutti_shape *x) {
    if (is_group(node)) return TUTTI_SHAPE(x->dim[0], tti_attr_int(node, "groups"));
    tutti_shape shape = *x;
    shape.dim[--shape.n_dims] = 0;
    return shape;
}

/* x, gamma, beta? -> y, mean, rstd; RMS norm has no beta and no mean. */
static tutti_status norm_infer(const tti_node *node, tutti_type *out) {
    int64_t n_params;
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(check_rows(node, 0, &n_params));
    for (int i = 1; i < node->n_in; i++)
        TTI_TRY(tti_need_type(node, i, &(tutti_type){TUTTI_F32, TUTTI_SHAPE(n_params)}));
    out[0] = node->in[0]->type;
    for (int k = 1; k < node->op->n_out; k++)
        out[k] = (tutti_type){TUTTI_F32, stats_shape(node, tti_in_shape(node, 0))};
    return TUTTI_OK;
}

/* dy, x, [mean,] rstd: what both gradients begin with; n_stats is 2 or 1. */
static tutti_status check_grad(const tti_node *node, int n_stats, int64_t *n_params) {
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    TTI_TRY(check_rows(node, 1, n_params));
    tutti_shape stats = stats_shape(node, tti_in_shape(node, 1));
    for (int i = 2; i < 2 + n_stats; i++)
        TTI_TRY(tti_need_type(node, i, &(tutti_type){TUTTI_F32, stats}));
    return TUTTI_OK;
}

/* The same and gamma -> dx */
static tutti_status grad_x_infer(const tti_node *node, tutti_type *out) {
    int64_t n_params;
    TTI_TRY(check_grad(node, node->n_in - 3, &n_params));
    TTI_TRY(tti_need_type(node, node->n_in - 1, &(tutti_type){TUTTI_F32, TUTTI_SHAPE(n_params)}));
    out[0] = node->in[1]->type;
    return TUTTI_OK;
}

/* -> dgamma, dbeta; RMS norm only dgamma */
static tutti_status grad_w_infer(const tti_node *node, tutti_type *out) {
    int64_t n_params;
    TTI_TRY(check_grad(node, node->n_in - 2, &n_params));
    for (int k = 0; k < node->op->n_out; k++)
        out[k] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(n_params)};
    return TUTTI_OK;
}

/* ---- references ---- */

static double row_mean(const double *x, size_t n) {
    double sum = 0;
    for (size_t e = 0; e < n; e++) sum += x[e];
    return n ? sum / (double)n : 0;
}

static double row_rstd(const double *x, size_t n, double mean, double eps) {
    double sum = 0;
    for (size_t e = 0; e < n; e++) sum += (x[e] - mean) * (x[e] - mean);
    return 1 / sqrt((n ? sum / (double)n : 0) + eps);
}

static void norm_reference(const tti_args *a) {
    tti_rows v = tti_rows_of(a->node, 0);
    double eps = tti_attr_float(a->node, "eps");
    const double *gamma = a->in[1], *beta = a->node->n_in == 3 ? a->in[2] : NULL;
    for (size_t r = 0; r < v.n_rows; r++) {
        const double *x = a->in[0] + r * v.width;
        double mean = v.centred ? row_mean(x, v.width) : 0;
        double rstd = row_rstd(x, v.width, mean, eps);
        for (size_t e = 0; e < v.width; e++) {
            size_t p = param_index(&v, r, e);
            a->out[0][r * v.width + e] = (x[e] - mean) * rstd * gamma[p] + (beta ? beta[p] : 0);
        }
        if (v.centred) a->out[1][r] = mean;
        a->out[v.centred ? 2 : 1][r] = rstd;
    }
}

/* dx = rstd (d - mean d - xhat mean(d xhat)), d = dy gamma; without centring mean d is left out. */
static void grad_x_reference(const tti_args *a) {
    tti_rows v = tti_rows_of(a->node, 1);
    const double *gamma = a->in[a->node->n_in - 1];
    for (size_t r = 0; r < v.n_rows; r++) {
        const double *dy = a->in[0] + r * v.width, *x = a->in[1] + r * v.width;
        double mean = v.centred ? a->in[2][r] : 0, rstd = a->in[v.centred ? 3 : 2][r];
        double sum = 0, dot = 0;
        for (size_t e = 0; e < v.width; e++) {
            double d = dy[e] * gamma[param_index(&v, r, e)];
            sum += d;
            dot += d * (x[e] - mean) * rstd;
        }
        sum = v.centred ? sum / (double)v.width : 0, dot /= (double)v.width;
        for (size_t e = 0; e < v.width; e++) {
            double d = dy[e] * gamma[param_index(&v, r, e)];
            a->out[0][r * v.width + e] = rstd * (d - sum - (x[e] - mean) * rstd * dot);
        }
    }
}

static void grad_w_reference(const tti_args *a) {
    tti_rows v = tti_rows_of(a->node, 1);
    for (int k = 0; k < a->node->op->n_out; k++)
        memset(a->out[k], 0, v.groups * v.per_group * sizeof(double));
    for (size_t r = 0; r < v.n_rows; r++) {
        double mean = v.centred ? a->in[2][r] : 0, rstd = a->in[v.centred ? 3 : 2][r];
        for (size_t e = 0; e < v.width; e++) {
            size_t p = param_index(&v, r, e), i = r * v.width + e;
            a->out[0][p] += a->in[0][i] * (a->in[1][i] - mean) * rstd;
            if (v.centred) a->out[1][p] += a->in[0][i];
        }
    }
}

/* ---- gradients ---- */

/* NORM_grad_x(dy, x, stats.., gamma) and NORM_grad_w(dy, x, stats..). */
static tutti_status emit_grads(tutti_graph *g, const tti_node *node, const char *const ops[2],
                               tutti_value *dy, const bool *need, tutti_value **dx) {
    int n_stats = node->op->n_out - 1;
    tutti_value *in[5] = {dy, node->in[0]}, *dw[TTI_MAX_OUT];
    tti_attr_arg attrs[2] = {{0}};
    if (is_group(node)) attrs[0] = tti_same_attr(node, "groups");
    for (int k = 0; k < n_stats; k++) in[2 + k] = node->out[1 + k];
    if (need[1] || (node->n_in == 3 && need[2])) {
        tti_emit_n(g, ops[1], node->name, in, 2 + n_stats, attrs, dw);
        if (need[1]) dx[1] = dw[0];
        if (node->n_in == 3 && need[2]) dx[2] = dw[1];
    }
    in[2 + n_stats] = node->in[1];
    if (need[0]) dx[0] = tti_grad_emit(g, node, ops[0], in, 3 + n_stats, attrs);
    return tutti_graph_check(g);
}

static tutti_status layer_norm_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    static const char *const ops[2] = {"layer_norm_grad_x", "layer_norm_grad_w"};
    return emit_grads(g, node, ops, dy[0], need, dx);
}

static tutti_status rms_norm_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                  const bool *need, tutti_value **dx) {
    static const char *const ops[2] = {"rms_norm_grad_x", "rms_norm_grad_w"};
    return emit_grads(g, node, ops, dy[0], need, dx);
}

static tutti_status group_norm_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    static const char *const ops[2] = {"group_norm_grad_x", "group_norm_grad_w"};
    return emit_grads(g, node, ops, dy[0], need, dx);
}

/* ---- shard and cost ---- */

static const char rows_why[] = "rows must be whole on each worker, and all inputs split alike";

static tutti_status norm_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule layer[] = {{"dWW", "ddd"}}, group[] = {{"0WW", "000"}};
    return tti_shard_match(node, is_group(node) ? group : layer, 1, in, out, rows_why);
}

static tutti_status grad_x_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rms[] = {{"ddaW", "d"}, {"PWWW", "P"}};
    static const tti_shard_rule layer[] = {{"ddaaW", "d"}, {"PWWWW", "P"}};
    static const tti_shard_rule group[] = {{"0000W", "0"}, {"PWWWW", "P"}};
    const tti_shard_rule *rules = is_group(node) ? group : node->n_in == 4 ? rms : layer;
    return tti_shard_match(node, rules, 2, in, out, rows_why);
}

static tutti_status grad_w_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule layer[] = {{"ddaa", "PP"}, {"PWWW", "PP"}};
    static const tti_shard_rule group[] = {{"0000", "PP"}, {"PWWW", "PP"}};
    return tti_shard_match(node, is_group(node) ? group : layer, 2, in, out, rows_why);
}

static void norm_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 8.0 * (double)tti_in_n(node, 0), cost);
}

/* ---- builders ---- */

/* The node OP(x, NAME.weight, NAME.bias?), weight ones and bias zeros, each [n]. */
static tutti_value *build_norm(tutti_graph *g, const char *op, tutti_value *x, int64_t n,
                               bool has_bias, const tti_attr_arg *attrs, const char *name) {
    const tutti_init ones = {.kind = TUTTI_INIT_CONSTANT, .a = 1};
    tutti_value *in[3] = {x};
    in[1] = tti_layer_param(g, name, "weight", &TUTTI_SHAPE(n), &ones);
    if (has_bias) in[2] = tti_layer_param(g, name, "bias", &TUTTI_SHAPE(n), NULL);
    return tti_emit(g, op, name, in, has_bias ? 3 : 2, attrs);
}

static double eps_or(double eps, double fallback) { return eps != 0 ? eps : fallback; }

/* The elements of the last dimension; 0 after a failure. */
static int64_t last_dim(tutti_graph *g, const char *op, const tutti_value *x, const char *name) {
    if (!tti_can_build(g, op, x, name)) return 0;
    int n_dims = x->type.shape.n_dims;
    if (n_dims > 0 && x->type.shape.dim[n_dims - 1] > 0) return x->type.shape.dim[n_dims - 1];
    char text[128];
    tti_build_fail(g, "%s '%s': input %s has no features", op, name,
                   tti_type_text(&x->type, text, sizeof text));
    return 0;
}

tutti_value *tutti_layer_norm(tutti_graph *g, tutti_value *x, const tutti_norm_desc *desc,
                              const char *name) {
    const tutti_norm_desc usual = {0};
    int64_t n = last_dim(g, "layer_norm", x, name);
    if (n == 0) return NULL;
    if (!desc) desc = &usual;
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", eps_or(desc->eps, 1e-5)), {0}};
    return build_norm(g, "layer_norm", x, n, !desc->no_bias, attrs, name);
}

tutti_value *tutti_rms_norm(tutti_graph *g, tutti_value *x, const tutti_norm_desc *desc,
                            const char *name) {
    int64_t n = last_dim(g, "rms_norm", x, name);
    if (n == 0) return NULL;
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", eps_or(desc ? desc->eps : 0, 1e-5)), {0}};
    return build_norm(g, "rms_norm", x, n, false, attrs, name);
}

tutti_value *tutti_group_norm(tutti_graph *g, tutti_value *x, int64_t groups,
                              const tutti_norm_desc *desc, const char *name) {
    if (!tti_can_build(g, "group_norm", x, name)) return NULL;
    int64_t n = x->type.shape.n_dims > 1 ? x->type.shape.dim[1] : 0;
    tti_attr_arg attrs[] = {
        TTI_INT("groups", groups), TTI_FLOAT("eps", eps_or(desc ? desc->eps : 0, 1e-5)), {0}};
    return build_norm(g, "group_norm", x, n, true, attrs, name);
}

/* ---- records ---- */

static const tti_sample layer_norm_samples[] = {
    {.in = "f32[4,6] f32[6] f32[6]"},
    {.in = "f32[2,4,7] f32[7] f32[7]", .attrs = "eps=0.01", .lo = -3, .hi = 5},
    {.in = "f32[4,6] f32[6]"},
    {.in = "bf16[3,5] f32[5] f32[5]"},
    {.in = "f64[1] f32[1] f32[1]"},
    {.in = "f32[0,6] f32[6] f32[6]"},
    {.in = "f32[4,0] f32[0] f32[0]"},
    {.in = "f32[4,6] f32[5] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f64[6] f64[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[] f32[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample layer_norm_grad_x_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6]"},
    {.in = "f32[2,4,7] f32[2,4,7] f32[2,4] f32[2,4] f32[7]"},
    {.in = "f32[0,6] f32[0,6] f32[0] f32[0] f32[6]"},
    {.in = "f32[4,6] f32[4,6] f32[6] f32[4] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample layer_norm_grad_w_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4]"},
    {.in = "f32[2,4,7] f32[2,4,7] f32[2,4] f32[2,4]"},
    {.in = "f32[0,6] f32[0,6] f32[0] f32[0]"},
    {.in = "f32[4,6] f32[4,5] f32[4] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample rms_norm_samples[] = {
    {.in = "f32[4,6] f32[6]"},
    {.in = "f32[2,4,7] f32[7]", .attrs = "eps=0.01", .lo = -3, .hi = 5},
    {.in = "f16[3] f32[3]"},
    {.in = "f32[0,6] f32[6]"},
    {.in = "f32[4,6] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6]", .attrs = "eps=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample rms_norm_grad_x_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[6]"},
    {.in = "f32[2,4,7] f32[2,4,7] f32[2,4] f32[7]"},
    {.in = "f32[4,6] f32[4,6] f32[5] f32[6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample rms_norm_grad_w_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4]"},
    {.in = "f32[2,4,7] f32[2,4,7] f32[2,4]"},
    {.in = "f32[4,6] f32[4,6] f32[4,1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample group_norm_samples[] = {
    {.in = "f32[4,6,3,5] f32[6] f32[6]", .attrs = "groups=3"},
    {.in = "f32[2,4] f32[4] f32[4]", .attrs = "groups=2 eps=0.01", .lo = -3, .hi = 5},
    {.in = "f32[2,3,4] f32[3] f32[3]"},
    {.in = "f32[0,4,2] f32[4] f32[4]", .attrs = "groups=4"},
    {.in = "f32[4,6,3,5] f32[6] f32[6]", .attrs = "groups=4", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6] f32[6]", .attrs = "groups=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6,3,5] f32[5] f32[6]", .attrs = "groups=3", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample group_norm_grad_x_samples[] = {
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[4,3] f32[4,3] f32[6]", .attrs = "groups=3"},
    {.in = "f32[2,4] f32[2,4] f32[2,2] f32[2,2] f32[4]", .attrs = "groups=2"},
    {.in = "f32[2,4] f32[2,4] f32[2,4] f32[2,2] f32[4]",
     .attrs = "groups=2",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample group_norm_grad_w_samples[] = {
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[4,3] f32[4,3]", .attrs = "groups=3"},
    {.in = "f32[2,4] f32[2,4] f32[2,2] f32[2,2]", .attrs = "groups=2"},
    {.in = "f32[2,4] f32[2,4] f32[2,2] f32[2,2]", .attrs = "groups=3", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of a norm's record and those of its two gradients. */
#define NORM(op_name, op_doc, min, max, outputs)                                         \
    .name = #op_name, .doc = op_doc, .n_in_min = min, .n_in_max = max, .n_out = outputs, \
    .saved_out = outputs == 3 ? 6 : 2, .infer = norm_infer, .grad = op_name##_grad,      \
    .shard = norm_shard, .cost = norm_cost, .samples = op_name##_samples, .traits = TTI_READS_LOW
#define GRAD_X(op_name, op_doc, n)                                             \
    .name = #op_name, .doc = op_doc, .n_in_min = n, .n_in_max = n, .n_out = 1, \
    .infer = grad_x_infer, .shard = grad_x_shard, .cost = norm_cost, .samples = op_name##_samples
#define GRAD_W(op_name, op_doc, n, outputs)                                          \
    .name = #op_name, .doc = op_doc, .n_in_min = n, .n_in_max = n, .n_out = outputs, \
    .infer = grad_w_infer, .shard = grad_w_shard, .cost = norm_cost, .samples = op_name##_samples

const tti_op tti_ops_norm[] = {
    {NORM(layer_norm,
          "y = gamma (x - mean) rstd + beta by rows of the last dimension; y, mean, rstd", 2, 3, 3),
     .attrs = eps_attrs, .reference = norm_reference},
    {GRAD_X(layer_norm_grad_x, "dx of layer_norm; inputs dy, x, mean, rstd, gamma", 5),
     .reference = grad_x_reference},
    {GRAD_W(layer_norm_grad_w, "dgamma, dbeta of layer_norm; inputs dy, x, mean, rstd", 4, 2),
     .reference = grad_w_reference},
    {NORM(rms_norm, "y = gamma x rstd, rstd = 1 / sqrt(mean x^2 + eps) by rows; y, rstd", 2, 2, 2),
     .attrs = eps_attrs, .reference = norm_reference},
    {GRAD_X(rms_norm_grad_x, "dx of rms_norm; inputs dy, x, rstd, gamma", 4),
     .reference = grad_x_reference},
    {GRAD_W(rms_norm_grad_w, "dgamma of rms_norm; inputs dy, x, rstd", 3, 1),
     .reference = grad_w_reference},
    {NORM(group_norm, "layer_norm over groups of channels of x[N,C,..]; y, mean, rstd [N,groups]",
          3, 3, 3),
     .attrs = group_attrs, .reference = norm_reference},
    {GRAD_X(group_norm_grad_x, "dx of group_norm; inputs dy, x, mean, rstd, gamma", 5),
     .attrs = group_grad_attrs, .reference = grad_x_reference},
    {GRAD_W(group_norm_grad_w, "dgamma, dbeta of group_norm; inputs dy, x, mean, rstd", 4, 2),
     .attrs = group_grad_attrs, .reference = grad_w_reference},
    {0},
};
