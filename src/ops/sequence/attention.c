/* attention.c - multi-head attention (Vaswani et al. 2017).
 *
 * Queries, keys and values come in one value, as one linear layer makes them: each position of
 * qkv[B,T,(H + 2 KV) D] holds H query heads, KV key heads, KV value heads, each of width D. With KV
 * < H, H / KV query heads share a key head (Ainslie et al. 2023).  Besides y the logarithm of each
 * row's sum of exponents is kept (lse), so that the gradient can recompute every weight without a T
 * x T matrix.  A row whose keys are all masked gives zeros and lse 0. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* ---- attention ---- */

static const tti_attr_spec attention_attrs[] = {
    {"heads", TTI_ATTR_INT, 1, "of queries"},
    {"kv_heads", TTI_ATTR_INT, 0, "heads of keys and values, a divisor of heads; 0: heads"},
    {"causal", TTI_ATTR_INT, 0, "1: a position sees itself and those before"},
    {"scale", TTI_ATTR_FLOAT, 0, "factor of the scores; 0: 1 / sqrt(D)"},
    {0},
};
static const tti_attr_spec cached_attrs[] = {
    {"heads", TTI_ATTR_INT, 1, "of queries"},
    {"kv_heads", TTI_ATTR_INT, 0, "heads of keys and values, a divisor of heads; 0: heads"},
    {"scale", TTI_ATTR_FLOAT, 0, "factor of the scores; 0: 1 / sqrt(D)"},
    {0},
};

/* Sizes of an attention op, from qkv and the attributes. */
typedef struct heads_view {
    size_t n_batch, n_t, heads, kv_heads, dim;
    size_t width; /* (heads + 2 kv_heads) dim */
    bool causal;
    double scale;
} heads_view;

static tutti_status read_heads(const tti_node *node, heads_view *v) {
    int64_t heads = tti_attr_int(node, "heads"), kv = tti_attr_int(node, "kv_heads");
    double scale = tti_attr_float(node, "scale");
    int64_t causal = tti_attr_has(node, "causal") ? tti_attr_int(node, "causal") : 0;
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 3));
    if (kv == 0) kv = heads;
    if (heads < 1 || heads > 1 << 20 || kv < 1 || kv > heads || heads % kv)
        return tti_node_fail(node, "%lld heads cannot share %lld key heads", (long long)heads,
                             (long long)kv);
    int64_t width = tti_in_dim(node, 0, 2), all = heads + 2 * kv;
    if (width < all || width % all)
        return tti_node_fail(node, "%lld elements do not divide into %lld + 2 * %lld heads",
                             (long long)width, (long long)heads, (long long)kv);
    if (causal != 0 && causal != 1)
        return tti_node_fail(node, "causal must be 0 or 1, is %lld", (long long)causal);
    if (!(scale >= 0 && isfinite(scale)))
        return tti_node_fail(node, "scale must be >= 0, is %g", scale);
    *v = (heads_view){.n_batch = (size_t)tti_in_dim(node, 0, 0),
                      .n_t = (size_t)tti_in_dim(node, 0, 1),
                      .heads = (size_t)heads,
                      .kv_heads = (size_t)kv,
                      .dim = (size_t)(width / all),
                      .width = (size_t)width,
                      .causal = causal != 0};
    v->scale = scale != 0 ? scale : 1 / sqrt((double)v->dim);
    return TUTTI_OK;
}

static heads_view heads_of(const tti_node *node) {
    heads_view v;
    TTI_ASSERT(read_heads(node, &v) == TUTTI_OK);
    return v;
}

/* Input i is lengths i32[B]. */
static tutti_status check_lengths(const tti_node *node, int i) {
    TTI_TRY(tti_need_dtype(node, i, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, i, 1));
    if (tti_in_dim(node, i, 0) == tti_in_dim(node, 0, 0)) return TUTTI_OK;
    return tti_node_fail(node, "%lld samples, %lld lengths", (long long)tti_in_dim(node, 0, 0),
                         (long long)tti_in_dim(node, i, 0));
}

static tutti_type y_type(const tti_node *node, const heads_view *v) {
    return (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->n_t,
                                                             (int64_t)(v->heads * v->dim))};
}

static tutti_type lse_type(const heads_view *v) {
    return (tutti_type){TUTTI_F32,
                        TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->heads, (int64_t)v->n_t)};
}

static tutti_status attention_infer(const tti_node *node, tutti_type *out) {
    heads_view v;
    TTI_TRY(read_heads(node, &v));
    if (node->n_in == 2) TTI_TRY(check_lengths(node, 1));
    out[0] = y_type(node, &v);
    out[1] = lse_type(&v);
    return TUTTI_OK;
}

/* qkv, lengths?, y, lse, dy */
static tutti_status attention_grad_infer(const tti_node *node, tutti_type *out) {
    heads_view v;
    TTI_TRY(read_heads(node, &v));
    if (node->n_in == 5) TTI_TRY(check_lengths(node, 1));
    tutti_type y = y_type(node, &v), lse = lse_type(&v);
    TTI_TRY(tti_need_type(node, node->n_in - 3, &y));
    TTI_TRY(tti_need_type(node, node->n_in - 2, &lse));
    TTI_TRY(tti_need_type(node, node->n_in - 1, &y));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* One head of one sample; rows of q, k, v are width apart, rows of y heads * dim. */
typedef struct one_head {
    const double *q, *k, *v;
    size_t n_keys; /* those that are not masked for every query */
    size_t q_at, k_at, v_at, y_at, lse_at;
} one_head;

static one_head head_at(const tti_args *a, const heads_view *v, size_t b, size_t h) {
    size_t kv = h / (v->heads / v->kv_heads), first = b * v->n_t * v->width;
    bool has_lengths = a->node->n_in == 2 || a->node->n_in == 5;
    double length = has_lengths ? a->in[1][b] : (double)v->n_t;
    one_head o = {.q_at = first + h * v->dim,
                  .k_at = first + (v->heads + kv) * v->dim,
                  .v_at = first + (v->heads + v->kv_heads + kv) * v->dim,
                  .y_at = b * v->n_t * v->heads * v->dim + h * v->dim,
                  .lse_at = (b * v->heads + h) * v->n_t};
    o.q = a->in[0] + o.q_at, o.k = a->in[0] + o.k_at, o.v = a->in[0] + o.v_at;
    o.n_keys = length <= 0 ? 0 : (size_t)fmin(length, (double)v->n_t);
    return o;
}

/* Keys that query t sees: 0 .. n-1. */
static size_t keys_of(const heads_view *v, const one_head *o, size_t t) {
    return v->causal ? TTI_MIN(o->n_keys, t + 1) : o->n_keys;
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* ln(sum over keys of e^score) of query t; 0 where it sees none. */
static double row_lse(const heads_view *v, const one_head *o, size_t t) {
    double max = -INFINITY, sum = 0;
    size_t n = keys_of(v, o, t);
    const double *q = o->q + t * v->width;
    for (size_t j = 0; j < n; j++) max = fmax(max, v->scale * dot(q, o->k + j * v->width, v->dim));
    for (size_t j = 0; j < n; j++) sum += exp(v->scale * dot(q, o->k + j * v->width, v->dim) - max);
    return n ? max + log(sum) : 0;
}

static double weight(const heads_view *v, const one_head *o, size_t t, size_t j, double lse) {
    return exp(v->scale * dot(o->q + t * v->width, o->k + j * v->width, v->dim) - lse);
}

static void attend(const tti_args *a, const heads_view *v, const one_head *o) {
    for (size_t t = 0; t < v->n_t; t++) {
        double *y = a->out[0] + o->y_at + t * v->heads * v->dim, lse = row_lse(v, o, t);
        memset(y, 0, v->dim * sizeof *y);
        for (size_t j = 0; j < keys_of(v, o, t); j++) {
            double p = weight(v, o, t, j, lse);
            for (size_t i = 0; i < v->dim; i++) y[i] += p * o->v[j * v->width + i];
        }
        a->out[1][o->lse_at + t] = lse;
    }
}

static void attention_reference(const tti_args *a) {
    heads_view v = heads_of(a->node);
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t h = 0; h < v.heads; h++) {
            one_head o = head_at(a, &v, b, h);
            attend(a, &v, &o);
        }
}

/* With p the weights: dv = p^T dy, ds = p (dy v^T - sum dy y), dq = scale ds k, dk = scale ds^T q.
 */
static void attend_grad(const tti_args *a, const heads_view *v, const one_head *o) {
    int n_in = a->node->n_in;
    for (size_t t = 0; t < v->n_t; t++) {
        size_t row = o->y_at + t * v->heads * v->dim;
        const double *dy = a->in[n_in - 1] + row, *y = a->in[n_in - 3] + row;
        double lse = a->in[n_in - 2][o->lse_at + t], mean = dot(dy, y, v->dim);
        double *dq = a->out[0] + o->q_at + t * v->width;
        for (size_t j = 0; j < keys_of(v, o, t); j++) {
            double *dk = a->out[0] + o->k_at + j * v->width;
            double *dv = a->out[0] + o->v_at + j * v->width, p = weight(v, o, t, j, lse);
            double ds = v->scale * p * (dot(dy, o->v + j * v->width, v->dim) - mean);
            for (size_t i = 0; i < v->dim; i++) {
                dv[i] += p * dy[i];
                dq[i] += ds * o->k[j * v->width + i];
                dk[i] += ds * o->q[t * v->width + i];
            }
        }
    }
}

static void attention_grad_reference(const tti_args *a) {
    heads_view v = heads_of(a->node);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t h = 0; h < v.heads; h++) {
            one_head o = head_at(a, &v, b, h);
            attend_grad(a, &v, &o);
        }
}

/* The same, and the sums of dqkv over its rows. */
static tutti_status attention_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(attention_grad_infer(node, out));
    out[1] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(out[0].shape.dim[2])};
    return TUTTI_OK;
}

static void attention_grad_sums_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0), width = tti_out_n(a->node, 1);
    attention_grad_reference(a);
    memset(a->out[1], 0, width * sizeof(double));
    for (size_t i = 0; i < n; i++) a->out[1][i % width] += a->out[0][i];
}

static tutti_status attention_gradient(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                       const bool *need, tutti_value **dx) {
    if (!need[0] || !dy[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "heads"),
                            tti_same_attr(node, "kv_heads"),
                            tti_same_attr(node, "causal"),
                            tti_same_attr(node, "scale"),
                            {0}};
    tutti_value *in[5] = {node->in[0]};
    int n = 1;
    if (node->n_in == 2) in[n++] = node->in[1];
    in[n++] = node->out[0], in[n++] = node->out[1], in[n++] = dy[0];
    dx[0] = tti_grad_emit(g, node, "attention_grad", in, n, attrs);
    return tutti_graph_check(g);
}

static const char samples_why[] = "only samples can be split, all inputs alike";

static tutti_status attention_shard(const tti_node *node, const tti_placement *in,
                                    tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00000", "00"}};
    return tti_shard_match(node, rules, 1, in, out, samples_why);
}

static tutti_status attention_grad_sums_shard(const tti_node *node, const tti_placement *in,
                                              tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00000", "0P"}};
    return tti_shard_match(node, rules, 1, in, out, samples_why);
}

/* Heads are independent.  If each query head has its own key head, a worker may have some of the
 * heads, with their queries, keys and values. */
static bool attention_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    heads_view v = heads_of(node);
    bool lengths_whole = node->n_in == 1 || in[1].kind == TTI_WHOLE;
    if (!tti_is_packed(in[0], 2, 3) || !lengths_whole) return false;
    if (v.heads != v.kv_heads || v.heads % (size_t)n) return false;
    out[0] = (tti_cut){TTI_SPLIT, 2, 1};
    out[1] = (tti_cut){TTI_SPLIT, 1, 1};
    return true;
}

static void attention_emit_cut(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                               const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    (void)cut;
    tti_emit_n(g, "attention", node->name, in, node->n_in,
               (tti_attr_arg[]){TTI_INT("heads", tti_attr_int(node, "heads") / axis->n),
                                tti_same_attr(node, "causal"),
                                tti_same_attr(node, "scale"),
                                {0}},
               out);
}

/* Products with keys and with values, half of them where causal; the gradient has five for two. */
static void attention_cost(const tti_node *node, tti_cost *cost) {
    heads_view v = heads_of(node);
    double pairs = (double)v.n_batch * (double)v.heads * (double)v.n_t * (double)v.n_t;
    double products = node->n_in >= 4 ? 5 : 2;
    tti_cost_flops(node, products * 2 * pairs * (double)v.dim * (v.causal ? 0.5 : 1), cost);
}

/* ---- attention_cached: one new position against those before, for decoding ---- */

/* qkv[B,1,..], kcache[B,Tmax,KV D], vcache, pos i32[1] */
static tutti_status attention_cached_infer(const tti_node *node, tutti_type *out) {
    heads_view v;
    TTI_TRY(read_heads(node, &v));
    TTI_TRY(tti_need_floats(node, 0, 3));
    TTI_TRY(tti_need_n_dims(node, 1, 3));
    if (v.n_t != 1)
        return tti_node_fail(node, "one position at a time is supported, not %zu", v.n_t);
    tutti_type cache = {
        node->in[0]->type.dtype,
        TUTTI_SHAPE((int64_t)v.n_batch, tti_in_dim(node, 1, 1), (int64_t)(v.kv_heads * v.dim))};
    for (int i = 1; i < 3; i++) TTI_TRY(tti_need_type(node, i, &cache));
    TTI_TRY(tti_need_type(node, 3, &(tutti_type){TUTTI_I32, TUTTI_SHAPE(1)}));
    out[0] = y_type(node, &v);
    out[1] = out[2] = cache;
    return TUTTI_OK;
}

/* One query head against the first n rows of its cache. */
static void attend_cached(const double *q, const double *k, const double *v, size_t n,
                          const heads_view *view, double *y) {
    double max = -INFINITY, sum = 0;
    size_t step = view->kv_heads * view->dim, dim = view->dim;
    memset(y, 0, dim * sizeof *y);
    for (size_t j = 0; j < n; j++) max = fmax(max, view->scale * dot(q, k + j * step, dim));
    for (size_t j = 0; j < n; j++) sum += exp(view->scale * dot(q, k + j * step, dim) - max);
    for (size_t j = 0; j < n; j++) {
        double p = exp(view->scale * dot(q, k + j * step, dim) - max) / sum;
        for (size_t i = 0; i < dim; i++) y[i] += p * v[j * step + i];
    }
}

/* A position outside the cache leaves it as it is and gives zeros. */
static void attention_cached_reference(const tti_args *a) {
    heads_view v = heads_of(a->node);
    size_t n_max = (size_t)tti_in_dim(a->node, 1, 1), step = v.kv_heads * v.dim;
    bool inside = a->in[3][0] >= 0 && a->in[3][0] < (double)n_max;
    size_t pos = inside ? (size_t)a->in[3][0] : 0;
    for (int i = 1; i < 3; i++) memcpy(a->out[i], a->in[i], tti_in_n(a->node, i) * sizeof(double));
    for (size_t b = 0; b < v.n_batch; b++) {
        const double *qkv = a->in[0] + b * v.width;
        double *k = a->out[1] + b * n_max * step, *values = a->out[2] + b * n_max * step;
        for (size_t i = 0; inside && i < step; i++) {
            k[pos * step + i] = qkv[v.heads * v.dim + i];
            values[pos * step + i] = qkv[v.heads * v.dim + step + i];
        }
        for (size_t h = 0; h < v.heads; h++) {
            size_t kv = h / (v.heads / v.kv_heads) * v.dim;
            attend_cached(qkv + h * v.dim, k + kv, values + kv, inside ? pos + 1 : 0, &v,
                          a->out[0] + (b * v.heads + h) * v.dim);
        }
    }
}

static tutti_status attention_cached_shard(const tti_node *node, const tti_placement *in,
                                           tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000W", "000"}};
    return tti_shard_match(node, rules, 1, in, out, samples_why);
}

static void attention_cached_cost(const tti_node *node, tti_cost *cost) {
    heads_view v = heads_of(node);
    tti_cost_flops(
        node, 4.0 * (double)v.n_batch * (double)(v.heads * v.dim) * (double)tti_in_dim(node, 1, 1),
        cost);
}

/* ---- builders ---- */

static const tutti_attention_desc usual_attention = {0};

/* heads, kv_heads and scale of a desc. */
static void head_attrs(const tutti_attention_desc *desc, tti_attr_arg attrs[3]) {
    attrs[0] = TTI_INT("heads", desc->heads ? desc->heads : 1);
    attrs[1] = TTI_INT("kv_heads", desc->kv_heads);
    attrs[2] = TTI_FLOAT("scale", desc->scale);
}

tutti_value *tutti_attention(tutti_graph *g, tutti_value *qkv, tutti_value *lengths,
                             const tutti_attention_desc *desc) {
    tti_attr_arg attrs[5] = {{0}};
    if (!desc) desc = &usual_attention;
    head_attrs(desc, attrs);
    attrs[3] = TTI_INT("causal", desc->causal);
    return tti_emit(g, "attention", NULL, (tutti_value *[]){qkv, lengths}, lengths ? 2 : 1, attrs);
}

tutti_cached_attention tutti_attention_cached(tutti_graph *g, tutti_value *qkv,
                                              tutti_value *k_cache, tutti_value *v_cache,
                                              tutti_value *pos, const tutti_attention_desc *desc) {
    tti_attr_arg attrs[4] = {{0}};
    tutti_value *out[TTI_MAX_OUT] = {NULL};
    head_attrs(desc ? desc : &usual_attention, attrs);
    tti_emit_n(g, "attention_cached", NULL, (tutti_value *[]){qkv, k_cache, v_cache, pos}, 4, attrs,
               out);
    return (tutti_cached_attention){out[0], out[1], out[2]};
}

/* ---- records ---- */

static const tti_sample attention_samples[] = {
    {.in = "f32[2,4,12]", .attrs = "heads=2 causal=1"},
    {.in = "f32[2,5,9]", .lo = -2, .hi = 2},
    {.in = "f32[2,3,16]", .attrs = "heads=4 kv_heads=2 causal=1"}, /* 4 + 2 * 2 heads of 2 */
    {.in = "f32[2,5,12] i32[2]", .attrs = "heads=2 scale=0.3", .int_hi = 6}, /* also none, all */
    {.in = "f32[4,3,6] i32[4]", .attrs = "causal=1", .int_lo = -1, .int_hi = 2},
    {.in = "f64[1,1,3]"},
    {.in = "bf16[1,3,6]", .attrs = "heads=2"},
    {.in = "f32[0,4,12]", .attrs = "heads=2"},
    {.in = "f32[2,0,12]", .attrs = "heads=2"},
    {.in = "f32[2,4,12]", .attrs = "heads=3", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12]", .attrs = "heads=4 kv_heads=3", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12]", .attrs = "heads=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12] i32[3]", .attrs = "heads=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,12]", .attrs = "heads=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12]", .attrs = "heads=2 causal=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample attention_grad_samples[] = {
    {.in = "f32[2,4,12] f32[2,4,4] f32[2,2,4] f32[2,4,4]", .attrs = "heads=2 causal=1"},
    {.in = "f32[2,5,16] i32[2] f32[2,5,8] f32[2,4,5] f32[2,5,8]",
     .attrs = "heads=4 kv_heads=2",
     .int_hi = 5},
    {.in = "f32[0,4,12] f32[0,4,4] f32[0,2,4] f32[0,4,4]", .attrs = "heads=2"},
    {.in = "f32[2,4,12] f32[2,4,4] f32[2,4,2] f32[2,4,4]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12] f32[2,4,4] f32[2,2,4] f32[2,4,12]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,12] i32[4] f32[2,4,4] f32[2,2,4] f32[2,4,4]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample attention_cached_samples[] = {
    {.in = "f32[2,1,12] f32[2,5,4] f32[2,5,4] i32[1]",
     .attrs = "heads=2",
     .int_lo = 2,
     .int_hi = 2},
    {.in = "f32[2,1,16] f32[2,3,4] f32[2,3,4] i32[1]", .attrs = "heads=4 kv_heads=2 scale=0.3"},
    {.in = "f32[1,1,3] f32[1,3,1] f32[1,3,1] i32[1]", .int_lo = 3, .int_hi = 3}, /* outside */
    {.in = "f32[2,2,12] f32[2,5,4] f32[2,5,4] i32[1]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,1,12] f32[2,5,6] f32[2,5,4] i32[1]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,1,12] f32[2,5,4] f32[2,5,4] i32[]",
     .attrs = "heads=2",
     .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_attention[] = {
    {.name = "attention",
     .doc = "y = softmax(scale q k^T) v by heads, and lse; inputs qkv[B,T,(H+2KV)D], lengths?",
     .n_in_min = 1,
     .n_in_max = 2,
     .n_out = 2,
     .saved_out = 2,
     .attrs = attention_attrs,
     .traits = TTI_COMPUTE,
     .infer = attention_infer,
     .grad = attention_gradient,
     .shard = attention_shard,
     .cut = attention_cut,
     .emit_cut = attention_emit_cut,
     .cost = attention_cost,
     .reference = attention_reference,
     .samples = attention_samples},
    {.name = "attention_grad",
     .doc = "dqkv of attention; inputs qkv, lengths?, y, lse, dy",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 1,
     .attrs = attention_attrs,
     .infer = attention_grad_infer,
     .shard = attention_shard,
     .cost = attention_cost,
     .reference = attention_grad_reference,
     .samples = attention_grad_samples,
     .summed = "attention_grad_sums",
     .summed_from = 1 << 24},
    {.name = "attention_grad_sums",
     .doc = "attention_grad, and the sums of dqkv over all rows in f32; made by a pass",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 2,
     .attrs = attention_attrs,
     .infer = attention_grad_sums_infer,
     .shard = attention_grad_sums_shard,
     .cost = attention_cost,
     .reference = attention_grad_sums_reference,
     .samples = attention_grad_samples},
    {.name = "attention_cached",
     .doc = "row pos of the caches = the new key and value, y = attention over rows 0 .. pos; y, "
            "kcache, vcache; inputs qkv[B,1,..], kcache[B,Tmax,KV D], vcache, pos",
     .n_in_min = 4,
     .n_in_max = 4,
     .n_out = 3,
     .attrs = cached_attrs,
     .infer = attention_cached_infer,
     .shard = attention_cached_shard,
     .cost = attention_cached_cost,
     .reference = attention_cached_reference,
     .samples = attention_cached_samples},
    {0},
};
