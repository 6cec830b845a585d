/* join.cuh - joins values of all shards, with the bits of the ops' join on the host
 * (ops/norm/batch_norm.c): sums, or {count, mean .., M2 ..} by Chan's formula. */
#ifndef TTI_CUDA_JOIN_CUH
#define TTI_CUDA_JOIN_CUH

#include "backend/cuda/runtime/device.cuh"

namespace {

struct exact_moments {
    double n, mean, m2;
};

/* Without contraction, in double, so that the bits are those of the host. */
__device__ __forceinline__ exact_moments join_exact(const exact_moments &a,
                                                    const exact_moments &b) {
    if (a.n == 0 || b.n == 0) return a.n == 0 ? b : a;
    double n = __dadd_rn(a.n, b.n), d = __dsub_rn(b.mean, a.mean);
    double moved = __dmul_rn(d, b.n) / n;
    double more = __dmul_rn(__dmul_rn(__dmul_rn(d, d), a.n), b.n) / n;
    return exact_moments{n, __dadd_rn(a.mean, moved), __dadd_rn(__dadd_rn(a.m2, b.m2), more)};
}

/* Element i of the join of parts [n_parts][n_elems].  A binary counter makes the tree whose left
 * branches hold the largest power of two below the number of parts: equal branches are joined at
 * once, the rest at the end from the right. */
__device__ __forceinline__ float join_element(const float *parts, size_t n_parts, size_t n_elems,
                                              bool of_moments, size_t i) {
    size_t c = (n_elems - 1) / 2;
    bool channel = of_moments && i > 0;
    size_t mean_at = channel && i > c ? i - c : i, m2_at = channel ? mean_at + c : i;
    exact_moments stack[40]; /* n_parts < 2^40 */
    int depth = 0;
    for (size_t p = 0; p < n_parts; p++) {
        const float *part = parts + p * n_elems;
        exact_moments next = {(double)part[0], (double)part[mean_at], (double)part[m2_at]};
        for (size_t full = p + 1; full % 2 == 0; full /= 2) {
            const exact_moments &before = stack[--depth];
            next = channel ? join_exact(before, next)
                           : exact_moments{0, __dadd_rn(before.mean, next.mean), 0};
        }
        stack[depth++] = next;
    }
    exact_moments all = stack[--depth];
    while (depth > 0) {
        const exact_moments &before = stack[--depth];
        all = channel ? join_exact(before, all)
                      : exact_moments{0, __dadd_rn(before.mean, all.mean), 0};
    }
    return (float)(channel && i > c ? all.m2 : all.mean);
}

}  // namespace

#endif /* TTI_CUDA_JOIN_CUH */
