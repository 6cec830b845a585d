/* onnx_layers.c - attention and recurrent layers in ONNX.
 *
 * Operator set 17 has no attention, so it is written as matrix products with its T x T weights.
 * Its LSTM and GRU have other orders of axes and gates than Tutti's, so nodes slice and join the
 * weights.  Runtimes evaluate these nodes once when they load the file. */
#include <math.h>
#include <stdlib.h>

#include "ops/sequence/sdpa.h"
#include "train/export/onnx_emit.h"

#define IN(i) tti_onnx_in(e, node, (i))
#define OP(op, ...) TTI_ONNX_OP(e, op, NULL, __VA_ARGS__)
#define TRANSPOSE(x, ...) \
    tti_onnx_transpose(e, (x), (int)TTI_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})
#define RESHAPE(x, ...) \
    tti_onnx_reshape(e, (x), (int)TTI_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

/* Added to masked scores.  Its exponential is 0, and unlike -inf it cannot produce NaN. */
static const double hidden = -1e9;

/* ---- attention ---- */

/* Adds the n_t x n_t mask: a constant for the longest sequence, sliced to the actual length. */
static tutti_status causal_mask(tti_onnx_emit *e, int64_t n_t, const char **out) {
    if (e->twin) n_t = e->most_t;
    if (!e->causal) {
        float *mask = malloc((size_t)(n_t * n_t) * sizeof *mask + 1);
        if (!mask) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
        for (int64_t i = 0; i < n_t * n_t; i++) mask[i] = i % n_t > i / n_t ? (float)hidden : 0;
        e->causal = tti_onnx_floats(e, &TUTTI_SHAPE(n_t, n_t), mask);
        free(mask);
        static const int64_t zeros[2] = {0, 0}, axes[2] = {0, 1};
        tti_onnx_attr attrs[] = {TTI_ONNX_I("axis", 0), {0}};
        if (e->twin)
            e->causal = OP("Slice", e->causal, tti_onnx_list(e, 2, zeros),
                           TTI_ONNX_OP(e, "Concat", attrs, e->length, e->length),
                           tti_onnx_list(e, 2, axes));
    }
    *out = e->causal;
    return TUTTI_OK;
}

/* Adds [N,1,1,1,T]: 1 for keys before the sample's length in lengths[N], else 0. */
static const char *length_mask(tti_onnx_emit *e, const char *lengths, int64_t n_t) {
    tti_onnx_attr to_i64[] = {TTI_ONNX_I("to", tti_onnx_dtype(TUTTI_I64)), {0}};
    tti_onnx_attr to_f32[] = {TTI_ONNX_I("to", tti_onnx_dtype(TUTTI_F32)), {0}};
    int64_t zero = 0, one = 1;
    const char *first = RESHAPE(tti_onnx_list(e, 1, &zero), 1), *number[3];
    number[0] = OP("Squeeze", first);
    number[1] = OP("Squeeze", e->twin ? e->length : tti_onnx_list(e, 1, &n_t));
    number[2] = OP("Squeeze", tti_onnx_list(e, 1, &one));
    const char *keys = OP("Range", number[0], number[1], number[2]);
    const char *ends = RESHAPE(TTI_ONNX_OP(e, "Cast", to_i64, lengths), -1, 1, 1, 1, 1);
    return TTI_ONNX_OP(e, "Cast", to_f32, OP("Less", keys, ends));
}

tutti_status tti_onnx_attention(tti_onnx_emit *e, const tti_node *node, const char **out) {
    const int64_t *in = node->in[0]->type.shape.dim;
    int64_t heads = tti_attr_int(node, "heads"), kv = tti_attr_int(node, "kv_heads");
    if (kv == 0) kv = heads;
    int64_t n_t = in[1], dim = in[2] / (heads + 2 * kv), group = heads / kv;
    double scale = tti_attr_float(node, "scale");
    const char *part[3], *mask = NULL;
    tti_onnx_split(e, IN(0), -1, 3, (int64_t[]){heads * dim, kv * dim, kv * dim}, part);
    const char *q = TRANSPOSE(RESHAPE(part[0], 0, 0, kv, group, dim), 0, 2, 3, 1, 4);
    const char *k = TRANSPOSE(RESHAPE(part[1], 0, 0, kv, 1, dim), 0, 2, 3, 4, 1);
    const char *v = TRANSPOSE(RESHAPE(part[2], 0, 0, kv, 1, dim), 0, 2, 3, 1, 4);
    q = OP("Mul", q, tti_onnx_number(e, scale > 0 ? scale : 1 / sqrt((double)dim)));
    const char *scores = OP("MatMul", q, k); /* [N,kv,group,T,T] */
    if (tti_attr_int(node, "causal")) {
        const char *causal;
        TTI_TRY(causal_mask(e, n_t, &causal));
        scores = OP("Add", scores, causal);
    }
    if (node->n_in > 1) {
        mask = length_mask(e, IN(1), n_t);
        const char *away = OP("Sub", tti_onnx_number(e, 1), mask);
        scores = OP("Add", scores, OP("Mul", away, tti_onnx_number(e, hidden)));
    }
    const char *weights =
        TTI_ONNX_OP(e, "Softmax", ((tti_onnx_attr[]){TTI_ONNX_I("axis", -1), {0}}), scores);
    if (mask) weights = OP("Mul", weights, mask);
    const char *y = TRANSPOSE(OP("MatMul", weights, v), 0, 3, 1, 2, 4);
    *out = RESHAPE(y, 0, 0, heads * dim);
    return TUTTI_OK;
}

/* Adds the positional mask [T,S]: 0, or `hidden` for keys that a query must not see. */
static const char *place_mask(tti_onnx_emit *e, const tti_sdpa *v) {
    float *mask = malloc(v->n_t * v->n_s * sizeof *mask + 1);
    if (!mask) return NULL;
    for (size_t t = 0; t < v->n_t; t++) {
        size_t first, end;
        tti_sdpa_range(v, t, &first, &end);
        for (size_t j = 0; j < v->n_s; j++)
            mask[t * v->n_s + j] = j < first || j >= end ? (float)hidden : 0;
    }
    const char *made = tti_onnx_floats(e, &TUTTI_SHAPE((int64_t)v->n_t, (int64_t)v->n_s), mask);
    free(mask);
    return made;
}

/* Adds the bias to scores[B,KV,H/KV,T,S]. repeats: row b of the scores uses row b % P of the bias,
 * for any number of samples. */
static const char *with_bias(tti_onnx_emit *e, const char *bias, const int64_t *dim,
                             const tti_sdpa *v, bool repeats, const char *scores) {
    int64_t kv = (int64_t)v->kv_heads, group = (int64_t)(v->heads / v->kv_heads);
    int64_t own_kv = dim[1] > 1 ? kv : 1, own_group = dim[1] > 1 ? group : 1;
    if (!repeats) return OP("Add", scores, RESHAPE(bias, 0, own_kv, own_group, dim[2], dim[3]));
    int64_t n_t = (int64_t)v->n_t, n_s = (int64_t)v->n_s;
    scores = RESHAPE(scores, -1, dim[0], kv, group, n_t, n_s);
    scores = OP("Add", scores, RESHAPE(bias, 1, dim[0], own_kv, own_group, dim[2], dim[3]));
    return RESHAPE(scores, -1, kv, group, n_t, n_s);
}

/* Adds [N,1,1,T,S]: 1 if a key has the segment of the query, else 0. */
static const char *segment_mask(tti_onnx_emit *e, const tti_node *node, const tti_sdpa *v) {
    tti_onnx_attr to_f32[] = {TTI_ONNX_I("to", tti_onnx_dtype(TUTTI_F32)), {0}};
    const char *queries = RESHAPE(IN(v->segments), 0, 1, 1, (int64_t)v->n_t, 1);
    const char *keys = RESHAPE(IN(v->segments + 1), 0, 1, 1, 1, (int64_t)v->n_s);
    return TTI_ONNX_OP(e, "Cast", to_f32, OP("Equal", queries, keys));
}

tutti_status tti_onnx_sdpa(tti_onnx_emit *e, const tti_node *node, const char **out) {
    tti_sdpa v = tti_sdpa_of(node);
    int64_t kv = (int64_t)v.kv_heads, group = (int64_t)(v.heads / v.kv_heads);
    int64_t dim = (int64_t)v.dim, width = (int64_t)v.v_dim;
    const char *q = TRANSPOSE(RESHAPE(IN(0), 0, 0, kv, group, dim), 0, 2, 3, 1, 4);
    const char *k = TRANSPOSE(RESHAPE(IN(1), 0, 0, kv, 1, dim), 0, 2, 3, 4, 1);
    const char *values = TRANSPOSE(RESHAPE(IN(2), 0, 0, kv, 1, width), 0, 2, 3, 1, 4);
    const char *scores = OP("MatMul", OP("Mul", q, tti_onnx_number(e, v.scale)), k);
    if (v.softcap > 0) {
        const char *cap = tti_onnx_number(e, v.softcap);
        scores = OP("Mul", OP("Tanh", OP("Div", scores, cap)), cap);
    }
    if (v.bias >= 0) {
        const int64_t *d = node->in[v.bias]->type.shape.dim;
        scores = with_bias(e, IN(v.bias), d, &v, tti_attr_int(node, "bias_period") > 0, scores);
    }
    if (v.causal || v.window > 0) {
        if (e->twin)
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "export: format onnx does not have causal or windowed attention over "
                            "sequences of any length");
        const char *mask = place_mask(e, &v);
        if (!mask) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
        scores = OP("Add", scores, mask);
    }
    const char *mask = v.segments >= 0 ? segment_mask(e, node, &v) : NULL;
    if (mask) {
        const char *away = OP("Sub", tti_onnx_number(e, 1), mask);
        scores = OP("Add", scores, OP("Mul", away, tti_onnx_number(e, hidden)));
    }
    const char *weights =
        TTI_ONNX_OP(e, "Softmax", ((tti_onnx_attr[]){TTI_ONNX_I("axis", -1), {0}}), scores);
    if (mask) weights = OP("Mul", weights, mask);
    const char *y = TRANSPOSE(OP("MatMul", weights, values), 0, 3, 1, 2, 4);
    *out = RESHAPE(y, 0, 0, (int64_t)v.heads * width);
    return TUTTI_OK;
}

/* Gathers the matrix of each row, then multiplies each row by its matrix. */
tutti_status tti_onnx_grouped(tti_onnx_emit *e, const tti_node *node, const char **out) {
    int64_t k = node->in[0]->type.shape.dim[1], n = node->out[0]->type.shape.dim[1];
    const char *w = IN(1), *x = RESHAPE(IN(0), -1, 1, k);
    if (tti_attr_int(node, "trans_b")) w = TRANSPOSE(w, 0, 2, 1);
    w = TTI_ONNX_OP(e, "Gather", ((tti_onnx_attr[]){TTI_ONNX_I("axis", 0), {0}}), w, IN(2));
    *out = RESHAPE(OP("MatMul", x, w), -1, n);
    return TUTTI_OK;
}

/* ---- recurrent layers ---- */

/* Reorders the n gates of w[n H,..]. */
static const char *reorder(tti_onnx_emit *e, const char *w, int n, int64_t h, const int *order) {
    const char *gate[4], *in[5] = {NULL};
    int64_t sizes[4] = {h, h, h, h};
    tti_onnx_split(e, w, 0, n, sizes, gate);
    for (int i = 0; i < n; i++) in[i] = gate[order[i]];
    return tti_onnx_op(e, "Concat", in, (tti_onnx_attr[]){TTI_ONNX_I("axis", 0), {0}});
}

typedef struct recurrent {
    const char *op;
    int n_gates;
    const int *order; /* ONNX's gate i is Tutti's gate order[i] */
    int n_states;
} recurrent;

static tutti_status layer(tti_onnx_emit *e, const tti_node *node, const recurrent *r,
                          const char **out) {
    int64_t h = node->in[2]->type.shape.dim[1], in = node->in[1]->type.shape.dim[1];
    int64_t rows = r->n_gates * h;
    tti_onnx_attr attrs[3] = {TTI_ONNX_I("hidden_size", h)};
    if (r->n_gates == 3) attrs[1] = TTI_ONNX_I("linear_before_reset", 1);
    const char *bias[2], *inputs[8] = {NULL};
    for (int i = 0; i < 2; i++) bias[i] = reorder(e, IN(3 + i), r->n_gates, h, r->order);
    inputs[0] = TRANSPOSE(IN(0), 1, 0, 2);
    inputs[1] = RESHAPE(reorder(e, IN(1), r->n_gates, h, r->order), 1, rows, in);
    inputs[2] = RESHAPE(reorder(e, IN(2), r->n_gates, h, r->order), 1, rows, h);
    const char *both =
        TTI_ONNX_OP(e, "Concat", ((tti_onnx_attr[]){TTI_ONNX_I("axis", 0), {0}}), bias[0], bias[1]);
    inputs[3] = RESHAPE(both, 1, 2 * rows);
    for (int i = 0; i < r->n_states && node->n_in > 5; i++) {
        inputs[4] = ""; /* no sequence lengths: all sequences have full length */
        inputs[5 + i] = RESHAPE(IN(5 + i), 1, -1, h);
    }
    const char *y = tti_onnx_op(e, r->op, inputs, attrs); /* [T,1,N,H] */
    *out = RESHAPE(TRANSPOSE(y, 2, 0, 1, 3), 0, 0, h);
    return TUTTI_OK;
}

tutti_status tti_onnx_lstm(tti_onnx_emit *e, const tti_node *node, const char **out) {
    static const int order[] = {0, 3, 1, 2}; /* i, o, f, g of i, f, g, o */
    return layer(e, node, &(recurrent){"LSTM", 4, order, 2}, out);
}

tutti_status tti_onnx_gru(tti_onnx_emit *e, const tti_node *node, const char **out) {
    static const int order[] = {1, 0, 2}; /* z, r, n of r, z, n */
    return layer(e, node, &(recurrent){"GRU", 3, order, 1}, out);
}
