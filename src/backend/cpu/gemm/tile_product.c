/* tile_product.c - small matrix products in place: c[m][n] (+)= a[m][k] b[k][n], nothing packed.
 *
 * Each element of c is one sum over k in order, each step of it one fused multiply-add, so the bits
 * are those of any instruction set and of any size of the register tile.  The multiply-add is an
 * explicit call: compilers that contract products on their own omit some (gcc 13 does, for chains
 * of 256-bit vectors).  If the instruction set has none it is computed in double, exactly. */
#include "backend/cpu/simd.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

/* A register of UNIT lanes; a tile has MR rows of NV times 16 lanes. */
#if defined(__AVX512F__)
typedef __m512 unit;
enum { MR = 8, NV = 2, UNIT = 16 };
static inline __attribute__((always_inline)) unit multiply_add(unit acc, float x, unit row) {
    return _mm512_fmadd_ps(_mm512_set1_ps(x), row, acc);
}
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256 unit;
enum { MR = 4, NV = 1, UNIT = 8 };
static inline __attribute__((always_inline)) unit multiply_add(unit acc, float x, unit row) {
    return _mm256_fmadd_ps(_mm256_set1_ps(x), row, acc);
}
#else
typedef tti_v16 unit;
enum { MR = 2, NV = 1, UNIT = 16 };

#if defined(__FP_FAST_FMAF)
static inline float multiply_add_one(float acc, float x, float y) {
    return __builtin_fmaf(x, y, acc);
}
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
#endif

static unit multiply_add(unit acc, float x, unit row) {
    float c[TTI_LANES], y[TTI_LANES];
    tti_store16(c, acc), tti_store16(y, row);
    for (int l = 0; l < TTI_LANES; l++) c[l] = multiply_add_one(c[l], x, y[l]);
    return tti_load16(c);
}
#endif

enum { PER = TTI_LANES / UNIT }; /* registers for 16 lanes */

static inline __attribute__((always_inline)) unit load(const float *x) {
    unit u;
    memcpy(&u, x, sizeof u);
    return u;
}

/* mr rows by nv times 16 lanes of c; both are constants where this is called. */
static inline __attribute__((always_inline)) void tile(const tti_tile_product *g, const float *a,
                                                       const float *b, float *c, int mr, int nv) {
    unit acc[MR][NV * PER];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int u = 0; u < nv * PER; u++)
            acc[i][u] = g->add ? load(c + (size_t)i * g->ldc + u * UNIT) : (unit){0};
    }
    for (size_t k = 0; k < g->k; k++, a += g->a_col, b += g->ldb) {
        unit row[NV * PER];
#pragma GCC unroll 2
        for (int u = 0; u < nv * PER; u++) row[u] = load(b + u * UNIT);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
            for (int u = 0; u < nv * PER; u++)
                acc[i][u] = multiply_add(acc[i][u], a[(size_t)i * g->a_row], row[u]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 2
        for (int u = 0; u < nv * PER; u++)
            memcpy(c + (size_t)i * g->ldc + u * UNIT, &acc[i][u], sizeof(unit));
    }
}

void TTI_VARIANT(tti_tile_multiply)(const tti_tile_product *g) {
    size_t j = 0;
    for (; j + NV * TTI_LANES <= g->n; j += NV * TTI_LANES) {
        size_t i = 0;
        for (; i + MR <= g->m; i += MR)
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, MR, NV);
        if (MR > 4 && i + 4 <= g->m) {
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 4, NV);
            i += 4;
        }
        if (MR > 2 && i + 2 <= g->m) {
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 2, NV);
            i += 2;
        }
        for (; i < g->m; i++) tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 1, NV);
    }
    for (; j < g->n; j += TTI_LANES)
        for (size_t i = 0; i < g->m; i++)
            tile(g, g->a + i * g->a_row, g->b + j, g->c + i * g->ldc + j, 1, 1);
}
