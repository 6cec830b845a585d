/* device.cuh - code shared by kernels: dtypes, vector loads, sums over warps and blocks, Philox. */
#ifndef TTI_DEVICE_CUH
#define TTI_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "backend/cuda/runtime/shared_memory.h"
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
__device__ __forceinline__ float tti_from_f32<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ double tti_from_f32<double>(float x) {
    return x;
}
template <>
__device__ __forceinline__ tti_bf16 tti_from_f32<tti_bf16>(float x) {
    return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ tti_f16 tti_from_f32<tti_f16>(float x) {
    return __float2half_rn(x);
}

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

/* The sum over the preceding threads of the block; *all: over all of them.  As tti_block_sum. */
template <class T>
__device__ __forceinline__ T tti_block_sum_before(T x, T *shared, T *all) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
    T upto = x;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        T other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += other;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = upto;
    __syncthreads();
    T own = lane < n_warps ? shared[lane] : (T)0, warps = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        T other = __shfl_up_sync(0xffffffffu, warps, d);
        if (lane >= d) warps += other;
    }
    *all = __shfl_sync(0xffffffffu, warps, 31);
    return __shfl_sync(0xffffffffu, warps - own, warp) + upto - x;
}

/* ---- f64 in its own width; T's sums are in tti_acc<T>::type ---- */

template <class T>
struct tti_acc {
    typedef float type;
};
template <>
struct tti_acc<double> {
    typedef double type;
};

__device__ __forceinline__ double tti_to_acc(double x) { return x; }
template <class T>
__device__ __forceinline__ float tti_to_acc(T x) {
    return tti_to_f32(x);
}

__device__ __forceinline__ void tti_from_acc(double *to, double x) { *to = x; }
template <class T>
__device__ __forceinline__ void tti_from_acc(T *to, float x) {
    *to = tti_from_f32<T>(x);
}

/* Converts to A, the type of sums; and from it, rounded to T. */
template <class A, class T>
__device__ __forceinline__ A tti_widen(T x) {
    return (A)tti_to_f32(x);
}
template <>
__device__ __forceinline__ double tti_widen<double, double>(double x) {
    return x;
}
template <class T>
__device__ __forceinline__ T tti_narrow(float x) {
    return tti_from_f32<T>(x);
}
template <class T>
__device__ __forceinline__ T tti_narrow(double x) {
    return (T)x;
}

__device__ __forceinline__ float tti_exp(float x) { return expf(x); }
__device__ __forceinline__ double tti_exp(double x) { return exp(x); }

template <int N>
__device__ __forceinline__ void tti_load(const double *p, double (&x)[N]) {
    tti_vec<double, N> raw = *reinterpret_cast<const tti_vec<double, N> *>(p);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = raw.v[i];
}

template <int N>
__device__ __forceinline__ void tti_store(double *p, const double (&x)[N]) {
    tti_vec<double, N> raw;
#pragma unroll
    for (int i = 0; i < N; i++) raw.v[i] = x[i];
    *reinterpret_cast<tti_vec<double, N> *>(p) = raw;
}

/* ---- one element of any dtype, for the slow paths: base/dtype.c's meaning ---- */

__device__ __forceinline__ double tti_load_any(int dtype, const void *base, uint64_t i) {
    switch (dtype) {
        case TUTTI_F32:
            return ((const float *)base)[i];
        case TUTTI_F64:
            return ((const double *)base)[i];
        case TUTTI_F16:
            return __half2float(((const tti_f16 *)base)[i]);
        case TUTTI_BF16:
            return __bfloat162float(((const tti_bf16 *)base)[i]);
        case TUTTI_I32:
            return ((const int32_t *)base)[i];
        case TUTTI_I64:
            return (double)((const int64_t *)base)[i];
        default:
            return ((const uint8_t *)base)[i];
    }
}

/* x lies in the range of an integer dtype. */
__device__ __forceinline__ void tti_store_any(int dtype, void *base, uint64_t i, double x) {
    switch (dtype) {
        case TUTTI_F32:
            ((float *)base)[i] = (float)x;
            break;
        case TUTTI_F64:
            ((double *)base)[i] = x;
            break;
        case TUTTI_F16:
            ((tti_f16 *)base)[i] = __float2half_rn((float)x);
            break;
        case TUTTI_BF16:
            ((tti_bf16 *)base)[i] = __float2bfloat16_rn((float)x);
            break;
        case TUTTI_I32:
            ((int32_t *)base)[i] = (int32_t)x;
            break;
        case TUTTI_I64:
            ((int64_t *)base)[i] = (int64_t)x;
            break;
        default:
            ((uint8_t *)base)[i] = (uint8_t)x;
    }
}

/* ---- division by a number that the launcher knows ---- */

/* by >= 1.  Numerators below 2^31 take a multiplication, others a division of 64 bits. */
typedef struct tti_divider {
    uint64_t by;
    uint32_t mul, shift; /* shift 32: by is too large for the fast way */
} tti_divider;

static inline tti_divider tti_divider_of(uint64_t by) {
    tti_divider d = {by, 0, 0};
    while (d.shift < 32 && ((uint64_t)1 << d.shift) < by) d.shift++;
    if (d.shift < 32)
        d.mul = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - by)) / by + 1);
    return d;
}

__device__ __forceinline__ uint64_t tti_divide(uint64_t n, const tti_divider &d) {
    if ((n >> 31) == 0 && d.shift < 32)
        return (__umulhi((uint32_t)n, d.mul) + (uint32_t)n) >> d.shift;
    return n / d.by;
}

/* ---- division by a number that the host knows, in three instructions ---- */

typedef struct tti_divisor {
    uint32_t d, magic, shift;
} tti_divisor;

/* For d from 1 to 2^31 and dividends below 2^31. */
static inline tti_divisor tti_make_divisor(uint32_t d) {
    tti_divisor by = {d, 0, 0};
    while (((uint64_t)1 << by.shift) < d) by.shift++;
    by.magic = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << by.shift) - d)) / d + 1);
    return by;
}

__device__ __forceinline__ uint32_t tti_quotient(uint32_t n, tti_divisor by) {
    return (__umulhi(n, by.magic) + n) >> by.shift;
}

/* n becomes n mod d; returns n / d. */
__device__ __forceinline__ uint32_t tti_split_index(uint32_t &n, tti_divisor by) {
    uint32_t q = tti_quotient(n, by);
    n -= q * by.d;
    return q;
}

/* ---- dtypes of the host as types of the kernels ---- */

/* Runs the statement for the dtype with T as its type; does nothing for others. */
#define TTI_FLOAT_DISPATCH(dtype, ...) \
    switch (dtype) {                   \
        case TUTTI_F32: {              \
            typedef float T;           \
            __VA_ARGS__;               \
            break;                     \
        }                              \
        case TUTTI_BF16: {             \
            typedef tti_bf16 T;        \
            __VA_ARGS__;               \
            break;                     \
        }                              \
        case TUTTI_F16: {              \
            typedef tti_f16 T;         \
            __VA_ARGS__;               \
            break;                     \
        }                              \
        case TUTTI_F64: {              \
            typedef double T;          \
            __VA_ARGS__;               \
            break;                     \
        }                              \
        default:                       \
            break;                     \
    }

/* The same for kernels that f64 does not reach: one of f32, bf16 and f16. */
#define TTI_FLOAT_DISPATCH_NO_F64(dtype, ...) \
    if ((dtype) == TUTTI_F32) {               \
        typedef float T;                      \
        __VA_ARGS__;                          \
    } else if ((dtype) == TUTTI_BF16) {       \
        typedef tti_bf16 T;                   \
        __VA_ARGS__;                          \
    } else {                                  \
        typedef tti_f16 T;                    \
        __VA_ARGS__;                          \
    }

#endif /* TTI_DEVICE_CUH */
