/* gemm.c - c (+)= a b for any strides: the matrix product without oneDNN.
 *
 * Blocks of a and b are packed into panels that the inner kernel reads front to back, with zeros
 * beyond the edges.  Each element of c is a sum over k in order, in blocks of KC: the size of the
 * register tile, which differs by instruction set, does not change the bits. */
#include "backend/cpu/simd.h"

/* Register tile: MR rows by NV vectors of 16. */
#if defined(__AVX512F__)
enum { MR = 8, NV = 3 };
#elif defined(__AVX2__)
enum { MR = 6, NV = 1 };
#else
enum { MR = 2, NV = 1 };
#endif
enum { NR = NV * TTI_LANES, MC = 16 * MR, KC = 256, NC = 480 };

size_t TTI_VARIANT(tti_gemm_scratch_bytes)(void) { return (size_t)(MC + NC) * KC * sizeof(float); }

/* Panels of width lines: out[panel][k][width] from x[line*line_step + k*k_step]. */
static void pack(const float *x, size_t line_step, size_t k_step, size_t n_lines, size_t n_k,
                 size_t width, float *out) {
    for (size_t first = 0; first < n_lines; first += width, out += width * n_k) {
        size_t n = TTI_MIN(width, n_lines - first);
        const float *from = x + first * line_step;
        if (n < width) memset(out, 0, width * n_k * sizeof *out);
        if (line_step == 1) {
            for (size_t k = 0; k < n_k; k++)
                memcpy(out + k * width, from + k * k_step, n * sizeof *out);
            continue;
        }
        for (size_t k0 = 0; k0 < n_k; k0 += 16) /* a square at a time: both sides stay in cache */
            for (size_t i = 0; i < n; i++)
                for (size_t k = k0; k < TTI_MIN(k0 + 16, n_k); k++)
                    out[k * width + i] = from[i * line_step + k * k_step];
    }
}

/* tile[MR][NR] = panel a (n_k x MR) times panel b (n_k x NR). */
static inline __attribute__((always_inline)) void multiply(const float *a, const float *b,
                                                           size_t n_k, tti_v16 acc[MR][NV]) {
    for (size_t k = 0; k < n_k; k++, a += MR, b += NR) {
        tti_v16 row[NV];
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) row[v] = tti_load16(b + v * TTI_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
#pragma GCC unroll 8
            for (int v = 0; v < NV; v++) acc[i][v] += a[i] * row[v];
        }
    }
}

/* One register tile of c; m and n are smaller than MR and NR at the edges. */
static void tile(const float *a, const float *b, size_t n_k, const tti_gemm *at, bool add) {
    tti_v16 acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) acc[i][v] = (tti_v16){0};
    }
    multiply(a, b, n_k, acc);
    if (at->m == MR && at->n == NR) {
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
#pragma GCC unroll 8
            for (int v = 0; v < NV; v++) {
                float *c = at->c + (size_t)i * at->ldc + v * TTI_LANES;
                tti_store16(c, add ? tti_load16(c) + acc[i][v] : acc[i][v]);
            }
        }
        return;
    }
    float edge[MR * NR];
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++) tti_store16(edge + i * NR + v * TTI_LANES, acc[i][v]);
    for (size_t i = 0; i < at->m; i++)
        for (size_t j = 0; j < at->n; j++) {
            float *c = at->c + i * at->ldc + j;
            *c = add ? *c + edge[i * NR + j] : edge[i * NR + j];
        }
}

/* A block of c from packed a (m x n_k) and packed b (n_k x n). */
static void block(const float *a, const float *b, size_t n_k, const tti_gemm *at, bool add) {
    for (size_t j = 0; j < at->n; j += NR)
        for (size_t i = 0; i < at->m; i += MR) {
            tti_gemm part = {.m = TTI_MIN((size_t)MR, at->m - i),
                             .n = TTI_MIN((size_t)NR, at->n - j),
                             .c = at->c + i * at->ldc + j,
                             .ldc = at->ldc};
            tile(a + i * n_k, b + j * n_k, n_k, &part, add);
        }
}

static void clear(const tti_gemm *g) {
    for (size_t i = 0; i < g->m; i++) memset(g->c + i * g->ldc, 0, g->n * sizeof *g->c);
}

void TTI_VARIANT(tti_gemm_run)(const tti_gemm *g, void *scratch) {
    float *packed_a = scratch, *packed_b = packed_a + (size_t)MC * KC;
    if (g->k == 0 && !g->add) clear(g);
    for (size_t j = 0; j < g->n; j += NC)
        for (size_t k = 0; k < g->k; k += KC) {
            size_t n = TTI_MIN((size_t)NC, g->n - j), n_k = TTI_MIN((size_t)KC, g->k - k);
            pack(g->b + k * g->b_row + j * g->b_col, g->b_col, g->b_row, n, n_k, NR, packed_b);
            for (size_t i = 0; i < g->m; i += MC) {
                size_t m = TTI_MIN((size_t)MC, g->m - i);
                pack(g->a + i * g->a_row + k * g->a_col, g->a_row, g->a_col, m, n_k, MR, packed_a);
                tti_gemm part = {.m = m, .n = n, .c = g->c + i * g->ldc + j, .ldc = g->ldc};
                block(packed_a, packed_b, n_k, &part, g->add || k > 0);
            }
        }
}
