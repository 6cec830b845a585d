/* matmul.c - matrix products: matmul, linear (with bias and activation) and its weight gradient.
 *
 * The idea to know: linear keeps w as [N,K], as PyTorch does, so its input gradient is the plain
 * product dy w, and only the weight gradient, which sums over all rows, needs an op of its own. */
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* ---- matmul: y[..,M,N] = op(a)[..,M,K] op(b)[..,K,N] ---- */

static const tti_attr_spec matmul_attrs[] = {
    {"trans_a", TTI_ATTR_INT, 0, "1: a is stored [..,K,M]"},
    {"trans_b", TTI_ATTR_INT, 0, "1: b is stored [..,N,K]"},
    {0},
};

typedef struct product {
    size_t n_batch, m, n, k;
    bool trans_a, trans_b, shared_b; /* shared_b: b is 2-D, a has leading dimensions */
} product;

static product product_of(const tti_node *node) {
    const tutti_shape *a = tti_in_shape(node, 0), *b = tti_in_shape(node, 1);
    product p = {.n_batch = 1,
                 .trans_a = tti_attr_int(node, "trans_a") != 0,
                 .trans_b = tti_attr_int(node, "trans_b") != 0,
                 .shared_b = b->n_dims < a->n_dims};
    for (int d = 0; d < a->n_dims - 2; d++) p.n_batch *= (size_t)a->dim[d];
    p.m = (size_t)a->dim[a->n_dims - (p.trans_a ? 1 : 2)];
    p.k = (size_t)a->dim[a->n_dims - (p.trans_a ? 2 : 1)];
    p.n = (size_t)b->dim[b->n_dims - (p.trans_b ? 2 : 1)];
    return p;
}

static tutti_status matmul_fit_fail(const tti_node *node) {
    char a[128], b[128];
    return tti_node_fail(node, "%s%s and %s%s do not match",
                         tti_type_text(&node->in[0]->type, a, sizeof a),
                         tti_attr_int(node, "trans_a") ? " (transposed)" : "",
                         tti_type_text(&node->in[1]->type, b, sizeof b),
                         tti_attr_int(node, "trans_b") ? " (transposed)" : "");
}

tutti_status tti_matmul_infer(const tti_node *node, tutti_type *out) {
    const tutti_shape *a = tti_in_shape(node, 0), *b = tti_in_shape(node, 1);
    TTI_TRY(tti_need_floats(node, 0, 2));
    if ((tti_attr_int(node, "trans_a") | tti_attr_int(node, "trans_b")) & ~(int64_t)1)
        return tti_node_fail(node, "trans_a and trans_b must be 0 or 1");
    if (a->n_dims < 2 || b->n_dims < 2 || (b->n_dims != 2 && b->n_dims != a->n_dims))
        return matmul_fit_fail(node);
    for (int d = 0; b->n_dims > 2 && d < a->n_dims - 2; d++)
        if (a->dim[d] != b->dim[d]) return matmul_fit_fail(node);
    product p = product_of(node);
    if ((size_t)b->dim[b->n_dims - (p.trans_b ? 1 : 2)] != p.k) return matmul_fit_fail(node);
    out[0] = node->in[0]->type;
    out[0].shape.dim[a->n_dims - 2] = (int64_t)p.m;
    out[0].shape.dim[a->n_dims - 1] = (int64_t)p.n;
    return TUTTI_OK;
}

static double matmul_element(const product *p, const double *a, const double *b, size_t i,
                             size_t j) {
    double sum = 0;
    for (size_t k = 0; k < p->k; k++)
        sum += a[p->trans_a ? k * p->m + i : i * p->k + k] *
               b[p->trans_b ? j * p->k + k : k * p->n + j];
    return sum;
}

void tti_matmul_product(const tti_args *args) {
    product p = product_of(args->node);
    double *y = args->out[0];
    for (size_t batch = 0; batch < p.n_batch; batch++) {
        const double *a = args->in[0] + batch * p.m * p.k;
        const double *b = args->in[1] + (p.shared_b ? 0 : batch * p.k * p.n);
        for (size_t i = 0; i < p.m; i++)
            for (size_t j = 0; j < p.n; j++) *y++ = matmul_element(&p, a, b, i, j);
    }
}

static tutti_value *emit_matmul(tutti_graph *g, const tti_node *node, tutti_value *a, bool trans_a,
                                tutti_value *b, bool trans_b) {
    return tti_grad_emit(
        g, node, "matmul", (tutti_value *[]){a, b}, 2,
        (tti_attr_arg[]){TTI_INT("trans_a", trans_a), TTI_INT("trans_b", trans_b), {0}});
}

static tutti_value *swap_last(tutti_graph *g, const tti_node *node, tutti_value *x) {
    int64_t perm[TUTTI_MAX_DIMS];
    if (!x) return NULL;
    int n = x->type.shape.n_dims;
    for (int d = 0; d < n; d++) perm[d] = d;
    perm[n - 1] = n - 2, perm[n - 2] = n - 1;
    return tti_grad_emit(g, node, "transpose", &x, 1,
                         (tti_attr_arg[]){TTI_INTS("perm", n, perm), {0}});
}

static tutti_value *matmul_grad_a(tutti_graph *g, const tti_node *node, const product *p,
                                  tutti_value *dy) {
    tutti_value *b = node->in[1];
    if (!p->trans_a) return emit_matmul(g, node, dy, false, b, !p->trans_b);
    if (!p->shared_b) return emit_matmul(g, node, b, p->trans_b, dy, true);
    return swap_last(g, node, emit_matmul(g, node, dy, false, b, !p->trans_b));
}

/* All leading dimensions joined: [..,M,N] -> [rows,N]. */
static tutti_value *as_rows(tutti_graph *g, const tti_node *node, tutti_value *x) {
    const tutti_shape *s = &x->type.shape;
    int64_t n_cols = s->dim[s->n_dims - 1], n_rows = 1;
    for (int d = 0; d < s->n_dims - 1; d++) n_rows *= s->dim[d];
    return tti_grad_emit(g, node, "reshape", &x, 1,
                         (tti_attr_arg[]){TTI_INTS("dims", 2, (int64_t[]){n_rows, n_cols}), {0}});
}

/* A shared b collects from every batch: one product over all rows where a lies in rows, else a
 * product for each batch and their sum. */
static tutti_value *matmul_grad_b(tutti_graph *g, const tti_node *node, const product *p,
                                  tutti_value *dy) {
    tutti_value *a = node->in[0];
    if (p->shared_b && !p->trans_a) {
        a = as_rows(g, node, a);
        dy = as_rows(g, node, dy);
    }
    tutti_value *db = p->trans_b ? emit_matmul(g, node, dy, true, a, p->trans_a)
                                 : emit_matmul(g, node, a, !p->trans_a, dy, false);
    return tti_grad_sum_to(g, node, db, node->in[1]);
}

static tutti_status matmul_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    product p = product_of(node);
    if (need[0]) dx[0] = matmul_grad_a(g, node, &p, dy[0]);
    if (need[1]) dx[1] = matmul_grad_b(g, node, &p, dy[0]);
    return tutti_graph_check(g);
}

/* Leading dimensions split in a, and in b unless b is shared. */
static bool matmul_batch_split(const product *p, const tti_placement *in, int n_dims) {
    if (in[0].kind != TTI_SPLIT || in[0].dim >= n_dims - 2) return false;
    return p->shared_b ? in[1].kind == TTI_WHOLE : tti_is_split(in[1], in[0].dim);
}

static tutti_status matmul_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    product p = product_of(node);
    int na = tti_in_shape(node, 0)->n_dims, nb = tti_in_shape(node, 1)->n_dims;
    int m = na - (p.trans_a ? 1 : 2), ka = na - (p.trans_a ? 2 : 1);
    int n = nb - (p.trans_b ? 2 : 1), kb = nb - (p.trans_b ? 1 : 2);
    static const tti_shard_rule partial[] = {{"PW", "P"}, {"WP", "P"}};
    if (matmul_batch_split(&p, in, na))
        out[0] = in[0];
    else if (tti_is_split(in[0], m) && in[1].kind == TTI_WHOLE)
        out[0] = tti_split_along(na - 2);
    else if (in[0].kind == TTI_WHOLE && tti_is_split(in[1], n))
        out[0] = tti_split_along(na - 1);
    else if (tti_is_split(in[0], ka) && tti_is_split(in[1], kb))
        out[0] = (tti_placement){TTI_PARTIAL, 0};
    else
        return tti_shard_match(node, partial, 2, in, out, "rows and columns do not match");
    return TUTTI_OK;
}

void tti_matmul_cost(const tti_node *node, tti_cost *cost) {
    product p = product_of(node);
    tti_cost_flops(node, 2.0 * (double)p.n_batch * (double)p.m * (double)p.n * (double)p.k, cost);
}

/* ---- linear: y[..,N] = act(x[..,K] w[N,K]^T + b[N]) ---- */

static const tti_attr_spec linear_attrs[] = {
    {"act", TTI_ATTR_INT, TTI_EPILOGUE_NONE, "tti_epilogue: 0 none, 1 relu"}, {0}};

tutti_status tti_linear_infer(const tti_node *node, int bias, tutti_type *out) {
    const tutti_shape *x = tti_in_shape(node, 0), *w = tti_in_shape(node, 1);
    TTI_TRY(tti_need_floats(node, 0, bias < 0 ? 2 : 3));
    TTI_TRY(tti_need_n_dims(node, 1, 2));
    if (x->n_dims < 1 || x->dim[x->n_dims - 1] != w->dim[1]) {
        char a[128], b[128];
        return tti_node_fail(node, "input %s does not match weight %s",
                             tti_type_text(&node->in[0]->type, a, sizeof a),
                             tti_type_text(&node->in[1]->type, b, sizeof b));
    }
    if (bias >= 0) TTI_TRY(tti_need_n_dims(node, bias, 1));
    if (bias >= 0 && tti_in_dim(node, bias, 0) != w->dim[0])
        return tti_node_fail(node, "bias has %lld elements, the weight has %lld rows",
                             (long long)tti_in_dim(node, bias, 0), (long long)w->dim[0]);
    out[0] = node->in[0]->type;
    out[0].shape.dim[x->n_dims - 1] = w->dim[0];
    return TUTTI_OK;
}

static int bias_of(const tti_node *node) { return node->n_in == 3 ? 2 : -1; }

static tutti_status linear_infer(const tti_node *node, tutti_type *out) {
    int64_t act = tti_attr_int(node, "act");
    if (act != TTI_EPILOGUE_NONE && act != TTI_EPILOGUE_RELU)
        return tti_node_fail(node, "act must be 0 or 1, is %lld", (long long)act);
    return tti_linear_infer(node, bias_of(node), out);
}

/* Rows of a value whose last dimension has n_cols elements. */
static size_t rows_of(const tutti_shape *shape) {
    size_t n = 1;
    for (int d = 0; d < shape->n_dims - 1; d++) n *= (size_t)shape->dim[d];
    return n;
}

void tti_linear_product(const tti_args *a, int bias, double *y) {
    size_t rows = rows_of(tti_in_shape(a->node, 0));
    size_t n = (size_t)tti_in_dim(a->node, 1, 0), k = (size_t)tti_in_dim(a->node, 1, 1);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) {
            double sum = bias >= 0 ? a->in[bias][j] : 0;
            for (size_t i = 0; i < k; i++) sum += a->in[0][r * k + i] * a->in[1][j * k + i];
            y[r * n + j] = sum;
        }
}

static void linear_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0);
    tti_linear_product(a, bias_of(a->node), a->out[0]);
    if (tti_attr_int(a->node, "act") != TTI_EPILOGUE_RELU) return;
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->out[0][i] < 0 ? 0 : a->out[0][i];
}

/* The gradients of a weight that is another matrix w[K,N], transposed, and of the bias: that of w
 * is the product itself. */
static void turned_grad_w(tutti_graph *g, const tti_node *node, tutti_value *dz, bool need_w,
                          bool need_b, tutti_value **dx) {
    if (need_w) {
        tutti_value *dw =
            emit_matmul(g, node, as_rows(g, node, node->in[0]), true, as_rows(g, node, dz), false);
        dx[1] = swap_last(g, node, dw);
    }
    if (need_b) dx[2] = tti_grad_sum_to(g, node, dz, node->in[2]);
}

static tutti_status linear_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    tutti_value *dz = tti_grad_act(g, node, dy[0]), *dw[2];
    bool need_b = node->n_in == 3 && need[2];
    if (need[0] && node->in[0]->type.shape.n_dims >= 2)
        dx[0] = emit_matmul(g, node, dz, false, node->in[1], false);
    else if (need[0]) /* a vector: dx = w^T dz */
        dx[0] = tti_grad_emit(g, node, "linear",
                              (tutti_value *[]){dz, swap_last(g, node, node->in[1])}, 2, NULL);
    if (tti_turned_matrix(node->in[1]) && node->in[0]->type.shape.n_dims >= 2) {
        turned_grad_w(g, node, dz, need[1], need_b, dx);
        return tutti_graph_check(g);
    }
    if (!need[1] && !need_b) return tutti_graph_check(g);
    tti_emit_n(g, "linear_grad_w", node->name, (tutti_value *[]){dz, node->in[0]}, 2, NULL, dw);
    if (need[1]) dx[1] = dw[0];
    if (need_b) dx[2] = dw[1];
    return tutti_graph_check(g);
}

static tutti_status linear_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {
        {"dWW", "d"}, {"W00", "L"}, {"L1-", "P"}, {"PW-", "P"}, {"WP-", "P"}};
    /* relu does not pass through a sum */
    int n_rules = tti_attr_int(node, "act") == TTI_EPILOGUE_NONE ? 5 : 2;
    return tti_shard_match(
        node, rules, n_rules, in, out,
        "x and w must match, and neither bias nor activation may follow a partial sum");
}

/* Rows of the weight may be packed, such as those of queries, keys and values. */
static bool linear_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    if (in[0].kind != TTI_WHOLE || !tti_is_packed(in[1], 0, in[1].groups)) return false;
    if (node->n_in == 3 && !tti_is_packed(in[2], 0, in[1].groups)) return false;
    out[0] = (tti_cut){TTI_SPLIT, tti_in_shape(node, 0)->n_dims - 1, in[1].groups};
    return true;
}

void tti_linear_cost(const tti_node *node, tti_cost *cost) {
    double n = (double)tti_in_dim(node, 1, 0), k = (double)tti_in_dim(node, 1, 1);
    tti_cost_flops(node, 2.0 * (double)rows_of(tti_in_shape(node, 0)) * n * k, cost);
}

/* ---- linear_grad_w: dw[N,K] = sum over rows of dy^T x, db[N] = sum over rows of dy ---- */

tutti_status tti_linear_grad_w_infer(const tti_node *node, tutti_type *out) {
    const tutti_shape *dy = tti_in_shape(node, 0), *x = tti_in_shape(node, 1);
    TTI_TRY(tti_need_floats(node, 0, 2));
    bool fits = dy->n_dims >= 1 && dy->n_dims == x->n_dims;
    for (int d = 0; fits && d < x->n_dims - 1; d++) fits = dy->dim[d] == x->dim[d];
    if (!fits) return tti_node_fail(node, "dy and x must have the same rows");
    tutti_dtype dtype = node->in[0]->type.dtype;
    int64_t n = dy->dim[dy->n_dims - 1], k = x->dim[x->n_dims - 1];
    out[0] = (tutti_type){dtype, TUTTI_SHAPE(n, k)};
    out[1] = (tutti_type){dtype, TUTTI_SHAPE(n)};
    return TUTTI_OK;
}

void tti_linear_grad_w_product(const tti_args *a) {
    const tutti_shape *dw = &a->node->out[0]->type.shape;
    size_t rows = rows_of(tti_in_shape(a->node, 0));
    size_t n = (size_t)dw->dim[0], k = (size_t)dw->dim[1];
    memset(a->out[0], 0, n * k * sizeof(double));
    memset(a->out[1], 0, n * sizeof(double));
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) {
            double dy = a->in[0][r * n + j];
            a->out[1][j] += dy;
            for (size_t i = 0; i < k; i++) a->out[0][j * k + i] += dy * a->in[1][r * k + i];
        }
}

static tutti_status linear_grad_w_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[] = {
        {"dd", "PP"}, {"LW", "00"}, {"WL", "1W"}, {"PW", "PP"}, {"WP", "PW"}};
    return tti_shard_match(node, rules, 5, in, out, "dy and x must be split alike");
}

void tti_linear_grad_w_cost(const tti_node *node, tti_cost *cost) {
    double rows = (double)rows_of(tti_in_shape(node, 0));
    tti_cost_flops(node, rows * (2.0 * (double)tti_out_n(node, 0) + (double)tti_out_n(node, 1)),
                   cost);
}

/* ---- builders ---- */

tutti_value *tutti_matmul(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "matmul", a, b, NULL);
}
tutti_value *tutti_matmul_with(tutti_graph *g, tutti_value *a, tutti_value *b, bool trans_a,
                               bool trans_b) {
    return tti_build2(
        g, "matmul", a, b,
        (tti_attr_arg[]){TTI_INT("trans_a", trans_a), TTI_INT("trans_b", trans_b), {0}});
}

/* ---- records ---- */

static const tti_sample matmul_samples[] = {
    {.in = "f32[4,6] f32[6,8]"},
    {.in = "f32[6,4] f32[6,8]", .attrs = "trans_a=1"},
    {.in = "f32[4,6] f32[8,6]", .attrs = "trans_b=1"},
    {.in = "f32[5,3] f32[7,5]", .attrs = "trans_a=1 trans_b=1"},
    {.in = "f32[2,3,4] f32[2,4,6]"},
    {.in = "f32[2,2,4,3] f32[2,2,5,4]", .attrs = "trans_a=1 trans_b=1"},
    {.in = "f32[2,3,4] f32[4,6]"},
    {.in = "f32[2,4,3] f32[4,6]", .attrs = "trans_a=1"},
    {.in = "f32[2,4,3] f32[6,4]", .attrs = "trans_a=1 trans_b=1"},
    {.in = "f32[2,3,4] f32[6,4]", .attrs = "trans_b=1"},
    {.in = "f64[1,1] f64[1,1]"},
    {.in = "f32[0,3] f32[3,2]"},
    {.in = "f32[4,0] f32[0,2]"}, /* an empty sum is 0 */
    {.in = "f32[4,6] f32[5,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[6] f32[6,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6] f32[3,6,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[2,6,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6,8]", .attrs = "trans_a=3", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample linear_samples[] = {
    {.in = "f32[4,6] f32[8,6] f32[8]"},
    {.in = "f32[4,6] f32[8,6]"},
    {.in = "f32[2,3,4] f32[5,4] f32[5]"},
    {.in = "f32[4,6] f32[8,6] f32[8]", .attrs = "act=1"},
    {.in = "f32[6] f32[3,6] f32[3]"},
    {.in = "f64[1,1] f64[1,1]"},
    {.in = "f32[0,6] f32[8,6] f32[8]"},
    {.in = "f32[4,6] f32[8,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[8,6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[] f32[8,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[8,6]", .attrs = "act=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f64[8,6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample linear_grad_w_samples[] = {
    {.in = "f32[4,8] f32[4,6]"},
    {.in = "f32[2,3,4] f32[2,3,5]"},
    {.in = "f32[3] f32[6]"},
    {.in = "f32[0,8] f32[0,6]"}, /* zeros */
    {.in = "f32[4,8] f32[3,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] f32[6]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_matmul[] = {
    {.name = "matmul",
     .doc = "y[..,M,N] = a[..,M,K] b[..,K,N]; b may be 2-D for every batch",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = matmul_attrs,
     .traits = TTI_COMPUTE,
     .joined = {[TTI_JOINT_GELU_GRAD] = "matmul_gelu_grad",
                [TTI_JOINT_ADD] = "matmul_add",
                [TTI_JOINT_WIDE] = "matmul_wide"},
     .infer = tti_matmul_infer,
     .grad = matmul_grad,
     .shard = matmul_shard,
     .cost = tti_matmul_cost,
     .reference = tti_matmul_product,
     .samples = matmul_samples},
    {.name = "linear",
     .doc = "y[..,N] = act(x[..,K] w[N,K]^T + b[N])",
     .n_in_min = 2,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = linear_attrs,
     .traits = TTI_TAKES_EPILOGUE | TTI_COMPUTE,
     .joined = {[TTI_JOINT_GELU] = "linear_gelu", [TTI_JOINT_ADD] = "linear_add"},
     .infer = linear_infer,
     .grad = linear_grad,
     .shard = linear_shard,
     .cut = linear_cut,
     .cost = tti_linear_cost,
     .reference = linear_reference,
     .samples = linear_samples},
    {.name = "linear_grad_w",
     .doc = "dw[N,K], db[N] of linear for dy[..,N], x[..,K]",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 2,
     .joined = {[TTI_JOINT_WIDE] = "linear_grad_w_wide"},
     .infer = tti_linear_grad_w_infer,
     .shard = linear_grad_w_shard,
     .cost = tti_linear_grad_w_cost,
     .reference = tti_linear_grad_w_product,
     .samples = linear_grad_w_samples},
    {0},
};
