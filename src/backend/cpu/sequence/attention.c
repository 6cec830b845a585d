/* attention.c - attention and its gradient in tiles; f32.  Never a T x T matrix: scratch is T x D.
 *
 * A tile is QUERIES rows of weights by KEYS columns; softmax continues from tile to tile (Milakov &
 * Gimelshein 2018), and the gradient recomputes the weights from lse (Dao et al. 2022).  Keys that
 * no row of a tile sees are skipped.  The product (tile_product.c) reads its left side with any
 * strides and its right side with whole vectors in rows, so only keys and values are ever
 * rearranged, once for each head.  Each sum runs over its index in order: the bits are those of any
 * instruction set. */
#include "backend/cpu/sequence/tiles.h"
#include "backend/cpu/vmath.h"

enum { QUERIES = 32, KEYS = 128 };

/* ---- sizes ---- */

typedef struct heads_view {
    size_t n_batch, n_t, heads, kv_heads, dim;
    size_t width;      /* of a position of qkv: (heads + 2 kv_heads) dim */
    size_t wide, tall; /* dim and n_t in whole vectors */
    bool causal;
    float scale;
} heads_view;

static heads_view heads_of(const tti_node *node) {
    const int64_t *dim = node->in[0]->type.shape.dim;
    heads_view v = {.n_batch = (size_t)dim[0], .n_t = (size_t)dim[1], .width = (size_t)dim[2]};
    double scale = tti_attr_float(node, "scale");
    v.heads = (size_t)tti_attr_int(node, "heads");
    v.kv_heads = (size_t)tti_attr_int(node, "kv_heads");
    if (v.kv_heads == 0) v.kv_heads = v.heads;
    v.dim = v.width / (v.heads + 2 * v.kv_heads);
    v.wide = padded(v.dim), v.tall = padded(v.n_t);
    v.causal = tti_attr_has(node, "causal") && tti_attr_int(node, "causal") != 0;
    v.scale = (float)(scale != 0 ? scale : 1 / __builtin_sqrt((double)v.dim));
    return v;
}

/* qkv, lengths? -> y; or qkv, lengths?, y, lse, dy -> dqkv. */
static bool has_lengths(const tti_node *node) { return node->n_in == 2 || node->n_in == 5; }

static bool can_run(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        tutti_dtype want = i == 1 && has_lengths(node) ? TUTTI_I32 : TUTTI_F32;
        if (node->in[i]->type.dtype != want) return false;
    }
    return node->out[0]->type.dtype == TUTTI_F32;
}

/* Keys of sample b that count. */
static size_t n_keys_of(const tti_kargs *a, const heads_view *v, size_t b) {
    if (!has_lengths(a->node)) return v->n_t;
    int32_t n = ((const int32_t *)a->in[1])[b];
    return n <= 0 ? 0 : TTI_MIN((size_t)n, v->n_t);
}

/* Keys of a tile from first on that query t sees. */
static size_t n_seen(const heads_view *v, size_t n_keys, size_t t, size_t first) {
    size_t n = v->causal ? TTI_MIN(n_keys, t + 1) : n_keys;
    return n <= first ? 0 : TTI_MIN(n - first, (size_t)KEYS);
}

/* ---- forward ---- */

typedef struct forward {  /* in scratch, for one key head */
    float *keys;          /* [dim][tall] */
    float *values;        /* [tall][wide] */
    float *weights;       /* [QUERIES][KEYS] */
    float *y;             /* [QUERIES][wide] */
    float *largest, *sum; /* [QUERIES] of the row so far */
} forward;

static size_t forward_bytes(const tti_node *node, const void *state) {
    heads_view v = heads_of(node);
    (void)state;
    size_t n = v.dim * v.tall + v.tall * v.wide + QUERIES * (KEYS + v.wide + 2);
    return n * sizeof(float);
}

static forward place_forward(const heads_view *v, float *at) {
    forward f = {.keys = at};
    f.values = f.keys + v->dim * v->tall;
    f.weights = f.values + v->tall * v->wide;
    f.y = f.weights + QUERIES * KEYS;
    f.largest = f.y + QUERIES * v->wide;
    f.sum = f.largest + QUERIES;
    return f;
}

/* w[j] = e^(scale w[j] - m) for j < n, zeros from there to n_all, which is whole vectors. */
static inline void exponentials(float *w, size_t n, size_t n_all, float scale, float m) {
    for (size_t first = 0; first < n_all; first += TTI_LANES) {
        int left = n > first ? (int)TTI_MIN(n - first, (size_t)TTI_LANES) : 0;
        float *to = w + first;
        TTI_IVDEP
        for (int l = 0; l < TTI_LANES; l++) {
            float e = tti_vexp(scale * to[l] - m);
            to[l] = l < left ? e : 0.0f;
        }
    }
}

/* One row of products becomes weights relative to the largest so far; y is rescaled. */
static void softmax_row(const forward *f, const heads_view *v, size_t i, size_t n, size_t n_all) {
    float *w = f->weights + i * KEYS, *y = f->y + i * v->wide;
    if (n == 0) {
        memset(w, 0, n_all * sizeof *w);
        return;
    }
    float before = f->largest[i], largest = largest_of(w, n) * v->scale;
    largest = before > largest ? before : largest;
    if (largest == -__builtin_inff()) { /* no weight yet, and -inf less -inf would be NaN */
        memset(w, 0, n_all * sizeof *w);
        return;
    }
    exponentials(w, n, n_all, v->scale, largest);
    float sum = tti_sum_n(w, n_all);
    f->largest[i] = largest;
    if (before != -__builtin_inff()) { /* not the first tile: rescales the previous sums */
        float fade = tti_vexp(before - largest);
        sum += f->sum[i] * fade;
        TTI_IVDEP
        for (size_t d = 0; d < v->wide; d++) y[d] *= fade;
    }
    f->sum[i] = sum;
}

/* Queries t .. t+n_rows-1 of one head against all keys. */
static void attend_rows(const forward *f, const heads_view *v, const float *q, size_t n_keys,
                        size_t t, size_t n_rows) {
    memset(f->y, 0, n_rows * v->wide * sizeof *f->y);
    for (size_t i = 0; i < n_rows; i++) f->largest[i] = -__builtin_inff(), f->sum[i] = 0.0f;
    for (size_t first = 0; first < n_keys; first += KEYS) {
        size_t n = n_seen(v, n_keys, t + n_rows - 1, first), n_all = padded(n);
        if (n == 0) break;
        TTI_VARIANT(tti_tile_multiply)
        (&(tti_tile_product){.m = n_rows,
                             .n = n_all,
                             .k = v->dim,
                             .a = q,
                             .a_row = v->width,
                             .a_col = 1,
                             .b = f->keys + first,
                             .ldb = v->tall,
                             .c = f->weights,
                             .ldc = KEYS});
        for (size_t i = 0; i < n_rows; i++)
            softmax_row(f, v, i, n_seen(v, n_keys, t + i, first), n_all);
        TTI_VARIANT(tti_tile_multiply)
        (&(tti_tile_product){.m = n_rows,
                             .n = v->wide,
                             .k = n,
                             .a = f->weights,
                             .a_row = KEYS,
                             .a_col = 1,
                             .b = f->values + first * v->wide,
                             .ldb = v->wide,
                             .c = f->y,
                             .ldc = v->wide,
                             .add = true});
    }
    for (size_t i = 0; i < n_rows; i++) /* all keys at -inf: NaN, as softmax of such a row is */
        if (f->largest[i] == -__builtin_inff() && n_seen(v, n_keys, t + i, 0) > 0)
            f->sum[i] = __builtin_nanf("");
}

/* y and lse of these queries; a row that sees no key gives zeros. */
static void finish_rows(const forward *f, const heads_view *v, size_t n_rows, float *y,
                        float *lse) {
    TTI_IVDEP
    for (size_t i = 0; i < n_rows; i++)
        lse[i] = f->sum[i] == 0.0f ? 0.0f : f->largest[i] + tti_vlog(f->sum[i]);
    for (size_t i = 0; i < n_rows; i++, y += v->heads * v->dim) {
        const float *own = f->y + i * v->wide;
        float scale = f->sum[i] == 0.0f ? 0.0f : 1.0f / f->sum[i];
        TTI_IVDEP
        for (size_t d = 0; d < v->dim; d++) y[d] = own[d] * scale;
    }
}

/* The query heads of sample b that share one key head. */
static void attend_group(const tti_kargs *a, const heads_view *v, const forward *f, size_t b,
                         size_t kv) {
    const float *qkv = (const float *)a->in[0] + b * v->n_t * v->width;
    size_t n_keys = n_keys_of(a, v, b), group = v->heads / v->kv_heads;
    float *y = a->out[0], *lse = a->out[1];
    transpose_rows(qkv + (v->heads + kv) * v->dim, v->width, v->n_t, v->dim, f->keys);
    copy_rows(qkv + (v->heads + v->kv_heads + kv) * v->dim, v->width, v->n_t, v->dim, f->values);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t t = 0; t < v->n_t; t += QUERIES) {
            size_t n_rows = TTI_MIN((size_t)QUERIES, v->n_t - t);
            attend_rows(f, v, qkv + t * v->width + h * v->dim, n_keys, t, n_rows);
            finish_rows(f, v, n_rows, y + ((b * v->n_t + t) * v->heads + h) * v->dim,
                        lse + (b * v->heads + h) * v->n_t + t);
        }
}

static tutti_status attention_run(void *state, const tti_kargs *a) {
    heads_view v = heads_of(a->node);
    forward f = place_forward(&v, a->scratch);
    (void)state;
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t kv = 0; kv < v.kv_heads; kv++) attend_group(a, &v, &f, b, kv);
    return TUTTI_OK;
}

/* ---- gradient: p weights, dp = dy v^T, ds = scale p (dp - sum dy y), dv = p^T dy, dq = ds k,
 * dk = ds^T q ---- */

typedef struct backward {     /* in scratch, for one key head */
    float *keys_t, *values_t; /* [dim][tall] */
    float *keys, *dk, *dv;    /* [tall][wide] */
    float *p, *dp;            /* [QUERIES][KEYS] */
    float *q, *dy, *dq;       /* [QUERIES][wide] */
    float *mean;              /* [QUERIES]: sum dy y */
} backward;

static size_t backward_bytes(const tti_node *node, const void *state) {
    heads_view v = heads_of(node);
    (void)state;
    size_t n = 2 * v.dim * v.tall + 3 * v.tall * v.wide + QUERIES * (2 * KEYS + 3 * v.wide + 1);
    return n * sizeof(float);
}

static backward place_backward(const heads_view *v, float *at) {
    backward f = {.keys_t = at};
    size_t n = v->tall * v->wide, rows = QUERIES * v->wide;
    f.values_t = f.keys_t + v->dim * v->tall;
    f.keys = f.values_t + v->dim * v->tall;
    f.dk = f.keys + n, f.dv = f.dk + n;
    f.p = f.dv + n, f.dp = f.p + QUERIES * KEYS;
    f.q = f.dp + QUERIES * KEYS, f.dy = f.q + rows, f.dq = f.dy + rows;
    f.mean = f.dq + rows;
    return f;
}

/* p and ds of row i, which sees n keys, with zeros up to n_all (hidden values may be NaN). */
static void weigh_row(const backward *f, const heads_view *v, size_t i, size_t n, size_t n_all,
                      float lse) {
    float *p = f->p + i * KEYS, *dp = f->dp + i * KEYS, mean = f->mean[i];
    exponentials(p, n, n_all, v->scale, lse);
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) dp[j] = v->scale * p[j] * (dp[j] - mean);
    memset(dp + n, 0, (n_all - n) * sizeof *dp);
}

/* Adds the contributions of the tile of keys from first on to dq, dk and dv. */
static void grad_tile(const backward *f, const heads_view *v, size_t first, size_t n_rows,
                      const size_t *seen, const float *lse) {
    size_t n = seen[n_rows - 1], n_all = padded(n), at = first * v->wide;
    tti_tile_product g = {.m = n_rows,
                          .n = n_all,
                          .k = v->dim,
                          .a = f->q,
                          .a_row = v->wide,
                          .a_col = 1,
                          .b = f->keys_t + first,
                          .ldb = v->tall,
                          .c = f->p,
                          .ldc = KEYS};
    TTI_VARIANT(tti_tile_multiply)(&g);
    g.a = f->dy, g.b = f->values_t + first, g.c = f->dp;
    TTI_VARIANT(tti_tile_multiply)(&g);
    for (size_t i = 0; i < n_rows; i++) weigh_row(f, v, i, seen[i], n_all, lse[i]);
    g = (tti_tile_product){.m = n_rows,
                           .n = v->wide,
                           .k = n,
                           .a = f->dp,
                           .a_row = KEYS,
                           .a_col = 1,
                           .b = f->keys + at,
                           .ldb = v->wide,
                           .c = f->dq,
                           .ldc = v->wide,
                           .add = true};
    TTI_VARIANT(tti_tile_multiply)(&g);
    g = (tti_tile_product){.m = n,
                           .n = v->wide,
                           .k = n_rows,
                           .a = f->dp,
                           .a_row = 1,
                           .a_col = KEYS,
                           .b = f->q,
                           .ldb = v->wide,
                           .c = f->dk + at,
                           .ldc = v->wide,
                           .add = true};
    TTI_VARIANT(tti_tile_multiply)(&g);
    g.a = f->p, g.b = f->dy, g.c = f->dv + at;
    TTI_VARIANT(tti_tile_multiply)(&g);
}

/* Queries t .. t+n_rows-1 of a head: their dq, their part of dk and dv. */
static void grad_rows(const backward *f, const heads_view *v, size_t n_keys, size_t t,
                      size_t n_rows, const float *lse) {
    size_t seen[QUERIES];
    memset(f->dq, 0, n_rows * v->wide * sizeof *f->dq);
    for (size_t first = 0; first < n_keys; first += KEYS) {
        for (size_t i = 0; i < n_rows; i++) seen[i] = n_seen(v, n_keys, t + i, first);
        if (seen[n_rows - 1] == 0) return;
        grad_tile(f, v, first, n_rows, seen, lse);
    }
}

static void grad_head(const tti_kargs *a, const heads_view *v, const backward *f, size_t b,
                      size_t h) {
    int n_in = a->node->n_in;
    size_t n_keys = n_keys_of(a, v, b), step = v->heads * v->dim;
    const float *lse = (const float *)a->in[n_in - 2] + (b * v->heads + h) * v->n_t;
    for (size_t t = 0; t < v->n_t; t += QUERIES) {
        size_t n_rows = TTI_MIN((size_t)QUERIES, v->n_t - t);
        size_t row = (b * v->n_t + t) * step + h * v->dim;
        size_t at = (b * v->n_t + t) * v->width + h * v->dim;
        const float *y = (const float *)a->in[n_in - 3] + row;
        const float *dy = (const float *)a->in[n_in - 1] + row;
        copy_rows((const float *)a->in[0] + at, v->width, n_rows, v->dim, f->q);
        copy_rows(dy, step, n_rows, v->dim, f->dy);
        for (size_t i = 0; i < n_rows; i++) f->mean[i] = dot(dy + i * step, y + i * step, v->dim);
        grad_rows(f, v, n_keys, t, n_rows, lse + t);
        write_rows(f->dq, v->wide, n_rows, v->dim, v->width, (float *)a->out[0] + at);
    }
}

static void grad_group(const tti_kargs *a, const heads_view *v, const backward *f, size_t b,
                       size_t kv) {
    size_t start = b * v->n_t * v->width, group = v->heads / v->kv_heads;
    size_t k_at = start + (v->heads + kv) * v->dim, v_at = k_at + v->kv_heads * v->dim;
    const float *qkv = a->in[0];
    float *dqkv = a->out[0];
    transpose_rows(qkv + k_at, v->width, v->n_t, v->dim, f->keys_t);
    transpose_rows(qkv + v_at, v->width, v->n_t, v->dim, f->values_t);
    copy_rows(qkv + k_at, v->width, v->n_t, v->dim, f->keys);
    memset(f->dk, 0, 2 * v->tall * v->wide * sizeof *f->dk); /* and dv */
    for (size_t h = kv * group; h < (kv + 1) * group; h++) grad_head(a, v, f, b, h);
    write_rows(f->dk, v->wide, v->n_t, v->dim, v->width, dqkv + k_at);
    write_rows(f->dv, v->wide, v->n_t, v->dim, v->width, dqkv + v_at);
}

static tutti_status attention_grad_run(void *state, const tti_kargs *a) {
    heads_view v = heads_of(a->node);
    backward f = place_backward(&v, a->scratch);
    (void)state;
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t kv = 0; kv < v.kv_heads; kv++) grad_group(a, &v, &f, b, kv);
    return TUTTI_OK;
}

/* ---- attention_cached: one query of each head against the rows of its cache ---- */

static size_t cached_bytes(const tti_node *node, const void *state) {
    (void)state;
    return padded((size_t)node->in[1]->type.shape.dim[1]) * sizeof(float);
}

/* Rows of k and v lie step apart; w is scratch for n weights, n > 0. */
static void attend_one(const heads_view *v, const float *q, const float *k, const float *values,
                       size_t n, float *w, float *y) {
    size_t step = v->kv_heads * v->dim, n_all = padded(n);
    for (size_t j = 0; j < n; j++) w[j] = dot(q, k + j * step, v->dim);
    for (size_t j = n; j < n_all; j++) w[j] = 0.0f;
    exponentials(w, n, n_all, v->scale, largest_of(w, n) * v->scale);
    float scale = 1.0f / tti_sum_n(w, n_all);
    memset(y, 0, v->dim * sizeof *y);
    for (size_t j = 0; j < n; j++) {
        float weight = w[j] * scale;
        TTI_IVDEP
        for (size_t d = 0; d < v->dim; d++) y[d] += weight * values[j * step + d];
    }
}

/* The sample's caches get their new row; a position outside changes nothing and gives zeros. */
static void attend_sample(const tti_kargs *a, const heads_view *v, size_t b, size_t n_max) {
    const float *qkv = (const float *)a->in[0] + b * v->width;
    size_t step = v->kv_heads * v->dim, own = v->heads * v->dim;
    float *k = (float *)a->out[1] + b * n_max * step,
          *values = (float *)a->out[2] + b * n_max * step;
    float *y = (float *)a->out[0] + b * own;
    int32_t pos = *(const int32_t *)a->in[3];
    if (pos < 0 || (size_t)pos >= n_max) {
        memset(y, 0, own * sizeof *y);
        return;
    }
    memcpy(k + (size_t)pos * step, qkv + own, step * sizeof *k);
    memcpy(values + (size_t)pos * step, qkv + own + step, step * sizeof *values);
    for (size_t h = 0; h < v->heads; h++) {
        size_t kv = h / (v->heads / v->kv_heads) * v->dim;
        attend_one(v, qkv + h * v->dim, k + kv, values + kv, (size_t)pos + 1, a->scratch,
                   y + h * v->dim);
    }
}

static tutti_status cached_run(void *state, const tti_kargs *a) {
    heads_view v = heads_of(a->node);
    size_t n_max = (size_t)a->node->in[1]->type.shape.dim[1];
    (void)state;
    for (int i = 1; i < 3; i++)
        if (a->out[i] != a->in[i])
            memcpy(a->out[i], a->in[i], tti_n_elems(a->node->in[i]) * sizeof(float));
    for (size_t b = 0; b < v.n_batch; b++) attend_sample(a, &v, b, n_max);
    return TUTTI_OK;
}

static bool cached_can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && node->in[1]->type.dtype == TUTTI_F32;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_attention)[];
const tti_kernel TTI_VARIANT(tti_kernels_attention)[] = {
    {.op = "attention",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = forward_bytes,
     .run = attention_run},
    {.op = "attention_grad",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = backward_bytes,
     .run = attention_grad_run},
    {.op = "attention_cached",
     .name = TTI_ISA_TEXT,
     .can_run = cached_can_run,
     .scratch_bytes = cached_bytes,
     .run = cached_run},
    {0},
};
