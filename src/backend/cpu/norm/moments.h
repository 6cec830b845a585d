/* moments.h - for the normalisations: sums over a run of f32 in one fixed order.
 *
 * 16 lanes in f32 within a block, blocks in double: the error does not grow with the length, and
 * the bits do not depend on the instruction set. */
#ifndef TTI_CPU_MOMENTS_H
#define TTI_CPU_MOMENTS_H

#include "backend/cpu/simd.h"

enum { TTI_MOMENT_BLOCK = 2048 };

/* sum x */
static inline double tti_run_sum(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i += TTI_MOMENT_BLOCK)
        sum += (double)tti_sum_n(x + i, TTI_MIN((size_t)TTI_MOMENT_BLOCK, n - i));
    return sum;
}

/* sum (x - mean)^2 within a block. */
static inline float tti_squares_n(const float *x, size_t n, float mean) {
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) {
        tti_v16 d = tti_load16(x + i) - mean;
        acc += d * d;
    }
    tti_store16(lane, acc);
    for (size_t l = 0; i + l < n; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    return tti_sum_lanes(lane);
}

static inline double tti_run_squares(const float *x, size_t n, float mean) {
    double sum = 0;
    for (size_t i = 0; i < n; i += TTI_MOMENT_BLOCK)
        sum += (double)tti_squares_n(x + i, TTI_MIN((size_t)TTI_MOMENT_BLOCK, n - i), mean);
    return sum;
}

/* sum d and sum d (x - mean), where d = dy, or dy gamma. */
typedef struct tti_two_sums {
    double sum, dot;
} tti_two_sums;

/* gamma may be NULL; within a block. */
static inline __attribute__((always_inline)) tti_two_sums tti_dots_n(const float *dy,
                                                                     const float *gamma,
                                                                     const float *x, size_t n,
                                                                     float mean) {
    tti_v16 sum = {0}, dot = {0};
    float sums[TTI_LANES], dots[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) {
        tti_v16 d = tti_load16(dy + i);
        if (gamma) d *= tti_load16(gamma + i);
        sum += d;
        dot += d * (tti_load16(x + i) - mean);
    }
    tti_store16(sums, sum), tti_store16(dots, dot);
    for (size_t l = 0; i + l < n; l++) {
        float d = gamma ? dy[i + l] * gamma[i + l] : dy[i + l];
        sums[l] += d;
        dots[l] += d * (x[i + l] - mean);
    }
    return (tti_two_sums){(double)tti_sum_lanes(sums), (double)tti_sum_lanes(dots)};
}

static inline __attribute__((always_inline)) tti_two_sums tti_run_dots(const float *dy,
                                                                       const float *gamma,
                                                                       const float *x, size_t n,
                                                                       float mean) {
    tti_two_sums all = {0, 0};
    for (size_t i = 0; i < n; i += TTI_MOMENT_BLOCK) {
        size_t m = TTI_MIN((size_t)TTI_MOMENT_BLOCK, n - i);
        tti_two_sums one = tti_dots_n(dy + i, gamma ? gamma + i : NULL, x + i, m, mean);
        all.sum += one.sum, all.dot += one.dot;
    }
    return all;
}

#endif /* TTI_CPU_MOMENTS_H */
