/* compress_math.c - the math of gradient compression: the matrix operations of PowerSGD (Vogels,
 * Karimireddy, Jaggi: PowerSGD, 2019), and the selection of the top k elements. */
#include <math.h>
#include <string.h>

#include "exec/worker/compress.h"

enum { LANES = 16 };

/* Sums of every LANES-th product, then added in order. */
static float dot(const float *a, const float *b, size_t n) {
    float sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += a[i + (size_t)j] * b[i + (size_t)j];
    for (; i < n; i++) sums[i % LANES] += a[i] * b[i];
    for (int j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

static void add_times(float factor, const float *restrict a, float *restrict to, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] += factor * a[i];
}

void tti_low_rank_left(const tti_low_rank *s, const float *m, const float *q, float *p) {
    for (size_t i = 0; i < s->rows; i++)
        for (int k = 0; k < s->r; k++)
            p[(size_t)k * s->rows + i] = dot(m + i * s->cols, q + (size_t)k * s->cols, s->cols);
}

void tti_low_rank_right(const tti_low_rank *s, const float *m, const float *p, float *q) {
    memset(q, 0, (size_t)s->r * s->cols * sizeof *q);
    for (size_t i = 0; i < s->rows; i++)
        for (int k = 0; k < s->r; k++)
            add_times(p[(size_t)k * s->rows + i], m + i * s->cols, q + (size_t)k * s->cols,
                      s->cols);
}

static void add_product(const tti_low_rank *s, float sign, const float *p, const float *q,
                        float *out) {
    for (size_t i = 0; i < s->rows; i++)
        for (int k = 0; k < s->r; k++)
            add_times(sign * p[(size_t)k * s->rows + i], q + (size_t)k * s->cols, out + i * s->cols,
                      s->cols);
}

void tti_low_rank_product(const tti_low_rank *s, const float *p, const float *q, float *out) {
    memset(out, 0, s->rows * s->cols * sizeof *out);
    add_product(s, 1, p, q, out);
}

void tti_low_rank_subtract(const tti_low_rank *s, const float *p, const float *q, float *out) {
    add_product(s, -1, p, q, out);
}

double tti_low_rank_norm(const float *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

void tti_low_rank_orthonormalize(float *vectors, int r, size_t n) {
    /* If a vector depends on the others, the rest of it is rounding error without a meaningful
     * direction. */
    const double least = 1e-5;
    for (int k = 0; k < r; k++) {
        float *v = vectors + (size_t)k * n;
        double before = tti_low_rank_norm(v, n);
        float scale = before > 0 ? (float)(1 / before) : 0;
        for (size_t i = 0; i < n; i++) v[i] *= scale;
        for (int l = 0; l < k; l++) {
            const float *other = vectors + (size_t)l * n;
            add_times(-dot(v, other, n), other, v, n);
        }
        double left = tti_low_rank_norm(v, n);
        scale = left > least ? (float)(1 / left) : left <= least ? 0 : NAN;
        for (size_t i = 0; i < n; i++) v[i] = scale > 0 ? v[i] * scale : scale;
    }
}

/* ---- the k largest elements, selected with two counting passes over their bits ----
 *
 * Without its sign a float is ordered like its bits, so no comparisons are needed and the choice is
 * deterministic: same input, same choice, also among equal elements and NaN. */

enum { HALF = 16, LOW = (1 << HALF) - 1 };

static uint32_t magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

/* The highest bin such that it and all higher bins hold at least k; *above: the count of the higher
 * bins. */
static uint32_t find_bin(const uint32_t *counts, size_t k, size_t *above) {
    uint32_t bin = TTI_TOPK_COUNTS - 1;
    *above = 0;
    while (bin > 0 && *above + counts[bin] < k) *above += counts[bin--];
    return bin;
}

void tti_topk_select(const float *x, size_t n, size_t k, uint32_t *counts, uint32_t *index) {
    size_t above, above_in_bin, n_taken = 0;
    if (k == 0) return;
    memset(counts, 0, TTI_TOPK_COUNTS * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[magnitude(x[i]) >> HALF]++;
    uint32_t high = find_bin(counts, k, &above);
    memset(counts, 0, TTI_TOPK_COUNTS * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        if (magnitude(x[i]) >> HALF == high) counts[magnitude(x[i]) & LOW]++;
    uint32_t least = high << HALF | find_bin(counts, k - above, &above_in_bin);
    size_t n_equal = k - above - above_in_bin; /* elements equal to the smallest selected one */
    for (size_t i = 0; i < n && n_taken < k; i++) {
        uint32_t m = magnitude(x[i]);
        if (m < least || (m == least && n_equal == 0)) continue;
        if (m == least) n_equal--;
        index[n_taken++] = (uint32_t)i;
    }
}
