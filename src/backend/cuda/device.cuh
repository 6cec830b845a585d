/* device.cuh - what kernels share: dtypes, vector loads, sums over warps and blocks, Philox. */
#ifndef TTI_DEVICE_CUH
#define TTI_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "tutti/types.h"

typedef __nv_bfloat16 tti_bf16;
typedef __half tti_f16;

/* ---- one element ---- */

__device__ __forceinline__ float tti_to_f32(float x) { return x; }
__device__ __forceinline__ float tti_to_f32(double x) { return (float)x; }
__device__ __forceinline__ float tti_to_f32(tti_bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float tti_to_f32(tti_f16 x) { return __half2float(x); }

template <class T>
__device__ __forceinline__ T tti_from_f32(float x);
template <>
__device__ __forceinline__ float tti_from_f32<float>(float x) { return x; }
template <>
__device__ __forceinline__ double tti_from_f32<double>(float x) { return x; }
template <>
__device__ __forceinline__ tti_bf16 tti_from_f32<tti_bf16>(float x) { return __float2bfloat16_rn(x); }
template <>
__device__ __forceinline__ tti_f16 tti_from_f32<tti_f16>(float x) { return __float2half_rn(x); }

/* ---- N elements at once, aligned to their bytes ---- */

template <class T, int N>
struct alignas(sizeof(T) * N) tti_vec {
    T v[N];
};

template <class T, int N>
__device__ __forceinline__ void tti_load(const T *p, float (&x)[N]) {
    tti_vec<T, N> raw = *reinterpret_cast<const tti_vec<T, N> *>(p);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = tti_to_f32(raw.v[i]);
}

template <class T, int N>
__device__ __forceinline__ void tti_store(T *p, const float (&x)[N]) {
    tti_vec<T, N> raw;
#pragma unroll
    for (int i = 0; i < N; i++) raw.v[i] = tti_from_f32<T>(x[i]);
    *reinterpret_cast<tti_vec<T, N> *>(p) = raw;
}

/* ---- reductions in one fixed order ---- */

__device__ __forceinline__ float tti_warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ float tti_warp_max(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

__device__ __forceinline__ double tti_warp_sum(double x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* The sum over a block of whole warps, on every thread.  shared: 32 elements; every thread of the
 * block must call it. */
template <class T>
__device__ __forceinline__ T tti_block_sum(T x, T *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
    x = tti_warp_sum(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = lane < n_warps ? shared[lane] : (T)0;
    return tti_warp_sum(x);
}

__device__ __forceinline__ float tti_block_max(float x, float *shared) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
    x = tti_warp_max(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = lane < n_warps ? shared[lane] : -INFINITY;
    return tti_warp_max(x);
}

/* ---- dtypes of the host as types of the kernels ---- */

/* Runs the statement for the dtype with T as its type; does nothing for others. */
#define TTI_FLOAT_DISPATCH(dtype, ...)            \
    switch (dtype) {                              \
        case TUTTI_F32: {                         \
            typedef float T;                      \
            __VA_ARGS__;                          \
            break;                                \
        }                                         \
        case TUTTI_BF16: {                        \
            typedef tti_bf16 T;                   \
            __VA_ARGS__;                          \
            break;                                \
        }                                         \
        case TUTTI_F16: {                         \
            typedef tti_f16 T;                    \
            __VA_ARGS__;                          \
            break;                                \
        }                                         \
        case TUTTI_F64: {                         \
            typedef double T;                     \
            __VA_ARGS__;                          \
            break;                                \
        }                                         \
        default:                                  \
            break;                                \
    }

#endif /* TTI_DEVICE_CUH */
