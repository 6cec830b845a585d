/* batch_norm.c - statistics and application of batch norm, with gradients; f32, both layouts.
 *
 * N,H,W,C bytes (and [N,C]) are a matrix of positions by channels: loops run along the channels,
 * over blocks of positions that stay in cache.  Plain bytes are runs of one channel.  Blocks give
 * f32 sums, which are joined in double in their order: moments by Chan's formula.  Each element
 * becomes (u - a) b + c with a, b, c for each channel, computed once in double and kept in scratch.
 * A residual, an activation and its mask are part of the same loops: one body, compiled once for
 * each combination, with the bits of separate nodes. */
#include "backend/cpu/norm/moments.h"

typedef struct planes {
    size_t n, c, s; /* samples, channels, places */
    bool last;      /* a matrix [n s][c] */
} planes;

static planes planes_of(const tti_node *node) {
    const tutti_shape *x = &node->in[0]->type.shape;
    planes p = {(size_t)x->dim[0], (size_t)x->dim[1], 1, false};
    for (int d = 2; d < x->n_dims; d++) p.s *= (size_t)x->dim[d];
    p.last = tti_is_last(node->in[0]) || p.s == 1;
    return p;
}

/* f32 but for the count of samples of some; a mask is y itself. */
static bool can_run(const tti_node *node) {
    bool has_mask = (node->op->traits & TTI_TAKES_MASK) && tti_attr_int(node, "act");
    if (has_mask && node->in[node->n_in - 1]->type.shape.n_dims == 1) return false;
    for (int i = 0; i < node->n_in; i++) {
        bool is_rows = node->in[i]->type.dtype == TUTTI_I32 && node->in[i]->type.shape.n_dims == 0;
        if (node->in[i]->type.dtype != TUTTI_F32 && !is_rows) return false;
    }
    return node->out[0]->type.dtype == TUTTI_F32 && tti_one_layout(node);
}

/* The samples that count: input i if it is there, within 0 .. N. */
static size_t rows_of(const tti_kargs *a, int i, size_t n) {
    if (i >= a->node->n_in) return n;
    int32_t rows = *(const int32_t *)a->in[i];
    return rows <= 0 ? 0 : TTI_MIN((size_t)rows, n);
}

static bool has_act(const tti_node *node) { return tti_attr_int(node, "act") == TTI_EPILOGUE_RELU; }

/* As rows_of, for the gradients, where y may be the last input. */
static size_t grad_rows_of(const tti_kargs *a, int i, size_t n) {
    return a->node->n_in - has_act(a->node) > i ? rows_of(a, i, n) : n;
}

/* The y whose relu dy has to go through; NULL: none. */
static const float *mask_of(const tti_kargs *a) {
    return has_act(a->node) ? a->in[a->node->n_in - 1] : NULL;
}

/* Bodies that are compiled for each combination of their constant arguments. */
#define BODY static inline __attribute__((always_inline)) void

/* 0 without samples, as in ops/norm/bn_rules.h. */
static double rstd_of(double count, double m2, double eps) {
    return count > 0 ? 1 / __builtin_sqrt(m2 / count + eps) : 0;
}

/* Positions in a block: some 64 KiB of them. */
static size_t block_rows(size_t n_channels) {
    size_t n = 16384 / TTI_MAX(n_channels, (size_t)1);
    return n < 16 ? 16 : n > 256 ? 256 : n;
}

/* ---- statistics ---- */

/* Double mean[C], m2[C]; float block mean[C], m2[C]. */
static size_t channel_scratch(const tti_node *node, const void *state) {
    (void)state;
    return (size_t)node->in[0]->type.shape.dim[1] * 4 * sizeof(double);
}

static void column_squares(const float *x, size_t n_rows, size_t n_cols, const float *mean,
                           float *y) {
    memset(y, 0, n_cols * sizeof *y);
    for (size_t i = 0; i < n_rows; i++, x += n_cols) {
        TTI_IVDEP
        for (size_t j = 0; j < n_cols; j++) y[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
    }
}

/* Chan's formula for n_block more elements to the n of before. */
static inline void join(double n, double n_block, double block_mean, double block_m2, double *mean,
                        double *m2) {
    double all = n + n_block, d = block_mean - *mean;
    *mean += d * (n_block / all);
    *m2 += block_m2 + d * d * (n * n_block / all);
}

static void stats_last(const float *x, size_t n_rows, size_t c, void *scratch, float *out) {
    double *mean = scratch, *m2 = mean + c;
    float *block_mean = (float *)(m2 + c), *block_m2 = block_mean + c;
    size_t step = block_rows(c);
    memset(mean, 0, 2 * c * sizeof *mean);
    for (size_t first = 0; first < n_rows; first += step, x += step * c) {
        size_t n = TTI_MIN(step, n_rows - first);
        tti_sum_columns(x, n, c, block_mean);
        for (size_t j = 0; j < c; j++) block_mean[j] /= (float)n;
        column_squares(x, n, c, block_mean, block_m2);
        TTI_IVDEP
        for (size_t j = 0; j < c; j++)
            join((double)first, (double)n, (double)block_mean[j], (double)block_m2[j], &mean[j],
                 &m2[j]);
    }
    for (size_t j = 0; j < c; j++) out[j] = (float)mean[j], out[c + j] = (float)m2[j];
}

/* Channel at x, whose runs of s elements lie step apart. */
static void stats_channel(const float *x, size_t n_runs, size_t s, size_t step, float *mean_out,
                          float *m2_out) {
    double mean = 0, m2 = 0, n = 0;
    for (size_t r = 0; r < n_runs; r++, x += step)
        for (size_t i = 0; i < s; i += TTI_MOMENT_BLOCK) {
            size_t m = TTI_MIN((size_t)TTI_MOMENT_BLOCK, s - i);
            float block = tti_sum_n(x + i, m) / (float)m;
            join(n, (double)m, (double)block, (double)tti_squares_n(x + i, m, block), &mean, &m2);
            n += (double)m;
        }
    *mean_out = (float)mean, *m2_out = (float)m2;
}

static tutti_status stats_run(void *state, const tti_kargs *a) {
    planes p = planes_of(a->node);
    size_t rows = rows_of(a, 1, p.n);
    const float *x = a->in[0];
    float *out = a->out[0];
    (void)state;
    *out++ = (float)(rows * p.s);
    if (p.last)
        stats_last(x, rows * p.s, p.c, a->scratch, out);
    else
        for (size_t c = 0; c < p.c; c++)
            stats_channel(x + c * p.s, rows, p.s, p.c * p.s, out + c, out + p.c + c);
    return TUTTI_OK;
}

/* ---- y = act((x - mean) scale + shift + add) ---- */

typedef struct affine {
    const float *mean, *scale, *shift; /* [C] */
} affine;

static inline float relu_if(bool relu, float y) { return relu && y < 0.0f ? 0.0f : y; }

/* add: NULL, or a residual of x's shape. */
BODY apply_as(const planes *p, const float *x, const float *add, bool relu, affine f, float *y) {
    size_t n_runs = p->n * (p->last ? p->s : p->c), len = p->last ? p->c : p->s;
    for (size_t r = 0; r < n_runs; r++, x += len, y += len, add += add ? len : 0) {
        if (p->last) {
            TTI_IVDEP
            for (size_t j = 0; j < len; j++) {
                float z = (x[j] - f.mean[j]) * f.scale[j] + f.shift[j];
                y[j] = relu_if(relu, add ? z + add[j] : z);
            }
        } else {
            float mean = f.mean[r % p->c], scale = f.scale[r % p->c], shift = f.shift[r % p->c];
            TTI_IVDEP
            for (size_t i = 0; i < len; i++) {
                float z = (x[i] - mean) * scale + shift;
                y[i] = relu_if(relu, add ? z + add[i] : z);
            }
        }
    }
}

/* The residual, if there is one, is input r. */
static void apply(const tti_kargs *a, const planes *p, affine f, int r) {
    const float *x = a->in[0], *add = a->node->n_in > r ? a->in[r] : NULL;
    bool relu = has_act(a->node);
    if (add && relu)
        apply_as(p, x, add, true, f, a->out[0]);
    else if (add)
        apply_as(p, x, add, false, f, a->out[0]);
    else if (relu)
        apply_as(p, x, NULL, true, f, a->out[0]);
    else
        apply_as(p, x, NULL, false, f, a->out[0]);
}

static tutti_status apply_run(void *state, const tti_kargs *a) {
    planes p = planes_of(a->node);
    double eps = tti_attr_float(a->node, "eps");
    const float *stats = a->in[1], *gamma = a->in[2];
    float *scale = a->scratch;
    (void)state;
    for (size_t c = 0; c < p.c; c++)
        scale[c] =
            (float)((double)gamma[c] * rstd_of((double)stats[0], (double)stats[1 + p.c + c], eps));
    apply(a, &p, (affine){stats + 1, scale, a->in[3]}, 4);
    return TUTTI_OK;
}

static tutti_status eval_run(void *state, const tti_kargs *a) {
    planes p = planes_of(a->node);
    double eps = tti_attr_float(a->node, "eps");
    const float *var = a->in[2], *gamma = a->in[3];
    float *scale = a->scratch;
    (void)state;
    for (size_t c = 0; c < p.c; c++)
        scale[c] = (float)((double)gamma[c] / __builtin_sqrt((double)var[c] + eps));
    apply(a, &p, (affine){a->in[1], scale, a->in[4]}, 5);
    return TUTTI_OK;
}

/* ---- sum dy and sum dy (x - mean), dy where y > 0 ---- */

/* The inputs of the gradients; all [N,C,..] in one layout. */
typedef struct grad_in {
    const float *dy, *x;
    const float *y; /* NULL: no mask */
} grad_in;

static grad_in grad_in_of(const tti_kargs *a) { return (grad_in){a->in[0], a->in[1], mask_of(a)}; }

static inline void advance(grad_in *in, size_t n) {
    in->dy += n, in->x += n;
    if (in->y) in->y += n;
}

static inline __attribute__((always_inline)) float masked(const float *dy, const float *y,
                                                          size_t i) {
    float d = dy[i]; /* read in any case, so that the loop vectorises */
    return y && y[i] <= 0.0f ? 0.0f : d;
}

BODY column_dots_as(grad_in in, const float *y, size_t n_rows, size_t n_cols, const float *mean,
                    float *sum, float *dot) {
    const float *dy = in.dy, *x = in.x;
    memset(sum, 0, n_cols * sizeof *sum);
    memset(dot, 0, n_cols * sizeof *dot);
    for (size_t i = 0; i < n_rows; i++, x += n_cols, dy += n_cols, y += y ? n_cols : 0) {
        TTI_IVDEP
        for (size_t j = 0; j < n_cols; j++) {
            float d = masked(dy, y, j);
            sum[j] += d;
            dot[j] += d * (x[j] - mean[j]);
        }
    }
}

static void dots_last(grad_in in, size_t n_rows, size_t c, const float *mean, double *sum) {
    double *dot = sum + c;
    float *block_sum = (float *)(dot + c), *block_dot = block_sum + c;
    size_t step = block_rows(c);
    memset(sum, 0, 2 * c * sizeof *sum);
    for (size_t first = 0; first < n_rows; first += step, advance(&in, step * c)) {
        size_t n = TTI_MIN(step, n_rows - first);
        if (in.y)
            column_dots_as(in, in.y, n, c, mean, block_sum, block_dot);
        else
            column_dots_as(in, NULL, n, c, mean, block_sum, block_dot);
        TTI_IVDEP
        for (size_t j = 0; j < c; j++)
            sum[j] += (double)block_sum[j], dot[j] += (double)block_dot[j];
    }
}

/* Over a run of one channel, its dy masked a block at a time. */
static tti_two_sums masked_dots(grad_in in, size_t n, float mean) {
    float dy[TTI_MOMENT_BLOCK];
    tti_two_sums all = {0, 0};
    for (size_t i = 0; i < n; i += TTI_MOMENT_BLOCK, advance(&in, TTI_MOMENT_BLOCK)) {
        size_t m = TTI_MIN((size_t)TTI_MOMENT_BLOCK, n - i);
        for (size_t k = 0; k < m; k++) dy[k] = masked(in.dy, in.y, k);
        tti_two_sums one = tti_dots_n(dy, NULL, in.x, m, mean);
        all.sum += one.sum, all.dot += one.dot;
    }
    return all;
}

static void dots_plain(const planes *p, grad_in in, size_t rows, const float *mean, double *sum) {
    memset(sum, 0, 2 * p->c * sizeof *sum);
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < p->c; c++, advance(&in, p->s)) {
            tti_two_sums one = in.y ? masked_dots(in, p->s, mean[c])
                                    : tti_run_dots(in.dy, NULL, in.x, p->s, mean[c]);
            sum[c] += one.sum, sum[p->c + c] += one.dot;
        }
}

static tutti_status grad_sums_run(void *state, const tti_kargs *a) {
    planes p = planes_of(a->node);
    size_t rows = grad_rows_of(a, 3, p.n);
    double eps = tti_attr_float(a->node, "eps"), *sum = a->scratch;
    const float *stats = a->in[2];
    float *out = a->out[0], *dgamma = a->out[1], *dbeta = a->out[2];
    (void)state;
    if (p.last)
        dots_last(grad_in_of(a), rows * p.s, p.c, stats + 1, sum);
    else
        dots_plain(&p, grad_in_of(a), rows, stats + 1, sum);
    out[0] = (float)(rows * p.s);
    for (size_t c = 0; c < p.c; c++) {
        double rstd = rstd_of((double)stats[0], (double)stats[1 + p.c + c], eps);
        out[1 + c] = dbeta[c] = (float)sum[c];
        out[1 + p.c + c] = dgamma[c] = (float)(sum[p.c + c] * rstd);
    }
    return TUTTI_OK;
}

/* ---- dx = (dy - mean dy - (x - mean) slope) scale ---- */

typedef struct grad_factors {
    const float *mean;              /* [C] */
    float *dy_mean, *slope, *scale; /* [C] */
} grad_factors;

BODY grad_last_as(grad_in in, const float *y, size_t n_rows, size_t c, const grad_factors *f,
                  float *dx) {
    const float *mean = f->mean, *dy_mean = f->dy_mean, *slope = f->slope, *scale = f->scale;
    const float *dy = in.dy, *x = in.x;
    for (size_t r = 0; r < n_rows; r++, x += c, dy += c, dx += c, y += y ? c : 0) {
        TTI_IVDEP
        for (size_t j = 0; j < c; j++)
            dx[j] = ((masked(dy, y, j) - dy_mean[j]) - (x[j] - mean[j]) * slope[j]) * scale[j];
    }
}

BODY grad_plain_as(grad_in in, const float *y, const planes *p, size_t rows, const grad_factors *f,
                   float *dx) {
    const float *dy = in.dy, *x = in.x;
    size_t s = p->s;
    for (size_t r = 0; r < rows * p->c; r++, x += s, dy += s, dx += s, y += y ? s : 0) {
        size_t c = r % p->c;
        float mean = f->mean[c], dy_mean = f->dy_mean[c], slope = f->slope[c], scale = f->scale[c];
        TTI_IVDEP
        for (size_t i = 0; i < s; i++)
            dx[i] = ((masked(dy, y, i) - dy_mean) - (x[i] - mean) * slope) * scale;
    }
}

static void grad_apply(grad_in in, const planes *p, size_t rows, const grad_factors *f, float *dx) {
    if (p->last && in.y)
        grad_last_as(in, in.y, rows * p->s, p->c, f, dx);
    else if (p->last)
        grad_last_as(in, NULL, rows * p->s, p->c, f, dx);
    else if (in.y)
        grad_plain_as(in, in.y, p, rows, f, dx);
    else
        grad_plain_as(in, NULL, p, rows, f, dx);
}

static tutti_status grad_apply_run(void *state, const tti_kargs *a) {
    planes p = planes_of(a->node);
    size_t rows = grad_rows_of(a, 5, p.n), n_sample = p.c * p.s;
    double eps = tti_attr_float(a->node, "eps");
    const float *stats = a->in[2], *gamma = a->in[3], *sums = a->in[4];
    double count = sums[0] > 1.0f ? (double)sums[0] : 1;
    float *own = a->scratch, *dx = a->out[0];
    grad_factors f = {stats + 1, own, own + p.c, own + 2 * p.c};
    (void)state;
    for (size_t c = 0; c < p.c; c++) {
        double rstd = rstd_of((double)stats[0], (double)stats[1 + p.c + c], eps);
        f.dy_mean[c] = (float)((double)sums[1 + c] / count);
        f.slope[c] = (float)(rstd * (double)sums[1 + p.c + c] / count);
        f.scale[c] = (float)((double)gamma[c] * rstd);
    }
    grad_apply(grad_in_of(a), &p, rows, &f, dx);
    memset(dx + rows * n_sample, 0, (p.n - rows) * n_sample * sizeof *dx);
    return TUTTI_OK;
}

#define ROW(op_name, run_fn)                                                                       \
    {                                                                                              \
        .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .scratch_bytes = channel_scratch, \
        .run = run_fn                                                                              \
    }

extern const tti_kernel TTI_VARIANT(tti_kernels_batch_norm)[];
const tti_kernel TTI_VARIANT(tti_kernels_batch_norm)[] = {
    ROW("bn_stats", stats_run),
    ROW("bn_apply", apply_run),
    ROW("bn_eval", eval_run),
    ROW("bn_grad_sums", grad_sums_run),
    ROW("bn_grad_apply", grad_apply_run),
    {0},
};
