/* batch_norm.cuh - code shared by the kernels of batch norm, forward (batch_norm.cu) and backward
 * (batch_norm_grad.cu): reading values, dividing the work, joining partial sums.
 *
 * With channels last x is a matrix of positions by channels: a thread keeps V channels (16 bytes)
 * and walks down rows, so values of a channel stay in registers.  Blocks take chunks of rows in
 * turn, so that all of them work in the same part of memory: the next pass, in the opposite
 * direction, finds the last values that the sums have read in the cache.  Sums run backwards, from
 * the values written last.  In plain layout a block (sums) or a few warps (elements) work on runs
 * of one channel.  Sums are computed in three steps of fixed order: in a thread, in a tree over a
 * block, and over the partial results of all blocks in double.  The number of blocks depends on the
 * shape alone.  Variances: a thread sums x - k and (x - k)^2 for its own first value k, which loses
 * almost no precision since k is one of the values; a block joins {count, mean, M2} by Chan's
 * formula. */
#ifndef TTI_BATCH_NORM_CUH
#define TTI_BATCH_NORM_CUH

#include "backend/cuda/norm/batch_norm.h"
#include "backend/cuda/norm/bn_scale.cuh"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum {
    WARP = 32,
    THREADS = 256,
    SUM_BLOCKS = 264, /* 2 on each of 132 multiprocessors */
    MAP_BLOCKS = 264,
    RUN_BLOCKS = 4224, /* plain layout */
    STATS_ROWS = 8,    /* of a thread at once: as many loads are on their way */
    SUM_ROWS = 8,
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

/* ---- what blocks have found ---- */

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

/* ---- values of a channel ---- */

template <class A>
struct affine {
    A mean, scale, beta;
};

/* Computes F of each channel of a block once by make(channel); those of this thread in f [V]. */
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

/* ---- which kernel, how many blocks ---- */

inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

inline bool is_empty(const tti_cuda_planes *p) { return p->n == 0 || p->c == 0 || p->s == 0; }

/* Elements of a 16-byte vector of that dtype, 1 where they do not divide the channels or places. */
inline int vector_of(const tti_cuda_planes *p) {
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
inline shape shape_last(const tti_cuda_planes *p, size_t n_blocks, size_t n_at_once,
                        bool backwards) {
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
inline shape shape_plain(const tti_cuda_planes *p) {
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

inline shape shape_of_sums(const tti_cuda_planes *p, size_t n_at_once) {
    if (!is_empty(p)) return p->last ? shape_last(p, SUM_BLOCKS, n_at_once, true) : shape_plain(p);
    shape sh = {};
    sh.by.last = p->last;
    sh.by.per_unit = p->last ? 1 : p->s;
    sh.by.n_units = p->last ? p->n * p->s : p->n;
    return sh;
}

/* Shared memory for the values of a block's channels. */
template <class F>
shape shape_of_map(const tti_cuda_planes *p) {
    shape sh = shape_last(p, MAP_BLOCKS, MAP_ROWS, false);
    sh.shared = sh.block.x * (size_t)vector_of(p) * sizeof(F);
    return sh;
}

/* Elements in plain layout: a warp for a short run, a block for a long one. */
inline shape shape_of_runs(const tti_cuda_planes *p) {
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

inline unsigned blocks_of(size_t n, size_t each) { return (unsigned)ceil_div(n, each); }

}  // namespace

#endif /* TTI_BATCH_NORM_CUH */
