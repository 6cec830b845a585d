/* bn_pool_grad.cu - the gradient of bn_apply_pool: sums over dy, and dx, where dy is never stored.
 *
 * With channels last and 16 bits a thread has 8 fixed channels, and one 2x2 square of x after the
 * other, which four windows cover, so that every dp is read by few threads.  Blocks write their
 * sums to memory, where they are added in double: the order depends on the shape alone.  Otherwise
 * a block sums a channel, and a thread computes an element of dx. */
#include "backend/cuda/norm/batch_norm.cuh"
#include "backend/cuda/pool/bn_pool.h"

namespace {

enum {
    LANES = 8,
    BLOCKS = 264 /* 2 on each of 132 multiprocessors */,
    SIDE = 3,
    ALL_NOWHERE = 0x09090909
};

struct pool_shape {
    int32_t c, in[2], out[2], half[2]; /* half: squares of 2x2 */
    uint32_t n_squares;                /* of all samples */
    tti_divisor width, height;         /* of squares */
};

template <class T>
struct grad_source {
    const T *dp, *x;
    const uint8_t *where;
    const int32_t *rows;
};

__device__ __forceinline__ int real_samples(const int32_t *rows, int n) {
    return !rows ? n : *rows <= 0 ? 0 : *rows < n ? *rows : n;
}

/* ---- whole vectors ---- */

/* Four elements of 8 channels, which of them are inside the image, and the windows that see them:
 * (h2, w2), (h2, w2 + 1), (h2 + 1, w2), (h2 + 1, w2 + 1). */
template <class T>
struct square {
    tti_vec<T, LANES> x[4], dp[4];
    tti_vec<uint8_t, LANES> where[4];
    size_t at[4];
    bool is[4];
};

template <class T>
__device__ __forceinline__ void read_square(square<T> &s, const grad_source<T> &from,
                                            const pool_shape &k, int n, int h2, int w2, int c) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int p = h2 + i / 2, q = w2 + i % 2;
        size_t at = (((size_t)n * k.out[0] + p) * k.out[1] + q) * k.c + c;
        *reinterpret_cast<uint2 *>(&s.where[i]) = make_uint2(ALL_NOWHERE, ALL_NOWHERE);
        if (p >= k.out[0] || q >= k.out[1]) continue;
        s.dp[i] = *reinterpret_cast<const tti_vec<T, LANES> *>(from.dp + at);
        s.where[i] = *reinterpret_cast<const tti_vec<uint8_t, LANES> *>(from.where + at);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int h = 2 * h2 + e / 2, w = 2 * w2 + e % 2;
        s.is[e] = h < k.in[0] && w < k.in[1];
        s.at[e] = (((size_t)n * k.in[0] + h) * k.in[1] + w) * k.c + c;
        if (s.is[e]) s.x[e] = *reinterpret_cast<const tti_vec<T, LANES> *>(from.x + s.at[e]);
    }
}

/* dy of an element, as the value would have it. */
template <class T>
__device__ __forceinline__ float dy_of(const square<T> &s, int element, int lane) {
    /* The tap of window i that element e of the four is; -1: it does not see it. */
    constexpr int tap_of[4][4] = {{4, -1, -1, -1}, {5, 3, -1, -1}, {7, -1, 1, -1}, {8, 6, 2, 0}};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (tap_of[element][i] >= 0)
            sum += s.where[i].v[lane] == tap_of[element][i] ? tti_to_f32(s.dp[i].v[lane]) : 0.0f;
    return tti_to_f32(tti_from_f32<T>(sum));
}

/* Calls body(square) for this thread's samples below n. */
template <class T, class B>
__device__ __forceinline__ void walk_squares(const grad_source<T> &from, const pool_shape &k, int n,
                                             B body) {
    int x = k.c / LANES, c = (int)threadIdx.x % x * LANES, step = THREADS / x;
    uint32_t end = (uint32_t)n * (uint32_t)(k.half[0] * k.half[1]);
    for (uint32_t i = blockIdx.x * step + threadIdx.x / x; i < end; i += gridDim.x * step) {
        uint32_t rest = i, up = tti_split_index(rest, k.width), w2 = rest;
        int sample = (int)tti_split_index(up, k.height);
        square<T> s;
        read_square(s, from, k, sample, (int)up, (int)w2, c);
        body(s);
    }
}

/* partials [blocks][2][c] */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    square_sums(grad_source<T> from, const float *stats, int n_samples,
                const __grid_constant__ pool_shape k, float *partials) {
    __shared__ float found[2][THREADS][LANES];
    int x = k.c / LANES, c = (int)threadIdx.x % x * LANES;
    float mean[LANES], sum[LANES] = {}, dot[LANES] = {};
#pragma unroll
    for (int e = 0; e < LANES; e++) mean[e] = stats[1 + c + e];
    walk_squares<T>(from, k, real_samples(from.rows, n_samples), [&](const square<T> &s) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < LANES; e++) {
                if (!s.is[i]) continue;
                float dy = dy_of(s, i, e);
                sum[e] += dy;
                dot[e] += dy * (tti_to_f32(s.x[i].v[e]) - mean[e]);
            }
    });
#pragma unroll
    for (int e = 0; e < LANES; e++)
        found[0][threadIdx.x][e] = sum[e], found[1][threadIdx.x][e] = dot[e];
    for (int d = THREADS / 2; d >= x; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d)
#pragma unroll
            for (int e = 0; e < LANES; e++)
                for (int kind = 0; kind < 2; kind++)
                    found[kind][threadIdx.x][e] += found[kind][threadIdx.x + d][e];
    }
    if ((int)threadIdx.x >= x) return;
    float *to = partials + (size_t)blockIdx.x * 2 * k.c + c;
#pragma unroll
    for (int e = 0; e < LANES; e++)
        to[e] = found[0][threadIdx.x][e], to[k.c + e] = found[1][threadIdx.x][e];
}

struct dx_factors {
    float mean, dy_mean, slope, scale;
};

/* With the formulas of batch_norm_grad.cu. */
__device__ __forceinline__ dx_factors dx_factors_of(const tti_cuda_bn_grad &a, int n_channels,
                                                    int c) {
    float rstd = rstd_of<float>(a.stats, a.stats[1 + n_channels + c], a.eps);
    float count = a.sums[0] > 1 ? a.sums[0] : 1;
    return dx_factors{a.stats[1 + c], a.sums[1 + c] / count,
                      rstd * a.sums[1 + n_channels + c] / count, a.gamma[c] * rstd};
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    square_dx(grad_source<T> from, const __grid_constant__ tti_cuda_bn_grad a, int n_samples,
              const __grid_constant__ pool_shape k, T *dx) {
    int c = (int)threadIdx.x % (k.c / LANES) * LANES, n = real_samples(a.rows, n_samples);
    dx_factors f[LANES];
#pragma unroll
    for (int e = 0; e < LANES; e++) f[e] = dx_factors_of(a, k.c, c + e);
    walk_squares<T>(from, k, n, [&](const square<T> &s) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!s.is[i]) continue;
            tti_vec<T, LANES> out;
#pragma unroll
            for (int e = 0; e < LANES; e++) {
                float d = dy_of(s, i, e) - f[e].dy_mean, off = tti_to_f32(s.x[i].v[e]) - f[e].mean;
                out.v[e] = tti_from_f32<T>((d - off * f[e].slope) * f[e].scale);
            }
            *reinterpret_cast<tti_vec<T, LANES> *>(dx + s.at[i]) = out;
        }
    });
    tti_vec<T, LANES> none;
#pragma unroll
    for (int e = 0; e < LANES; e++) none.v[e] = tti_from_f32<T>(0.0f);
    size_t of_sample = (size_t)k.in[0] * k.in[1] * k.c / LANES;
    for (size_t i = n * of_sample + blockIdx.x * THREADS + threadIdx.x; i < n_samples * of_sample;
         i += gridDim.x * THREADS)
        *reinterpret_cast<tti_vec<T, LANES> *>(dx + i * LANES) = none;
}

/* ---- any dtype and layout ---- */

__device__ __forceinline__ size_t offset_of(const tti_pool &v, const int32_t (&plane)[2], int64_t n,
                                            int64_t c, int h, int w) {
    return v.channels_last ? ((n * plane[0] + h) * plane[1] + w) * v.c + c
                           : ((n * v.c + c) * plane[0] + h) * plane[1] + w;
}

template <class T>
__device__ __forceinline__ auto dy_at(const tti_pool &v, const grad_source<T> &from, int64_t n,
                                      int64_t c, int h, int w) {
    typename tti_acc<T>::type sum = 0;
    for (int p = h / 2; p <= (h + 1) / 2 && p < v.out[0]; p++)
        for (int q = w / 2; q <= (w + 1) / 2 && q < v.out[1]; q++) {
            size_t at = offset_of(v, v.out, n, c, p, q);
            if (from.where[at] == (h - 2 * p + 1) * SIDE + w - 2 * q + 1)
                sum += tti_to_acc(from.dp[at]);
        }
    return sum;
}

/* Block c. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    plain_sums(tti_pool v, grad_source<T> from, const float *stats, float *partials) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[WARP];
    int64_t plane = (int64_t)v.in[0] * v.in[1], n = real_samples(from.rows, (int)v.n) * plane;
    A mean = (A)stats[1 + blockIdx.x], sum = 0, dot = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        int h = (int)(i % plane / v.in[1]), w = (int)(i % v.in[1]);
        A dy = dy_at(v, from, i / plane, blockIdx.x, h, w);
        size_t at = offset_of(v, v.in, i / plane, blockIdx.x, h, w);
        sum += dy, dot += dy * (tti_to_acc(from.x[at]) - mean);
    }
    sum = tti_block_sum(sum, shared), dot = tti_block_sum(dot, shared);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = (float)sum, partials[v.c + blockIdx.x] = (float)dot;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    plain_dx(tti_pool v, grad_source<T> from, tti_cuda_bn_grad a, T *dx, int64_t n) {
    typedef typename tti_acc<T>::type A;
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x, plane = (int64_t)v.in[0] * v.in[1];
    if (i >= n) return;
    int64_t c = i / plane % (int64_t)v.c, sample = i / plane / (int64_t)v.c;
    int h = (int)(i % plane / v.in[1]), w = (int)(i % v.in[1]);
    size_t at = offset_of(v, v.in, sample, c, h, w);
    A rstd = rstd_of<A>(a.stats, a.stats[1 + v.c + c], a.eps);
    A count = (A)(a.sums[0] > 1 ? a.sums[0] : 1), off = tti_to_acc(from.x[at]) - (A)a.stats[1 + c];
    A d = dy_at(v, from, sample, c, h, w) - (A)a.sums[1 + c] / count;
    d = (d - off * (rstd * (A)a.sums[1 + v.c + c] / count)) * ((A)a.gamma[c] * rstd);
    tti_from_acc(dx + at, sample < real_samples(a.rows, (int)v.n) ? d : (A)0);
}

/* ---- which ---- */

/* Threads of a block share out its channels evenly. */
bool is_square(const tti_pool *p) {
    return tti_pool_three_fits(p) && p->c <= TTI_POOL_CHANNELS && THREADS % (p->c / LANES) == 0;
}

pool_shape shape_of(const tti_pool *p) {
    pool_shape k = {};
    k.c = (int32_t)p->c;
    for (int d = 0; d < 2; d++)
        k.in[d] = p->in[d], k.out[d] = p->out[d], k.half[d] = (p->in[d] + 1) / 2;
    k.n_squares = (uint32_t)(p->n * (size_t)k.half[0] * (size_t)k.half[1]);
    k.width = tti_make_divisor((uint32_t)k.half[1]);
    k.height = tti_make_divisor((uint32_t)k.half[0]);
    return k;
}

/* As many as there are squares, at most BLOCKS. */
unsigned parts_of_pool(const tti_pool *p) {
    if (!is_square(p)) return 1;
    pool_shape k = shape_of(p);
    size_t each = THREADS / (p->c / LANES), wanted = ceil_div(k.n_squares, each);
    return (unsigned)(wanted < BLOCKS ? wanted : BLOCKS);
}

template <class T>
grad_source<T> source_of(const tti_cuda_bn_grad *grad, const uint8_t *where) {
    return grad_source<T>{(const T *)grad->dy, (const T *)grad->x, where, grad->rows};
}

template <class T>
cudaError_t launch_square_sums(const tti_pool *p, const tti_cuda_bn_grad *grad,
                               const uint8_t *where, float *partials, cudaStream_t stream) {
    square_sums<T><<<parts_of_pool(p), THREADS, 0, stream>>>(source_of<T>(grad, where), grad->stats,
                                                             (int)p->n, shape_of(p), partials);
    return cudaGetLastError();
}

template <class T>
cudaError_t launch_square_dx(const tti_pool *p, const tti_cuda_bn_grad *grad, const uint8_t *where,
                             void *dx, cudaStream_t stream) {
    square_dx<T><<<parts_of_pool(p), THREADS, 0, stream>>>(source_of<T>(grad, where), *grad,
                                                           (int)p->n, shape_of(p), (T *)dx);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t tti_cuda_bn_pool_scratch(const tti_pool *p) {
    return (size_t)parts_of_pool(p) * 2 * p->c * sizeof(float);
}

extern "C" cudaError_t tti_cuda_bn_pool_sums(const tti_pool *p, const tti_cuda_bn_grad *grad,
                                             const uint8_t *where, float *partials,
                                             const tti_cuda_bn_sums_out *out, cudaStream_t stream) {
    tti_cuda_planes planes = {p->n, p->c, (size_t)p->in[0] * (size_t)p->in[1], true, p->dtype};
    cudaError_t error = cudaSuccess;
    bool empty = p->n * p->c == 0;
    if (!empty && is_square(p))
        error = p->dtype == TUTTI_BF16
                    ? launch_square_sums<tti_bf16>(p, grad, where, partials, stream)
                    : launch_square_sums<tti_f16>(p, grad, where, partials, stream);
    else if (!empty)
        TTI_FLOAT_DISPATCH(p->dtype, plain_sums<T><<<(unsigned)p->c, THREADS, 0, stream>>>(
                                         *p, source_of<T>(grad, where), grad->stats, partials));
    if (error != cudaSuccess) return error;
    return tti_cuda_bn_join_sums(&planes, grad, empty ? 0 : parts_of_pool(p), partials, out,
                                 stream);
}

extern "C" cudaError_t tti_cuda_bn_pool_backward(const tti_pool *p, const tti_cuda_bn_grad *grad,
                                                 const uint8_t *where, void *dx,
                                                 cudaStream_t stream) {
    int64_t n = (int64_t)(p->n * p->c) * p->in[0] * p->in[1];
    if (n == 0) return cudaSuccess;
    if (is_square(p))
        return p->dtype == TUTTI_BF16 ? launch_square_dx<tti_bf16>(p, grad, where, dx, stream)
                                      : launch_square_dx<tti_f16>(p, grad, where, dx, stream);
    if (ceil_div((size_t)n, THREADS) > INT32_MAX) return cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(p->dtype, plain_dx<T><<<blocks_of((size_t)n, THREADS), THREADS, 0, stream>>>(
                                     *p, source_of<T>(grad, where), *grad, (T *)dx, n));
    return cudaGetLastError();
}
