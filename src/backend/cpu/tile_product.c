/* tile_product.c - small matrix products in place: c[m][n] (+)= a[m][k] b[k][n], nothing packed.
 *
 * Each element of c is one sum over k in order, each step of it one fused multiply-add, so the bits
 * are those of any instruction set and of any size of the register tile.  This is the one file that
 * is compiled with contraction (flags.cmake): every product in it has one use, the addition behind
 * it.  Where the instruction set has no such operation it is computed in double, exactly. */
#include "backend/cpu/simd.h"

#if defined(__AVX512F__)
enum { MR = 8, NV = 2 };
#elif defined(__AVX2__)
enum { MR = 4, NV = 1 };
#else
enum { MR = 2, NV = 1 };
#endif

#if defined(__FP_FAST_FMAF) || defined(__FMA__)
#define multiply_add(acc, x, row) ((acc) + (x) * (row))
#else
/* acc + x row, rounded once: the sum in double goes to the odd one of its two neighbours where it
 * is not exact, after which rounding to float is right (Boldo and Melquiond 2008). */
static inline float multiply_add_one(float acc, float x, float y) {
    double p = (double)x * (double)y, c = (double)acc, s = p + c, back = s - p;
    double error = (p - (s - back)) + (c - back);
    int64_t bits, away;
    memcpy(&bits, &s, sizeof bits);
    away = (error > 0) == (s > 0) ? 1 : -1;
    bits += (error > 0 || error < 0) && !(bits & 1) ? away : 0;
    memcpy(&s, &bits, sizeof s);
    return (float)s;
}

static tti_v16 multiply_add(tti_v16 acc, float x, tti_v16 row) {
    float c[TTI_LANES], y[TTI_LANES];
    tti_store16(c, acc), tti_store16(y, row);
    for (int l = 0; l < TTI_LANES; l++) c[l] = multiply_add_one(c[l], x, y[l]);
    return tti_load16(c);
}
#endif

/* mr rows by nv vectors of c; both are constants where this is called. */
static inline __attribute__((always_inline)) void tile(const tti_tile_product *g, const float *a,
                                                       const float *b, float *c, int mr, int nv) {
    tti_v16 acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[i][v] = g->add ? tti_load16(c + (size_t)i * g->ldc + v * TTI_LANES) : (tti_v16){0};
    }
    for (size_t k = 0; k < g->k; k++, a += g->a_col, b += g->ldb) {
        tti_v16 row[NV];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) row[v] = tti_load16(b + v * TTI_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++)
                acc[i][v] = multiply_add(acc[i][v], a[(size_t)i * g->a_row], row[v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) tti_store16(c + (size_t)i * g->ldc + v * TTI_LANES, acc[i][v]);
    }
}

void TTI_VARIANT(tti_tile_multiply)(const tti_tile_product *g) {
    size_t j = 0;
    for (; j + NV * TTI_LANES <= g->n; j += NV * TTI_LANES) {
        size_t i = 0;
        for (; i + MR <= g->m; i += MR)
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, MR, NV);
        for (; i < g->m; i++) tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 1, NV);
    }
    for (; j < g->n; j += TTI_LANES)
        for (size_t i = 0; i < g->m; i++)
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 1, 1);
}
