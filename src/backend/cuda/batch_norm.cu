/* batch_norm.cu - kernels of batch norm.
 *
 * With channels last x is a matrix of positions by channels: a thread keeps V channels (16 bytes)
 * and walks down the rows of its block, so what belongs to a channel stays in registers.  In plain
 * layout a block (sums) or a few warps (elements) work on runs of one channel.
 * Sums are made in three steps of fixed order: in a thread, in a tree over a block, and over the
 * partial results of all blocks in double.  The number of blocks depends on the shape alone.
 * Variances: a thread sums x - k and (x - k)^2 for its own first value k, which loses nothing worth
 * naming since k is one of the values; from there on {count, mean, M2} are joined by Chan's
 * formula. */
#include "backend/cuda/batch_norm.h"
#include "backend/cuda/device.cuh"

namespace {

enum {
    WARP = 32,
    THREADS = 256,
    UNROLL = 4,
    SUM_BLOCKS = 528, /* 4 on each of 132 multiprocessors */
    MAP_BLOCKS = 4224,
    MAP_ROWS = 16, /* of a thread at least: what belongs to its channels is read but once */
    MAX_PARTS = 8192,
    JOIN_X = 8, /* channels of a block that joins partial results: 32 bytes */
    JOIN_Y = 64 /* runs of parts */
};

/* ---- V elements as they lie in memory, and as numbers of type A ---- */

template <class T>
struct wide {
    typedef float type;
};
template <>
struct wide<double> {
    typedef double type;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(tti_bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(tti_f16 x) { return __half2float(x); }
template <class T, class A>
__device__ __forceinline__ T narrow(A x) {
    return tti_from_f32<T>((float)x);
}
template <>
__device__ __forceinline__ double narrow<double, double>(double x) {
    return x;
}

template <class T, int V>
__device__ __forceinline__ tti_vec<T, V> raw_at(const void *from, size_t i) {
    return *reinterpret_cast<const tti_vec<T, V> *>((const T *)from + i);
}

template <class T, int V>
__device__ __forceinline__ void put_at(void *to, size_t i, const tti_vec<T, V> &x) {
    *reinterpret_cast<tti_vec<T, V> *>((T *)to + i) = x;
}

/* ---- how the work is cut ---- */

/* Units are rows of the matrix, or samples in plain layout. */
struct cut {
    size_t n_units, per_unit; /* elements of a channel in a unit */
    size_t units_each;        /* of a block */
    unsigned n_parts;
    bool last;
};

/* The units that count. */
__device__ __forceinline__ size_t real_units(const cut &by, const int32_t *rows, size_t n,
                                             size_t s) {
    if (!rows) return by.n_units;
    long long real = *rows;
    size_t counted = real <= 0 ? 0 : (size_t)real < n ? (size_t)real : n;
    return by.last ? counted * s : counted;
}

/* Those of part p, of n_real. */
__device__ __forceinline__ size_t units_of(const cut &by, unsigned p, size_t n_real) {
    size_t first = p * by.units_each, end = first + by.units_each;
    if (end > n_real) end = n_real;
    return end > first ? end - first : 0;
}

/* ---- moments ---- */

template <class A>
struct moments {
    A n, mean, m2;
};

template <class A>
__device__ __forceinline__ moments<A> join(const moments<A> &a, const moments<A> &b) {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    A n = a.n + b.n, d = b.mean - a.mean, part = b.n / n;
    return moments<A>{n, a.mean + d * part, a.m2 + b.m2 + d * d * a.n * part};
}

/* From n values with sums of x - k and (x - k)^2. */
template <class A>
__device__ __forceinline__ moments<A> from_sums(A n, A k, A sum, A squares) {
    if (n == 0) return moments<A>{0, 0, 0};
    A mean = sum / n, m2 = squares - sum * mean;
    return moments<A>{n, k + mean, m2 > 0 ? m2 : 0};
}

/* ---- statistics, channels last ---- */

/* One level of a tree over threadIdx.y: [blockDim.y][blockDim.x * V] of shared. */
template <class A, int V>
__device__ __forceinline__ void join_columns(moments<A> (&own)[V], A *shared) {
    size_t width = (size_t)blockDim.x * V, at = threadIdx.y * width + threadIdx.x * V;
    A *n = shared, *mean = n + blockDim.y, *m2 = mean + blockDim.y * width;
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        if (d >= blockDim.y) continue;
        if (threadIdx.y >= d && threadIdx.y < 2 * d) {
            if (threadIdx.x == 0) n[threadIdx.y] = own[0].n;
#pragma unroll
            for (int i = 0; i < V; i++) mean[at + i] = own[i].mean, m2[at + i] = own[i].m2;
        }
        __syncthreads();
        if (threadIdx.y < d && threadIdx.y + d < blockDim.y) {
            size_t other = at + d * width;
#pragma unroll
            for (int i = 0; i < V; i++)
                own[i] =
                    join(own[i], moments<A>{n[threadIdx.y + d], mean[other + i], m2[other + i]});
        }
        __syncthreads();
    }
}

/* partials [n_parts][2][c]: mean, M2.  Blocks (x, y): V x channels, rows y apart. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    stats_last(const T *x, size_t c, size_t n, size_t s, cut by, const int32_t *rows,
               float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V, step = blockDim.y;
    size_t end = real_units(by, rows, n, s), first = blockIdx.y * by.units_each;
    if (end > first + by.units_each) end = first + by.units_each;
    A k[V] = {}, sum[V] = {}, squares[V] = {};
    size_t row = first + threadIdx.y, n_own = row < end && col < c ? (end - row - 1) / step + 1 : 0;
    const T *at = x + row * c + col;
    if (n_own) {
        tti_vec<T, V> raw = raw_at<T, V>(at, 0);
#pragma unroll
        for (int i = 0; i < V; i++) k[i] = widen(raw.v[i]);
    }
    size_t stride = step * c, left = n_own;
    for (; left >= UNROLL; left -= UNROLL, at += UNROLL * stride) {
        tti_vec<T, V> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) raw[u] = raw_at<T, V>(at, u * stride);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                A d = widen(raw[u].v[i]) - k[i];
                sum[i] += d, squares[i] += d * d;
            }
    }
    for (; left > 0; left--, at += stride) {
        tti_vec<T, V> raw = raw_at<T, V>(at, 0);
#pragma unroll
        for (int i = 0; i < V; i++) {
            A d = widen(raw.v[i]) - k[i];
            sum[i] += d, squares[i] += d * d;
        }
    }
    moments<A> own[V];
#pragma unroll
    for (int i = 0; i < V; i++) own[i] = from_sums<A>((A)n_own, k[i], sum[i], squares[i]);
    join_columns<A, V>(own, (A *)memory);
    if (threadIdx.y || col >= c) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + col;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = (float)own[i].mean, to[c + i] = (float)own[i].m2;
}

/* ---- runs of one channel, plain layout ---- */

/* Vectors of the samples of a block, one channel: vector v of sample n, thread by thread. */
struct walk {
    size_t n, v, step_n, step_v, n_vectors;
};

__device__ __forceinline__ walk walk_of(size_t first, size_t n_vectors) {
    return walk{first + threadIdx.x / n_vectors, threadIdx.x % n_vectors, blockDim.x / n_vectors,
                blockDim.x % n_vectors, n_vectors};
}

__device__ __forceinline__ void advance(walk &w) {
    w.n += w.step_n, w.v += w.step_v;
    if (w.v >= w.n_vectors) w.v -= w.n_vectors, w.n++;
}

template <class A>
__device__ __forceinline__ moments<A> join_block(moments<A> own, moments<A> *shared) {
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        if (threadIdx.x >= d && threadIdx.x < 2 * d) shared[threadIdx.x] = own;
        __syncthreads();
        if (threadIdx.x < d) own = join(own, shared[threadIdx.x + d]);
        __syncthreads();
    }
    return own;
}

/* Block (c, part) of THREADS threads. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    stats_plain(const T *x, size_t c, size_t n, size_t s, cut by, const int32_t *rows,
                float *partials) {
    typedef typename wide<T>::type A;
    __shared__ moments<A> shared[THREADS];
    size_t end = real_units(by, rows, n, s), first = blockIdx.y * by.units_each;
    if (end > first + by.units_each) end = first + by.units_each;
    A k = 0, sum = 0, squares = 0, count = 0;
    for (walk w = walk_of(first, s / V); w.n < end; advance(w)) {
        tti_vec<T, V> raw = raw_at<T, V>(x, (w.n * c + blockIdx.x) * s + w.v * V);
        if (count == 0) k = widen(raw.v[0]);
#pragma unroll
        for (int i = 0; i < V; i++) {
            A d = widen(raw.v[i]) - k;
            sum += d, squares += d * d;
        }
        count += V;
    }
    moments<A> own = join_block(from_sums<A>(count, k, sum, squares), shared);
    if (threadIdx.x) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + blockIdx.x;
    to[0] = (float)own.mean, to[c] = (float)own.m2;
}

/* stats from partials, in double: JOIN_Y runs of parts, then a tree. */
__global__ void join_stats(const float *partials, size_t c, size_t n, size_t s, cut by,
                           const int32_t *rows, float *stats) {
    __shared__ moments<double> runs[JOIN_Y / 2][JOIN_X];
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x, n_real = real_units(by, rows, n, s);
    moments<double> own = {0, 0, 0};
    if (col < c)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < by.n_parts; p += JOIN_Y) {
            const float *from = partials + (size_t)p * 2 * c + col;
            double count = (double)(units_of(by, p, n_real) * by.per_unit);
            own = join(own, moments<double>{count, (double)from[0], (double)from[c]});
        }
    for (unsigned d = JOIN_Y / 2; d > 0; d /= 2) {
        if (threadIdx.y >= d && threadIdx.y < 2 * d) runs[threadIdx.y - d][threadIdx.x] = own;
        __syncthreads();
        if (threadIdx.y < d) own = join(own, runs[threadIdx.y][threadIdx.x]);
        __syncthreads();
    }
    if (threadIdx.y) return;
    if (col < c) stats[1 + col] = (float)own.mean, stats[1 + c + col] = (float)own.m2;
    if (col == 0) stats[0] = (float)(n_real * by.per_unit);
}

/* ---- y = act((x - mean) scale + beta + add) ---- */

template <class A>
__device__ __forceinline__ A rstd_of(const float *count, float m2, double eps) {
    A variance = !count ? (A)m2 : *count > 0 ? (A)m2 / (A)*count : (A)0;
    return (A)1 / sqrt(variance + (A)eps);
}

template <class A>
struct affine {
    A mean, scale, beta;
};

template <class A>
__device__ __forceinline__ affine<A> affine_of(const tti_cuda_bn_apply &a, size_t c) {
    return affine<A>{(A)a.mean[c], (A)a.gamma[c] * rstd_of<A>(a.count, a.m2[c], a.eps),
                     (A)a.beta[c]};
}

template <class A>
__device__ __forceinline__ A apply_one(const affine<A> &f, A x, A add, bool relu) {
    A y = (x - f.mean) * f.scale + f.beta + add;
    return relu && y < 0 ? (A)0 : y;
}

/* U rows, a whole vector each; f: of the V channels, or of all in f[0]. */
template <class T, int V, int U, bool ONE>
__device__ __forceinline__ void apply_rows(const tti_cuda_bn_apply &a, size_t at, size_t stride,
                                           const affine<typename wide<T>::type> *f) {
    typedef typename wide<T>::type A;
    tti_vec<T, V> x[U], add[U] = {};
#pragma unroll
    for (int u = 0; u < U; u++) x[u] = raw_at<T, V>(a.x, at + u * stride);
    if (a.add)
#pragma unroll
        for (int u = 0; u < U; u++) add[u] = raw_at<T, V>(a.add, at + u * stride);
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            A more = a.add ? widen(add[u].v[i]) : (A)0;
            x[u].v[i] = narrow<T, A>(apply_one(f[ONE ? 0 : i], widen(x[u].v[i]), more, a.relu));
        }
        put_at(a.y, at + u * stride, x[u]);
    }
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS) apply_last(tti_cuda_bn_apply a, size_t c, cut by) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V, stride = blockDim.y * c;
    size_t row = blockIdx.y * by.units_each + threadIdx.y;
    size_t end = min((blockIdx.y + (size_t)1) * by.units_each, by.n_units);
    if (col >= c || row >= end) return;
    affine<A> f[V];
#pragma unroll
    for (int i = 0; i < V; i++) f[i] = affine_of<A>(a, col + i);
    size_t left = (end - row - 1) / blockDim.y + 1, at = row * c + col;
    for (; left >= UNROLL; left -= UNROLL, at += UNROLL * stride)
        apply_rows<T, V, UNROLL, false>(a, at, stride, f);
    for (; left > 0; left--, at += stride) apply_rows<T, V, 1, false>(a, at, 0, f);
}

/* threadIdx.y: runs of one channel. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    apply_plain(tti_cuda_bn_apply a, size_t c, size_t s, size_t n_runs) {
    typedef typename wide<T>::type A;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n_runs;
         run += (size_t)gridDim.x * blockDim.y) {
        affine<A> f = affine_of<A>(a, run % c);
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x)
            apply_rows<T, V, 1, true>(a, run * s + v * V, 0, &f);
    }
}

/* ---- sum dy and sum dy (x - mean), dy where y > 0 ---- */

template <class T, int V>
struct grad_vec {
    tti_vec<T, V> dy, x, y;
};

template <class T, int V>
__device__ __forceinline__ grad_vec<T, V> grad_at(const tti_cuda_bn_grad &a, size_t at) {
    grad_vec<T, V> raw = {};
    raw.dy = raw_at<T, V>(a.dy, at);
    raw.x = raw_at<T, V>(a.x, at);
    if (a.y) raw.y = raw_at<T, V>(a.y, at);
    return raw;
}

template <class T, int V>
__device__ __forceinline__ typename wide<T>::type masked(const grad_vec<T, V> &raw, int i,
                                                         bool mask) {
    typedef typename wide<T>::type A;
    return !mask || widen(raw.y.v[i]) > 0 ? widen(raw.dy.v[i]) : (A)0;
}

/* U rows; ONE: all of a vector are of one channel, sums [0] take them. */
template <class T, int V, int U, bool ONE, class A>
__device__ __forceinline__ void sum_rows(const tti_cuda_bn_grad &a, size_t at, size_t stride,
                                         const A *mean, A *sum, A *dot) {
    grad_vec<T, V> raw[U];
#pragma unroll
    for (int u = 0; u < U; u++) raw[u] = grad_at<T, V>(a, at + u * stride);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            A d = masked(raw[u], i, a.y != nullptr);
            sum[ONE ? 0 : i] += d;
            dot[ONE ? 0 : i] += d * (widen(raw[u].x.v[i]) - mean[ONE ? 0 : i]);
        }
}

/* partials [n_parts][2][c].  shared: [2][blockDim.y][blockDim.x * V]. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    sums_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V, stride = blockDim.y * c;
    size_t end = real_units(by, a.rows, n, s), first = blockIdx.y * by.units_each;
    if (end > first + by.units_each) end = first + by.units_each;
    A mean[V] = {}, sum[V] = {}, dot[V] = {};
    size_t row = first + threadIdx.y, at = row * c + col;
    size_t left = row < end && col < c ? (end - row - 1) / blockDim.y + 1 : 0;
    if (left)
#pragma unroll
        for (int i = 0; i < V; i++) mean[i] = (A)a.stats[1 + col + i];
    for (; left >= UNROLL / 2; left -= UNROLL / 2, at += UNROLL / 2 * stride)
        sum_rows<T, V, UNROLL / 2, false>(a, at, stride, mean, sum, dot);
    for (; left > 0; left--, at += stride) sum_rows<T, V, 1, false>(a, at, 0, mean, sum, dot);
    size_t width = (size_t)blockDim.x * V, own = threadIdx.y * width + threadIdx.x * V;
    A *sums = (A *)memory, *dots = sums + blockDim.y * width;
#pragma unroll
    for (int i = 0; i < V; i++) sums[own + i] = sum[i], dots[own + i] = dot[i];
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        if (d >= blockDim.y) continue;
        __syncthreads();
        if (threadIdx.y >= d || threadIdx.y + d >= blockDim.y) continue;
#pragma unroll
        for (int i = 0; i < V; i++)
            sums[own + i] += sums[own + d * width + i], dots[own + i] += dots[own + d * width + i];
    }
    if (threadIdx.y || col >= c) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + col;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = (float)sums[own + i], to[c + i] = (float)dots[own + i];
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    sums_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    __shared__ A shared[WARP];
    size_t end = real_units(by, a.rows, n, s), first = blockIdx.y * by.units_each;
    if (end > first + by.units_each) end = first + by.units_each;
    A mean = (A)a.stats[1 + blockIdx.x], sum = 0, dot = 0;
    for (walk w = walk_of(first, s / V); w.n < end; advance(w))
        sum_rows<T, V, 1, true>(a, (w.n * c + blockIdx.x) * s + w.v * V, 0, &mean, &sum, &dot);
    sum = tti_block_sum(sum, shared), dot = tti_block_sum(dot, shared);
    if (threadIdx.x) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + blockIdx.x;
    to[0] = (float)sum, to[c] = (float)dot;
}

/* sums from partials, in double, the second kind times rstd. */
__global__ void join_sums(const float *partials, tti_cuda_bn_grad a, size_t c, size_t n, size_t s,
                          cut by, float *sums) {
    __shared__ double runs[2][JOIN_Y][JOIN_X];
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x;
    double sum = 0, dot = 0;
    if (col < c)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < by.n_parts; p += JOIN_Y) {
            const float *from = partials + (size_t)p * 2 * c + col;
            sum += (double)from[0], dot += (double)from[c];
        }
    double *own_sum = &runs[0][threadIdx.y][threadIdx.x], *own_dot = own_sum + JOIN_Y * JOIN_X;
    *own_sum = sum, *own_dot = dot;
    for (unsigned d = JOIN_Y / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.y < d) *own_sum += own_sum[d * JOIN_X], *own_dot += own_dot[d * JOIN_X];
    }
    if (threadIdx.y) return;
    if (col < c) {
        sums[1 + col] = (float)*own_sum;
        sums[1 + c + col] =
            (float)(*own_dot * rstd_of<double>(a.stats, a.stats[1 + c + col], a.eps));
    }
    if (col == 0) sums[0] = (float)(real_units(by, a.rows, n, s) * by.per_unit);
}

/* ---- dx = (dy - mean dy - (x - mean) slope) scale ---- */

template <class A>
struct grad_factors {
    A mean, dy_mean, slope, scale;
};

template <class A>
__device__ __forceinline__ grad_factors<A> factors_of(const tti_cuda_bn_grad &a, size_t n_channels,
                                                      size_t c) {
    A rstd = rstd_of<A>(a.stats, a.stats[1 + n_channels + c], a.eps);
    A count = (A)(a.sums[0] > 1 ? a.sums[0] : 1);
    return grad_factors<A>{(A)a.stats[1 + c], (A)a.sums[1 + c] / count,
                           rstd * (A)a.sums[1 + n_channels + c] / count, (A)a.gamma[c] * rstd};
}

template <class T, int V, int U, bool ONE>
__device__ __forceinline__ void grad_rows(const tti_cuda_bn_grad &a, size_t at, size_t stride,
                                          const grad_factors<typename wide<T>::type> *f, void *dx) {
    typedef typename wide<T>::type A;
    grad_vec<T, V> raw[U];
#pragma unroll
    for (int u = 0; u < U; u++) raw[u] = grad_at<T, V>(a, at + u * stride);
#pragma unroll
    for (int u = 0; u < U; u++) {
        tti_vec<T, V> out;
#pragma unroll
        for (int i = 0; i < V; i++) {
            const grad_factors<A> &g = f[ONE ? 0 : i];
            A d = masked(raw[u], i, a.y != nullptr) - g.dy_mean;
            out.v[i] = narrow<T, A>((d - (widen(raw[u].x.v[i]) - g.mean) * g.slope) * g.scale);
        }
        put_at(dx, at + u * stride, out);
    }
}

template <class T, int V>
__device__ __forceinline__ void put_zeros(void *dx, size_t at) {
    tti_vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) out.v[i] = narrow<T, typename wide<T>::type>(0);
    put_at(dx, at, out);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    grad_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V, stride = blockDim.y * c;
    size_t row = blockIdx.y * by.units_each + threadIdx.y;
    size_t end = min((blockIdx.y + (size_t)1) * by.units_each, by.n_units);
    if (col >= c || row >= end) return;
    size_t real = real_units(by, a.rows, n, s), at = row * c + col;
    if (real > end) real = end;
    grad_factors<A> f[V];
#pragma unroll
    for (int i = 0; i < V; i++) f[i] = factors_of<A>(a, c, col + i);
    size_t n_rows = (end - row - 1) / blockDim.y + 1;
    size_t left = row < real ? (real - row - 1) / blockDim.y + 1 : 0, zeros = n_rows - left;
    for (; left >= UNROLL / 2; left -= UNROLL / 2, at += UNROLL / 2 * stride)
        grad_rows<T, V, UNROLL / 2, false>(a, at, stride, f, dx);
    for (; left > 0; left--, at += stride) grad_rows<T, V, 1, false>(a, at, 0, f, dx);
    for (; zeros > 0; zeros--, at += stride) put_zeros<T, V>(dx, at);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    grad_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t n_real = real_units(by, a.rows, n, s) * c;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n * c;
         run += (size_t)gridDim.x * blockDim.y) {
        grad_factors<A> f = factors_of<A>(a, c, run % c);
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x) {
            size_t at = run * s + v * V;
            if (run < n_real)
                grad_rows<T, V, 1, true>(a, at, 0, &f, dx);
            else
                put_zeros<T, V>(dx, at);
        }
    }
}

/* ---- small things ---- */

__global__ void running_of(const float *stats, const int32_t *rows, size_t c, float *out) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 * c) return;
    double n = *rows > 0 ? (double)*rows : 0, count = (double)stats[0] - 1;
    double x = n * (double)stats[1 + i];
    out[i] = (float)(i < c ? x : x / (count > 1 ? count : 1));
}

/* As the ops' join: without contraction, in double, so that the bits are those of the host. */
__device__ __forceinline__ moments<double> join_exact(const moments<double> &a,
                                                      const moments<double> &b) {
    if (a.n == 0 || b.n == 0) return a.n == 0 ? b : a;
    double n = __dadd_rn(a.n, b.n), d = __dsub_rn(b.mean, a.mean);
    double moved = __dmul_rn(d, b.n) / n;
    double more = __dmul_rn(__dmul_rn(__dmul_rn(d, d), a.n), b.n) / n;
    return moments<double>{n, __dadd_rn(a.mean, moved), __dadd_rn(__dadd_rn(a.m2, b.m2), more)};
}

/* A tree whose left branches hold the largest power of two below the number of parts is what a
 * binary counter makes: equal branches are joined at once, what is left at the end from the right.
 * */
__global__ void join_parts(const float *parts, size_t n_parts, size_t n_elems, bool of_moments,
                           float *out) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, c = (n_elems - 1) / 2;
    bool channel = of_moments && i > 0;
    size_t mean_at = channel && i > c ? i - c : i, m2_at = channel ? mean_at + c : i;
    moments<double> stack[40]; /* n_parts < 2^40 */
    int depth = 0;
    if (i >= n_elems) return;
    for (size_t p = 0; p < n_parts; p++) {
        const float *part = parts + p * n_elems;
        moments<double> next = {(double)part[0], (double)part[mean_at], (double)part[m2_at]};
        for (size_t full = p + 1; full % 2 == 0; full /= 2) {
            const moments<double> &before = stack[--depth];
            next = channel ? join_exact(before, next)
                           : moments<double>{0, __dadd_rn(before.mean, next.mean), 0};
        }
        stack[depth++] = next;
    }
    moments<double> all = stack[--depth];
    while (depth > 0) {
        const moments<double> &before = stack[--depth];
        all = channel ? join_exact(before, all)
                      : moments<double>{0, __dadd_rn(before.mean, all.mean), 0};
    }
    out[i] = (float)(channel && i > c ? all.m2 : all.mean);
}

/* ---- which kernel, how many blocks ---- */

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

bool is_empty(const tti_cuda_planes *p) { return p->n == 0 || p->c == 0 || p->s == 0; }

/* Elements of a 16-byte vector of that dtype, 1 where they do not divide the channels or places. */
int vector_of(const tti_cuda_planes *p) {
    int n = p->dtype == TUTTI_F64 ? 2 : p->dtype == TUTTI_F32 ? 4 : 8;
    return (p->last ? p->c : p->s) % (size_t)n ? 1 : n;
}

struct shape {
    cut by;
    dim3 grid, block;
    size_t shared; /* bytes, for sums over a block with channels last */
};

/* About n_blocks blocks, widest vectors of channels wide at most, with n_least rows for a thread.
 */
shape shape_last(const tti_cuda_planes *p, size_t n_blocks, size_t widest, size_t n_least) {
    size_t n_vectors = ceil_div(p->c, (size_t)vector_of(p)), n_x = ceil_div(n_vectors, widest);
    size_t x = ceil_div(n_vectors, n_x), y = THREADS / x, n_rows = p->n * p->s;
    size_t parts = ceil_div(n_blocks, n_x), most = ceil_div(n_rows, y * n_least);
    if (parts > most) parts = most;
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    shape sh = {};
    sh.by.last = true;
    sh.by.n_units = n_rows, sh.by.per_unit = 1;
    sh.by.units_each = ceil_div(ceil_div(n_rows, parts), y) * y;
    sh.by.n_parts = (unsigned)ceil_div(n_rows, sh.by.units_each);
    sh.grid = dim3((unsigned)n_x, sh.by.n_parts);
    sh.block = dim3((unsigned)x, (unsigned)y);
    size_t wide = p->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    sh.shared = (y + 2 * y * x * (size_t)vector_of(p)) * wide;
    return sh;
}

/* Sums in plain layout: a block for a channel and some samples. */
shape shape_plain(const tti_cuda_planes *p) {
    size_t parts = ceil_div(SUM_BLOCKS, p->c);
    if (parts > p->n) parts = p->n;
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    shape sh = {};
    sh.by.n_units = p->n, sh.by.per_unit = p->s;
    sh.by.units_each = ceil_div(p->n, parts);
    sh.by.n_parts = (unsigned)ceil_div(p->n, sh.by.units_each);
    sh.grid = dim3((unsigned)p->c, sh.by.n_parts);
    sh.block = dim3(THREADS);
    return sh;
}

/* Partial results are written and read again: blocks are as wide as keeps them few. */
shape shape_of_sums(const tti_cuda_planes *p) {
    if (!is_empty(p)) return p->last ? shape_last(p, SUM_BLOCKS, WARP, 1) : shape_plain(p);
    shape sh = {};
    sh.by.last = p->last;
    sh.by.per_unit = p->last ? 1 : p->s;
    sh.by.n_units = p->last ? p->n * p->s : p->n;
    return sh;
}

/* Elements in plain layout: a warp for a short run, a block for a long one. */
shape shape_of_runs(const tti_cuda_planes *p) {
    unsigned x = p->s / (size_t)vector_of(p) <= 4 * WARP ? WARP : THREADS, y = THREADS / x;
    size_t n_blocks = ceil_div(p->n * p->c, y);
    shape sh = {};
    sh.by.n_units = p->n, sh.by.per_unit = p->s;
    sh.grid = dim3((unsigned)(n_blocks < MAP_BLOCKS ? n_blocks : MAP_BLOCKS));
    sh.block = dim3(x, y);
    return sh;
}

/* Runs the statement with T and V for the dtype and the vectors of p. */
#define FOR_VECTORS(p, ...)                       \
    do {                                          \
        bool whole = vector_of(p) > 1;            \
        TTI_FLOAT_DISPATCH((p)->dtype, {          \
            if (whole) {                          \
                constexpr int V = 16 / sizeof(T); \
                __VA_ARGS__;                      \
            } else {                              \
                constexpr int V = 1;              \
                __VA_ARGS__;                      \
            }                                     \
        });                                       \
    } while (0)

unsigned blocks_of(size_t n, size_t each) { return (unsigned)ceil_div(n, each); }

}  // namespace

extern "C" size_t tti_cuda_bn_scratch(const tti_cuda_planes *p) {
    return (size_t)shape_of_sums(p).by.n_parts * 2 * p->c * sizeof(float);
}

extern "C" cudaError_t tti_cuda_bn_stats(const tti_cuda_planes *p, const void *x,
                                         const int32_t *rows, float *partials, float *stats,
                                         cudaStream_t stream) {
    shape sh = shape_of_sums(p);
    if (!is_empty(p) && p->last)
        FOR_VECTORS(p, stats_last<T, V><<<sh.grid, sh.block, sh.shared, stream>>>(
                           (const T *)x, p->c, p->n, p->s, sh.by, rows, partials));
    else if (!is_empty(p))
        FOR_VECTORS(p, stats_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(
                           (const T *)x, p->c, p->n, p->s, sh.by, rows, partials));
    join_stats<<<blocks_of(p->c ? p->c : 1, JOIN_X), dim3(JOIN_X, JOIN_Y), 0, stream>>>(
        partials, p->c, p->n, p->s, sh.by, rows, stats);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_forward(const tti_cuda_planes *p, const tti_cuda_bn_apply *a,
                                           cudaStream_t stream) {
    if (is_empty(p)) return cudaSuccess;
    if (p->last) {
        shape sh = shape_last(p, MAP_BLOCKS, THREADS, MAP_ROWS);
        FOR_VECTORS(p, apply_last<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, sh.by));
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(
            p, apply_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->s, p->n * p->c));
    }
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                        float *partials, float *sums, cudaStream_t stream) {
    shape sh = shape_of_sums(p);
    if (!is_empty(p) && p->last)
        FOR_VECTORS(p, sums_last<T, V><<<sh.grid, sh.block, sh.shared, stream>>>(
                           *a, p->c, p->n, p->s, sh.by, partials));
    else if (!is_empty(p))
        FOR_VECTORS(p, sums_plain<T, V>
                    <<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, partials));
    join_sums<<<blocks_of(p->c ? p->c : 1, JOIN_X), dim3(JOIN_X, JOIN_Y), 0, stream>>>(
        partials, *a, p->c, p->n, p->s, sh.by, sums);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_backward(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                            void *dx, cudaStream_t stream) {
    if (is_empty(p)) return cudaSuccess;
    if (p->last) {
        shape sh = shape_last(p, MAP_BLOCKS, THREADS, MAP_ROWS);
        FOR_VECTORS(
            p, grad_last<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, dx));
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(
            p, grad_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, dx));
    }
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_running(const float *stats, const int32_t *rows,
                                           size_t n_channels, float *out, cudaStream_t stream) {
    if (n_channels == 0) return cudaSuccess;
    running_of<<<blocks_of(2 * n_channels, THREADS), THREADS, 0, stream>>>(stats, rows, n_channels,
                                                                           out);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_join(bool moments, const float *parts, size_t n_parts,
                                        size_t n_elems, float *out, cudaStream_t stream) {
    if (n_parts == 0 || n_elems == 0) return cudaSuccess;
    join_parts<<<blocks_of(n_elems, 64), 64, 0, stream>>>(parts, n_parts, n_elems, moments, out);
    return cudaGetLastError();
}
