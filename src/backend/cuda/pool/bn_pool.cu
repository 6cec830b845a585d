/* bn_pool.cu - bn_apply_pool in any dtype and layout, a thread for each result: the definition of
 * the op, for cases that pool_three.cu does not support. */
#include "backend/cuda/norm/bn_scale.cuh"
#include "backend/cuda/pool/bn_pool.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 128, TAPS = 9, NOWHERE = 9 };

template <class A>
__device__ __forceinline__ A scale_of(const tti_cuda_bn_affine &norm, size_t c) {
    return (A)norm.gamma[c] * rstd_of<A>(norm.count, norm.m2[c], norm.eps);
}

/* Element i of y[n,c,p,q], in the order of the layout. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    norm_pool_kernel(tti_pool v, const T *x, tti_cuda_bn_affine norm, T *y, uint8_t *index,
                     size_t n) {
    typedef typename tti_acc<T>::type A;
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x, at = i;
    if (i >= n) return;
    size_t c = 0, plane = (size_t)v.in[0] * v.in[1];
    if (v.channels_last) c = at % v.c, at /= v.c;
    int32_t q = (int32_t)(at % v.out[1]), p = (int32_t)(at / v.out[1] % v.out[0]);
    at /= (size_t)v.out[0] * v.out[1];
    if (!v.channels_last) c = at % v.c, at /= v.c;
    const T *from = x + (v.channels_last ? at * plane * v.c + c : (at * v.c + c) * plane);
    size_t step = v.channels_last ? v.c : 1;
    A scale = scale_of<A>(norm, c), best = 0;
    int first = -1, where = 0;
    for (int t = 0; t < TAPS; t++) {
        int32_t h = 2 * p - 1 + t / 3, w = 2 * q - 1 + t % 3;
        if (h < 0 || h >= v.in[0] || w < 0 || w >= v.in[1]) continue;
        A now = tti_to_acc(from[((size_t)h * v.in[1] + w) * step]);
        bool above = scale < 0 ? now < best : now > best;
        if (first < 0 || above || (isnan(now) && !isnan(best))) best = now, where = t;
        if (first < 0) first = t;
    }
    A result = (best - (A)norm.mean[c]) * scale + (A)norm.beta[c];
    if (scale == 0) where = first;
    if (result <= 0) where = NOWHERE;
    tti_from_acc(y + i, result < 0 ? (A)0 : result);
    index[i] = (uint8_t)where;
}

}  // namespace

extern "C" cudaError_t tti_launch_bn_pool(const tti_pool *p, const tti_cuda_bn_affine *norm,
                                          const void *x, void *y, void *index,
                                          cudaStream_t stream) {
    size_t n = p->n * p->c * (size_t)p->out[0] * (size_t)p->out[1];
    unsigned n_blocks = (unsigned)((n + THREADS - 1) / THREADS);
    if (n == 0) return cudaSuccess;
    if ((n + THREADS - 1) / THREADS > INT32_MAX) return cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(p->dtype, norm_pool_kernel<T><<<n_blocks, THREADS, 0, stream>>>(
                                     *p, (const T *)x, *norm, (T *)y, (uint8_t *)index, n));
    return cudaGetLastError();
}
