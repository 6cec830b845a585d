/* matmul_joint.c - matrix products merged with the following op, for backends that compute both in
 * one kernel: a gelu, its gradient, an addition, sums in f32.
 *
 * Only the pass fuse_linear.c makes these ops, after autodiff, so they need no gradients. */
#include <string.h>

#include "ops/rules.h"

static const tti_attr_spec product_attrs[] = {
    {"trans_a", TTI_ATTR_INT, 0, "1: a is stored [..,K,M]"},
    {"trans_b", TTI_ATTR_INT, 0, "1: b is stored [..,N,K]"},
    {0},
};

#define APPROXIMATE \
    { "approximate", TTI_ATTR_INT, 1, "gelu 1: by tanh, 0: exact" }

static const tti_attr_spec gelu_attrs[] = {APPROXIMATE, {0}};

static const tti_attr_spec gelu_grad_attrs[] = {
    {"trans_a", TTI_ATTR_INT, 0, "1: a is stored [..,K,M]"},
    {"trans_b", TTI_ATTR_INT, 0, "1: b is stored [..,N,K]"},
    APPROXIMATE,
    {0},
};

static bool is_by_tanh(const tti_node *node) { return tti_attr_int(node, "approximate") != 0; }

/* Input i has the shape of out; or_f32: its dtype may also be f32. */
static tutti_status need_like(const tti_node *node, int i, const tutti_type *out, bool or_f32) {
    const tutti_type *type = &node->in[i]->type;
    char want[128], is[128];
    if (tti_shape_equal(&type->shape, &out->shape) &&
        (type->dtype == out->dtype || (or_f32 && type->dtype == TUTTI_F32)))
        return TUTTI_OK;
    return tti_node_fail(node, "input %d must have the type of the product, %s, is %s", i,
                         tti_type_text(out, want, sizeof want), tti_type_text(type, is, sizeof is));
}

static tutti_status need_approximate(const tti_node *node) {
    int64_t how = tti_attr_int(node, "approximate");
    if (how == 0 || how == 1) return TUTTI_OK;
    return tti_node_fail(node, "approximate must be 0 or 1, is %lld", (long long)how);
}

/* f32 in place of 16 bits. */
static tutti_dtype widened(tutti_dtype dtype) {
    return dtype == TUTTI_F16 || dtype == TUTTI_BF16 ? TUTTI_F32 : dtype;
}

/* ---- matmul and more ---- */

static tutti_status matmul_gelu_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(need_approximate(node));
    TTI_TRY(tti_matmul_infer(node, out));
    return need_like(node, 2, &out[0], false);
}

static void matmul_gelu_grad_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0);
    bool by_tanh = is_by_tanh(a->node);
    tti_matmul_product(a);
    for (size_t i = 0; i < n; i++) a->out[0][i] *= tti_gelu_slope(a->in[2][i], by_tanh);
}

static tutti_status matmul_gelu_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(matmul_gelu_grad_infer(node, out));
    int64_t width = out[0].shape.dim[out[0].shape.n_dims - 1];
    out[1] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(width)};
    return TUTTI_OK;
}

static void matmul_gelu_grad_sums_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0), width = tti_out_n(a->node, 1);
    matmul_gelu_grad_reference(a);
    memset(a->out[1], 0, width * sizeof(double));
    for (size_t i = 0; i < n; i++) a->out[1][i % width] += a->out[0][i];
}

static tutti_status matmul_add_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_matmul_infer(node, out));
    TTI_TRY(need_like(node, 2, &out[0], out[0].dtype != TUTTI_F64));
    out[0].dtype = node->in[2]->type.dtype;
    return TUTTI_OK;
}

static void matmul_add_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0);
    tti_matmul_product(a);
    for (size_t i = 0; i < n; i++) a->out[0][i] += a->in[2][i];
}

static tutti_status matmul_wide_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_matmul_infer(node, out));
    out[0].dtype = widened(out[0].dtype);
    return TUTTI_OK;
}

/* a stands in rows and b is one for all of them. */
static bool has_rows(const tti_node *node) {
    return !tti_attr_int(node, "trans_a") && tti_in_shape(node, 1)->n_dims == 2;
}

static tutti_status rows_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rows[] = {{"dWd", "d"}};
    return tti_shard_match(node, rows, has_rows(node) ? 1 : 0, in, out, "only rows can be split");
}

static tutti_status rows_sums_shard(const tti_node *node, const tti_placement *in,
                                    tti_placement *out) {
    static const tti_shard_rule rows[] = {{"dWd", "dP"}};
    return tti_shard_match(node, rows, has_rows(node) ? 1 : 0, in, out, "only rows can be split");
}

static tutti_status matmul_wide_shard(const tti_node *node, const tti_placement *in,
                                      tti_placement *out) {
    static const tti_shard_rule rows[] = {{"dW", "d"}}, sums[] = {{"00", "P"}};
    if (has_rows(node)) return tti_shard_match(node, rows, 1, in, out, "only rows can be split");
    bool matches = tti_in_shape(node, 0)->n_dims == 2 && tti_attr_int(node, "trans_a") &&
                   !tti_attr_int(node, "trans_b");
    return tti_shard_match(node, sums, matches ? 1 : 0, in, out, "rows and columns do not match");
}

/* ---- linear and more ---- */

static int linear_gelu_bias(const tti_node *node) { return node->n_in == 3 ? 2 : -1; }

static tutti_status linear_gelu_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(need_approximate(node));
    TTI_TRY(tti_linear_infer(node, linear_gelu_bias(node), out));
    out[1] = out[0];
    return TUTTI_OK;
}

static void linear_gelu_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0);
    bool by_tanh = is_by_tanh(a->node);
    tti_linear_product(a, linear_gelu_bias(a->node), a->out[1]);
    for (size_t i = 0; i < n; i++) a->out[0][i] = tti_gelu(a->out[1][i], by_tanh);
}

static tutti_status linear_gelu_shard(const tti_node *node, const tti_placement *in,
                                      tti_placement *out) {
    static const tti_shard_rule rules[] = {{"dWW", "dd"}, {"W00", "LL"}};
    return tti_shard_match(node, rules, 2, in, out, "rows of x or of w can be split");
}

/* in: x, w, b?, r. */
static int linear_add_bias(const tti_node *node) { return node->n_in == 4 ? 2 : -1; }

static tutti_status linear_add_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_linear_infer(node, linear_add_bias(node), out));
    return need_like(node, node->n_in - 1, &out[0], false);
}

static void linear_add_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0);
    const double *r = a->in[a->node->n_in - 1];
    tti_linear_product(a, linear_add_bias(a->node), a->out[0]);
    for (size_t i = 0; i < n; i++) a->out[0][i] += r[i];
}

static tutti_status linear_add_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    static const tti_shard_rule with_bias[] = {{"dWWd", "d"}, {"W00L", "L"}};
    static const tti_shard_rule without[] = {{"dWd", "d"}, {"W0L", "L"}};
    return tti_shard_match(node, node->n_in == 4 ? with_bias : without, 2, in, out,
                           "rows of x or of w can be split");
}

static tutti_status linear_grad_w_wide_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_linear_grad_w_infer(node, out));
    out[0].dtype = out[1].dtype = widened(out[0].dtype);
    return TUTTI_OK;
}

static tutti_status linear_grad_w_wide_shard(const tti_node *node, const tti_placement *in,
                                             tti_placement *out) {
    static const tti_shard_rule rules[] = {{"dd", "PP"}, {"LW", "00"}, {"WL", "1W"}};
    return tti_shard_match(node, rules, 3, in, out, "dy and x must be split alike");
}

/* ---- records ---- */

static const tti_sample matmul_gelu_grad_samples[] = {
    {.in = "f32[4,6] f32[6,8] f32[4,8]", .lo = -2, .hi = 2},
    {.in = "f32[2,3,6] f32[6,8] f32[2,3,8]", .lo = -2, .hi = 2},
    {.in = "bf16[16,32] bf16[32,24] bf16[16,24]"},
    {.in = "f32[4,6] f32[6,8] f32[4,8]", .attrs = "approximate=0", .lo = -2, .hi = 2},
    {.in = "f32[2,3,4] f32[2,4,5] f32[2,3,5]"},
    {.in = "f32[6,4] f32[7,6] f32[4,7]", .attrs = "trans_a=1 trans_b=1"},
    {.in = "f32[6,4] f32[7,6] f32[4,7]", .attrs = "trans_a=1 trans_b=1 approximate=0"},
    {.in = "f32[4,6] f32[6,8] f32[4,8]", .attrs = "approximate=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,0] f32[0,8] f32[4,8]"},
    {.in = "f32[0,6] f32[6,8] f32[0,8]"},
    {.in = "f32[4,6] f32[6,8] f32[4,7]", .expect = TUTTI_E_INVALID},
    {.in = "bf16[4,6] bf16[6,8] f32[4,8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample matmul_gelu_grad_sums_samples[] = {
    {.in = "f32[4,6] f32[6,8] f32[4,8]", .lo = -2, .hi = 2},
    {.in = "bf16[2,35,32] bf16[32,24] bf16[2,35,24]", .lo = 0.1, .hi = 1},
    {.in = "f32[4,6] f32[6,8] f32[4,8]", .attrs = "approximate=0", .lo = -2, .hi = 2},
    {.in = "f16[9,16] f16[16,7] f16[9,7]", .lo = 0.1, .hi = 1},
    {.in = "f32[2,3,4] f32[2,4,5] f32[2,3,5]"},
    {.in = "f32[4,0] f32[0,8] f32[4,8]"},
    {.in = "f32[0,6] f32[6,8] f32[0,8]"},
    {.in = "f32[4,6] f32[6,8] f32[4,7]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample matmul_add_samples[] = {
    {.in = "f32[4,6] f32[6,8] f32[4,8]"},
    {.in = "f32[2,3,6] f32[6,8] f32[2,3,8]"},
    {.in = "f32[2,3,4] f32[2,4,5] f32[2,3,5]"},
    {.in = "bf16[16,32] bf16[32,24] bf16[16,24]"},
    {.in = "bf16[32,16] bf16[32,24] f32[16,24]", .attrs = "trans_a=1"},
    {.in = "f64[2,3] f64[3,4] f64[2,4]"},
    {.in = "f32[4,0] f32[0,8] f32[4,8]"}, /* the other term */
    {.in = "f32[0,6] f32[6,8] f32[0,8]"},
    {.in = "f32[4,6] f32[6,8] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f64[4,6] f64[6,8] f32[4,8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample matmul_wide_samples[] = {
    {.in = "bf16[16,32] bf16[16,24]", .attrs = "trans_a=1"},
    {.in = "f16[5,7] f16[7,3]"},
    {.in = "f32[4,6] f32[6,8]"},
    {.in = "f64[2,3] f64[3,4]"},
    {.in = "bf16[4,0] bf16[0,2]"}, /* an empty sum is 0 */
    {.in = "bf16[2,3,4] bf16[2,4,6]"},
    {.in = "bf16[4,6] bf16[5,8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample linear_gelu_samples[] = {
    {.in = "f32[4,6] f32[8,6] f32[8]", .lo = -2, .hi = 2},
    {.in = "f32[4,6] f32[8,6]", .lo = -2, .hi = 2},
    {.in = "f32[4,6] f32[8,6] f32[8]", .attrs = "approximate=0", .lo = -2, .hi = 2},
    {.in = "f32[4,6] f32[8,6]", .attrs = "approximate=0", .lo = -2, .hi = 2},
    {.in = "f32[4,6] f32[8,6]", .attrs = "approximate=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[5,4] f32[5]"},
    {.in = "bf16[16,32] bf16[24,32] bf16[24]"},
    {.in = "f32[6] f32[3,6] f32[3]"},
    {.in = "f32[4,0] f32[8,0] f32[8]"},
    {.in = "f32[0,6] f32[8,6] f32[8]"},
    {.in = "f32[4,6] f32[8,6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f64[8,6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample linear_add_samples[] = {
    {.in = "f32[4,6] f32[8,6] f32[8] f32[4,8]"},
    {.in = "f32[4,6] f32[8,6] f32[4,8]"},
    {.in = "f32[2,3,4] f32[5,4] f32[5] f32[2,3,5]"},
    {.in = "bf16[16,32] bf16[24,32] bf16[24] bf16[16,24]"},
    {.in = "f32[4,0] f32[8,0] f32[8] f32[4,8]"},
    {.in = "f32[0,6] f32[8,6] f32[8] f32[0,8]"},
    {.in = "f32[4,6] f32[8,6] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[8,6] f32[8] f32[8,4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample linear_grad_w_wide_samples[] = {
    {.in = "bf16[16,24] bf16[16,32]"},
    {.in = "f16[5,7] f16[5,3]"},
    {.in = "f32[4,8] f32[4,6]"},
    {.in = "bf16[2,3,4] bf16[2,3,5]"},
    {.in = "bf16[3] bf16[6]"},
    {.in = "bf16[0,8] bf16[0,6]"}, /* zeros */
    {.in = "bf16[4,8] bf16[3,6]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_matmul_joint[] = {
    {.name = "matmul_gelu_grad",
     .doc = "(a b) gelu'(z); inputs a, b, z",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = gelu_grad_attrs,
     .infer = matmul_gelu_grad_infer,
     .shard = rows_shard,
     .cost = tti_matmul_cost,
     .reference = matmul_gelu_grad_reference,
     .samples = matmul_gelu_grad_samples,
     .summed = "matmul_gelu_grad_sums"},
    {.name = "matmul_gelu_grad_sums",
     .doc = "matmul_gelu_grad, and the sums of its columns over all rows in f32",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 2,
     .attrs = gelu_grad_attrs,
     .infer = matmul_gelu_grad_sums_infer,
     .shard = rows_sums_shard,
     .cost = tti_matmul_cost,
     .reference = matmul_gelu_grad_sums_reference,
     .samples = matmul_gelu_grad_sums_samples},
    {.name = "matmul_add",
     .doc = "a b + c, in c's dtype; inputs a, b, c",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = product_attrs,
     .infer = matmul_add_infer,
     .shard = rows_shard,
     .cost = tti_matmul_cost,
     .reference = matmul_add_reference,
     .samples = matmul_add_samples},
    {.name = "matmul_wide",
     .doc = "a b in f32 for 16-bit a, b",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = product_attrs,
     .joined = {[TTI_JOINT_ADD] = "matmul_add"},
     .infer = matmul_wide_infer,
     .shard = matmul_wide_shard,
     .cost = tti_matmul_cost,
     .reference = tti_matmul_product,
     .samples = matmul_wide_samples},
    {.name = "linear_gelu",
     .doc = "gelu(z), z = x w^T + b; inputs x, w, b?",
     .n_in_min = 2,
     .n_in_max = 3,
     .n_out = 2,
     .attrs = gelu_attrs,
     .infer = linear_gelu_infer,
     .shard = linear_gelu_shard,
     .cost = tti_linear_cost,
     .reference = linear_gelu_reference,
     .samples = linear_gelu_samples},
    {.name = "linear_add",
     .doc = "x w^T + b + r; inputs x, w, b?, r",
     .n_in_min = 3,
     .n_in_max = 4,
     .n_out = 1,
     .infer = linear_add_infer,
     .shard = linear_add_shard,
     .cost = tti_linear_cost,
     .reference = linear_add_reference,
     .samples = linear_add_samples},
    {.name = "linear_grad_w_wide",
     .doc = "dw[N,K], db[N] of linear in f32 for 16-bit dy[..,N], x[..,K]",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 2,
     .infer = linear_grad_w_wide_infer,
     .shard = linear_grad_w_wide_shard,
     .cost = tti_linear_grad_w_cost,
     .reference = tti_linear_grad_w_product,
     .samples = linear_grad_w_wide_samples},
    {0},
};
