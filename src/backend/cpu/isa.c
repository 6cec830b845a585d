/* isa.c - one instruction set: the list of its kernels, fastest first, and the executor's other
 * functions: the parameter hash, sums of squares, accumulation.
 *
 * Compiled once for each set with the other vector files.  To add a kernel, add a row to the list
 * at the end of its family's file; to add a family, add its list here. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"
#include "base/dtype.h"
#include "base/philox.h"

/* Horner's rule in each of 64 lanes mod 2^32: a load, a multiplication and an addition for 16
 * elements, so that the hash costs no more than reading them.  Factors are odd, so a lane changes
 * whenever one of its elements does. */
enum { HASH_ROWS = 4, HASH_CHUNK = HASH_ROWS * TTI_LANES };
typedef uint32_t u32x16 __attribute__((vector_size(64)));

static inline void hash_chunk(u32x16 lanes[HASH_ROWS], const float *w) {
    for (int r = 0; r < HASH_ROWS; r++) {
        u32x16 bits;
        memcpy(&bits, w + r * TTI_LANES, sizeof bits);
        lanes[r] = lanes[r] * 0x9E3779B1u + bits;
    }
}

static uint64_t hash_params(const float *w, size_t n_elems, uint64_t first_index) {
    u32x16 lanes[HASH_ROWS] = {{0}};
    size_t i = 0;
    for (; i + HASH_CHUNK <= n_elems; i += HASH_CHUNK) hash_chunk(lanes, w + i);
    if (i < n_elems) {
        float rest[HASH_CHUNK] = {0};
        memcpy(rest, w + i, (n_elems - i) * sizeof *rest);
        hash_chunk(lanes, rest);
    }
    for (int r = 1; r < HASH_ROWS; r++) lanes[0] = lanes[0] * 0x85EBCA6Bu + lanes[r];
    uint32_t lane[TTI_LANES];
    memcpy(lane, lanes, sizeof lane);
    uint64_t hash = tti_mix64(first_index, n_elems);
    for (int k = 0; k < TTI_LANES; k += 2)
        hash = tti_mix64(hash ^ ((uint64_t)lane[k] << 32 | lane[k + 1]), (uint64_t)k);
    return hash;
}

typedef float f32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));

/* In eight lanes of double, joined in a fixed tree. */
static double sum_squares(const float *x, size_t n) {
    f64x8 acc = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f32x8 v;
        memcpy(&v, x + i, sizeof v);
        f64x8 d = __builtin_convertvector(v, f64x8);
        acc += d * d;
    }
    double lane[8];
    memcpy(lane, &acc, sizeof lane);
    for (size_t l = 0; i + l < n; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int half = 4; half; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static void accumulate(float *dst, const float *src, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) dst[i] += src[i];
}

static inline float rounded(float x) { return tti_bf16_to_f32(tti_f32_to_bf16(x)); }

static void accumulate_rounded(float *dst, const float *src, size_t n) {
    for (size_t i = 0; !src && i < n; i++) dst[i] = rounded(dst[i]);
    if (!src) return;
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) dst[i] = rounded(rounded(dst[i]) + rounded(src[i]));
}

static void relu(float *x, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) x[i] = x[i] <= 0.0f ? 0.0f : x[i];
}

static void widen(bool bf16, const uint16_t *x, float *y, size_t n) {
    for (size_t i = 0; bf16 && i < n; i++) y[i] = tti_bf16_to_f32(x[i]);
    for (size_t i = 0; !bf16 && i < n; i++) y[i] = tti_vf16_to_f32(x[i]);
}

static void narrow(bool bf16, const float *x, uint16_t *y, size_t n) {
    for (size_t i = 0; bf16 && i < n; i++) y[i] = tti_f32_to_bf16(x[i]);
    for (size_t i = 0; !bf16 && i < n; i++) y[i] = tti_vf32_to_f16(x[i]);
}

/* clang-format off */
#define TTI_FAMILIES(X) \
    X(fused) X(elementwise) X(activation) X(binary) X(matmul) X(conv) X(pool) X(resample) X(shape) \
    X(softmax) X(loss) X(pair_loss) X(reduce) X(random) X(optim) X(norm) X(batch_norm) X(embed)    \
    X(attention) X(rotary) X(recurrent) X(along) X(counts) X(grouped) X(sdpa)
/* clang-format on */

#define TTI_DECLARE(name) extern const tti_kernel TTI_VARIANT(tti_kernels_##name)[];
#define TTI_LIST(name) TTI_VARIANT(tti_kernels_##name),
TTI_FAMILIES(TTI_DECLARE)
static const tti_kernel *const kernels[] = {TTI_FAMILIES(TTI_LIST) NULL};

extern const tti_cpu_isa TTI_VARIANT(tti_cpu_isa);
const tti_cpu_isa TTI_VARIANT(tti_cpu_isa) = {
    .name = TTI_ISA_TEXT,
    .kernels = kernels,
    .hash_params = hash_params,
    .sum_squares = sum_squares,
    .accumulate = accumulate,
    .accumulate_rounded = accumulate_rounded,
    .sum_columns = tti_sum_columns,
    .relu = relu,
    .widen = widen,
    .narrow = narrow,
};
