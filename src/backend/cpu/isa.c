/* isa.c - one instruction set: the list of its kernels, fastest first, and the parameter hash.
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

/* Sixteen partial sums in double, joined in one fixed tree. */
static double sum_squares(const float *x, size_t n_elems) {
    double lane[TTI_LANES] = {0};
    size_t i = 0;
    for (; i + TTI_LANES <= n_elems; i += TTI_LANES)
        for (int k = 0; k < TTI_LANES; k++) lane[k] += (double)x[i + (size_t)k] * x[i + (size_t)k];
    for (int k = 0; i < n_elems; i++, k++) lane[k] += (double)x[i] * x[i];
    for (int n = TTI_LANES / 2; n; n /= 2)
        for (int k = 0; k < n; k++) lane[k] += lane[k + n];
    return lane[0];
}

static void accumulate(float *dst, const float *src, size_t n_elems) {
    TTI_IVDEP
    for (size_t i = 0; i < n_elems; i++) dst[i] += src[i];
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
const tti_cpu_isa TTI_VARIANT(tti_cpu_isa) = {TTI_ISA_TEXT, kernels,    hash_params,
                                              sum_squares,  accumulate, tti_sum_columns};
