/* grouped.c - products of rows with one of several matrices, as the experts of a mixture (MoE) use
 * them: y[s] = x[s] w[ids[s]].
 *
 * Rows stay in their order: a kernel groups them by matrix while it runs, so that a shard may hold
 * any rows and the graph needs neither a sort nor counts. */
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec product_attrs[] = {
    {"trans_b", TTI_ATTR_INT, 0, "1: w is stored [E,N,K]"},
    {0},
};
static const tti_attr_spec grad_attrs[] = {
    {"n", TTI_ATTR_INT, 1, "matrices"},
    {"trans_b", TTI_ATTR_INT, 0, "1: dw is stored [E,N,K]"},
    {0},
};

static tutti_status check_trans(const tti_node *node) {
    int64_t trans = tti_attr_int(node, "trans_b");
    if (trans == 0 || trans == 1) return TUTTI_OK;
    return tti_node_fail(node, "trans_b must be 0 or 1, is %lld", (long long)trans);
}

/* Input i is ids i32[S], one for each row of input 0. */
static tutti_status check_ids(const tti_node *node, int i) {
    TTI_TRY(tti_need_dtype(node, i, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, i, 1));
    if (tti_in_dim(node, i, 0) == tti_in_dim(node, 0, 0)) return TUTTI_OK;
    return tti_node_fail(node, "%lld rows, %lld ids", (long long)tti_in_dim(node, 0, 0),
                         (long long)tti_in_dim(node, i, 0));
}

/* The dimension of w with the elements of a row of x, 1 or 2; the other one is y's. */
static int k_dim(const tti_node *node) { return tti_attr_int(node, "trans_b") ? 2 : 1; }

static bool is_inside(double id, size_t n) { return id >= 0 && id < (double)n; }

/* ---- grouped_matmul ---- */

static tutti_status product_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_trans(node));
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_n_dims(node, 1, 3));
    TTI_TRY(check_ids(node, 2));
    int k = k_dim(node);
    if (tti_in_dim(node, 0, 1) != tti_in_dim(node, 1, k))
        return tti_node_fail(node, "rows of %lld elements, matrices for %lld",
                             (long long)tti_in_dim(node, 0, 1), (long long)tti_in_dim(node, 1, k));
    out[0] = node->in[0]->type;
    out[0].shape.dim[1] = tti_in_dim(node, 1, 3 - k);
    return TUTTI_OK;
}

static void product_reference(const tti_args *a) {
    bool trans = k_dim(a->node) == 2;
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), k = (size_t)tti_in_dim(a->node, 0, 1);
    size_t n_w = (size_t)tti_in_dim(a->node, 1, 0), n = (size_t)a->node->out[0]->type.shape.dim[1];
    for (size_t r = 0; r < rows; r++) {
        const double *x = a->in[0] + r * k, *w = a->in[1];
        double *y = a->out[0] + r * n;
        memset(y, 0, n * sizeof *y);
        if (!is_inside(a->in[2][r], n_w)) continue;
        w += (size_t)a->in[2][r] * k * n;
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < n; j++) y[j] += x[i] * w[trans ? j * k + i : i * n + j];
    }
}

static tutti_status product_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    int64_t trans = tti_attr_int(node, "trans_b");
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "grouped_matmul",
                              (tutti_value *[]){dy[0], node->in[1], node->in[2]}, 3,
                              (tti_attr_arg[]){TTI_INT("trans_b", !trans), {0}});
    if (need[1])
        dx[1] = tti_grad_emit(
            g, node, "grouped_matmul_grad", (tutti_value *[]){dy[0], node->in[0], node->in[2]}, 3,
            (tti_attr_arg[]){
                TTI_INT("n", tti_in_dim(node, 1, 0)), tti_same_attr(node, "trans_b"), {0}});
    return tutti_graph_check(g);
}

static const char shard_why[] =
    "rows and ids must be split alike, or w along rows or columns of its matrices";

static tutti_status product_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0W0", "0"}, {"PWW", "P"}, {"WPW", "P"}};
    int k = k_dim(node);
    bool ids_whole = in[2].kind == TTI_WHOLE;
    if (ids_whole && in[0].kind == TTI_WHOLE && tti_is_split(in[1], 3 - k))
        out[0] = tti_split_along(1);
    else if (ids_whole && tti_is_split(in[0], 1) && tti_is_split(in[1], k))
        out[0] = (tti_placement){TTI_PARTIAL, 0};
    else
        return tti_shard_match(node, rules, 3, in, out, shard_why);
    return TUTTI_OK;
}

static void product_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 2.0 * (double)tti_in_n(node, 0) * (double)node->out[0]->type.shape.dim[1],
                   cost);
}

/* ---- grouped_matmul_grad ---- */

static tutti_status grad_infer(const tti_node *node, tutti_type *out) {
    int64_t n = tti_attr_int(node, "n");
    TTI_TRY(check_trans(node));
    TTI_TRY(tti_need_floats(node, 0, 2));
    for (int i = 0; i < 2; i++) TTI_TRY(tti_need_n_dims(node, i, 2));
    TTI_TRY(check_ids(node, 2));
    if (tti_in_dim(node, 0, 0) != tti_in_dim(node, 1, 0))
        return tti_node_fail(node, "dy and x must have the same rows");
    if (n < 1 || n > INT32_MAX) return tti_node_fail(node, "n is %lld", (long long)n);
    int k = k_dim(node);
    out[0] = (tutti_type){node->in[0]->type.dtype, {.n_dims = 3, .dim = {n}}};
    out[0].shape.dim[k] = tti_in_dim(node, 1, 1);
    out[0].shape.dim[3 - k] = tti_in_dim(node, 0, 1);
    return TUTTI_OK;
}

static void grad_reference(const tti_args *a) {
    bool trans = k_dim(a->node) == 2;
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), n = (size_t)tti_in_dim(a->node, 0, 1);
    size_t k = (size_t)tti_in_dim(a->node, 1, 1), n_w = (size_t)tti_attr_int(a->node, "n");
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    for (size_t r = 0; r < rows; r++) {
        const double *dy = a->in[0] + r * n, *x = a->in[1] + r * k;
        if (!is_inside(a->in[2][r], n_w)) continue;
        double *dw = a->out[0] + (size_t)a->in[2][r] * k * n;
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < n; j++) dw[trans ? j * k + i : i * n + j] += x[i] * dy[j];
    }
}

static tutti_status grad_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000", "P"}, {"PWW", "P"}, {"WPW", "P"}};
    int k = k_dim(node);
    bool ids_whole = in[2].kind == TTI_WHOLE;
    if (ids_whole && tti_is_split(in[0], 1) && in[1].kind == TTI_WHOLE)
        out[0] = tti_split_along(3 - k);
    else if (ids_whole && in[0].kind == TTI_WHOLE && tti_is_split(in[1], 1))
        out[0] = tti_split_along(k);
    else
        return tti_shard_match(node, rules, 3, in, out, "dy, x and ids must be split alike");
    return TUTTI_OK;
}

static void grad_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 2.0 * (double)tti_in_n(node, 0) * (double)tti_in_dim(node, 1, 1), cost);
}

/* ---- builder ---- */

tutti_value *tutti_grouped_matmul(tutti_graph *g, tutti_value *x, tutti_value *w, tutti_value *ids,
                                  bool trans_w) {
    return tti_emit(g, "grouped_matmul", NULL, (tutti_value *[]){x, w, ids}, 3,
                    (tti_attr_arg[]){TTI_INT("trans_b", trans_w), {0}});
}

/* ---- records ---- */

static const tti_sample product_samples[] = {
    {.in = "f32[8,3] f32[3,3,5] i32[8]", .int_hi = 2},
    {.in = "f32[8,3] f32[4,6,3] i32[8]", .attrs = "trans_b=1", .int_lo = -1, .int_hi = 4},
    {.in = "f32[40,7] f32[2,7,20] i32[40]", .int_hi = 1},
    {.in = "f64[4,2] f64[1,2,2] i32[4]"},
    {.in = "bf16[4,4] bf16[2,4,2] i32[4]", .int_hi = 1},
    {.in = "f32[0,3] f32[2,3,5] i32[0]"},
    {.in = "f32[4,0] f32[2,0,5] i32[4]", .int_hi = 1},
    {.in = "f32[8,3] f32[3,5,3] i32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,3] f32[3,3,5] i32[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,3] f32[3,3,5] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,3] f32[3,5] i32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,3] f32[3,3,5] i32[8]", .attrs = "trans_b=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_samples[] = {
    {.in = "f32[8,5] f32[8,3] i32[8]", .attrs = "n=3", .int_hi = 2},
    {.in = "f32[8,6] f32[8,3] i32[8]", .attrs = "n=4 trans_b=1", .int_lo = -1, .int_hi = 4},
    {.in = "f32[40,20] f32[40,7] i32[40]", .attrs = "n=2", .int_hi = 1},
    {.in = "f32[0,5] f32[0,3] i32[0]", .attrs = "n=2"},
    {.in = "f32[8,5] f32[6,3] i32[8]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,5] f32[8,3] i32[8]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[8,5] f32[8,3] i32[4]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_grouped[] = {
    {.name = "grouped_matmul",
     .doc = "y_s = x_s w[id_s]; an id outside gives zeros; inputs x[S,K], w[E,K,N], i32 ids[S]",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = product_attrs,
     .traits = TTI_COMPUTE,
     .infer = product_infer,
     .grad = product_grad,
     .shard = product_shard,
     .cost = product_cost,
     .reference = product_reference,
     .samples = product_samples},
    {.name = "grouped_matmul_grad",
     .doc = "dw[e] = sum over rows s of id e of x_s^T dy_s; inputs dy[S,N], x[S,K], i32 ids[S]",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = grad_attrs,
     .infer = grad_infer,
     .shard = grad_shard,
     .cost = grad_cost,
     .reference = grad_reference,
     .samples = grad_samples},
    {0},
};
