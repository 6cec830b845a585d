/* wgmma_ends.cuh - the operations of wgmma.cu on the sums of a tile in registers: gelu, its
 * gradient, powers, and sums over the lanes that share a row or a column. */
#ifndef TTI_CUDA_WGMMA_ENDS_CUH
#define TTI_CUDA_WGMMA_ENDS_CUH

#include "backend/cuda/gemm/mma.cuh"

/* ---- elements ---- */

__device__ __forceinline__ float2 unpack(uint32_t two, tti_bf16) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
__device__ __forceinline__ float2 unpack(uint32_t two, tti_f16) {
    return __half22float2(*reinterpret_cast<__half2 *>(&two));
}

/* Computes gelu's intermediate values for N elements at once, step by step: a warp has its
 * scheduler almost alone here, and only its own independent instructions hide their latency.
 *
 * share = 1 / (1 + exp(-2 u)) = (1 + tanh u) / 2 with u = root (x + 0.044715 x^3), with an error of
 * 1e-6, which 16 bits do not show. */
template <int N>
__device__ __forceinline__ void tanh_shares(const float (&x)[N], float (&share)[N]) {
    const float first = -2 * 0.79788456080286535588f * 1.4426950408889634f;
#pragma unroll
    for (int i = 0; i < N; i++) share[i] = x[i] * fmaf(x[i] * x[i], first * 0.044715f, first);
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(share[i]) : "f"(share[i]));
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(share[i]) : "f"(1 + share[i]));
}

template <int N>
__device__ __forceinline__ void tanh_slopes(const float (&x)[N], float (&slope)[N]) {
    const float twice = 2 * 0.79788456080286535588f;
    tanh_shares<N>(x, slope);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float inner = x[i] * fmaf(x[i] * x[i], 3 * 0.044715f * twice, twice);
        slope[i] = fmaf(slope[i] - slope[i] * slope[i], inner, slope[i]);
    }
}

/* tail = the normal distribution function of -|x|, bell = exp(-x^2 / 2); the formula of
 * elementwise.cuh. */
template <int N>
__device__ __forceinline__ void normal_tails(const float (&x)[N], float (&tail)[N],
                                             float (&bell)[N]) {
    const float low = -0.5f * 1.4426950408889634f;
    float t[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        t[i] = fmaf(0.3275911f * 0.70710678f, fabsf(x[i]), 1.0f);
        bell[i] = x[i] * x[i] * low;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(t[i]) : "f"(t[i]));
        asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(bell[i]) : "f"(bell[i]));
    }
#pragma unroll
    for (int i = 0; i < N; i++) tail[i] = fmaf(0.5f * 1.061405429f, t[i], -0.5f * 1.453152027f);
#pragma unroll
    for (int i = 0; i < N; i++) tail[i] = fmaf(tail[i], t[i], 0.5f * 1.421413741f);
#pragma unroll
    for (int i = 0; i < N; i++) tail[i] = fmaf(tail[i], t[i], -0.5f * 0.284496736f);
#pragma unroll
    for (int i = 0; i < N; i++) tail[i] = fmaf(tail[i], t[i], 0.5f * 0.254829592f);
#pragma unroll
    for (int i = 0; i < N; i++) tail[i] = tail[i] * t[i] * bell[i];
}

/* y = gelu(x) */
template <int N, bool EXACT>
__device__ __forceinline__ void gelus(const float (&x)[N], float (&y)[N]) {
    if constexpr (EXACT) {
        float bell[N];
        normal_tails<N>(x, y, bell);
#pragma unroll
        for (int i = 0; i < N; i++) y[i] = fmaxf(x[i], 0.0f) - fabsf(x[i] * y[i]);
    } else {
        tanh_shares<N>(x, y);
#pragma unroll
        for (int i = 0; i < N; i++) y[i] *= x[i];
    }
}

/* slope = gelu'(x) */
template <int N, bool EXACT>
__device__ __forceinline__ void gelu_slopes(const float (&x)[N], float (&slope)[N]) {
    if constexpr (EXACT) {
        float bell[N];
        normal_tails<N>(x, slope, bell);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float phi = x[i] < 0 ? slope[i] : 1 - slope[i];
            slope[i] = fmaf(x[i] * 0.39894228040143267794f, bell[i], phi);
        }
    } else {
        tanh_slopes<N>(x, slope);
    }
}

/* 2^x, x at most so much; NaN stays. */
__device__ __forceinline__ float raise_two(float x, float most) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(most));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(y));
    return y;
}

/* ---- lanes ---- */

/* Combines the values of the four lanes that share a row. */
template <class Op>
__device__ __forceinline__ float join_row(float x, Op op) {
    x = op(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return op(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#endif /* TTI_CUDA_WGMMA_ENDS_CUH */
