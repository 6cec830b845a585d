/* norm.c - layer, RMS and group norm with their gradients; f32, plain layout.
 *
 * All normalize rows (src/ops/norm/norm.c): a row is a number of channels times inner positions.
 * With inner 1, as in layer and RMS norm, gamma is a vector along the row; else a number for each
 * run of inner.  A row stays in cache over its passes, so x is read once from memory.  Gradients of
 * gamma and beta add rows in order, in blocks, so that the error does not grow with their number.
 */
#include "backend/cpu/norm/moments.h"
#include "ops/norm/rows.h"

static bool can_run(const tti_node *node) { return tti_all_f32(node) && tti_all_plain(node); }

static float row_mean(const tti_rows *v, const float *x) {
    return v->centred && v->width ? (float)(tti_run_sum(x, v->width) / (double)v->width) : 0.0f;
}

static float row_rstd(const tti_rows *v, const float *x, float mean, double eps) {
    double variance = v->width ? tti_run_squares(x, v->width, mean) / (double)v->width : 0;
    return (float)(1 / __builtin_sqrt(variance + eps));
}

/* y = (x - mean) scale + beta */
static inline void affine(const float *x, float mean, float scale, float beta, float *y, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + beta;
}

/* gamma and beta at the row's group; beta may be NULL. */
static void norm_row(const tti_rows *v, const float *x, float mean, float rstd, const float *gamma,
                     const float *beta, float *y) {
    if (v->inner != 1) {
        for (size_t c = 0; c < v->per_group; c++, x += v->inner, y += v->inner)
            affine(x, mean, rstd * gamma[c], beta ? beta[c] : 0.0f, y, v->inner);
    } else if (beta) {
        TTI_IVDEP
        for (size_t i = 0; i < v->width; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    } else {
        TTI_IVDEP
        for (size_t i = 0; i < v->width; i++) y[i] = (x[i] - mean) * rstd * gamma[i];
    }
}

static tutti_status norm_run(void *state, const tti_kargs *a) {
    tti_rows v = tti_rows_of(a->node, 0);
    double eps = tti_attr_float(a->node, "eps");
    const float *x = a->in[0], *gamma = a->in[1], *beta = a->node->n_in > 2 ? a->in[2] : NULL;
    float *y = a->out[0], *means = v.centred ? a->out[1] : NULL, *rstds = a->out[v.centred ? 2 : 1];
    (void)state;
    for (size_t r = 0; r < v.n_rows; r++, x += v.width, y += v.width) {
        size_t p = r % v.groups * v.per_group;
        float mean = row_mean(&v, x), rstd = row_rstd(&v, x, mean, eps);
        norm_row(&v, x, mean, rstd, gamma + p, beta ? beta + p : NULL, y);
        if (means) means[r] = mean;
        rstds[r] = rstd;
    }
    return TUTTI_OK;
}

/* ---- dx = rstd (d - mean d - xhat mean(d xhat)), d = dy gamma ---- */

static tti_two_sums row_dots(const tti_rows *v, const float *dy, const float *x, float mean,
                             const float *gamma) {
    tti_two_sums all = {0, 0};
    if (v->inner == 1) return tti_run_dots(dy, gamma, x, v->width, mean);
    for (size_t c = 0; c < v->per_group; c++, dy += v->inner, x += v->inner) {
        tti_two_sums one = tti_run_dots(dy, NULL, x, v->inner, mean);
        all.sum += one.sum * (double)gamma[c], all.dot += one.dot * (double)gamma[c];
    }
    return all;
}

/* dx = dy gamma rstd - (x - mean) slope - shift, for a gamma that is constant, or a vector. */
static inline void grad_x_run(const float *dy, const float *x, const float center[3], float scale,
                              float *dx, size_t n) {
    float mean = center[0], slope = center[1], shift = center[2];
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) dx[i] = dy[i] * scale - (x[i] - mean) * slope - shift;
}

static void grad_x_row(const tti_rows *v, const float *dy, const float *x, const float center[3],
                       float rstd, const float *gamma, float *dx) {
    float mean = center[0], slope = center[1], shift = center[2];
    if (v->inner == 1) {
        TTI_IVDEP
        for (size_t i = 0; i < v->width; i++)
            dx[i] = dy[i] * gamma[i] * rstd - (x[i] - mean) * slope - shift;
        return;
    }
    for (size_t c = 0; c < v->per_group; c++) {
        size_t at = c * v->inner;
        grad_x_run(dy + at, x + at, center, gamma[c] * rstd, dx + at, v->inner);
    }
}

static tutti_status grad_x_kernel_run(void *state, const tti_kargs *a) {
    tti_rows v = tti_rows_of(a->node, 1);
    const float *dy = a->in[0], *x = a->in[1], *means = v.centred ? a->in[2] : NULL;
    const float *rstds = a->in[v.centred ? 3 : 2], *gamma = a->in[a->node->n_in - 1];
    float *dx = a->out[0];
    (void)state;
    for (size_t r = 0; r < v.n_rows && v.width; r++) {
        const float *own = gamma + r % v.groups * v.per_group;
        double rstd = (double)rstds[r], n = (double)v.width;
        float mean = means ? means[r] : 0.0f;
        tti_two_sums s = row_dots(&v, dy, x, mean, own);
        float slope = (float)(rstd * rstd * rstd * s.dot / n);
        float shift = v.centred ? (float)(rstd * s.sum / n) : 0.0f;
        grad_x_row(&v, dy, x, (float[]){mean, slope, shift}, rstds[r], own, dx);
        dy += v.width, x += v.width, dx += v.width;
    }
    return TUTTI_OK;
}

/* ---- dgamma = sum dy xhat, dbeta = sum dy ---- */

enum { BLOCK_ROWS = 64 };

static size_t n_params(const tti_rows *v) { return v->groups * v->per_group; }

static size_t grad_w_scratch(const tti_node *node, const void *state) {
    tti_rows v = tti_rows_of(node, 1);
    (void)state;
    return 2 * n_params(&v) * sizeof(float);
}

static void grad_w_row(const tti_rows *v, const float *dy, const float *x, float mean, float rstd,
                       float *dgamma, float *dbeta) {
    if (v->inner == 1) {
        TTI_IVDEP
        for (size_t i = 0; i < v->width; i++) {
            dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
            dbeta[i] += dy[i];
        }
        return;
    }
    for (size_t c = 0; c < v->per_group; c++, dy += v->inner, x += v->inner) {
        tti_two_sums s = tti_run_dots(dy, NULL, x, v->inner, mean);
        dgamma[c] += (float)(s.dot * (double)rstd);
        dbeta[c] += (float)s.sum;
    }
}

static void add_block(float *to, const float *from, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

static tutti_status grad_w_run(void *state, const tti_kargs *a) {
    tti_rows v = tti_rows_of(a->node, 1);
    size_t n = n_params(&v);
    const float *dy = a->in[0], *x = a->in[1], *means = v.centred ? a->in[2] : NULL;
    const float *rstds = a->in[v.centred ? 3 : 2];
    float *dgamma = a->scratch, *dbeta = dgamma + n; /* of a block */
    (void)state;
    for (int k = 0; k < a->node->op->n_out; k++) memset(a->out[k], 0, n * sizeof(float));
    for (size_t first = 0; first < v.n_rows; first += BLOCK_ROWS) {
        memset(dgamma, 0, 2 * n * sizeof *dgamma);
        for (size_t r = first; r < TTI_MIN(first + BLOCK_ROWS, v.n_rows); r++) {
            size_t p = r % v.groups * v.per_group, at = r * v.width;
            grad_w_row(&v, dy + at, x + at, means ? means[r] : 0.0f, rstds[r], dgamma + p,
                       dbeta + p);
        }
        add_block(a->out[0], dgamma, n);
        if (v.centred) add_block(a->out[1], dbeta, n);
    }
    return TUTTI_OK;
}

#define NORM(op_name)                                                            \
    {.op = #op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .run = norm_run}, \
        {.op = #op_name "_grad_x",                                               \
         .name = TTI_ISA_TEXT,                                                   \
         .can_run = can_run,                                                     \
         .run = grad_x_kernel_run},                                              \
    {                                                                            \
        .op = #op_name "_grad_w", .name = TTI_ISA_TEXT, .can_run = can_run,      \
        .scratch_bytes = grad_w_scratch, .run = grad_w_run                       \
    }

extern const tti_kernel TTI_VARIANT(tti_kernels_norm)[];
const tti_kernel TTI_VARIANT(tti_kernels_norm)[] = {
    NORM(layer_norm),
    NORM(rms_norm),
    NORM(group_norm),
    {0},
};
