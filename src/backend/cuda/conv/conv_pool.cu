/* conv_pool.cu - conv2d_pool and its gradients in any dtype and layout, a thread for each result:
 * the definition of the op, for shapes whose speed does not matter. */
#include "backend/cuda/conv/conv_pool.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 128, TAPS = 9, NOWHERE = 4 };

/* A place in a value [n, channels, h, w]. */
struct place {
    int64_t n, c, p, q;
};

__device__ __forceinline__ int64_t offset_of(const place &at, int64_t channels, int64_t h,
                                             int64_t w, bool last) {
    return last ? ((at.n * h + at.p) * w + at.q) * channels + at.c
                : ((at.n * channels + at.c) * h + at.p) * w + at.q;
}

/* The place of element i in row-major order. */
__device__ __forceinline__ place place_of(int64_t i, int64_t channels, int64_t h, int64_t w) {
    place at;
    at.q = i % w, i /= w;
    at.p = i % h, i /= h;
    at.c = i % channels, at.n = i / channels;
    return at;
}

/* x in front of a tap at (p, q); 0 outside. */
template <class T>
__device__ __forceinline__ auto x_at(const tti_conv_pool &v, const T *x, const place &at, int tap) {
    place from = {at.n, at.c, at.p + tap / 3 - 1, at.q + tap % 3 - 1};
    bool inside = from.p >= 0 && from.p < 2 * v.p && from.q >= 0 && from.q < 2 * v.q;
    return inside ? tti_to_acc(x[offset_of(from, v.c, 2 * v.p, 2 * v.q, v.x_last)])
                  : (typename tti_acc<T>::type)0;
}

/* dy at a place; 0 outside and where the pooling took another. */
template <class T>
__device__ __forceinline__ auto dy_at(const tti_conv_pool &v, const T *dp, const uint8_t *where,
                                      const place &at) {
    typename tti_acc<T>::type none = 0;
    if (at.p < 0 || at.p >= 2 * v.p || at.q < 0 || at.q >= 2 * v.q) return none;
    int64_t i = offset_of({at.n, at.c, at.p / 2, at.q / 2}, v.o, v.p, v.q, v.y_last);
    return where[i] == at.p % 2 * 2 + at.q % 2 ? tti_to_acc(dp[i]) : none;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(tti_conv_pool v, const T *x, const T *w, const T *bias, T *y, uint8_t *where,
                   int64_t n) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= n) return;
    place out = place_of(i, v.o, v.p, v.q);
    typename tti_acc<T>::type best = 0;
    int at = 0;
    for (int e = 0; e < 4; e++) {
        auto sum = tti_to_acc(bias[out.c]);
        for (int64_t c = 0; c < v.c; c++)
            for (int tap = 0; tap < TAPS; tap++)
                sum += x_at(v, x, {out.n, c, 2 * out.p + e / 2, 2 * out.q + e % 2}, tap) *
                       tti_to_acc(w[(out.c * v.c + c) * TAPS + tap]);
        bool wins = e == 0 || sum > best || (sum != sum && best == best);
        best = wins ? sum : best;
        at = wins ? e : at;
    }
    int64_t to = offset_of(out, v.o, v.p, v.q, v.y_last);
    where[to] = best <= 0 ? (uint8_t)NOWHERE : (uint8_t)at;
    if (best < 0) best = 0; /* NaN stays NaN */
    tti_from_acc(y + to, best);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    grad_x_kernel(tti_conv_pool v, const T *dp, const uint8_t *where, const T *w, T *dx,
                  int64_t n) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= n) return;
    place out = place_of(i, v.c, 2 * v.p, 2 * v.q);
    typename tti_acc<T>::type sum = 0;
    for (int64_t o = 0; o < v.o; o++)
        for (int tap = 0; tap < TAPS; tap++)
            sum += dy_at(v, dp, where, {out.n, o, out.p + 1 - tap / 3, out.q + 1 - tap % 3}) *
                   tti_to_acc(w[(o * v.c + out.c) * TAPS + tap]);
    tti_from_acc(dx + offset_of(out, v.c, 2 * v.p, 2 * v.q, v.x_last), sum);
}

/* Thread i < n computes an element of dw, the following o threads db. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    grad_w_kernel(tti_conv_pool v, const T *dp, const uint8_t *where, const T *x, T *dw, T *db,
                  int64_t n) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= n + v.o) return;
    bool is_bias = i >= n;
    int64_t o = is_bias ? i - n : i / TAPS / v.c, c = is_bias ? 0 : i / TAPS % v.c;
    int tap = (int)(i % TAPS);
    typename tti_acc<T>::type sum = 0;
    for (int64_t s = 0; s < v.n; s++)
        for (int64_t p = 0; p < 2 * v.p; p++)
            for (int64_t q = 0; q < 2 * v.q; q++) {
                auto d = dy_at(v, dp, where, {s, o, p, q});
                sum += is_bias ? d : d * x_at(v, x, {s, c, p, q}, tap);
            }
    tti_from_acc(is_bias ? db + o : dw + i, sum);
}

unsigned blocks_of(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

}  // namespace

extern "C" cudaError_t tti_launch_conv_pool(const tti_conv_pool *v, const void *x, const void *w,
                                            const void *bias, void *y, uint8_t *where,
                                            cudaStream_t stream) {
    int64_t n = v->n * v->o * v->p * v->q;
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(v->dtype,
                       forward_kernel<T><<<blocks_of(n), THREADS, 0, stream>>>(
                           *v, (const T *)x, (const T *)w, (const T *)bias, (T *)y, where, n));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_conv_pool_grad_x(const tti_conv_pool *v, const void *dp,
                                                   const uint8_t *where, const void *w, void *dx,
                                                   cudaStream_t stream) {
    int64_t n = v->n * v->c * 4 * v->p * v->q;
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(v->dtype, grad_x_kernel<T><<<blocks_of(n), THREADS, 0, stream>>>(
                                     *v, (const T *)dp, where, (const T *)w, (T *)dx, n));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_conv_pool_grad_w(const tti_conv_pool *v, const void *dp,
                                                   const uint8_t *where, const void *x, void *dw,
                                                   void *db, cudaStream_t stream) {
    int64_t n = v->o * v->c * TAPS;
    if (n + v->o == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(v->dtype, grad_w_kernel<T><<<blocks_of(n + v->o), THREADS, 0, stream>>>(
                                     *v, (const T *)dp, where, (const T *)x, (T *)dw, (T *)db, n));
    return cudaGetLastError();
}
