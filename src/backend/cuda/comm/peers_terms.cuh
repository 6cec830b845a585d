/* peers_terms.cuh - sums over terms in the memory of several devices, in the given order. */
#ifndef TTI_CUDA_PEERS_TERMS_CUH
#define TTI_CUDA_PEERS_TERMS_CUH

#include "backend/cuda/comm/peers.cuh"

enum { TTI_PEERS_STACK = 24 };

/* The sums of two pairs of bf16, added in f32 and rounded to nearest even; NaN stays NaN. */
__device__ __forceinline__ float tti_add_pair(float a, float b) {
    uint32_t x = __float_as_uint(a), y = __float_as_uint(b);
    float low = __uint_as_float(x << 16) + __uint_as_float(y << 16);
    float high = __uint_as_float(x & 0xFFFF0000u) + __uint_as_float(y & 0xFFFF0000u);
    uint32_t sum = (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(low)) |
                   (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
    return __uint_as_float(sum);
}

/* R: each float stands for two values of bf16 (tti_peers_terms.rounds). */
template <bool R>
__device__ __forceinline__ float4 tti_add(float4 a, float4 b) {
    if constexpr (R)
        return make_float4(tti_add_pair(a.x, b.x), tti_add_pair(a.y, b.y), tti_add_pair(a.z, b.z),
                           tti_add_pair(a.w, b.w));
    else
        return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Bypasses this multiprocessor's cache, because a peer may have just written it. */
__device__ __forceinline__ float4 tti_load_unit(const float *p, size_t unit) {
    return __ldcg((const float4 *)p + unit);
}

/* The sum of N terms from begin on in a complete tree, for U units at once. */
template <int N, int U, bool R>
__device__ __forceinline__ void tti_add_terms(const tti_peers_terms &t, int begin, size_t unit,
                                              size_t step, float4 (&sum)[U]) {
    float4 a[U][N];
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int i = 0; i < N; i++) a[u][i] = tti_load_unit(t.data[begin + i], unit + u * step);
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
        for (int s = 1; s < N; s *= 2)
#pragma unroll
            for (int i = 0; i + s < N; i += 2 * s) a[u][i] = tti_add<R>(a[u][i], a[u][i + s]);
        sum[u] = a[u][0];
    }
}

/* Any list of terms, as a stack machine. */
template <bool R>
static __device__ __noinline__ float4 tti_add_any(const tti_peers_terms &t, int begin, int end,
                                                  size_t unit) {
    float4 stack[TTI_PEERS_STACK];
    int n = 0;
    for (int i = begin; i < end; i++) {
        stack[n++] = tti_load_unit(t.data[i], unit);
        for (int k = 0; k < t.n_adds[i]; k++, n--)
            stack[n - 2] = tti_add<R>(stack[n - 2], stack[n - 1]);
    }
    return stack[0];
}

#endif /* TTI_CUDA_PEERS_TERMS_CUH */
