/* norm_joint.c - layer norm merged with its neighbours in a residual network: the addition before
 * it, both gradients, the addition of the residual gradient after it, casts.
 *
 * Only the pass fuse_norm.c makes these ops, after autodiff, so they need no gradients.  Each value
 * is read and written once. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"

static const tti_attr_spec add_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype of y, floating"},
    {0},
};
static const tti_attr_spec cast_attrs[] = {
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype of the copy of dx, floating"},
    {0},
};

static size_t width_of(const tti_node *node) {
    const tutti_shape *x = tti_in_shape(node, 0);
    return (size_t)x->dim[x->n_dims - 1];
}

static size_t rows_of(const tti_node *node) {
    size_t n_rows = 1;
    for (int d = 0; d < tti_in_shape(node, 0)->n_dims - 1; d++)
        n_rows *= (size_t)tti_in_dim(node, 0, d);
    return n_rows;
}

/* ---- infer ---- */

/* Inputs 0 and 1 are rows of one shape, each of some floating dtype. */
static tutti_status check_rows(const tti_node *node) {
    for (int i = 0; i < 2; i++) TTI_TRY(tti_need_floats(node, i, i + 1));
    if (tti_in_shape(node, 0)->n_dims < 1)
        return tti_node_fail(node, "input 0 is a scalar, so it has no rows");
    return tti_need_same_shape(node, 0, 1);
}

/* One number for each row. */
static tutti_type stats_type(const tti_node *node) {
    tutti_type type = {TUTTI_F32, *tti_in_shape(node, 0)};
    type.shape.dim[--type.shape.n_dims] = 0;
    return type;
}

/* gamma or beta. */
static tutti_type param_type(const tti_node *node) {
    return (tutti_type){TUTTI_F32, TUTTI_SHAPE((int64_t)width_of(node))};
}

static tutti_status get_dtype(const tti_node *node, tutti_dtype *dtype) {
    int64_t i = tti_attr_int(node, "dtype");
    if (i < 0 || i >= TUTTI_N_DTYPES || !tti_is_float((tutti_dtype)i))
        return tti_node_fail(node, "dtype must be floating, is %lld", (long long)i);
    *dtype = (tutti_dtype)i;
    return TUTTI_OK;
}

/* x, branch, gamma, beta? -> y, sum, mean, rstd */
static tutti_status add_norm_infer(const tti_node *node, tutti_type *out) {
    tutti_dtype dtype;
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(check_rows(node));
    TTI_TRY(get_dtype(node, &dtype));
    tutti_type param = param_type(node);
    for (int i = 2; i < node->n_in; i++) TTI_TRY(tti_need_type(node, i, &param));
    out[0] = (tutti_type){dtype, *tti_in_shape(node, 0)};
    out[1] = node->in[0]->type;
    out[2] = out[3] = stats_type(node);
    return TUTTI_OK;
}

/* dy, x, mean, rstd, gamma, residual? -> dx, dgamma, dbeta */
static tutti_status grads_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_rows(node));
    tutti_type stats = stats_type(node), param = param_type(node);
    for (int i = 2; i < 4; i++) TTI_TRY(tti_need_type(node, i, &stats));
    TTI_TRY(tti_need_type(node, 4, &param));
    if (node->n_in > 5) {
        TTI_TRY(tti_need_floats(node, 5, 6));
        TTI_TRY(tti_need_same_shape(node, 0, 5));
    }
    out[0] = node->in[1]->type;
    out[1] = out[2] = param;
    return TUTTI_OK;
}

static tutti_status grads_cast_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(grads_infer(node, out));
    out[3] = out[0];
    return get_dtype(node, &out[3].dtype);
}

static tutti_status grads_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(grads_infer(node, out));
    out[3] = out[1];
    return TUTTI_OK;
}

/* ---- references ---- */

static void add_norm_reference(const tti_args *a) {
    size_t width = width_of(a->node), n_rows = rows_of(a->node);
    double eps = tti_attr_float(a->node, "eps");
    const double *gamma = a->in[2], *beta = a->node->n_in > 3 ? a->in[3] : NULL;
    for (size_t r = 0; r < n_rows; r++) {
        double *sum = a->out[1] + r * width, mean = 0, squares = 0;
        for (size_t e = 0; e < width; e++) {
            sum[e] = a->in[0][r * width + e] + a->in[1][r * width + e];
            mean += sum[e];
        }
        mean = width ? mean / (double)width : 0;
        for (size_t e = 0; e < width; e++) squares += (sum[e] - mean) * (sum[e] - mean);
        double rstd = 1 / sqrt((width ? squares / (double)width : 0) + eps);
        for (size_t e = 0; e < width; e++)
            a->out[0][r * width + e] = (sum[e] - mean) * rstd * gamma[e] + (beta ? beta[e] : 0);
        a->out[2][r] = mean;
        a->out[3][r] = rstd;
    }
}

static void grads_reference(const tti_args *a) {
    size_t width = width_of(a->node), n_rows = rows_of(a->node);
    const double *gamma = a->in[4], *residual = a->node->n_in > 5 ? a->in[5] : NULL;
    for (int k = 1; k < 3; k++) memset(a->out[k], 0, width * sizeof(double));
    for (size_t r = 0; r < n_rows; r++) {
        double mean = a->in[2][r], rstd = a->in[3][r], sum = 0, dot = 0;
        for (size_t e = 0, i = r * width; e < width; e++, i++) {
            double dy = a->in[0][i], xhat = (a->in[1][i] - mean) * rstd;
            sum += dy * gamma[e];
            dot += dy * gamma[e] * xhat;
            a->out[1][e] += dy * xhat;
            a->out[2][e] += dy;
        }
        for (size_t e = 0, i = r * width; e < width; e++, i++) {
            double xhat = (a->in[1][i] - mean) * rstd, d = a->in[0][i] * gamma[e];
            double dx = rstd * (d - sum / (double)width - xhat * dot / (double)width);
            a->out[0][i] = dx + (residual ? residual[i] : 0);
        }
    }
}

static void grads_cast_reference(const tti_args *a) {
    grads_reference(a);
    memcpy(a->out[3], a->out[0], tti_out_n(a->node, 0) * sizeof(double));
}

static void grads_sums_reference(const tti_args *a) {
    size_t width = width_of(a->node), n = tti_out_n(a->node, 0);
    grads_reference(a);
    memset(a->out[3], 0, width * sizeof(double));
    for (size_t i = 0; i < n; i++) a->out[3][i % width] += a->out[0][i];
}
/* ---- shard and cost ---- */

static const char rows_why[] = "rows must be whole on each worker, and all inputs split alike";

static tutti_status add_norm_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    static const tti_shard_rule rules[] = {{"ddWW", "dddd"}};
    return tti_shard_match(node, rules, 1, in, out, rows_why);
}

static tutti_status grads_sums_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    static const tti_shard_rule rules[] = {{"ddaaWd", "dPPP"}, {"PWWWWP", "PPPP"}};
    return tti_shard_match(node, rules, 2, in, out, rows_why);
}

static tutti_status grads_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"ddaaWd", "dPPd"}, {"PWWWWP", "PPPP"}};
    return tti_shard_match(node, rules, 2, in, out, rows_why);
}

static void add_norm_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 9.0 * (double)tti_in_n(node, 0), cost);
}

static void grads_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (node->n_in > 5 ? 17.0 : 16.0) * (double)tti_in_n(node, 0), cost);
}

/* ---- records ---- */

static const tti_sample add_norm_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[6] f32[6]"},
    {.in = "f32[2,4,8] bf16[2,4,8] f32[8]", .attrs = "dtype=3 eps=0.01", .lo = -3, .hi = 5},
    {.in = "f32[3,7] f16[3,7] f32[7] f32[7]", .attrs = "dtype=2"},
    {.in = "f32[3,132] bf16[3,132] f32[132] f32[132]", .attrs = "dtype=3"},
    {.in = "bf16[9,776] bf16[9,776] f32[776] f32[776]", .attrs = "dtype=3"},
    {.in = "f32[0,6] f32[0,6] f32[6] f32[6]"},
    {.in = "f32[4,0] f32[4,0] f32[0] f32[0]"},
    {.in = "f32[4,6] f32[4,5] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f64[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] i32[4,6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[6]", .attrs = "dtype=4", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[6]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[] f32[] f32[1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grads_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6]"},
    {.in = "bf16[2,4,8] f32[2,4,8] f32[2,4] f32[2,4] f32[8] f32[2,4,8]"},
    {.in = "f16[2,7] f32[2,7] f32[2] f32[2] f32[7] f32[2,7]"},
    {.in = "bf16[9,132] f32[9,132] f32[9] f32[9] f32[132] f32[9,132]"},
    {.in = "f32[0,6] f32[0,6] f32[0] f32[0] f32[6]"},
    {.in = "f32[4,6] f32[4,6] f32[4,1] f32[4] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6,4] f32[4] f32[4] f32[6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grads_cast_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6]", .attrs = "dtype=3"},
    {.in = "bf16[2,4,8] f32[2,4,8] f32[2,4] f32[2,4] f32[8] f32[2,4,8]", .attrs = "dtype=3"},
    {.in = "f16[9,132] f32[9,132] f32[9] f32[9] f32[132] f32[9,132]", .attrs = "dtype=2"},
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6]", .attrs = "dtype=4", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grads_sums_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[6]"},
    {.in = "f32[2,4,8] f32[2,4,8] f32[2,4] f32[2,4] f32[8] f32[2,4,8]"},
    {.in = "bf16[9,136] bf16[9,136] f32[9] f32[9] f32[136] bf16[9,136]", .lo = 0.1, .hi = 1},
    {.in = "f16[70,776] f16[70,776] f32[70] f32[70] f32[776]", .lo = 0.1, .hi = 1},
    {.in = "bf16[7,1024] bf16[7,1024] f32[7] f32[7] f32[1024] bf16[7,1024]", .lo = 0.1, .hi = 1},
    {.in = "f32[0,6] f32[0,6] f32[0] f32[0] f32[6]"},
    {.in = "f32[4,6] f32[4,6] f32[4] f32[4] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_norm_joint[] = {
    {.name = "add_layer_norm",
     .doc =
         "layer_norm of sum = x + branch, y in dtype; inputs x, branch, gamma, beta?; outputs y, "
         "sum, mean, rstd",
     .n_in_min = 3,
     .n_in_max = 4,
     .n_out = 4,
     .attrs = add_attrs,
     .saved_out = 12,
     .infer = add_norm_infer,
     .shard = add_norm_shard,
     .cost = add_norm_cost,
     .reference = add_norm_reference,
     .samples = add_norm_samples},
    {.name = "layer_norm_grads",
     .doc = "dx (+ residual), dgamma, dbeta of layer_norm; inputs dy, x, mean, rstd, gamma, "
            "residual?",
     .n_in_min = 5,
     .n_in_max = 6,
     .n_out = 3,
     .summed = "layer_norm_grads_sums",
     .infer = grads_infer,
     .shard = grads_shard,
     .cost = grads_cost,
     .reference = grads_reference,
     .samples = grads_samples},
    {.name = "layer_norm_grads_cast",
     .doc = "layer_norm_grads, and dx in dtype as output 3",
     .n_in_min = 5,
     .n_in_max = 6,
     .n_out = 4,
     .attrs = cast_attrs,
     .infer = grads_cast_infer,
     .shard = grads_shard,
     .cost = grads_cost,
     .reference = grads_cast_reference,
     .samples = grads_cast_samples},
    {.name = "layer_norm_grads_sums",
     .doc = "layer_norm_grads, and the sums of the columns of dx in f32 as output 3",
     .n_in_min = 5,
     .n_in_max = 6,
     .n_out = 4,
     .infer = grads_sums_infer,
     .shard = grads_sums_shard,
     .cost = grads_cost,
     .reference = grads_sums_reference,
     .samples = grads_sums_samples},
    {0},
};
