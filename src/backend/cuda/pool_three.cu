/* pool_three.cu - maximum over windows of 3x3 that lie two apart, as behind a residual network's
 * first layer; N,H,W,C values of 16 bits.
 *
 * Forward a thread has 8 channels of a window, two to a register: comparisons give masks.  Backward
 * it has 8 channels of 2x2 elements of x, which four windows see, so that every dy and index is
 * read by few threads.  Sums are those of pool.cu, in the same order. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/pool.h"

namespace {

enum { THREADS = 256, V = 8, N_TAPS = 9 };

struct walk {
    uint32_t n_items;
    tti_divisor channels, width, height; /* of items */
    int32_t c, in[2], out[2];
};

struct place {
    int32_t c, w, h, n;
};

__device__ __forceinline__ place place_of(const walk &k, uint32_t item) {
    place p;
    uint32_t rest = tti_split_index(item, k.channels);
    p.c = (int32_t)item * V;
    uint32_t up = tti_split_index(rest, k.width);
    p.w = (int32_t)rest;
    p.n = (int32_t)tti_split_index(up, k.height);
    p.h = (int32_t)up;
    return p;
}

/* Both halves: all ones where now is larger than best or no number, and best is a number. */
__device__ __forceinline__ uint32_t wins(uint32_t now, uint32_t best, tti_bf16) {
    __nv_bfloat162 a = *reinterpret_cast<__nv_bfloat162 *>(&now);
    __nv_bfloat162 b = *reinterpret_cast<__nv_bfloat162 *>(&best);
    return __hgtu2_mask(a, b) & __heq2_mask(b, b);
}
__device__ __forceinline__ uint32_t wins(uint32_t now, uint32_t best, tti_f16) {
    __half2 a = *reinterpret_cast<__half2 *>(&now), b = *reinterpret_cast<__half2 *>(&best);
    return __hgtu2_mask(a, b) & __heq2_mask(b, b);
}

struct alignas(16) pairs {
    uint32_t v[V / 2];
};

template <class T>
__global__ void __launch_bounds__(THREADS)
    max_kernel(const T *x, T *y, uint8_t *index, const __grid_constant__ walk k) {
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of(k, item);
    pairs tap[N_TAPS], best = {};
    bool inside[N_TAPS], any = false;
    uint32_t at[V / 2] = {};
#pragma unroll
    for (int t = 0; t < N_TAPS; t++) {
        int32_t h = 2 * p.h - 1 + t / 3, w = 2 * p.w - 1 + t % 3;
        inside[t] = h >= 0 && h < k.in[0] && w >= 0 && w < k.in[1];
        size_t from = (((size_t)p.n * k.in[0] + h) * k.in[1] + w) * k.c + p.c;
        if (inside[t]) tap[t] = *reinterpret_cast<const pairs *>(x + from);
    }
#pragma unroll
    for (int t = 0; t < N_TAPS; t++) {
        if (!inside[t]) continue;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            uint32_t mask = any ? wins(tap[t].v[i], best.v[i], T()) : 0xffffffffu;
            best.v[i] = (tap[t].v[i] & mask) | (best.v[i] & ~mask);
            at[i] = (((uint32_t)t * 0x10001u) & mask) | (at[i] & ~mask);
        }
        any = true;
    }
    size_t to = (((size_t)p.n * k.out[0] + p.h) * k.out[1] + p.w) * k.c + p.c;
    *reinterpret_cast<pairs *>(y + to) = best;
#pragma unroll
    for (int i = 0; i < V / 2; i++) at[i] = (at[i] & 0xff) | (at[i] >> 8);
    *reinterpret_cast<uint2 *>(index + to) = make_uint2(at[0] | at[1] << 16, at[2] | at[3] << 16);
}

/* What a window gives to its elements. */
template <class T>
struct window {
    tti_vec<T, V> dy;
    tti_vec<uint8_t, V> index;
};

template <class T>
__global__ void __launch_bounds__(THREADS)
    max_grad_kernel(const T *dy, const uint8_t *index, T *dx, const __grid_constant__ walk k) {
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of(k, item);
    window<T> seen[4]; /* (h,w), (h,w+1), (h+1,w), (h+1,w+1) */
#pragma unroll
    for (int s = 0; s < 4; s++) {
        int32_t r = p.h + s / 2, q = p.w + s % 2;
        size_t from = (((size_t)p.n * k.out[0] + r) * k.out[1] + q) * k.c + p.c;
#pragma unroll
        for (int i = 0; i < V; i++) seen[s].index.v[i] = N_TAPS;
        if (r >= k.out[0] || q >= k.out[1]) continue;
        seen[s].dy = *reinterpret_cast<const tti_vec<T, V> *>(dy + from);
        seen[s].index = *reinterpret_cast<const tti_vec<uint8_t, V> *>(index + from);
    }
    /* The tap of window s that element e of the four is; -1: it does not see it. */
    constexpr int tap_of[4][4] = {{4, -1, -1, -1}, {5, 3, -1, -1}, {7, -1, 1, -1}, {8, 6, 2, 0}};
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int32_t h = 2 * p.h + e / 2, w = 2 * p.w + e % 2;
        if (h >= k.in[0] || w >= k.in[1]) continue;
        float sum[V] = {};
#pragma unroll
        for (int s = 0; s < 4; s++)
#pragma unroll
            for (int i = 0; tap_of[e][s] >= 0 && i < V; i++)
                sum[i] += seen[s].index.v[i] == tap_of[e][s] ? tti_to_f32(seen[s].dy.v[i]) : 0.0f;
        tti_store(dx + (((size_t)p.n * k.in[0] + h) * k.in[1] + w) * k.c + p.c, sum);
    }
}

walk walk_of(const tti_pool *p) {
    walk k = {};
    k.c = (int32_t)p->c;
    k.n_items = (uint32_t)(p->n * (p->c / V) * (size_t)p->out[0] * (size_t)p->out[1]);
    k.channels = tti_make_divisor((uint32_t)(p->c / V));
    k.width = tti_make_divisor((uint32_t)p->out[1]);
    k.height = tti_make_divisor((uint32_t)p->out[0]);
    for (int d = 0; d < 2; d++) k.in[d] = p->in[d], k.out[d] = p->out[d];
    return k;
}

unsigned blocks_of(const walk &k) { return (k.n_items + THREADS - 1) / THREADS; }

}  // namespace

extern "C" bool tti_pool_three_fits(const tti_pool *p) {
    if (!p->channels_last || (p->dtype != TUTTI_BF16 && p->dtype != TUTTI_F16)) return false;
    size_t n = p->n * p->c;
    for (int d = 0; d < 2; d++) {
        if (p->kernel[d] != 3 || p->stride[d] != 2 || p->pad[d] != 1) return false;
        if (p->out[d] != (p->in[d] + 1) / 2) return false;
        n *= (size_t)p->out[d];
    }
    return p->c % V == 0 && n > 0 && n / V <= 0x7fffff00;
}

extern "C" cudaError_t tti_launch_max_pool_three(const tti_pool *p, const void *x, void *y,
                                                 void *index, cudaStream_t stream) {
    walk k = walk_of(p);
    if (p->dtype == TUTTI_BF16)
        max_kernel<tti_bf16><<<blocks_of(k), THREADS, 0, stream>>>(
            (const tti_bf16 *)x, (tti_bf16 *)y, (uint8_t *)index, k);
    else
        max_kernel<tti_f16><<<blocks_of(k), THREADS, 0, stream>>>((const tti_f16 *)x, (tti_f16 *)y,
                                                                  (uint8_t *)index, k);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_max_pool_three_grad(const tti_pool *p, const void *dy,
                                                      const void *index, void *dx,
                                                      cudaStream_t stream) {
    walk k = walk_of(p);
    if (p->dtype == TUTTI_BF16)
        max_grad_kernel<tti_bf16><<<blocks_of(k), THREADS, 0, stream>>>(
            (const tti_bf16 *)dy, (const uint8_t *)index, (tti_bf16 *)dx, k);
    else
        max_grad_kernel<tti_f16><<<blocks_of(k), THREADS, 0, stream>>>(
            (const tti_f16 *)dy, (const uint8_t *)index, (tti_f16 *)dx, k);
    return cudaGetLastError();
}
