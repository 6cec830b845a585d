/* pool_two.cu - maxima of 2x2 windows and their gradient: a thread has one window of several
 * channels, so that every byte is moved once and few instructions compute addresses. */
#include "backend/cuda/pool/pool_two.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, MOST_ITEMS = 0x7fffffff };

/* Items are vectors of channels of y, in its order; rows of x are twice as many and as long. */
struct windows {
    uint32_t n_items;
    tti_divisor channels, width; /* of y, channels in vectors */
    size_t c;                    /* elements from column to column */
    size_t row;                  /* of x, elements */
};

/* The begin of an item's window in x. */
template <int V>
__device__ __forceinline__ size_t window_of(const windows &k, uint32_t item) {
    uint32_t rest = tti_split_index(item, k.channels);
    uint32_t row = tti_split_index(rest, k.width);
    return 2 * row * k.row + 2 * rest * k.c + item * V;
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    max_two_kernel(const T *x, T *y, uint8_t *index, const __grid_constant__ windows k) {
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    const T *from = x + window_of<V>(k, item);
    float now[4][V], best[V];
    tti_vec<uint8_t, V> at;
#pragma unroll
    for (int w = 0; w < 4; w++) tti_load<T, V>(from + w / 2 * k.row + w % 2 * k.c, now[w]);
#pragma unroll
    for (int i = 0; i < V; i++) {
        best[i] = now[0][i];
        at.v[i] = 0;
#pragma unroll
        for (int w = 1; w < 4; w++) {
            float v = now[w][i];
            bool wins = v > best[i] || (v != v && best[i] == best[i]);
            best[i] = wins ? v : best[i];
            at.v[i] = wins ? (uint8_t)w : at.v[i];
        }
    }
    tti_store<T, V>(y + (size_t)item * V, best);
    *reinterpret_cast<tti_vec<uint8_t, V> *>(index + (size_t)item * V) = at;
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    max_two_grad_kernel(const T *dy, const uint8_t *index, T *dx,
                        const __grid_constant__ windows k) {
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    T *to = dx + window_of<V>(k, item);
    float d[V];
    tti_load<T, V>(dy + (size_t)item * V, d);
    tti_vec<uint8_t, V> at =
        *reinterpret_cast<const tti_vec<uint8_t, V> *>(index + (size_t)item * V);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        float sum[V];
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] = 0.0f + (at.v[i] == w ? d[i] : 0.0f); /* no -0 */
        tti_store<T, V>(to + w / 2 * k.row + w % 2 * k.c, sum);
    }
}

windows windows_of(const tti_pool *p, size_t v) {
    windows k = {};
    k.n_items = (uint32_t)(p->n * p->c * (size_t)p->out[0] * (size_t)p->out[1] / v);
    k.channels = tti_make_divisor((uint32_t)(p->c / v));
    k.width = tti_make_divisor((uint32_t)p->out[1]);
    k.c = p->c;
    k.row = (size_t)p->in[1] * p->c;
    return k;
}

}  // namespace

extern "C" bool tti_pool_is_two(const tti_pool *p) {
    for (int d = 0; d < 2; d++)
        if (p->kernel[d] != 2 || p->stride[d] != 2 || p->pad[d] || p->in[d] != 2 * p->out[d])
            return false;
    if (!p->channels_last || p->dtype == TUTTI_F64) return false;
    size_t n = p->n * p->c * (size_t)p->out[0] * (size_t)p->out[1];
    return p->c % (p->dtype == TUTTI_F32 ? 4 : 8) == 0 && n > 0 && n <= MOST_ITEMS;
}

extern "C" cudaError_t tti_launch_max_pool_two(const tti_pool *p, const void *x, void *y,
                                               void *index, cudaStream_t stream) {
    TTI_FLOAT_DISPATCH_NO_F64(p->dtype, enum {V = 16 / sizeof(T)}; windows k = windows_of(p, V);
                              max_two_kernel<T, V>
                              <<<(k.n_items + THREADS - 1) / THREADS, THREADS, 0, stream>>>(
                                  (const T *)x, (T *)y, (uint8_t *)index, k));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_max_pool_two_grad(const tti_pool *p, const void *dy,
                                                    const void *index, void *dx,
                                                    cudaStream_t stream) {
    TTI_FLOAT_DISPATCH_NO_F64(p->dtype, enum {V = 16 / sizeof(T)}; windows k = windows_of(p, V);
                              max_two_grad_kernel<T, V>
                              <<<(k.n_items + THREADS - 1) / THREADS, THREADS, 0, stream>>>(
                                  (const T *)dy, (const uint8_t *)index, (T *)dx, k));
    return cudaGetLastError();
}
