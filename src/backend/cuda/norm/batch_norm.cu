/* batch_norm.cu - kernels of batch norm: statistics, application, joining; batch_norm.cuh explains
 * the method. */
#include "backend/cuda/gemm/join.cuh"
#include "backend/cuda/norm/batch_norm.cuh"

namespace {

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
    return moments<A>{n, k + mean, m2 < 0 ? 0 : m2};
}

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

/* ---- statistics, channels last ---- */

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

/* Blocks (x, y): V x channels, rows y apart. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS, 2)
    stats_last(const T *x, size_t c, size_t n, size_t s, cut by, const int32_t *rows,
               const float *sums, float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    stats_body<T, V> body = {x};
    size_t n_real = real_units(by, rows, n, s);
    if (sums && n_real == by.n_units) return; /* the sums are complete */
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
                const float *sums, float *partials) {
    typedef typename wide<T>::type A;
    __shared__ moments<A> shared[THREADS];
    size_t end = real_units(by, rows, n, s), first = blockIdx.y * by.units_each;
    if (sums && end == by.n_units) return;
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

/* Channel col from its sum and the sum of its squares. */
__device__ __forceinline__ void from_totals(const float *sums, size_t c, size_t col, double count,
                                            float *stats) {
    if (col == 0) stats[0] = (float)count;
    if (col >= c) return;
    double mean = count > 0 ? (double)sums[col] / count : 0;
    double m2 = (double)sums[c + col] - (double)sums[col] * mean;
    stats[1 + col] = (float)mean;
    stats[1 + c + col] = m2 < 0 ? 0 : (float)m2;
}

/* stats from partials, in double: sums of n d and M2 + n d^2, d = mean - k for the k of one part,
 * which is near. */
__global__ void join_stats(const float *partials, size_t c, size_t n, size_t s, cut by,
                           const int32_t *rows, const float *sums, float *stats) {
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x, n_real = real_units(by, rows, n, s);
    double count = (double)(n_real * by.per_unit), k = 0;
    if (sums && n_real == by.n_units) {
        if (threadIdx.y == 0) from_totals(sums, c, col, count, stats);
        return;
    }
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
        stats[1 + c + col] = m2 < 0 ? 0 : (float)m2;
    }
    if (col == 0) stats[0] = (float)count;
}

/* ---- y = act((x - mean) scale + beta + add) ---- */

template <class A>
__device__ __forceinline__ affine<A> affine_of(const tti_cuda_bn_affine &a, size_t c) {
    return affine<A>{(A)a.mean[c], (A)a.gamma[c] * rstd_of<A>(a.count, a.m2[c], a.eps),
                     (A)a.beta[c]};
}

template <class A>
__device__ __forceinline__ A apply_one(const affine<A> &f, A x, A add, bool relu) {
    A y = (x - f.mean) * f.scale + f.beta + add;
    return relu && y < 0 ? (A)0 : y;
}

/* U rows, a whole vector each; f: of the V channels, or of all in f[0].  PAIR: add has an affine
 * too, whose result is rounded as a separate value would be. */
template <class T, int V, bool ONE, bool PAIR>
struct apply_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_apply &a;
    affine<A> f[ONE ? 1 : V], g[ONE || !PAIR ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        tti_vec<T, V> x[U], add[U] = {};
#pragma unroll
        for (int u = 0; u < U; u++) x[u] = raw_at<T, V>(a.x, at + u * stride);
        if (PAIR || a.add)
#pragma unroll
            for (int u = 0; u < U; u++) add[u] = raw_at<T, V>(a.add, at + u * stride);
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                A more = PAIR || a.add ? widen(add[u].v[i]) : (A)0;
                if (PAIR) more = widen(narrow<T, A>(apply_one(g[ONE ? 0 : i], more, (A)0, false)));
                x[u].v[i] = narrow<T, A>(apply_one(f[ONE ? 0 : i], widen(x[u].v[i]), more, a.relu));
            }
            put_at(a.y, at + u * stride, x[u]);
            if (V == 8 && !ONE && a.mask) {
                unsigned bits = 0;
#pragma unroll
                for (int i = 0; i < V; i++) bits |= (unsigned)!(widen(x[u].v[i]) <= 0) << i;
                a.mask[(at + u * stride) / 8] = (uint8_t)bits;
            }
        }
    }
};

/* The mask of an existing y: byte i, 8 channels at one position. */
template <class T>
__global__ void mask_of(const T *y, size_t n_bytes, size_t c, size_t s, bool last, uint8_t *mask) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_bytes) return;
    size_t first = last ? i * 8 : i / s * 8 * s + i % s, step = last ? 1 : s;
    unsigned bits = 0;
    for (int k = 0; k < 8; k++) bits |= (unsigned)!(widen(y[first + k * step]) <= 0) << k;
    mask[i] = (uint8_t)bits;
}

template <class T, int V, bool PAIR>
__global__ void __launch_bounds__(THREADS, 2) apply_last(tti_cuda_bn_apply a, size_t c, cut by) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    apply_body<T, V, false, PAIR> body = {a};
    share_factors<V>(c, body.f, [&](size_t i) { return affine_of<A>(a.own, i); });
    if (PAIR) {
        __syncthreads();
        share_factors<V>(c, body.g, [&](size_t i) { return affine_of<A>(a.of_add, i); });
    }
    if (col < c) walk_rows<MAP_ROWS>(by, c, col, by.n_units, body);
}

/* threadIdx.y: runs of one channel. */
template <class T, int V, bool PAIR>
__global__ void __launch_bounds__(THREADS)
    apply_plain(tti_cuda_bn_apply a, size_t c, size_t s, size_t n_runs) {
    typedef typename wide<T>::type A;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n_runs;
         run += (size_t)gridDim.x * blockDim.y) {
        apply_body<T, V, true, PAIR> body = {a, {affine_of<A>(a.own, run % c)}};
        if (PAIR) body.g[0] = affine_of<A>(a.of_add, run % c);
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x)
            body.template rows<1>(run * s + v * V, 0);
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

__global__ void join_parts(const float *parts, size_t n_parts, size_t n_elems, bool of_moments,
                           float *out) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_elems) out[i] = join_element(parts, n_parts, n_elems, of_moments, i);
}

}  // namespace

extern "C" size_t tti_cuda_bn_scratch(const tti_cuda_planes *p) {
    unsigned n_parts = shape_of_sums(p, JOIN_ROWS).by.n_parts; /* the most chunks */
    return (size_t)n_parts * (2 * p->c * sizeof(float) + sizeof(double));
}

extern "C" cudaError_t tti_cuda_bn_stats(const tti_cuda_planes *p, const void *x,
                                         const int32_t *rows, const float *sums, float *partials,
                                         float *stats, cudaStream_t stream) {
    shape sh = shape_of_sums(p, STATS_ROWS);
    bool reads = !is_empty(p) && (rows || !sums);
    if (reads && p->last)
        FOR_VECTORS(p, stats_last<T, V><<<sh.grid, sh.block, sh.shared, stream>>>(
                           (const T *)x, p->c, p->n, p->s, sh.by, rows, sums, partials));
    else if (reads)
        FOR_VECTORS(p, stats_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(
                           (const T *)x, p->c, p->n, p->s, sh.by, rows, sums, partials));
    join_stats<<<blocks_of(p->c ? p->c : 1, JOIN_X), dim3(JOIN_X, JOIN_Y), 0, stream>>>(
        partials, p->c, p->n, p->s, sh.by, rows, sums, stats);
    return cudaGetLastError();
}

template <bool PAIR>
static cudaError_t launch_forward(const tti_cuda_planes *p, const tti_cuda_bn_apply *a,
                                  cudaStream_t stream) {
    if (p->last) {
        FOR_VECTORS(p, {
            shape sh = shape_of_map<affine<wide<T>::type>>(p);
            apply_last<T, V, PAIR><<<sh.grid, sh.block, sh.shared, stream>>>(*a, p->c, sh.by);
        });
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(p, apply_plain<T, V, PAIR>
                    <<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->s, p->n * p->c));
    }
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_forward(const tti_cuda_planes *p, const tti_cuda_bn_apply *a,
                                           cudaStream_t stream) {
    if (is_empty(p)) return cudaSuccess;
    cudaError_t error =
        a->of_add.mean ? launch_forward<true>(p, a, stream) : launch_forward<false>(p, a, stream);
    bool made = p->last && vector_of(p) == 8; /* a thread had whole bytes */
    if (error != cudaSuccess || !a->mask || made) return error;
    size_t n_bytes = p->n * p->c / 8 * p->s;
    TTI_FLOAT_DISPATCH(p->dtype, mask_of<T><<<blocks_of(n_bytes, THREADS), THREADS, 0, stream>>>(
                                     (const T *)a->y, n_bytes, p->c, p->s, p->last, a->mask));
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
