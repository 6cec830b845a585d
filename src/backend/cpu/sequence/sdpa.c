/* sdpa.c - attention with separate queries, keys and values, and its gradient; f32.
 *
 * A tile is QUERIES rows of weights by all keys that one of them may see: scratch is linear in the
 * number of keys.  The gradient recomputes the weights from the rows' maxima and sums.  Each sum
 * runs over its index in order: the bits are those of any instruction set. */
#include "ops/sequence/sdpa.h"
#include "backend/cpu/sequence/tiles.h"
#include "backend/cpu/vmath.h"
#include "base/philox.h"

enum { QUERIES = 32, SAMPLE_BITS = 28 };

static bool can_run(const tti_node *node) {
    tti_sdpa v = tti_sdpa_of(node);
    for (int i = 0; i < node->n_in; i++) {
        bool segment = v.segments >= 0 && (i == v.segments || i == v.segments + 1);
        if (node->in[i]->type.dtype != (segment ? TUTTI_I32 : TUTTI_F32)) return false;
    }
    return tti_all_plain(node);
}

/* ---- the weights of a tile ---- */

/* Queries t .. t + n - 1 of one head, with the keys that one of them may see by its place. */
typedef struct tile {
    size_t b, h, t, n;
    size_t first, end, wide; /* keys; end - first in whole vectors, the distance of rows */
} tile;

static tile tile_at(const tti_sdpa *v, size_t b, size_t h, size_t t) {
    tile at = {.b = b, .h = h, .t = t, .n = TTI_MIN((size_t)QUERIES, v->n_t - t)};
    size_t first, end;
    tti_sdpa_range(v, t, &at.first, &end);
    tti_sdpa_range(v, t + at.n - 1, &first, &at.end);
    at.first = at.first / TTI_LANES * TTI_LANES;
    at.end = TTI_MAX(at.end, at.first);
    at.wide = padded(at.end - at.first);
    return at;
}

static bool sees(const tti_kargs *a, const tti_sdpa *v, const tile *at, size_t t, size_t j) {
    if (v->segments < 0) return true;
    const int32_t *queries = a->in[v->segments], *keys = a->in[v->segments + 1];
    return queries[at->b * v->n_t + t] == keys[at->b * v->n_s + j];
}

/* c[n][wide] = a[n][k] b[k][..], b being rows of all keys. */
static void multiply_keys(const tile *at, const float *a, size_t a_row, size_t k, const float *b,
                          size_t ldb, float *c) {
    TTI_VARIANT(tti_tile_multiply)
    (&(tti_tile_product){.m = at->n,
                         .n = at->wide,
                         .k = k,
                         .a = a,
                         .a_row = a_row,
                         .a_col = 1,
                         .b = b + at->first,
                         .ldb = ldb,
                         .c = c,
                         .ldc = at->wide});
}

/* Products of query t in w[n_keys] become scores, -inf where no key is seen; slope, unless NULL,
 * gets the slopes of the scores by the products. */
static void score_row(const tti_kargs *a, const tti_sdpa *v, const tile *at, size_t t, float *w,
                      float *slope) {
    size_t first, end, n = at->end - at->first;
    float scale = (float)v->scale, cap = (float)v->softcap;
    tti_sdpa_range(v, t, &first, &end);
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) w[j] *= scale;
    if (cap > 0) {
        TTI_IVDEP
        for (size_t j = 0; j < n; j++) w[j] = tti_vtanh(w[j] / cap);
        for (size_t j = 0; slope && j < n; j++) slope[j] = scale * (1.0f - w[j] * w[j]);
        TTI_IVDEP
        for (size_t j = 0; j < n; j++) w[j] *= cap;
    }
    if (v->bias >= 0) {
        size_t step = v->bias_step[3];
        const float *bias =
            (const float *)a->in[v->bias] + tti_sdpa_bias_at(v, at->b, at->h, t) + at->first * step;
        for (size_t j = 0; slope && cap == 0 && v->replaces && j < n; j++) slope[j] = scale;
        for (size_t j = 0; step && j < n; j++) w[j] += bias[j];
        for (size_t j = 0; !step && j < n; j++) w[j] += bias[0];
        for (size_t j = 0; v->replaces && j < n; j++) {
            float own = bias[step ? j : 0];
            if (!tti_sdpa_is_replaced(true, own)) continue;
            w[j] = own;
            if (slope) slope[j] = 0.0f;
        }
    }
    for (size_t j = 0; j < n; j++)
        if (at->first + j < first || at->first + j >= end || !sees(a, v, at, t, at->first + j))
            w[j] = -__builtin_inff();
    for (size_t j = n; j < at->wide; j++) w[j] = -__builtin_inff();
}

/* w[j] = e^(w[j] - m), 0 of -inf. */
static void exponentials(float *w, size_t n, float m) {
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) {
        float e = tti_vexp(w[j] - m);
        w[j] = w[j] == -__builtin_inff() ? 0.0f : e;
    }
}

/* The weights of a row of scores.  A sum of max and log_sum that is not small has lost digits of
 * the latter, all of them where a finite bias such as -1e9 hides all keys. */
static void row_weights(float *w, size_t n, float max, float log_sum) {
    float lse = max + log_sum;
    if (!(__builtin_fabsf(lse) < 64.0f)) {
        TTI_IVDEP
        for (size_t j = 0; j < n; j++) w[j] -= max;
        lse = log_sum;
    }
    exponentials(w, n, lse);
}

typedef struct drops {
    uint64_t key, step, sample0;
    float p, factor;
} drops;

static drops drops_of(const tti_kargs *a, const tti_sdpa *v) {
    drops d = {.p = (float)v->p, .factor = (float)(1 / (1 - v->p))};
    if (v->p == 0) return d;
    d.key = tti_mix64(a->run->seed, v->key);
    d.step = a->run->step, d.sample0 = a->run->sample0;
    return d;
}

/* to[j] = 0 of dropped weights of query t, else the factor. */
static void draw_row(const drops *d, const tti_sdpa *v, const tile *at, size_t t, float *to) {
    uint64_t e = tti_sdpa_weight(v, at->h, t) + at->first, block = UINT64_MAX;
    uint64_t sample = (d->sample0 + at->b) << SAMPLE_BITS;
    tti_philox x = {{0}};
    for (size_t j = 0; j < at->end - at->first; j++, e++) {
        if (e / 4 != block) x = tti_philox_draw(d->key, d->step, sample + (block = e / 4));
        to[j] = tti_philox_unit(x.v[e % 4]) >= d->p ? d->factor : 0.0f;
    }
    for (size_t j = at->end - at->first; j < at->wide; j++) to[j] = 0.0f;
}

/* ---- forward ---- */

typedef struct forward {
    float *keys;      /* [dim][padded n_s] */
    float *values;    /* [padded n_s][padded v_dim] */
    float *weights;   /* [QUERIES][padded n_s] */
    float *y, *drawn; /* [QUERIES][padded v_dim], [padded n_s] */
} forward;

static size_t place_forward(const tti_sdpa *v, float *at, forward *f) {
    size_t tall = padded(v->n_s), wide = padded(v->v_dim);
    size_t values = v->dim * tall, weights = values + tall * wide;
    size_t y = weights + QUERIES * tall, drawn = y + QUERIES * wide;
    if (at) *f = (forward){at, at + values, at + weights, at + y, at + drawn};
    return (drawn + tall) * sizeof(float);
}

static size_t forward_bytes(const tti_node *node, const void *state) {
    tti_sdpa v = tti_sdpa_of(node);
    (void)state;
    return place_forward(&v, NULL, NULL);
}

/* Rows of weights, not yet divided by their sums; y, and the rows' maxima and sums. */
static void attend_tile(const tti_kargs *a, const tti_sdpa *v, const forward *f, const drops *d,
                        const tile *at) {
    size_t row = (at->b * v->n_t + at->t) * v->heads + at->h, wide = padded(v->v_dim);
    const float *q = (const float *)a->in[0] + row * v->dim;
    float *y = (float *)a->out[0] + row * v->v_dim, sum[QUERIES];
    size_t first = (at->b * v->heads + at->h) * v->n_t + at->t;
    float *max = (float *)a->out[1] + first, *log_sum = (float *)a->out[2] + first;
    multiply_keys(at, q, v->heads * v->dim, v->dim, f->keys, padded(v->n_s), f->weights);
    for (size_t i = 0; i < at->n; i++) {
        float *w = f->weights + i * at->wide, largest = -__builtin_inff();
        score_row(a, v, at, at->t + i, w, NULL);
        if (at->wide > 0) largest = largest_of(w, at->wide);
        if (largest == -__builtin_inff()) largest = 0.0f; /* no key, or NaN after all of them */
        exponentials(w, at->wide, largest);
        sum[i] = at->wide > 0 ? tti_sum_n(w, at->wide) : 0.0f;
        max[i] = sum[i] == 0.0f ? 0.0f : largest;
        log_sum[i] = sum[i] == 0.0f ? 0.0f : tti_vlog(sum[i]);
        if (v->p == 0) continue;
        draw_row(d, v, at, at->t + i, f->drawn);
        TTI_IVDEP
        for (size_t j = 0; j < at->wide; j++) w[j] *= f->drawn[j];
    }
    TTI_VARIANT(tti_tile_multiply)
    (&(tti_tile_product){.m = at->n,
                         .n = wide,
                         .k = at->end - at->first,
                         .a = f->weights,
                         .a_row = at->wide,
                         .a_col = 1,
                         .b = f->values + at->first * wide,
                         .ldb = wide,
                         .c = f->y,
                         .ldc = wide});
    for (size_t i = 0; i < at->n; i++, y += v->heads * v->v_dim) {
        const float *own = f->y + i * wide;
        float scale = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
        TTI_IVDEP
        for (size_t k = 0; k < v->v_dim; k++) y[k] = own[k] * scale;
    }
}

static tutti_status sdpa_run(void *state, const tti_kargs *a) {
    tti_sdpa v = tti_sdpa_of(a->node);
    drops d = drops_of(a, &v);
    size_t k_row = v.kv_heads * v.dim, v_row = v.kv_heads * v.v_dim, group = v.heads / v.kv_heads;
    forward f = {0};
    (void)state;
    place_forward(&v, a->scratch, &f);
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t kv = 0; kv < v.kv_heads; kv++) {
            const float *k = (const float *)a->in[1] + b * v.n_s * k_row + kv * v.dim;
            const float *values = (const float *)a->in[2] + b * v.n_s * v_row + kv * v.v_dim;
            transpose_rows(k, k_row, v.n_s, v.dim, f.keys);
            copy_rows(values, v_row, v.n_s, v.v_dim, f.values);
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                for (size_t t = 0; t < v.n_t; t += QUERIES) {
                    tile at = tile_at(&v, b, h, t);
                    attend_tile(a, &v, &f, &d, &at);
                }
        }
    return TUTTI_OK;
}

/* ---- gradient ---- */

typedef struct backward {
    float *keys_t, *values_t; /* [dim][padded n_s], [v_dim][padded n_s] */
    float *keys;              /* [padded n_s][padded dim] */
    float *dk, *dv;           /* [padded n_s][padded dim], [padded n_s][padded v_dim] */
    float *p, *dp, *slope;    /* [QUERIES][padded n_s] */
    float *q, *dq, *dy;       /* [QUERIES][padded dim], the same, [QUERIES][padded v_dim] */
    float *drawn;             /* [padded n_s] */
} backward;

static size_t place_backward(const tti_sdpa *v, float *at, backward *f) {
    size_t tall = padded(v->n_s), wide = padded(v->dim), v_wide = padded(v->v_dim), n = 0;
    size_t sizes[12] = {v->dim * tall,  v->v_dim * tall, tall * wide,      tall * wide,
                        tall * v_wide,  QUERIES * tall,  QUERIES * tall,   QUERIES * tall,
                        QUERIES * wide, QUERIES * wide,  QUERIES * v_wide, tall};
    float *place[12];
    for (int i = 0; i < 12; n += sizes[i++]) place[i] = at ? at + n : NULL;
    if (at)
        *f = (backward){place[0], place[1], place[2], place[3], place[4],  place[5],
                        place[6], place[7], place[8], place[9], place[10], place[11]};
    return n * sizeof(float);
}

static size_t backward_bytes(const tti_node *node, const void *state) {
    tti_sdpa v = tti_sdpa_of(node);
    (void)state;
    return place_backward(&v, NULL, NULL);
}

/* p of a row gets the weights times dropout's factors; dp the gradient of the products. */
static void grad_row(const tti_kargs *a, const tti_sdpa *v, const backward *f, const drops *d,
                     const tile *at, size_t i, float mean) {
    float *p = f->p + i * at->wide, *dp = f->dp + i * at->wide, *slope = f->slope + i * at->wide;
    size_t row = (at->b * v->heads + at->h) * v->n_t + at->t + i;
    float max = ((const float *)a->in[v->saved + 1])[row];
    float log_sum = ((const float *)a->in[v->saved + 2])[row];
    bool has_slopes = v->softcap > 0 || v->replaces;
    score_row(a, v, at, at->t + i, p, has_slopes ? slope : NULL);
    row_weights(p, at->wide, max, log_sum);
    if (v->p > 0) draw_row(d, v, at, at->t + i, f->drawn);
    for (size_t j = 0; j < at->wide; j++) {
        float m = v->p > 0 ? f->drawn[j] : 1.0f, own = p[j];
        p[j] = own * m;
        dp[j] = own == 0.0f ? 0.0f : own * (m * dp[j] - mean); /* hidden values may be NaN */
    }
    if (tti_attr_int(a->node, "grad_bias")) {
        size_t step = v->bias_step[3];
        float *to =
            (float *)a->out[3] + tti_sdpa_bias_at(v, at->b, at->h, at->t + i) + at->first * step;
        for (size_t j = 0; j < at->end - at->first; j++) to[j * step] += dp[j];
    }
    for (size_t j = 0; j < at->wide; j++) dp[j] *= has_slopes ? slope[j] : (float)v->scale;
}

/* c[..][n] += a^T b of the tile's rows: to the rows of the keys. */
static void add_to_keys(const tile *at, const float *a, const float *b, size_t n, float *c) {
    TTI_VARIANT(tti_tile_multiply)
    (&(tti_tile_product){.m = at->end - at->first,
                         .n = n,
                         .k = at->n,
                         .a = a,
                         .a_row = 1,
                         .a_col = at->wide,
                         .b = b,
                         .ldb = n,
                         .c = c + at->first * n,
                         .ldc = n,
                         .add = true});
}

static void grad_tile(const tti_kargs *a, const tti_sdpa *v, const backward *f, const drops *d,
                      const tile *at) {
    size_t row = (at->b * v->n_t + at->t) * v->heads + at->h, step = v->heads * v->dim;
    size_t v_step = v->heads * v->v_dim, tall = padded(v->n_s), wide = padded(v->dim);
    const float *dy = (const float *)a->in[v->saved + 3] + row * v->v_dim;
    const float *y = (const float *)a->in[v->saved] + row * v->v_dim;
    copy_rows((const float *)a->in[0] + row * v->dim, step, at->n, v->dim, f->q);
    copy_rows(dy, v_step, at->n, v->v_dim, f->dy);
    multiply_keys(at, f->q, wide, v->dim, f->keys_t, tall, f->p);
    multiply_keys(at, f->dy, padded(v->v_dim), v->v_dim, f->values_t, tall, f->dp);
    for (size_t i = 0; i < at->n; i++)
        grad_row(a, v, f, d, at, i, dot(dy + i * v_step, y + i * v_step, v->v_dim));
    TTI_VARIANT(tti_tile_multiply)
    (&(tti_tile_product){.m = at->n,
                         .n = wide,
                         .k = at->end - at->first,
                         .a = f->dp,
                         .a_row = at->wide,
                         .a_col = 1,
                         .b = f->keys + at->first * wide,
                         .ldb = wide,
                         .c = f->dq,
                         .ldc = wide});
    write_rows(f->dq, wide, at->n, v->dim, step, (float *)a->out[0] + row * v->dim);
    add_to_keys(at, f->dp, f->q, wide, f->dk);
    add_to_keys(at, f->p, f->dy, padded(v->v_dim), f->dv);
}

static tutti_status sdpa_grad_run(void *state, const tti_kargs *a) {
    tti_sdpa v = tti_sdpa_of(a->node);
    drops d = drops_of(a, &v);
    size_t k_row = v.kv_heads * v.dim, v_row = v.kv_heads * v.v_dim, group = v.heads / v.kv_heads;
    size_t tall = padded(v.n_s), wide = padded(v.dim), v_wide = padded(v.v_dim);
    backward f = {0};
    (void)state;
    place_backward(&v, a->scratch, &f);
    memset(a->out[3], 0, tti_n_elems(a->node->out[3]) * sizeof(float));
    for (size_t b = 0; b < v.n_batch; b++)
        for (size_t kv = 0; kv < v.kv_heads; kv++) {
            size_t k_at = b * v.n_s * k_row + kv * v.dim, v_at = b * v.n_s * v_row + kv * v.v_dim;
            const float *k = (const float *)a->in[1] + k_at;
            transpose_rows(k, k_row, v.n_s, v.dim, f.keys_t);
            transpose_rows((const float *)a->in[2] + v_at, v_row, v.n_s, v.v_dim, f.values_t);
            copy_rows(k, k_row, v.n_s, v.dim, f.keys);
            memset(f.dk, 0, tall * (wide + v_wide) * sizeof(float)); /* and dv, which follows */
            for (size_t h = kv * group; h < (kv + 1) * group; h++)
                for (size_t t = 0; t < v.n_t; t += QUERIES) {
                    tile at = tile_at(&v, b, h, t);
                    grad_tile(a, &v, &f, &d, &at);
                }
            write_rows(f.dk, wide, v.n_s, v.dim, k_row, (float *)a->out[1] + k_at);
            write_rows(f.dv, v_wide, v.n_s, v.v_dim, v_row, (float *)a->out[2] + v_at);
        }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_sdpa)[];
const tti_kernel TTI_VARIANT(tti_kernels_sdpa)[] = {
    {.op = "sdpa",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = forward_bytes,
     .run = sdpa_run},
    {.op = "sdpa_grad",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = backward_bytes,
     .run = sdpa_grad_run},
    {0},
};
