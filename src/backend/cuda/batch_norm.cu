/* batch_norm.cu - kernels of batch norm.
 *
 * With channels last x is a matrix of positions by channels: a thread keeps V channels (16 bytes)
 * and walks down rows, so what belongs to a channel stays in registers.  Blocks take chunks of rows
 * in turn, so that all of them work in the same part of memory: what sums have read last, the pass
 * behind them finds in the cache when it goes the other way.  Sums go backwards, from what was
 * written last.  In plain layout a block (sums) or a few warps (elements) work on runs of one
 * channel.
 * Sums are made in three steps of fixed order: in a thread, in a tree over a block, and over the
 * partial results of all blocks in double.  The number of blocks depends on the shape alone.
 * Variances: a thread sums x - k and (x - k)^2 for its own first value k, which loses nothing worth
 * naming since k is one of the values; a block joins {count, mean, M2} by Chan's formula. */
#include "backend/cuda/batch_norm.h"
#include "backend/cuda/device.cuh"

namespace {

enum {
    WARP = 32,
    THREADS = 256,
    SUM_BLOCKS = 264, /* 2 on each of 132 multiprocessors */
    MAP_BLOCKS = 264,
    RUN_BLOCKS = 4224, /* plain layout */
    STATS_ROWS = 8,    /* of a thread at once: as many loads are on their way */
    MAP_ROWS = 4,
    JOIN_ROWS = 2, /* each with four loads */
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
    size_t units_each;        /* of a chunk, or of a block in plain layout */
    size_t n_chunks;
    unsigned n_parts;
    bool last, backwards;
};

/* The units that count. */
__device__ __forceinline__ size_t real_units(const cut &by, const int32_t *rows, size_t n,
                                             size_t s) {
    if (!rows) return by.n_units;
    long long real = *rows;
    size_t counted = real <= 0 ? 0 : (size_t)real < n ? (size_t)real : n;
    return by.last ? counted * s : counted;
}

/* body.rows<U>(first element, from row to row) for the rows below end of this block's chunks, which
 * have U rows for a thread. */
template <int U, class B>
__device__ __forceinline__ void walk_rows(const cut &by, size_t c, size_t col, size_t end,
                                          B &body) {
    size_t stride = blockDim.y * c;
    for (size_t q = blockIdx.y; q < by.n_chunks; q += by.n_parts) {
        size_t first = (by.backwards ? by.n_chunks - 1 - q : q) * by.units_each;
        size_t row = first + threadIdx.y, stop = first + by.units_each;
        if (stop <= end)
            body.template rows<U>(row * c + col, stride);
        else
            for (; row < end && row < stop; row += blockDim.y)
                body.template rows<1>(row * c + col, 0);
    }
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

template <class T, int V>
struct stats_body {
    typedef typename wide<T>::type A;
    const T *x;
    A n, k[V], sum[V], squares[V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        tti_vec<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) raw[u] = raw_at<T, V>(x, at + u * stride);
        if (n == 0)
#pragma unroll
            for (int i = 0; i < V; i++) k[i] = widen(raw[0].v[i]);
        n += U;
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                A d = widen(raw[u].v[i]) - k[i];
                sum[i] += d, squares[i] += d * d;
            }
    }
};

/* Partials of statistics: double [n_parts] counts, then float [n_parts][2][c] mean, M2. */
__device__ __forceinline__ double *counts_of(float *partials) { return (double *)partials; }
__device__ __forceinline__ float *parts_of(float *partials, const cut &by) {
    return partials + 2 * (size_t)by.n_parts;
}

/* Rows below n_real of this block's chunks. */
__device__ __forceinline__ size_t rows_of_part(const cut &by, size_t n_real) {
    size_t n = 0;
    for (size_t q = blockIdx.y; q < by.n_chunks; q += by.n_parts) {
        size_t first = (by.backwards ? by.n_chunks - 1 - q : q) * by.units_each;
        n += first < n_real ? min(by.units_each, n_real - first) : 0;
    }
    return n;
}

/* Blocks (x, y): V x channels, rows y apart. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS, 2)
    stats_last(const T *x, size_t c, size_t n, size_t s, cut by, const int32_t *rows,
               float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    stats_body<T, V> body = {x};
    size_t n_real = real_units(by, rows, n, s);
    if (col < c) walk_rows<STATS_ROWS>(by, c, col, n_real, body);
    moments<A> own[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        own[i] = from_sums<A>(body.n, body.k[i], body.sum[i], body.squares[i]);
    join_columns<A, V>(own, (A *)memory);
    if (threadIdx.y || col >= c) return;
    if (col == 0) counts_of(partials)[blockIdx.y] = (double)rows_of_part(by, n_real);
    float *to = parts_of(partials, by) + (size_t)blockIdx.y * 2 * c + col;
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
    size_t n_own = first < end ? (end - first) * s : 0;
    if (blockIdx.x == 0) counts_of(partials)[blockIdx.y] = (double)n_own;
    float *to = parts_of(partials, by) + (size_t)blockIdx.y * 2 * c + blockIdx.x;
    to[0] = (float)own.mean, to[c] = (float)own.m2;
}

/* Two sums in double over JOIN_Y runs of parts, then a tree; the result is with threadIdx.y 0. */
struct two_sums {
    double a, b;
};

__device__ __forceinline__ two_sums join_runs(two_sums own) {
    __shared__ double runs[2][JOIN_Y][JOIN_X];
    double *a = &runs[0][threadIdx.y][threadIdx.x], *b = a + JOIN_Y * JOIN_X;
    *a = own.a, *b = own.b;
    for (unsigned d = JOIN_Y / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.y < d) *a += a[d * JOIN_X], *b += b[d * JOIN_X];
    }
    return two_sums{*a, *b};
}

/* stats from partials, in double: sums of n d and M2 + n d^2, d = mean - k for the k of one part,
 * which is near. */
__global__ void join_stats(const float *partials, size_t c, size_t n, size_t s, cut by,
                           const int32_t *rows, float *stats) {
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x;
    double count = (double)(real_units(by, rows, n, s) * by.per_unit), k = 0;
    const double *counts = (const double *)partials;
    const float *parts = partials + 2 * (size_t)by.n_parts;
    two_sums own = {0, 0};
    size_t first = by.backwards && by.n_parts ? (by.n_chunks - 1) % by.n_parts : 0; /* has row 0 */
    if (col < c && by.n_parts) k = (double)parts[first * 2 * c + col];
    if (col < c)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < by.n_parts; p += JOIN_Y) {
            const float *from = parts + (size_t)p * 2 * c + col;
            double n_part = counts[p], d = n_part > 0 ? (double)from[0] - k : 0;
            own.a += n_part * d, own.b += (double)from[c] + n_part * d * d;
        }
    own = join_runs(own);
    if (threadIdx.y) return;
    if (col < c) {
        double moved = count > 0 ? own.a / count : 0, m2 = own.b - own.a * moved;
        stats[1 + col] = count > 0 ? (float)(k + moved) : 0;
        stats[1 + c + col] = m2 > 0 ? (float)m2 : 0;
    }
    if (col == 0) stats[0] = (float)count;
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
template <class T, int V, bool ONE>
struct apply_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_apply &a;
    affine<A> f[ONE ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
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
};

/* F of each channel of a block, made once by make(channel): those of this thread into f [V]. */
template <int V, class F, class M>
__device__ __forceinline__ void share_factors(size_t c, F *f, M make) {
    extern __shared__ double memory[];
    F *shared = (F *)memory;
    unsigned n = blockDim.x * V, id = threadIdx.y * blockDim.x + threadIdx.x;
    size_t first = (size_t)blockIdx.x * n;
    for (unsigned i = id; i < n; i += blockDim.x * blockDim.y)
        if (first + i < c) shared[i] = make(first + i);
    __syncthreads();
    if (first + threadIdx.x * V >= c) return;
#pragma unroll
    for (int i = 0; i < V; i++) f[i] = shared[threadIdx.x * V + i];
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS) apply_last(tti_cuda_bn_apply a, size_t c, cut by) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    apply_body<T, V, false> body = {a};
    share_factors<V>(c, body.f, [&](size_t i) { return affine_of<A>(a, i); });
    if (col < c) walk_rows<MAP_ROWS>(by, c, col, by.n_units, body);
}

/* threadIdx.y: runs of one channel. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    apply_plain(tti_cuda_bn_apply a, size_t c, size_t s, size_t n_runs) {
    typedef typename wide<T>::type A;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n_runs;
         run += (size_t)gridDim.x * blockDim.y) {
        apply_body<T, V, true> body = {a, {affine_of<A>(a, run % c)}};
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x)
            body.template rows<1>(run * s + v * V, 0);
    }
}

/* ---- sum dy and sum dy (x - mean), dy where y > 0 ---- */

template <class T, int V>
struct grad_vec {
    tti_vec<T, V> dy, x, y, more;
};

template <class T, int V, bool JOIN>
__device__ __forceinline__ grad_vec<T, V> grad_at(const tti_cuda_bn_grad &a, size_t at) {
    grad_vec<T, V> raw = {};
    raw.dy = raw_at<T, V>(a.dy, at);
    raw.x = raw_at<T, V>(a.x, at);
    if (a.y) raw.y = raw_at<T, V>(a.y, at);
    if (JOIN && a.more) raw.more = raw_at<T, V>(a.more, at);
    return raw;
}

/* dy (+ more, rounded as a value of its own would be) where y > 0; without y where bn(x) > 0 if
 * there is a beta.  f has scale and beta then. */
template <class T, int V, bool JOIN, class F>
__device__ __forceinline__ typename wide<T>::type masked(const tti_cuda_bn_grad &a,
                                                         const grad_vec<T, V> &raw, int i,
                                                         const F &f) {
    typedef typename wide<T>::type A;
    A d = widen(raw.dy.v[i]);
    if (JOIN && a.more) d = widen(narrow<T, A>(d + widen(raw.more.v[i])));
    bool passes = true;
    if (a.y) passes = widen(raw.y.v[i]) > 0;
    if (a.beta) passes = (widen(raw.x.v[i]) - f.mean) * f.scale + f.beta > 0;
    return passes ? d : (A)0;
}

/* What a sum needs of a channel: mean, and what makes the mask. */
template <class A>
__device__ __forceinline__ affine<A> mask_of(const tti_cuda_bn_grad &a, size_t n_channels,
                                             size_t c) {
    affine<A> f = {(A)a.stats[1 + c], 0, 0};
    if (!a.beta) return f;
    f.scale = (A)a.gamma[c] * rstd_of<A>(a.stats, a.stats[1 + n_channels + c], a.eps);
    f.beta = (A)a.beta[c];
    return f;
}

/* ONE: all of a vector are of one channel; f, sum, dot [0] are its.  JOIN: dz is kept. */
template <class T, int V, bool ONE, bool JOIN>
struct sums_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;
    affine<A> f[ONE ? 1 : V];
    A sum[ONE ? 1 : V], dot[ONE ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        grad_vec<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) raw[u] = grad_at<T, V, JOIN>(a, at + u * stride);
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                constexpr int step = ONE ? 0 : 1;
                A d = masked<T, V, JOIN>(a, raw[u], i, f[step * i]);
                sum[step * i] += d;
                dot[step * i] += d * (widen(raw[u].x.v[i]) - f[step * i].mean);
                if (JOIN) raw[u].dy.v[i] = narrow<T, A>(d);
            }
            if (JOIN) put_at(a.dz, at + u * stride, raw[u].dy);
        }
    }
};

/* dz of the rows that do not count: they may be read. */
template <class T, int V>
struct rest_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        const affine<A> none = {};
        for (int u = 0; u < U; u++) {
            grad_vec<T, V> raw = grad_at<T, V, true>(a, at + u * stride);
#pragma unroll
            for (int i = 0; i < V; i++)
                raw.dy.v[i] = narrow<T, A>(masked<T, V, true>(a, raw, i, none));
            put_at(a.dz, at + u * stride, raw.dy);
        }
    }
};

/* partials [n_parts][2][c].  shared: [2][blockDim.y][blockDim.x * V]. */
template <class T, int V, bool JOIN>
__global__ void __launch_bounds__(THREADS, 2)
    sums_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    size_t real = real_units(by, a.rows, n, s);
    sums_body<T, V, false, JOIN> body = {a};
    share_factors<V>(c, body.f, [&](size_t i) { return mask_of<A>(a, c, i); });
    if (col < c) walk_rows<JOIN ? JOIN_ROWS : MAP_ROWS>(by, c, col, real, body);
    if (JOIN && col < c && real < by.n_units) {
        size_t step = (size_t)by.n_parts * blockDim.y;
        rest_body<T, V> rest = {a};
        for (size_t row = real + blockIdx.y * blockDim.y + threadIdx.y; row < by.n_units;
             row += step)
            rest.template rows<1>(row * c + col, 0);
    }
    size_t width = (size_t)blockDim.x * V, own = threadIdx.y * width + threadIdx.x * V;
    A *sums = (A *)memory, *dots = sums + blockDim.y * width;
    __syncthreads(); /* the factors were there */
#pragma unroll
    for (int i = 0; i < V; i++) sums[own + i] = body.sum[i], dots[own + i] = body.dot[i];
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

template <class T, int V, bool JOIN>
__global__ void __launch_bounds__(THREADS)
    sums_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    __shared__ A shared[WARP];
    size_t real = real_units(by, a.rows, n, s), first = blockIdx.y * by.units_each;
    size_t end = min(first + by.units_each, by.n_units), n_vectors = s / V;
    sums_body<T, V, true, JOIN> body = {a, {mask_of<A>(a, c, blockIdx.x)}};
    rest_body<T, V> rest = {a};
    for (walk w = walk_of(first, n_vectors); w.n < end; advance(w)) {
        size_t at = (w.n * c + blockIdx.x) * s + w.v * V;
        if (w.n < real)
            body.template rows<1>(at, 0);
        else if (JOIN)
            rest.template rows<1>(at, 0);
        else
            break;
    }
    A sum = tti_block_sum(body.sum[0], shared), dot = tti_block_sum(body.dot[0], shared);
    if (threadIdx.x) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + blockIdx.x;
    to[0] = (float)sum, to[c] = (float)dot;
}

/* sums from partials, in double, the second kind times rstd; by themselves as well. */
__global__ void join_sums(const float *partials, tti_cuda_bn_grad a, size_t c, size_t n, size_t s,
                          cut by, tti_cuda_bn_sums_out out) {
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x;
    two_sums own = {0, 0};
    if (col < c)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < by.n_parts; p += JOIN_Y) {
            const float *from = partials + (size_t)p * 2 * c + col;
            own.a += (double)from[0], own.b += (double)from[c];
        }
    own = join_runs(own);
    if (threadIdx.y) return;
    if (col < c) {
        float dot = (float)(own.b * rstd_of<double>(a.stats, a.stats[1 + c + col], a.eps));
        out.sums[1 + col] = out.dbeta[col] = (float)own.a;
        out.sums[1 + c + col] = out.dgamma[col] = dot;
    }
    if (col == 0) out.sums[0] = (float)(real_units(by, a.rows, n, s) * by.per_unit);
}

/* ---- dx = (dy - mean dy - (x - mean) slope) scale ---- */

template <class A>
struct grad_factors {
    A mean, dy_mean, slope, scale, beta;
};

template <class A>
__device__ __forceinline__ grad_factors<A> factors_of(const tti_cuda_bn_grad &a, size_t n_channels,
                                                      size_t c) {
    A rstd = rstd_of<A>(a.stats, a.stats[1 + n_channels + c], a.eps);
    A count = (A)(a.sums[0] > 1 ? a.sums[0] : 1);
    return grad_factors<A>{(A)a.stats[1 + c], (A)a.sums[1 + c] / count,
                           rstd * (A)a.sums[1 + n_channels + c] / count, (A)a.gamma[c] * rstd,
                           a.beta ? (A)a.beta[c] : (A)0};
}

template <class T, int V, bool ONE>
struct grad_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;
    void *dx;
    grad_factors<A> f[ONE ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        grad_vec<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) raw[u] = grad_at<T, V, false>(a, at + u * stride);
#pragma unroll
        for (int u = 0; u < U; u++) {
            tti_vec<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const grad_factors<A> &g = f[ONE ? 0 : i];
                A d = masked<T, V, false>(a, raw[u], i, g) - g.dy_mean;
                out.v[i] = narrow<T, A>((d - (widen(raw[u].x.v[i]) - g.mean) * g.slope) * g.scale);
            }
            put_at(dx, at + u * stride, out);
        }
    }
};

template <class T, int V>
__device__ __forceinline__ void put_zeros(void *dx, size_t at) {
    tti_vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) out.v[i] = narrow<T, typename wide<T>::type>(0);
    put_at(dx, at, out);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS, 2)
    grad_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    size_t real = real_units(by, a.rows, n, s);
    grad_body<T, V, false> body = {a, dx};
    share_factors<V>(c, body.f, [&](size_t i) { return factors_of<A>(a, c, i); });
    if (col >= c) return;
    walk_rows<MAP_ROWS>(by, c, col, real, body);
    for (size_t row = real + blockIdx.y * blockDim.y + threadIdx.y; row < by.n_units;
         row += (size_t)by.n_parts * blockDim.y)
        put_zeros<T, V>(dx, row * c + col);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    grad_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t n_real = real_units(by, a.rows, n, s) * c;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n * c;
         run += (size_t)gridDim.x * blockDim.y) {
        grad_body<T, V, true> body = {a, dx, {factors_of<A>(a, c, run % c)}};
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x) {
            size_t at = run * s + v * V;
            if (run < n_real)
                body.template rows<1>(at, 0);
            else
                put_zeros<T, V>(dx, at);
        }
    }
}

/* ---- small things ---- */

__global__ void running_of(const float *stats, const int32_t *rows, size_t c, float *mean,
                           float *variance) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 * c) return;
    double n = *rows > 0 ? (double)*rows : 0, count = (double)stats[0] - 1;
    double x = n * (double)stats[1 + i];
    if (i < c)
        mean[i] = (float)x;
    else
        variance[i - c] = (float)(x / (count > 1 ? count : 1));
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
    size_t shared; /* bytes, with channels last */
};

/* About n_blocks blocks, a warp of vectors of channels wide at most, whose threads take n_at_once
 * rows of a chunk. */
shape shape_last(const tti_cuda_planes *p, size_t n_blocks, size_t n_at_once, bool backwards) {
    size_t n_vectors = ceil_div(p->c, (size_t)vector_of(p)), n_x = ceil_div(n_vectors, WARP);
    size_t x = ceil_div(n_vectors, n_x), y = THREADS / x, n_rows = p->n * p->s;
    size_t parts = n_blocks > n_x ? n_blocks / n_x : 1;
    shape sh = {};
    sh.by.last = true, sh.by.backwards = backwards;
    sh.by.n_units = n_rows, sh.by.per_unit = 1;
    sh.by.units_each = y * n_at_once;
    sh.by.n_chunks = ceil_div(n_rows, sh.by.units_each);
    if (parts > sh.by.n_chunks) parts = sh.by.n_chunks;
    sh.by.n_parts = (unsigned)parts;
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

shape shape_of_sums(const tti_cuda_planes *p, size_t n_at_once) {
    if (!is_empty(p)) return p->last ? shape_last(p, SUM_BLOCKS, n_at_once, true) : shape_plain(p);
    shape sh = {};
    sh.by.last = p->last;
    sh.by.per_unit = p->last ? 1 : p->s;
    sh.by.n_units = p->last ? p->n * p->s : p->n;
    return sh;
}

/* Shared memory for what is known of the channels of a block. */
template <class F>
shape shape_of_map(const tti_cuda_planes *p) {
    shape sh = shape_last(p, MAP_BLOCKS, MAP_ROWS, false);
    sh.shared = sh.block.x * (size_t)vector_of(p) * sizeof(F);
    return sh;
}

/* Elements in plain layout: a warp for a short run, a block for a long one. */
shape shape_of_runs(const tti_cuda_planes *p) {
    unsigned x = p->s / (size_t)vector_of(p) <= 4 * WARP ? WARP : THREADS, y = THREADS / x;
    size_t n_blocks = ceil_div(p->n * p->c, y);
    shape sh = {};
    sh.by.n_units = p->n, sh.by.per_unit = p->s;
    sh.grid = dim3((unsigned)(n_blocks < RUN_BLOCKS ? n_blocks : RUN_BLOCKS));
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
    unsigned n_parts = shape_of_sums(p, JOIN_ROWS).by.n_parts; /* the most chunks */
    return (size_t)n_parts * (2 * p->c * sizeof(float) + sizeof(double));
}

extern "C" cudaError_t tti_cuda_bn_stats(const tti_cuda_planes *p, const void *x,
                                         const int32_t *rows, float *partials, float *stats,
                                         cudaStream_t stream) {
    shape sh = shape_of_sums(p, STATS_ROWS);
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
        FOR_VECTORS(p, {
            shape sh = shape_of_map<affine<wide<T>::type>>(p);
            apply_last<T, V><<<sh.grid, sh.block, sh.shared, stream>>>(*a, p->c, sh.by);
        });
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(
            p, apply_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->s, p->n * p->c));
    }
    return cudaGetLastError();
}

/* JOIN: dz is written. */
template <bool JOIN>
static void launch_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *a, const shape &sh,
                        float *partials, cudaStream_t stream) {
    if (p->last)
        FOR_VECTORS(p, {
            size_t bytes = max(sh.shared, sh.block.x * V * sizeof(affine<wide<T>::type>));
            sums_last<T, V, JOIN>
                <<<sh.grid, sh.block, bytes, stream>>>(*a, p->c, p->n, p->s, sh.by, partials);
        });
    else
        FOR_VECTORS(p, sums_plain<T, V, JOIN>
                    <<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, partials));
}

extern "C" cudaError_t tti_cuda_bn_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                        float *partials, const tti_cuda_bn_sums_out *out,
                                        cudaStream_t stream) {
    shape sh = shape_of_sums(p, a->dz ? JOIN_ROWS : MAP_ROWS);
    if (!is_empty(p) && a->dz)
        launch_sums<true>(p, a, sh, partials, stream);
    else if (!is_empty(p))
        launch_sums<false>(p, a, sh, partials, stream);
    join_sums<<<blocks_of(p->c ? p->c : 1, JOIN_X), dim3(JOIN_X, JOIN_Y), 0, stream>>>(
        partials, *a, p->c, p->n, p->s, sh.by, *out);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_backward(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                            void *dx, cudaStream_t stream) {
    if (is_empty(p)) return cudaSuccess;
    if (p->last) {
        FOR_VECTORS(p, {
            shape sh = shape_of_map<grad_factors<wide<T>::type>>(p);
            grad_last<T, V>
                <<<sh.grid, sh.block, sh.shared, stream>>>(*a, p->c, p->n, p->s, sh.by, dx);
        });
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(
            p, grad_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, dx));
    }
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_running(const float *stats, const int32_t *rows,
                                           size_t n_channels, float *mean, float *variance,
                                           cudaStream_t stream) {
    if (n_channels == 0) return cudaSuccess;
    running_of<<<blocks_of(2 * n_channels, THREADS), THREADS, 0, stream>>>(stats, rows, n_channels,
                                                                           mean, variance);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_join(bool moments, const float *parts, size_t n_parts,
                                        size_t n_elems, float *out, cudaStream_t stream) {
    if (n_parts == 0 || n_elems == 0) return cudaSuccess;
    join_parts<<<blocks_of(n_elems, 64), 64, 0, stream>>>(parts, n_parts, n_elems, moments, out);
    return cudaGetLastError();
}
