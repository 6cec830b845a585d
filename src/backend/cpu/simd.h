/* simd.h - for the vector files: names for each instruction set, 16-lane vectors, fixed sums.
 *
 * Vectors are GNU C vector types, which gcc and clang lower to whatever the instruction set has.
 * Bits never depend on it: a sum has 16 lanes whatever the registers, joined in one fixed tree. */
#ifndef TTI_CPU_SIMD_H
#define TTI_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "backend/cpu/cpu.h"

/* Set by flags.cmake for the further compilations of the vector files. */
#ifndef TTI_ISA
#define TTI_ISA generic
#endif

#define TTI_JOIN_(a, b) a##_##b
#define TTI_JOIN(a, b) TTI_JOIN_(a, b)
#define TTI_TEXT_(a) #a
#define TTI_TEXT(a) TTI_TEXT_(a)
/* name_avx512 and the like: every symbol that a vector file exports. */
#define TTI_VARIANT(name) TTI_JOIN(name, TTI_ISA)
#define TTI_ISA_TEXT TTI_TEXT(TTI_ISA)

/* Before a loop whose iterations are independent even when an output is an input. */
#if defined(__clang__)
#define TTI_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TTI_IVDEP _Pragma("GCC ivdep")
#endif

enum { TTI_LANES = 16 };
typedef float tti_v16 __attribute__((vector_size(64)));
typedef int32_t tti_v16i __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) tti_v16 tti_load16(const float *x) {
    tti_v16 v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) void tti_store16(float *x, tti_v16 v) {
    memcpy(x, &v, sizeof v);
}

/* m ? a : b for each lane; m is 0 or -1. */
static inline __attribute__((always_inline)) tti_v16 tti_select16(tti_v16i m, tti_v16 a,
                                                                  tti_v16 b) {
    return (tti_v16)((m & (tti_v16i)a) | (~m & (tti_v16i)b));
}

/* The lanes' sum in the tree ((0+8)+(4+12))+... that halving gives. */
static inline __attribute__((always_inline)) float tti_sum_lanes(const float lane[TTI_LANES]) {
    typedef float v8 __attribute__((vector_size(32)));
    typedef float v4 __attribute__((vector_size(16)));
    v8 low, high;
    v4 half[2];
    memcpy(&low, lane, sizeof low);
    memcpy(&high, lane + 8, sizeof high);
    low += high;
    memcpy(half, &low, sizeof half);
    half[0] += half[1];
    return (half[0][0] + half[0][2]) + (half[0][1] + half[0][3]);
}

/* The sum of n elements in 16 lanes. */
static inline float tti_sum_n(const float *x, size_t n) {
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) acc += tti_load16(x + i);
    tti_store16(lane, acc);
    for (size_t l = 0; i + l < n; l++) lane[l] += x[i + l];
    return tti_sum_lanes(lane);
}

/* True if x comes after best in the order of a maximum: NaN is the largest, as in PyTorch. */
static inline bool tti_is_larger(float x, float best) {
    return (x > best) | ((x != x) & (best == best));
}

/* The largest of start and n elements; NaN if one is NaN. */
static inline float tti_max_n(const float *x, size_t n, float start) {
    tti_v16 acc = {0};
    float lane[TTI_LANES], m = start;
    size_t i = 0;
    acc = acc + start;
    for (; i + TTI_LANES <= n; i += TTI_LANES) {
        tti_v16 v = tti_load16(x + i);
        acc = tti_select16((tti_v16i)(v > acc) | (tti_v16i)(v != v), v, acc);
    }
    tti_store16(lane, acc);
    for (int l = 0; l < TTI_LANES; l++) m = ((lane[l] > m) | (lane[l] != lane[l])) ? lane[l] : m;
    for (; i < n; i++) m = ((x[i] > m) | (x[i] != x[i])) ? x[i] : m;
    return m;
}

/* y[j] += sum over rows i of x[i*n_cols + j]; rows are added in order, four to a load of y. */
static inline void tti_add_columns(const float *x, size_t n_rows, size_t n_cols, float *y) {
    size_t i = 0;
    for (; i + 4 <= n_rows; i += 4, x += 4 * n_cols) {
        const float *x1 = x + n_cols, *x2 = x1 + n_cols, *x3 = x2 + n_cols;
        TTI_IVDEP
        for (size_t j = 0; j < n_cols; j++) y[j] = (((y[j] + x[j]) + x1[j]) + x2[j]) + x3[j];
    }
    for (; i < n_rows; i++, x += n_cols) {
        TTI_IVDEP
        for (size_t j = 0; j < n_cols; j++) y[j] += x[j];
    }
}

static inline void tti_sum_columns(const float *x, size_t n_rows, size_t n_cols, float *y) {
    memset(y, 0, n_cols * sizeof *y);
    tti_add_columns(x, n_rows, n_cols, y);
}

/* ---- queries about a node ---- */

static inline size_t tti_n_elems(const tutti_value *value) {
    return (size_t)tutti_shape_n_elems(&value->type.shape);
}

/* True if the value lies in N,H,W,C order. */
static inline bool tti_is_last(const tutti_value *value) {
    return value->layout == TTI_CHANNELS_LAST_BYTES && value->type.shape.n_dims == 4;
}

/* All inputs first.. and all outputs are f32. */
static inline bool tti_all_f32(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_F32) return false;
    for (int k = 0; k < node->op->n_out; k++)
        if (node->out[k]->type.dtype != TUTTI_F32) return false;
    return true;
}

/* Notes the layout of a 4-D value: seen[0] plain, seen[1] N,H,W,C, seen[2] the orders differ. */
static inline void tti_see_layout(const tutti_value *value, bool seen[3]) {
    const int64_t *d = value->type.shape.dim;
    if (value->type.shape.n_dims != 4) return;
    seen[tti_is_last(value)] = true;
    if (d[1] != 1 && d[2] * d[3] != 1) seen[2] = true;
}

/* All 4-D values have one layout, or both layouts of all of them are the same bytes.  In the second
 * case the marks of the values depend on their readers, so they must not choose the kernel. */
static inline bool tti_one_layout(const tti_node *node) {
    bool seen[3] = {false, false, false};
    for (int i = 0; i < node->n_in; i++) tti_see_layout(node->in[i], seen);
    for (int k = 0; k < node->op->n_out; k++) tti_see_layout(node->out[k], seen);
    return !seen[2] || !seen[0] || !seen[1];
}

/* No value is in N,H,W,C order. */
static inline bool tti_all_plain(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (tti_is_last(node->in[i])) return false;
    for (int k = 0; k < node->op->n_out; k++)
        if (tti_is_last(node->out[k])) return false;
    return true;
}

/* ---- elementwise functions, also run blockwise by fused.c ---- */

/* out[0][i] = f(in[0][i], in[1][i], ...) for 0 <= i < n_elems; out may be any input. */
typedef void (*tti_elem_fn)(const tti_node *node, const float *const *in, float *out,
                            size_t n_elems);
typedef struct tti_elem {
    const char *op;
    tti_elem_fn fn;
} tti_elem;

extern const tti_elem TTI_VARIANT(tti_elems_elementwise)[];
extern const tti_elem TTI_VARIANT(tti_elems_activation)[];
extern const tti_elem TTI_VARIANT(tti_elems_binary)[];

/* The function for a node whose values are all f32 and of one shape; else NULL.  The caller sees
 * to it that they are of one layout too. */
tti_elem_fn TTI_VARIANT(tti_elem_find)(const tti_node *node);

/* ---- matrix product of our own, gemm.c ---- */

/* c[i*ldc + j] (+)= sum over k of a[i*a_row + k*a_col] * b[k*b_row + j*b_col]; i < m, j < n. */
typedef struct tti_gemm {
    size_t m, n, k;
    const float *a, *b;
    size_t a_row, a_col, b_row, b_col;
    float *c;
    size_t ldc;
    bool add; /* to what c holds */
} tti_gemm;

size_t TTI_VARIANT(tti_gemm_scratch_bytes)(void);
void TTI_VARIANT(tti_gemm_run)(const tti_gemm *gemm, void *scratch);

/* ---- small product, tile_product.c ---- */

/* c[m][n] (+)= a[m][k] b[k][n]; n in whole vectors. */
typedef struct tti_tile_product {
    size_t m, n, k;
    const float *a; /* a[i * a_row + k * a_col] */
    size_t a_row, a_col;
    const float *b; /* b[k * ldb + j] */
    size_t ldb;
    float *c; /* c[i * ldc + j] */
    size_t ldc;
    bool add; /* to what c holds */
} tti_tile_product;

void TTI_VARIANT(tti_tile_multiply)(const tti_tile_product *product);

#endif /* TTI_CPU_SIMD_H */
