/* tiles.h - rows of keys and values rearranged for tile products, and sums over rows; f32. */
#ifndef TTI_CPU_TILES_H
#define TTI_CPU_TILES_H

#include "backend/cpu/simd.h"

static inline size_t padded(size_t n) { return (n + TTI_LANES - 1) / TTI_LANES * TTI_LANES; }

/* Rows are short: by vectors, without a call. */
static inline void copy_row(const float *from, size_t n, float *to) {
    size_t j = 0;
    for (; j + TTI_LANES <= n; j += TTI_LANES) tti_store16(to + j, tti_load16(from + j));
    for (; j < n; j++) to[j] = from[j];
}

/* to[i][wide] = from[i * step], zeros beyond n columns. */
static inline void copy_rows(const float *from, size_t step, size_t n_rows, size_t n, float *to) {
    size_t wide = padded(n);
    for (size_t i = 0; i < n_rows; i++, from += step, to += wide) {
        copy_row(from, n, to);
        for (size_t j = n; j < wide; j++) to[j] = 0.0f;
    }
}

typedef float v4 __attribute__((vector_size(16)));

/* A square of 4 rows, step apart, into 4 rows tall apart. */
static inline __attribute__((always_inline)) void transpose_square(const float *from, size_t step,
                                                                   float *to, size_t tall) {
    v4 r[4];
    for (size_t i = 0; i < 4; i++) memcpy(&r[i], from + i * step, sizeof r[i]);
    v4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    v4 b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    v4 c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    v4 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
    for (size_t i = 0; i < 4; i++) memcpy(to + i * tall, &r[i], sizeof r[i]);
}

/* to[d][tall] = from[i * step + d], zeros beyond n rows. */
static inline void transpose_rows_to(const float *from, size_t step, size_t n, size_t dim,
                                     size_t tall, float *to) {
    size_t n4 = n / 4 * 4, dim4 = dim / 4 * 4;
    for (size_t i = 0; i < n4; i += 4) {
        const float *rows = from + i * step;
        for (size_t d = 0; d < dim4; d += 4)
            transpose_square(rows + d, step, to + d * tall + i, tall);
        for (size_t d = dim4; d < dim; d++)
            for (size_t k = 0; k < 4; k++) to[d * tall + i + k] = rows[k * step + d];
    }
    for (size_t d = 0; d < dim && n4 < tall; d++)
        for (size_t i = n4; i < tall; i++) to[d * tall + i] = i < n ? from[i * step + d] : 0.0f;
}

static inline void transpose_rows(const float *from, size_t step, size_t n, size_t dim, float *to) {
    transpose_rows_to(from, step, n, dim, padded(n), to);
}

static inline void write_rows(const float *from, size_t wide, size_t n_rows, size_t dim,
                              size_t step, float *to) {
    for (size_t i = 0; i < n_rows; i++, from += wide, to += step) copy_row(from, dim, to);
}

/* sum a b over the 16 lanes of n elements. */
static inline float dot(const float *a, const float *b, size_t n) {
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) acc += tti_load16(a + i) * tti_load16(b + i);
    tti_store16(lane, acc);
    for (size_t l = 0; i + l < n; l++) lane[l] += a[i + l] * b[i + l];
    return tti_sum_lanes(lane);
}

/* The largest of n elements, n > 0, where whole vectors can be read. */
static inline float largest_of(const float *w, size_t n) {
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    acc -= __builtin_inff();
    for (size_t first = 0; first < n; first += TTI_LANES) {
        int32_t left = (int32_t)TTI_MIN(n - first, (size_t)TTI_LANES);
        tti_v16i lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        tti_v16 x = tti_load16(w + first);
        acc = tti_select16((lanes < left) & ~(tti_v16i)(x <= acc), x, acc);
    }
    tti_store16(lane, acc);
    for (int half = TTI_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] <= lane[l] ? lane[l] : lane[l + half];
    return lane[0];
}

#endif /* TTI_CPU_TILES_H */
