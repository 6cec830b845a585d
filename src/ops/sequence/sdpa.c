/* sdpa.c - scaled dot-product attention with separate queries, keys and values: other positions
 * (cross-attention), value heads of another width, a bias with a gradient, segments, a sliding
 * window, capped scores (Gemma 2), dropout of the weights.
 *
 * Score of query t and key j: s = scale q k, capped to softcap tanh(s / softcap), plus the bias.
 * Kept for the gradient: each row's largest score, and the logarithm of the sum of e^(s - largest).
 * They are two outputs, since a finite bias such as -1e9 may hide all keys of a query: f32 holds
 * either, but not their sum.  Where masks were filled in (where, masked_fill) instead of added, a
 * very low bias replaces the score, which then has no gradient.  A query that sees no key, or keys
 * of bias -inf alone, gives zeros. */
#include "ops/sequence/sdpa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/rules.h"
#include "tutti/ops.h"

enum { SAMPLE_BITS = 28 }; /* draws of four weights per sample, as dropout has */

static const tti_attr_spec sdpa_attrs[] = {
    {"heads", TTI_ATTR_INT, 1, "of queries"},
    {"kv_heads", TTI_ATTR_INT, 0, "heads of keys and values, a divisor of heads; 0: heads"},
    {"causal", TTI_ATTR_INT, 0, "1: query t sees keys 0 .. t"},
    {"window", TTI_ATTR_INT, 0, "keys fewer positions away than this are seen; 0: all"},
    {"scale", TTI_ATTR_FLOAT, 0, "factor of the scores; 0: 1 / sqrt(D)"},
    {"softcap", TTI_ATTR_FLOAT, 0, "c: scores become c tanh(s / c); 0: no cap"},
    {"p", TTI_ATTR_FLOAT, 0, "probability that a weight is dropped, 0 <= p < 1"},
    {"key", TTI_ATTR_INT, 0, "tti_hash_name of the layer, for dropout"},
    {"with", TTI_ATTR_INT, 0, "inputs after v: 1 bias, 2 segments, 3 both"},
    {"bias_period", TTI_ATTR_INT, 0, "P: sample b has row b % P of a bias of P rows; 0: row b"},
    {"replaces", TTI_ATTR_INT, 0, "1: a bias of -5e8 or lower replaces the score"},
    {"first_head", TTI_ATTR_INT, 0, "in a tensor shard: number of its head 0 in the whole layer"},
    {"grad_bias", TTI_ATTR_INT, 0, "gradient only; 1: the gradient of the bias is computed"},
    {0},
};

/* ---- infer ---- */

static tutti_status read_heads(const tti_node *node, tti_sdpa *v) {
    int64_t heads = tti_attr_int(node, "heads"), kv = tti_attr_int(node, "kv_heads");
    TTI_TRY(tti_need_floats(node, 0, 3));
    for (int i = 0; i < 3; i++) TTI_TRY(tti_need_n_dims(node, i, 3));
    if (kv == 0) kv = heads;
    if (heads < 1 || heads > 1 << 20 || kv < 1 || kv > heads || heads % kv)
        return tti_node_fail(node, "%lld heads cannot share %lld key heads", (long long)heads,
                             (long long)kv);
    int64_t q = tti_in_dim(node, 0, 2), k = tti_in_dim(node, 1, 2), w = tti_in_dim(node, 2, 2);
    if (q < heads || q % heads || k % kv || w < kv || w % kv || q / heads != k / kv)
        return tti_node_fail(
            node,
            "%lld, %lld and %lld elements do not divide into heads of one width, %lld of "
            "queries and %lld of keys and values",
            (long long)q, (long long)k, (long long)w, (long long)heads, (long long)kv);
    for (int i = 1; i < 3; i++)
        if (tti_in_dim(node, i, 0) != tti_in_dim(node, 0, 0))
            return tti_node_fail(node, "queries, keys and values of different batches");
    if (tti_in_dim(node, 1, 1) != tti_in_dim(node, 2, 1))
        return tti_node_fail(node, "%lld keys, %lld values", (long long)tti_in_dim(node, 1, 1),
                             (long long)tti_in_dim(node, 2, 1));
    v->n_batch = (size_t)tti_in_dim(node, 0, 0), v->n_t = (size_t)tti_in_dim(node, 0, 1);
    v->n_s = (size_t)tti_in_dim(node, 1, 1);
    v->heads = (size_t)heads, v->kv_heads = (size_t)kv;
    v->dim = (size_t)(q / heads), v->v_dim = (size_t)(w / kv);
    return TUTTI_OK;
}

static tutti_status read_scores(const tti_node *node, tti_sdpa *v) {
    int64_t causal = tti_attr_int(node, "causal"), window = tti_attr_int(node, "window");
    double scale = tti_attr_float(node, "scale"), cap = tti_attr_float(node, "softcap");
    double p = tti_attr_float(node, "p");
    int64_t replaces = tti_attr_int(node, "replaces");
    if (causal != 0 && causal != 1)
        return tti_node_fail(node, "causal must be 0 or 1, is %lld", (long long)causal);
    if (window < 0 || window > INT32_MAX)
        return tti_node_fail(node, "window must be >= 0, is %lld", (long long)window);
    if (replaces != 0 && replaces != 1)
        return tti_node_fail(node, "replaces must be 0 or 1, is %lld", (long long)replaces);
    if (!isfinite(scale)) return tti_node_fail(node, "scale must be a number, is %g", scale);
    if (!(cap >= 0 && isfinite(cap)))
        return tti_node_fail(node, "softcap must be >= 0, is %g", cap);
    if (!(p >= 0 && p < 1)) return tti_node_fail(node, "p must be >= 0 and < 1, is %g", p);
    if (p > 0 && (double)v->heads * (double)v->n_t * (double)v->n_s >= 0x1p30)
        return tti_node_fail(node, "a sample has 2^30 weights or more, too many for dropout");
    v->causal = causal != 0, v->window = (size_t)window;
    v->scale = scale != 0 ? scale : 1 / sqrt((double)v->dim);
    v->softcap = cap, v->p = p, v->replaces = replaces != 0;
    v->key = (uint64_t)tti_attr_int(node, "key");
    int64_t first = tti_attr_int(node, "first_head");
    if (first < 0 || first > 1 << 20)
        return tti_node_fail(node, "first_head must be 0 .. 2^20, is %lld", (long long)first);
    v->first_head = (size_t)first;
    return TUTTI_OK;
}

/* bias[1|B|P,1|H,1|T,1|S], with P rows where they repeat, as those of the windows of an image. */
static tutti_status read_bias(const tti_node *node, int i, tti_sdpa *v) {
    int64_t period = tti_attr_int(node, "bias_period");
    size_t full[4] = {v->n_batch, v->heads, v->n_t, v->n_s}, step = 1;
    tutti_shape wide =
        TUTTI_SHAPE((int64_t)full[0], (int64_t)full[1], (int64_t)full[2], (int64_t)full[3]);
    char bias[128], want[128];
    TTI_TRY(tti_need_dtype(node, i, node->in[0]->type.dtype));
    TTI_TRY(tti_need_n_dims(node, i, 4));
    for (int d = 3; d >= 0; d--) {
        size_t own = (size_t)tti_in_dim(node, i, d);
        bool repeats = d == 0 && period > 0;
        bool fits = own == full[d] || own == 1;
        if (repeats) fits = tti_in_dim(node, i, 0) == period && full[0] % own == 0;
        if (!fits)
            return tti_node_fail(node, "a bias %s does not broadcast to %s",
                                 tti_type_text(&node->in[i]->type, bias, sizeof bias),
                                 tti_type_text(&(tutti_type){TUTTI_F32, wide}, want, sizeof want));
        v->bias_step[d] = own == full[d] || repeats ? step : 0;
        step *= own;
    }
    v->bias_rows = period > 0 ? (size_t)period : TTI_MAX(v->n_batch, (size_t)1);
    v->bias = i;
    return TUTTI_OK;
}

static tutti_status read_segments(const tti_node *node, int i, tti_sdpa *v) {
    tutti_type queries = {TUTTI_I32, TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->n_t)};
    tutti_type keys = {TUTTI_I32, TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->n_s)};
    TTI_TRY(tti_need_type(node, i, &queries));
    TTI_TRY(tti_need_type(node, i + 1, &keys));
    v->segments = i;
    return TUTTI_OK;
}

static tutti_status read_sdpa(const tti_node *node, bool grad, tti_sdpa *v) {
    int64_t with = tti_attr_int(node, "with");
    int n = 3;
    *v = (tti_sdpa){.bias = -1, .segments = -1};
    if (tti_attr_int(node, "bias_period") < 0)
        return tti_node_fail(node, "bias_period must be >= 0");
    if (with < 0 || with > 3)
        return tti_node_fail(node, "with must be 0 .. 3, is %lld", (long long)with);
    int n_in = 3 + (with & TTI_SDPA_BIAS ? 1 : 0) + (with & TTI_SDPA_SEGMENTS ? 2 : 0);
    if (node->n_in != n_in + (grad ? 4 : 0))
        return tti_node_fail(node, "there are %d inputs, but with requires %d", node->n_in,
                             n_in + (grad ? 4 : 0));
    TTI_TRY(read_heads(node, v));
    TTI_TRY(read_scores(node, v));
    if (with & TTI_SDPA_BIAS) TTI_TRY(read_bias(node, n++, v));
    if (with & TTI_SDPA_SEGMENTS) TTI_TRY(read_segments(node, n, v));
    v->saved = grad ? n_in : -1;
    return TUTTI_OK;
}

static bool is_grad(const tti_node *node) { return node->op->n_out == 4; }

tti_sdpa tti_sdpa_of(const tti_node *node) {
    tti_sdpa v;
    TTI_ASSERT(read_sdpa(node, is_grad(node), &v) == TUTTI_OK);
    return v;
}

static tutti_type y_type(const tti_node *node, const tti_sdpa *v) {
    return (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->n_t,
                                                             (int64_t)(v->heads * v->v_dim))};
}

static tutti_type row_type(const tti_node *node, const tti_sdpa *v) {
    bool is_f64 = node->in[0]->type.dtype == TUTTI_F64;
    return (tutti_type){is_f64 ? TUTTI_F64 : TUTTI_F32,
                        TUTTI_SHAPE((int64_t)v->n_batch, (int64_t)v->heads, (int64_t)v->n_t)};
}

static tutti_status sdpa_infer(const tti_node *node, tutti_type *out) {
    tti_sdpa v;
    TTI_TRY(read_sdpa(node, false, &v));
    out[0] = y_type(node, &v);
    out[1] = out[2] = row_type(node, &v);
    return TUTTI_OK;
}

static bool has_grad_bias(const tti_node *node) { return tti_attr_int(node, "grad_bias") != 0; }

static tutti_status sdpa_grad_infer(const tti_node *node, tutti_type *out) {
    tti_sdpa v;
    TTI_TRY(read_sdpa(node, true, &v));
    tutti_type y = y_type(node, &v), rows = row_type(node, &v);
    TTI_TRY(tti_need_type(node, v.saved, &y));
    TTI_TRY(tti_need_type(node, v.saved + 1, &rows));
    TTI_TRY(tti_need_type(node, v.saved + 2, &rows));
    TTI_TRY(tti_need_type(node, v.saved + 3, &y));
    for (int i = 0; i < 3; i++) out[i] = node->in[i]->type;
    out[3] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(0)};
    if (has_grad_bias(node) && v.bias < 0)
        return tti_node_fail(node, "there is no bias that could have a gradient");
    if (has_grad_bias(node)) out[3] = node->in[v.bias]->type;
    return TUTTI_OK;
}

/* ---- reference ---- */

/* One query of one head, and its weights before the drop: [n_s] each. */
typedef struct row {
    size_t b, h, t, kv;
    const double *q;
    double *p, *slope; /* weight; slope of the score by the product */
    double max, log_sum;
} row;

static const double *key_of(const tti_args *a, const tti_sdpa *v, const row *r, size_t j) {
    return a->in[1] + ((r->b * v->n_s + j) * v->kv_heads + r->kv) * v->dim;
}
static const double *value_of(const tti_args *a, const tti_sdpa *v, const row *r, size_t j) {
    return a->in[2] + ((r->b * v->n_s + j) * v->kv_heads + r->kv) * v->v_dim;
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static bool sees(const tti_args *a, const tti_sdpa *v, const row *r, size_t j) {
    size_t first, end;
    tti_sdpa_range(v, r->t, &first, &end);
    if (j < first || j >= end) return false;
    if (v->segments < 0) return true;
    return a->in[v->segments][r->b * v->n_t + r->t] == a->in[v->segments + 1][r->b * v->n_s + j];
}

static size_t bias_at(const tti_sdpa *v, const row *r, size_t j) {
    return tti_sdpa_bias_at(v, r->b, r->h, r->t) + j * v->bias_step[3];
}

/* The weights of a row, with the maximum and logarithm that the gradient is given.  A maximum in
 * f32 is rounded, and the logarithm is that of the sum less the rounded one. */
static void weigh(const tti_args *a, const tti_sdpa *v, row *r) {
    double max = -INFINITY, sum = 0;
    size_t at = (r->b * v->heads + r->h) * v->n_t + r->t;
    r->q = a->in[0] + ((r->b * v->n_t + r->t) * v->heads + r->h) * v->dim;
    r->kv = r->h / (v->heads / v->kv_heads);
    for (size_t j = 0; j < v->n_s; j++) {
        r->p[j] = -INFINITY, r->slope[j] = v->scale;
        if (!sees(a, v, r, j)) continue;
        double s = v->scale * dot(r->q, key_of(a, v, r, j), v->dim);
        if (v->softcap > 0) {
            double turned = tanh(s / v->softcap);
            s = v->softcap * turned;
            r->slope[j] *= 1 - turned * turned;
        }
        double bias = v->bias >= 0 ? a->in[v->bias][bias_at(v, r, j)] : 0;
        r->p[j] = s + bias;
        if (tti_sdpa_is_replaced(v->replaces, (float)bias)) r->p[j] = bias, r->slope[j] = 0;
        max = fmax(max, r->p[j]);
    }
    if (max == -INFINITY) max = 0; /* no key, or NaN after all of them */
    for (size_t j = 0; j < v->n_s; j++) sum += r->p[j] == -INFINITY ? 0 : exp(r->p[j] - max);
    r->max = r->log_sum = 0;
    if (sum != 0) {
        r->max = a->node->in[0]->type.dtype == TUTTI_F64 ? max : (double)(float)max;
        r->log_sum = max - r->max + log(sum);
    }
    if (v->saved >= 0) r->max = a->in[v->saved + 1][at], r->log_sum = a->in[v->saved + 2][at];
    for (size_t j = 0; j < v->n_s; j++)
        r->p[j] = r->p[j] == -INFINITY ? 0 : exp(r->p[j] - r->max - r->log_sum);
}

/* The factor of weight j: 0 of a dropped one, else 1 / (1 - p). */
static double kept(const tti_args *a, const tti_sdpa *v, const row *r, size_t j) {
    if (v->p == 0) return 1;
    uint64_t e = tti_sdpa_weight(v, r->h, r->t) + j, sample = a->run->sample0 + r->b;
    uint64_t key = tti_mix64(a->run->seed, v->key);
    tti_philox x = tti_philox_draw(key, a->run->step, (sample << SAMPLE_BITS) + e / 4);
    return tti_philox_unit(x.v[e % 4]) >= (float)v->p ? 1 / (1 - v->p) : 0;
}

static void attend(const tti_args *a, const tti_sdpa *v, row *r) {
    double *y = a->out[0] + ((r->b * v->n_t + r->t) * v->heads + r->h) * v->v_dim;
    weigh(a, v, r);
    memset(y, 0, v->v_dim * sizeof *y);
    for (size_t j = 0; j < v->n_s; j++) {
        if (!sees(a, v, r, j)) continue;
        double p = r->p[j] * kept(a, v, r, j);
        for (size_t i = 0; i < v->v_dim; i++) y[i] += p * value_of(a, v, r, j)[i];
    }
    size_t at = (r->b * v->heads + r->h) * v->n_t + r->t;
    a->out[1][at] = r->max, a->out[2][at] = r->log_sum;
}

/* With m the factors of dropout: dv = (p m)^T dy, ds = p (m dy v^T - sum dy y), through the cap and
 * the scale: dq = ds k, dk = ds^T q. */
static void attend_grad(const tti_args *a, const tti_sdpa *v, row *r) {
    size_t at = ((r->b * v->n_t + r->t) * v->heads + r->h) * v->v_dim;
    const double *dy = a->in[v->saved + 3] + at, *y = a->in[v->saved] + at;
    weigh(a, v, r);
    double *dq = a->out[0] + (r->q - a->in[0]), mean = dot(dy, y, v->v_dim);
    for (size_t j = 0; j < v->n_s; j++) {
        if (!sees(a, v, r, j)) continue;
        const double *k = key_of(a, v, r, j), *values = value_of(a, v, r, j);
        double *dk = a->out[1] + (k - a->in[1]), *dv = a->out[2] + (values - a->in[2]);
        double m = kept(a, v, r, j);
        double ds = r->p[j] * (m * dot(dy, values, v->v_dim) - mean), product = ds * r->slope[j];
        for (size_t i = 0; i < v->v_dim; i++) dv[i] += r->p[j] * m * dy[i];
        for (size_t i = 0; i < v->dim; i++) {
            dq[i] += product * k[i];
            dk[i] += product * r->q[i];
        }
        if (has_grad_bias(a->node)) a->out[3][bias_at(v, r, j)] += ds;
    }
}

static void each_row(const tti_args *a, void (*fn)(const tti_args *, const tti_sdpa *, row *)) {
    tti_sdpa v = tti_sdpa_of(a->node);
    double *memory = malloc((2 * v.n_s + 1) * sizeof *memory);
    TTI_ASSERT(memory);
    row r = {.p = memory, .slope = memory + v.n_s};
    for (r.b = 0; r.b < v.n_batch; r.b++)
        for (r.h = 0; r.h < v.heads; r.h++)
            for (r.t = 0; r.t < v.n_t; r.t++) fn(a, &v, &r);
    free(memory);
}

static void sdpa_reference(const tti_args *a) { each_row(a, attend); }

static void sdpa_grad_reference(const tti_args *a) {
    for (int k = 0; k < 4; k++) memset(a->out[k], 0, tti_out_n(a->node, k) * sizeof(double));
    each_row(a, attend_grad);
}

/* ---- gradient ---- */

static tutti_status sdpa_gradient(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                  const bool *need, tutti_value **dx) {
    tti_sdpa v = tti_sdpa_of(node);
    bool bias = v.bias >= 0 && need[v.bias];
    if (!dy[0] || !(need[0] || need[1] || need[2] || bias)) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "heads"),    tti_same_attr(node, "kv_heads"),
                            tti_same_attr(node, "causal"),   tti_same_attr(node, "window"),
                            tti_same_attr(node, "scale"),    tti_same_attr(node, "softcap"),
                            tti_same_attr(node, "p"),        tti_same_attr(node, "key"),
                            tti_same_attr(node, "with"),     tti_same_attr(node, "bias_period"),
                            tti_same_attr(node, "replaces"), tti_same_attr(node, "first_head"),
                            TTI_INT("grad_bias", bias),      {0}};
    tutti_value *in[10], *out[TTI_MAX_OUT];
    int n = node->n_in;
    for (int i = 0; i < n; i++) in[i] = node->in[i];
    for (int k = 0; k < 3; k++) in[n++] = node->out[k];
    in[n++] = dy[0];
    tti_emit_n(g, "sdpa_grad", node->name, in, n, attrs, out);
    for (int i = 0; i < 3; i++)
        if (need[i]) dx[i] = out[i];
    if (bias) dx[v.bias] = out[3];
    return tutti_graph_check(g);
}

/* ---- shard, cut, cost ---- */

/* Samples: all inputs alike, but a bias that repeats over the samples is whole, and its gradient
 * then a term. */
static tutti_status sdpa_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule alike[] = {{"0000000000", "0000"}};
    static const tti_shard_rule shared[] = {{"000W000000", "000P"}};
    tti_sdpa v = tti_sdpa_of(node);
    bool one_bias = v.bias >= 0 && tti_in_dim(node, v.bias, 0) == 1 && in[v.bias].kind == TTI_WHOLE;
    bool repeats = one_bias || tti_attr_int(node, "bias_period") > 0;
    return tti_shard_match(node, repeats ? shared : alike, 1, in, out,
                           "only samples can be split, all inputs alike");
}

/* Heads are independent: a worker may have some of the query heads with their key heads. */
static bool sdpa_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    tti_sdpa v = tti_sdpa_of(node);
    if (v.heads % (size_t)n || v.kv_heads % (size_t)n) return false;
    for (int i = 0; i < 3; i++)
        if (!tti_is_cut(in[i], 2)) return false;
    bool by_head = v.bias >= 0 && v.heads > 1 && tti_in_dim(node, v.bias, 1) > 1;
    for (int i = 3; i < node->n_in; i++) {
        bool own = i == v.bias && by_head;
        if (own ? !tti_is_cut(in[i], 1) : in[i].kind != TTI_WHOLE) return false;
    }
    out[0] = (tti_cut){TTI_SPLIT, 2, 1};
    out[1] = out[2] = (tti_cut){TTI_SPLIT, 1, 1};
    return true;
}

static void sdpa_emit_cut(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                          const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    tti_sdpa v = tti_sdpa_of(node);
    int64_t heads = (int64_t)v.heads / axis->n;
    (void)cut;
    tti_emit_n(g, "sdpa", node->name, in, node->n_in,
               (tti_attr_arg[]){TTI_INT("heads", heads),
                                TTI_INT("kv_heads", (int64_t)v.kv_heads / axis->n),
                                tti_same_attr(node, "causal"),
                                tti_same_attr(node, "window"),
                                tti_same_attr(node, "scale"),
                                tti_same_attr(node, "softcap"),
                                tti_same_attr(node, "with"),
                                tti_same_attr(node, "bias_period"),
                                tti_same_attr(node, "replaces"),
                                tti_same_attr(node, "p"),
                                tti_same_attr(node, "key"),
                                TTI_INT("first_head", (int64_t)v.first_head + axis->index * heads),
                                {0}},
               out);
}

/* Products with keys and with values; the gradient has five for two. */
static void sdpa_cost(const tti_node *node, tti_cost *cost) {
    tti_sdpa v = tti_sdpa_of(node);
    double seen = (double)v.n_s, most = v.causal ? (double)v.window : 2 * (double)v.window;
    if (v.causal) seen /= 2;
    if (v.window > 0) seen = fmin(seen, most);
    double pairs = (double)v.n_batch * (double)v.heads * (double)v.n_t * seen;
    tti_cost_flops(node, (is_grad(node) ? 5.0 : 2.0) * pairs * (double)(v.dim + v.v_dim), cost);
}

/* ---- builder ---- */

tutti_value *tutti_sdpa(tutti_graph *g, tutti_value *q, tutti_value *k, tutti_value *v,
                        const tutti_sdpa_desc *desc) {
    static const tutti_sdpa_desc usual = {0};
    if (!desc) desc = &usual;
    tutti_value *in[6] = {q, k, v};
    int n = 3;
    bool segments = desc->query_segments != NULL, drops = desc->dropout != 0;
    if (!g) return NULL;
    if (segments != (desc->key_segments != NULL))
        return tti_build_fail(g, "sdpa: query_segments and key_segments go together");
    if (drops && !tti_can_build(g, "sdpa", q, desc->name)) return NULL;
    if (!tutti_graph_is_training(g)) drops = false;
    if (desc->bias) in[n++] = desc->bias;
    if (segments) in[n++] = desc->query_segments, in[n++] = desc->key_segments;
    int64_t with = (desc->bias ? TTI_SDPA_BIAS : 0) | (segments ? TTI_SDPA_SEGMENTS : 0);
    uint64_t key = drops ? tti_hash_name(desc->name) : 0;
    return tti_emit(g, "sdpa", drops ? desc->name : NULL, in, n,
                    (tti_attr_arg[]){TTI_INT("heads", desc->heads ? desc->heads : 1),
                                     TTI_INT("kv_heads", desc->kv_heads),
                                     TTI_INT("causal", desc->causal),
                                     TTI_INT("window", desc->window),
                                     TTI_FLOAT("scale", desc->scale),
                                     TTI_FLOAT("softcap", desc->softcap),
                                     TTI_FLOAT("p", drops ? desc->dropout : 0),
                                     TTI_INT("key", (int64_t)key),
                                     TTI_INT("with", with),
                                     TTI_INT("bias_period", desc->bias_period),
                                     {0}});
}

/* ---- records ---- */

static const tti_sample sdpa_samples[] = {
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,6]", .attrs = "heads=2"},
    {.in = "f32[2,4,12] f32[2,4,6] f32[2,4,4]", .attrs = "heads=4 kv_heads=2 causal=1"},
    {.in = "f32[2,5,4] f32[2,5,4] f32[2,5,4] f32[1,2,5,5]",
     .attrs = "heads=2 with=1 window=2",
     .lo = -2,
     .hi = 2},
    {.in = "f32[2,5,4] f32[2,7,4] f32[2,7,4] f32[2,1,1,7]", .attrs = "heads=2 with=1 softcap=1.5"},
    {.in = "f32[6,5,4] f32[6,3,4] f32[6,3,4] f32[3,2,1,3]",
     .attrs = "heads=2 with=1 bias_period=3"},
    {.in = "f32[4,3,6] f32[4,4,6] f32[4,4,6] i32[4,3] i32[4,4]",
     .attrs = "heads=2 with=2 scale=0.7",
     .int_hi = 2}, /* some queries see no key */
    {.in = "f32[2,6,4] f32[2,6,4] f32[2,6,4] f32[1,1,6,6] i32[2,6] i32[2,6]",
     .attrs = "with=3 causal=1 window=3 softcap=2 p=0.4 key=7",
     .int_hi = 1},
    {.in = "f32[2,3,4] f32[2,4,4] f32[2,4,4]", .attrs = "heads=2 p=0.5 key=3"},
    {.in = "f32[2,3,4] f32[2,4,4] f32[2,4,4]", .attrs = "heads=2 p=0.5 key=3 first_head=2"},
    {.in = "f32[2,5,16] f32[2,6,16] f32[2,6,16] f32[1,2,5,6] i32[2,5] i32[2,6]",
     .attrs = "heads=2 with=3 p=0.3 key=4",
     .int_hi = 1}, /* widths for tensor cores */
    /* A finite bias hides all keys of each query.  A small scale, since f32 loses the products. */
    {.in = "f32[2,5,4] f32[2,6,4] f32[2,6,4] f32[2,2,5,6]",
     .attrs = "heads=2 with=1 scale=1e-7",
     .shift = -0x1.1p20,
     .shifted = 1 << 3},
    {.in = "f32[2,5,8] f32[2,6,4] f32[2,6,4] f32[1,1,1,6] i32[2,5] i32[2,6]",
     .attrs = "heads=4 kv_heads=2 with=3 causal=1 window=3 softcap=2 p=0.3 key=5 scale=1e-7",
     .int_hi = 1,
     .shift = -0x1.1p20,
     .shifted = 1 << 3},
    /* ... and replaces the scores. */
    {.in = "f32[2,5,8] f32[2,6,4] f32[2,6,4] f32[2,1,1,6] i32[2,5] i32[2,6]",
     .attrs = "heads=4 kv_heads=2 with=3 causal=1 window=3 softcap=2 p=0.3 key=5 replaces=1",
     .int_hi = 1,
     .shift = -0x1p29,
     .shifted = 1 << 3},
    {.in = "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[1,2,5,6]",
     .attrs = "heads=2 with=1 replaces=1",
     .shift = -0x1p29,
     .shifted = 1 << 3},
    {.in = "f64[1,1,3] f64[1,1,3] f64[1,1,3]"},
    {.in = "bf16[2,3,4] bf16[2,3,4] bf16[2,3,4] bf16[2,2,3,3]", .attrs = "heads=2 with=1"},
    {.in = "f32[2,3,4] f32[2,0,4] f32[2,0,4]"},
    {.in = "f32[0,3,4] f32[0,2,4] f32[0,2,4]", .attrs = "heads=2"},
    {.in = "f32[2,3,4] f32[2,5,6] f32[2,5,4]", .attrs = "heads=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,4,4]", .attrs = "heads=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[4,5,4] f32[4,5,4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4]", .attrs = "with=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[6,5,4] f32[6,3,4] f32[6,3,4] f32[3,2,1,3]",
     .attrs = "heads=2 with=1",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[6,5,4] f32[6,3,4] f32[6,3,4] f32[4,2,1,3]",
     .attrs = "heads=2 with=1 bias_period=4",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4] f32[1,1,2,5]",
     .attrs = "with=1",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4] i32[2,5] i32[2,5]",
     .attrs = "with=2",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4]", .attrs = "p=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4]", .attrs = "window=-1", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4]", .attrs = "softcap=-1", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4]", .attrs = "replaces=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample sdpa_grad_samples[] = {
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,6] f32[2,3,6] f32[2,2,3] f32[2,2,3] f32[2,3,6]",
     .attrs = "heads=2"},
    {.in = "f32[2,4,8] f32[2,4,4] f32[2,4,4] f32[1,4,4,4] f32[2,4,8] f32[2,4,4] f32[2,4,4] "
           "f32[2,4,8]",
     .attrs = "heads=4 kv_heads=2 with=1 grad_bias=1 softcap=2 causal=1"},
    {.in = "f32[2,5,4] f32[2,5,4] f32[2,5,4] f32[2,1,1,5] i32[2,5] i32[2,5] f32[2,5,4] f32[2,2,5] "
           "f32[2,2,5] f32[2,5,4]",
     .attrs = "heads=2 with=3 grad_bias=1 window=3 p=0.3 key=5",
     .int_hi = 1},
    {.in = "f32[4,3,4] f32[4,3,4] f32[4,3,4] f32[2,2,3,3] f32[4,3,4] f32[4,2,3] f32[4,2,3] "
           "f32[4,3,4]",
     .attrs = "heads=2 with=1 bias_period=2 grad_bias=1"},
    {.in = "f32[2,5,16] f32[2,6,16] f32[2,6,16] f32[1,2,5,6] i32[2,5] i32[2,6] f32[2,5,16] "
           "f32[2,2,5] f32[2,2,5] f32[2,5,16]",
     .attrs = "heads=2 with=3 p=0.3 key=4 grad_bias=1",
     .int_hi = 1},
    /* A finite bias hides all keys of each query. */
    {.in = "f32[2,5,4] f32[2,6,4] f32[2,6,4] f32[2,2,5,6] f32[2,5,4] f32[2,2,5] f32[2,2,5] "
           "f32[2,5,4]",
     .attrs = "heads=2 with=1 grad_bias=1 scale=1e-7",
     .shift = -0x1.1p20,
     .shifted = 1 << 3 | 1 << 5},
    {.in = "f32[2,5,8] f32[2,6,4] f32[2,6,4] f32[1,1,1,6] i32[2,5] i32[2,6] f32[2,5,8] f32[2,4,5] "
           "f32[2,4,5] f32[2,5,8]",
     .attrs = "heads=4 kv_heads=2 with=3 causal=1 window=3 softcap=2 p=0.3 key=5 grad_bias=1 "
              "scale=1e-7",
     .int_hi = 1,
     .shift = -0x1.1p20,
     .shifted = 1 << 3 | 1 << 7},
    {.in = "f32[2,5,4] f32[2,6,4] f32[2,6,4] f32[2,1,1,6] f32[2,5,4] f32[2,2,5] f32[2,2,5] "
           "f32[2,5,4]",
     .attrs = "heads=2 with=1 replaces=1 grad_bias=1 p=0.3 key=5",
     .shift = -0x1p29,
     .shifted = 1 << 3 | 1 << 5},
    {.in = "f32[0,3,4] f32[0,5,4] f32[0,5,4] f32[0,3,4] f32[0,2,3] f32[0,2,3] f32[0,3,4]",
     .attrs = "heads=2"},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4] f32[2,3,4] f32[2,1,3] f32[2,1,3] f32[2,3,4]",
     .attrs = "grad_bias=1",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4] f32[2,5,4] f32[2,5,4] f32[2,3,4] f32[2,1,3] f32[2,3,1] f32[2,3,4]",
     .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_sdpa[] = {
    {.name = "sdpa",
     .doc = "y = softmax(s) v by heads with s = cap(scale q k^T) + bias, and per query max(s) and "
            "log(sum(exp(s - max(s)))); inputs q[B,T,H D], "
            "k[B,S,KV D], v[B,S,KV E], bias[1|B|P,1|H,1|T,1|S]?, i32 segments[B,T]? and [B,S]?",
     .n_in_min = 3,
     .n_in_max = 6,
     .n_out = 3,
     .saved_out = 6,
     .attrs = sdpa_attrs,
     .traits = TTI_COMPUTE | TTI_RANDOM,
     .infer = sdpa_infer,
     .grad = sdpa_gradient,
     .shard = sdpa_shard,
     .cut = sdpa_cut,
     .emit_cut = sdpa_emit_cut,
     .cost = sdpa_cost,
     .reference = sdpa_reference,
     .samples = sdpa_samples},
    {.name = "sdpa_grad",
     .doc = "dq, dk, dv, dbias of sdpa; inputs those of sdpa, its outputs, dy",
     .n_in_min = 7,
     .n_in_max = 10,
     .n_out = 4,
     .attrs = sdpa_attrs,
     .traits = TTI_RANDOM,
     .infer = sdpa_grad_infer,
     .shard = sdpa_shard,
     .cost = sdpa_cost,
     .reference = sdpa_grad_reference,
     .samples = sdpa_grad_samples},
    {0},
};
