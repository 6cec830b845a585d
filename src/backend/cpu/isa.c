/* isa.c - one instruction set: the list of its kernels, fastest first, and what the
 * executor does beside kernels: the parameter hash, sums of squares, accumulation.
 *
 * Compiled once for each set with the other vector files.  To add a kernel, add a row to the list
 * at the end of its family's file; to add a family, add its list here. */
#include "backend/cpu/simd.h"

/* With K odd and j the index in the chunk: sum bits*(2*(first+j)+1)*K
 * = K * ((2*first+1) * sum bits + 2 * sum bits*j), so an element costs one 32-bit multiplication.
 */
static uint64_t hash_chunk(const float *w, uint32_t n, uint64_t first) {
    uint64_t sum = 0, weighted = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t bits;
        memcpy(&bits, w + j, sizeof bits);
        sum += bits;
        weighted += (uint64_t)bits * j;
    }
    return 0x9E3779B97F4A7C15u * ((2 * first + 1) * sum + 2 * weighted);
}

static uint64_t hash_params(const float *w, size_t n_elems, uint64_t first_index) {
    const size_t chunk = (size_t)1 << 30;
    uint64_t hash = 0;
    for (size_t i = 0; i < n_elems; i += chunk)
        hash += hash_chunk(w + i, (uint32_t)TTI_MIN(chunk, n_elems - i), first_index + i);
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

#define TTI_FAMILIES(X) \
    X(fused)            \
    X(elementwise)      \
    X(binary) X(matmul) X(conv) X(pool) X(shape) X(softmax) X(loss) X(reduce) X(random) X(optim)

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
    .sum_columns = tti_sum_columns,
};
