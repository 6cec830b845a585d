/* pool_three.cu - maximum over 3x3 windows with stride 2, as after a residual network's first
 * layer; N,H,W,C values of 16 bits.
 *
 * Forward a thread has 8 channels of a window, two to a register: comparisons give masks.  Backward
 * it has 8 channels of 2x2 elements of x, which four windows cover, so that every dy and index is
 * read by few threads.  After batch norm (bn_apply_pool) the maximum is found among x.  Sums are
 * those of pool.cu, in the same order. */
#include "backend/cuda/norm/bn_scale.cuh"
#include "backend/cuda/pool/bn_pool.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, V = 8, N_TAPS = 9, NOWHERE = N_TAPS };
enum { NORM_BLOCKS_EACH = 3, NORM_BLOCKS = 132 * NORM_BLOCKS_EACH };

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

/* The elements of a window. */
struct taps {
    pairs of[N_TAPS];
    bool inside[N_TAPS];
};

template <class T>
__device__ __forceinline__ void read_taps(taps &tap, const T *x, const walk &k, const place &p) {
#pragma unroll
    for (int t = 0; t < N_TAPS; t++) {
        int32_t h = 2 * p.h - 1 + t / 3, w = 2 * p.w - 1 + t % 3;
        tap.inside[t] = h >= 0 && h < k.in[0] && w >= 0 && w < k.in[1];
        size_t from = (((size_t)p.n * k.in[0] + h) * k.in[1] + w) * k.c + p.c;
        if (tap.inside[t]) tap.of[t] = *reinterpret_cast<const pairs *>(x + from);
    }
}

/* The largest and which it is, in 16 bits each; signs: bits that are turned before. */
struct largest {
    pairs value;
    uint32_t at[V / 2], first; /* first: the tap that is first inside */
};

template <class T>
__device__ __forceinline__ largest largest_of(const taps &tap, const pairs &signs) {
    largest best = {};
    bool any = false;
#pragma unroll
    for (int t = 0; t < N_TAPS; t++) {
        if (!tap.inside[t]) continue;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            uint32_t now = tap.of[t].v[i] ^ signs.v[i];
            uint32_t mask = any ? wins(now, best.value.v[i], T()) : 0xffffffffu;
            best.value.v[i] = (now & mask) | (best.value.v[i] & ~mask);
            best.at[i] = (((uint32_t)t * 0x10001u) & mask) | (best.at[i] & ~mask);
        }
        if (!any) best.first = t;
        any = true;
    }
    return best;
}

__device__ __forceinline__ size_t result_at(const walk &k, const place &p) {
    return (((size_t)p.n * k.out[0] + p.h) * k.out[1] + p.w) * k.c + p.c;
}

__device__ __forceinline__ void put_index(uint8_t *index, size_t to, const uint32_t (&two)[V / 2]) {
    uint32_t at[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; i++) at[i] = (two[i] & 0xff) | (two[i] >> 8);
    *reinterpret_cast<uint2 *>(index + to) = make_uint2(at[0] | at[1] << 16, at[2] | at[3] << 16);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    max_kernel(const T *x, T *y, uint8_t *index, const __grid_constant__ walk k) {
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of(k, item);
    taps tap;
    read_taps(tap, x, k, p);
    largest best = largest_of<T>(tap, pairs{});
    size_t to = result_at(k, p);
    *reinterpret_cast<pairs *>(y + to) = best.value;
    put_index(index, to, best.at);
}

/* ---- after batch norm and relu ---- */

struct factors {
    float mean[TTI_POOL_CHANNELS], scale[TTI_POOL_CHANNELS], beta[TTI_POOL_CHANNELS];
};

__device__ __forceinline__ void fill_factors(factors &f, const tti_cuda_bn_affine &norm, int c) {
    for (int i = threadIdx.x; i < c; i += THREADS) {
        f.mean[i] = norm.mean[i];
        f.scale[i] = norm.gamma[i] * rstd_of<float>(norm.count, norm.m2[i], norm.eps);
        f.beta[i] = norm.beta[i];
    }
    __syncthreads();
}

/* x's largest, or where the scale is negative smallest, becomes y, which is the window's first
 * where all of the channel are one, and nowhere where it is not above 0. */
template <class T>
__device__ __forceinline__ void normalise(largest &best, const pairs &signs, const factors &f,
                                          int c) {
#pragma unroll
    for (int i = 0; i < V / 2; i++) {
        tti_vec<T, 2> two;
        *reinterpret_cast<uint32_t *>(&two) = best.value.v[i] ^ signs.v[i];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int at = c + 2 * i + e;
            float y = (tti_to_f32(two.v[e]) - f.mean[at]) * f.scale[at] + f.beta[at];
            uint32_t own = 0xffffu << (16 * e);
            if (y <= 0 || f.scale[at] == 0)
                best.at[i] = (best.at[i] & ~own) | ((y <= 0 ? NOWHERE : best.first) << (16 * e));
            two.v[e] = tti_from_f32<T>(y < 0 ? 0.0f : y);
        }
        best.value.v[i] = *reinterpret_cast<const uint32_t *>(&two);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, NORM_BLOCKS_EACH)
    norm_max_kernel(const T *x, const __grid_constant__ tti_cuda_bn_affine norm, T *y,
                    uint8_t *index, const __grid_constant__ walk k) {
    __shared__ factors f;
    fill_factors(f, norm, k.c);
    for (uint32_t item = blockIdx.x * THREADS + threadIdx.x; item < k.n_items;
         item += gridDim.x * THREADS) {
        place p = place_of(k, item);
        taps tap;
        pairs signs;
        read_taps(tap, x, k, p);
#pragma unroll
        for (int i = 0; i < V / 2; i++)
            signs.v[i] = (f.scale[p.c + 2 * i] < 0 ? 0x8000u : 0) |
                         (f.scale[p.c + 2 * i + 1] < 0 ? 0x80000000u : 0);
        largest best = largest_of<T>(tap, signs);
        normalise<T>(best, signs, f, p.c);
        size_t to = result_at(k, p);
        *reinterpret_cast<pairs *>(y + to) = best.value;
        put_index(index, to, best.at);
    }
}

/* The gradients of a window's elements. */
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

extern "C" cudaError_t tti_launch_bn_pool_three(const tti_pool *p, const tti_cuda_bn_affine *norm,
                                                const void *x, void *y, void *where,
                                                cudaStream_t stream) {
    walk k = walk_of(p);
    unsigned n_blocks = blocks_of(k) < NORM_BLOCKS ? blocks_of(k) : NORM_BLOCKS;
    if (p->c > TTI_POOL_CHANNELS) return cudaErrorInvalidValue;
    if (p->dtype == TUTTI_BF16)
        norm_max_kernel<tti_bf16><<<n_blocks, THREADS, 0, stream>>>(
            (const tti_bf16 *)x, *norm, (tti_bf16 *)y, (uint8_t *)where, k);
    else
        norm_max_kernel<tti_f16><<<n_blocks, THREADS, 0, stream>>>(
            (const tti_f16 *)x, *norm, (tti_f16 *)y, (uint8_t *)where, k);
    return cudaGetLastError();
}
