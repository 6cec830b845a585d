/* reduce.cu - sums, maxima and counts over some loops of x; the index of a maximum.
 *
 * Two kernels: by rows, where neighbouring elements belong to one result and 1 to 256 threads share
 * a row; by columns, where they belong to neighbouring results.  Every thread adds its elements in
 * order, threads are joined by a fixed tree, parts of a split by the column kernel again. */
#include "backend/cuda/ops/reduce.h"
#include "backend/cuda/runtime/device.cuh"

enum { THREADS = 256, UNROLL = 4, PARTIAL = -1 };

typedef struct loops {
    int n;
    tti_divider dim[TUTTI_MAX_DIMS];
    uint64_t x[TUTTI_MAX_DIMS], y[TUTTI_MAX_DIMS];
} loops;

typedef struct fold_args {
    const void *x, *compare;
    void *y;
    int y_dtype; /* PARTIAL: results in the type of sums, [n_splits][n_kept] */
    double divisor;
    loops kept, folded;               /* by columns kept is without its innermost loop */
    uint64_t n_kept, n_folded, chunk; /* folded: loads by rows, rows by columns */
    uint64_t n_inner, y_inner;        /* by columns: innermost loop of kept: loads, stride in y */
    uint32_t n_tiles, n_outer; /* by columns: blocks for that loop, iterations of the others */
    int lanes, across, down;
} fold_args;

/* Offsets of iteration i. */
__device__ __forceinline__ uint64_t walk(const loops &l, uint64_t i, uint64_t *y) {
    uint64_t x = 0;
    for (int d = l.n - 1; d > 0; d--) {
        uint64_t q = tti_divide(i, l.dim[d]), r = i - q * l.dim[d].by;
        x += r * l.x[d];
        if (y) *y += r * l.y[d];
        i = q;
    }
    if (y) *y += i * l.y[0];
    return x + i * l.x[0];
}

template <int FOLD, class A>
__device__ __forceinline__ A start_of() {
    return FOLD == TTI_FOLD_MAX ? (A)-INFINITY : (A)0;
}

/* Two results into one; NaN wins a maximum. */
template <int FOLD, class A>
__device__ __forceinline__ A join(A a, A b) {
    if (FOLD == TTI_FOLD_MAX) return b > a || b != b ? b : a;
    return a + b;
}

template <int FOLD, class A>
__device__ __forceinline__ A add_element(A a, A x, A compare) {
    return FOLD == TTI_FOLD_COUNT ? a + (A)(x == compare) : join<FOLD, A>(a, x);
}

/* Result number k of part s, whose place in y is at. */
template <class A>
__device__ __forceinline__ void put(const fold_args &a, uint64_t s, uint64_t k, uint64_t at, A x) {
    if (a.y_dtype == PARTIAL)
        ((A *)a.y)[s * a.n_kept + k] = x;
    else
        tti_store_any(a.y_dtype, a.y, at, (double)(a.divisor == 1 ? x : x / (A)a.divisor));
}

template <int FOLD, class T, int V, class A>
__device__ __forceinline__ void add_load(A (&acc)[V], const tti_vec<T, V> &x,
                                         const A (&compare)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++)
        acc[j] = add_element<FOLD, A>(acc[j], tti_to_acc(x.v[j]), compare[j]);
}

/* The loads first, first + step, ... below end, each V elements, folded into acc.  Offsets come
 * first and conversions last, so that all loads of a turn are under way together. */
template <class T, int V, int FOLD, class A>
__device__ __forceinline__ void fold_run(const T *x, const loops &folded, uint64_t first,
                                         uint64_t end, uint64_t step, const A (&compare)[V],
                                         A (&acc)[V]) {
    typedef tti_vec<T, V> load;
    uint64_t i = first;
    for (; i + (UNROLL - 1) * step < end; i += UNROLL * step) {
        uint64_t at[UNROLL];
        load part[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) at[u] = walk(folded, i + u * step, nullptr);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) part[u] = *(const load *)(x + at[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) add_load<FOLD>(acc, part[u], compare);
    }
    for (; i < end; i += step) {
        load part = *(const load *)(x + walk(folded, i, nullptr));
        add_load<FOLD>(acc, part, compare);
    }
}

/* ---- by rows ---- */

/* Over lanes threads, a power of two; valid in the first of them.  Every thread calls it. */
template <int FOLD, class A>
__device__ __forceinline__ A join_lanes(A x, int lanes) {
    __shared__ A warps[THREADS / 32];
    for (int d = min(lanes, 32) / 2; d > 0; d /= 2)
        x = join<FOLD, A>(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    if (lanes <= 32) return x;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[0];
    for (int w = 1; w < THREADS / 32; w++) x = join<FOLD, A>(x, warps[w]);
    return x;
}

template <class T, int V, int FOLD>
__global__ void __launch_bounds__(THREADS, 3) rows_kernel(const __grid_constant__ fold_args a) {
    typedef typename tti_acc<T>::type A;
    int lane = threadIdx.x % a.lanes;
    uint64_t team = (uint64_t)blockIdx.x * (THREADS / a.lanes) + threadIdx.x / a.lanes;
    uint32_t s = a.chunk < a.n_folded ? blockIdx.x / (uint32_t)a.n_kept : 0; /* blocks are teams */
    uint64_t k = team - s * a.n_kept, at = 0;
    bool active = k < a.n_kept;
    A acc[V], compare[V];
#pragma unroll
    for (int j = 0; j < V; j++) acc[j] = start_of<FOLD, A>(), compare[j] = 0;
    if (active) {
        const T *x = (const T *)a.x + walk(a.kept, k, &at);
        uint64_t first = (uint64_t)s * a.chunk, end = min(first + a.chunk, a.n_folded);
        if (FOLD == TTI_FOLD_COUNT) compare[0] = tti_to_acc(((const T *)a.compare)[at]);
        fold_run<T, V, FOLD, A>(x, a.folded, first + lane, end, a.lanes, compare, acc);
    }
#pragma unroll
    for (int j = 1; j < V; j++) acc[0] = join<FOLD, A>(acc[0], acc[j]);
    A result = join_lanes<FOLD, A>(acc[0], a.lanes);
    if (active && lane == 0) put<A>(a, s, k, at, result);
}

/* ---- by columns ---- */

/* A block has across loads of a row and down rows at a time. */
template <class T, int V, int FOLD>
__global__ void __launch_bounds__(THREADS, 3) columns_kernel(const __grid_constant__ fold_args a) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[V * THREADS];
    int tx = threadIdx.x & (a.across - 1), ty = threadIdx.x / a.across;
    uint32_t rest = blockIdx.x / a.n_tiles, s = rest / a.n_outer, outer = rest - s * a.n_outer;
    uint64_t c = (uint64_t)(blockIdx.x - rest * a.n_tiles) * a.across + tx, at = 0;
    bool active = c < a.n_inner;
    A acc[V], compare[V];
    uint64_t base = walk(a.kept, outer, &at) + c * V;
    at += c * V * a.y_inner;
#pragma unroll
    for (int j = 0; j < V; j++) acc[j] = start_of<FOLD, A>(), compare[j] = 0;
    if (active) {
        uint64_t first = (uint64_t)s * a.chunk, end = min(first + a.chunk, a.n_folded);
        if (FOLD == TTI_FOLD_COUNT) compare[0] = tti_to_acc(((const T *)a.compare)[at]);
        fold_run<T, V, FOLD, A>((const T *)a.x + base, a.folded, first + ty, end, a.down, compare,
                                acc);
    }
#pragma unroll
    for (int j = 0; j < V; j++) shared[j * THREADS + threadIdx.x] = acc[j];
    for (int h = a.down / 2; h > 0; h /= 2) {
        __syncthreads();
        if (ty >= h) continue;
#pragma unroll
        for (int j = 0; j < V; j++) {
            A *mine = &shared[j * THREADS + threadIdx.x];
            *mine = join<FOLD, A>(*mine, mine[h * a.across]);
        }
    }
    if (!active || ty > 0) return;
#pragma unroll
    for (int j = 0; j < V; j++)
        put<A>(a, s, ((uint64_t)outer * a.n_inner + c) * V + j, at + j * a.y_inner,
               shared[j * THREADS + threadIdx.x]);
}

/* ---- launching ---- */

/* The first n loops of a nest; the last counts loads of width elements if it is cut. */
static loops make_loops(const tti_nest *nest, int n, int width) {
    loops l = {};
    for (int d = 0; d < n; d++) {
        uint64_t w = d == n - 1 ? (uint64_t)width : 1, by = nest->dim[d] / w;
        l.dim[d] = tti_divider_of(by ? by : 1);
        l.x[d] = nest->stride[0][d] * w, l.y[d] = nest->stride[1][d];
    }
    l.n = n;
    return l;
}

template <class T, int V, int FOLD>
static cudaError_t launch(const tti_reduce_plan *plan, fold_args *a, cudaStream_t stream) {
    int last = plan->kept.n_dims - 1;
    uint64_t n_blocks;
    if (plan->by_columns) {
        a->kept = make_loops(&plan->kept, last, 1);
        a->folded = make_loops(&plan->folded, plan->folded.n_dims, 1);
        a->n_folded = plan->n_folded;
        a->n_inner = plan->kept.dim[last] / V, a->y_inner = plan->kept.stride[1][last];
        a->across = plan->n_across, a->down = plan->n_down;
        uint64_t n_tiles = (a->n_inner + (uint64_t)a->across - 1) / (uint64_t)a->across;
        uint64_t n_outer = plan->n_kept / plan->kept.dim[last];
        n_blocks = n_tiles * n_outer * plan->n_splits;
        a->n_tiles = (uint32_t)n_tiles, a->n_outer = (uint32_t)n_outer;
    } else {
        a->kept = make_loops(&plan->kept, last + 1, 1);
        a->folded = make_loops(&plan->folded, plan->folded.n_dims, V);
        a->n_folded = plan->n_folded / V;
        a->lanes = plan->n_lanes;
        uint64_t teams = THREADS / plan->n_lanes;
        n_blocks = (plan->n_kept * plan->n_splits + teams - 1) / teams;
    }
    if (n_blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
    if (plan->by_columns)
        columns_kernel<T, V, FOLD>
            <<<(unsigned)n_blocks, (unsigned)(a->across * a->down), 0, stream>>>(*a);
    else
        rows_kernel<T, V, FOLD><<<(unsigned)n_blocks, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

template <class T>
static cudaError_t launch_fold(const tti_reduce_plan *plan, fold_args *a, cudaStream_t stream) {
    constexpr int V = sizeof(T) == 8 ? 1 : 16 / sizeof(T);
    if (plan->fold == TTI_FOLD_COUNT) return launch<T, 1, TTI_FOLD_COUNT>(plan, a, stream);
    if (plan->fold == TTI_FOLD_MAX)
        return plan->width > 1 ? launch<T, V, TTI_FOLD_MAX>(plan, a, stream)
                               : launch<T, 1, TTI_FOLD_MAX>(plan, a, stream);
    return plan->width > 1 ? launch<T, V, TTI_FOLD_SUM>(plan, a, stream)
                           : launch<T, 1, TTI_FOLD_SUM>(plan, a, stream);
}

static cudaError_t fold(const tti_reduce_plan *plan, fold_args *a, cudaStream_t stream) {
    a->n_kept = plan->n_kept, a->chunk = plan->chunk;
    switch (plan->dtype) {
        case TUTTI_F32:
            return launch_fold<float>(plan, a, stream);
        case TUTTI_BF16:
            return launch_fold<tti_bf16>(plan, a, stream);
        case TUTTI_F16:
            return launch_fold<tti_f16>(plan, a, stream);
        case TUTTI_F64:
            return launch_fold<double>(plan, a, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

static int power_for(uint64_t n, int max) {
    int p = 1;
    while (p < max && (uint64_t)p < n) p *= 2;
    return p;
}

/* The parts [n_splits][n_kept] into y, in order: columns, not split. */
static tti_reduce_plan plan_of_parts(const tti_reduce_plan *plan) {
    tti_reduce_plan p = *plan;
    int last = p.kept.n_dims - 1;
    uint64_t n = 1;
    for (int d = last; d >= 0; d--) {
        p.kept.stride[0][d] = n;
        n *= p.kept.dim[d];
    }
    p.fold = p.fold == TTI_FOLD_MAX ? TTI_FOLD_MAX : TTI_FOLD_SUM;
    p.dtype = p.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    p.folded.n_dims = 1, p.folded.dim[0] = p.n_splits, p.folded.stride[0][0] = n;
    p.n_folded = p.chunk = p.n_splits;
    p.by_columns = true, p.width = 1;
    p.n_across = power_for(p.kept.dim[last], 8);
    p.n_down = power_for(p.n_splits, THREADS / p.n_across);
    p.n_splits = 1;
    return p;
}

extern "C" cudaError_t tti_cuda_reduce(const tti_reduce_plan *plan, const void *x,
                                       const void *compare, void *y, void *scratch,
                                       cudaStream_t stream) {
    fold_args a = {};
    a.x = x, a.compare = compare;
    a.divisor = plan->divisor;
    if (plan->n_kept == 0) return cudaSuccess;
    bool split = plan->n_splits > 1;
    a.y = split ? scratch : y, a.y_dtype = split ? (int)PARTIAL : (int)plan->y_dtype;
    cudaError_t error = fold(plan, &a, stream);
    if (!split || error != cudaSuccess) return error;
    tti_reduce_plan parts = plan_of_parts(plan);
    a.x = scratch, a.y = y, a.y_dtype = plan->y_dtype;
    return fold(&parts, &a, stream);
}

/* ---- the gradient of a maximum ---- */

typedef struct max_grad_args {
    const void *x, *y, *dy, *ties;
    void *dx;
    uint64_t n;
    int n_dims;
    tti_divider dim[TUTTI_MAX_DIMS];
    uint64_t stride[4][TUTTI_MAX_DIMS]; /* dx, x, y, dy */
} max_grad_args;

template <class T>
__global__ void __launch_bounds__(THREADS)
    max_grad_kernel(const __grid_constant__ max_grad_args a) {
    typedef typename tti_acc<T>::type A;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, at[4] = {0, 0, 0, 0};
    if (i >= a.n) return;
    for (int d = a.n_dims - 1; d >= 0; d--) {
        uint64_t q = d > 0 ? tti_divide(i, a.dim[d]) : 0, r = i - q * a.dim[d].by;
#pragma unroll
        for (int k = 0; k < 4; k++) at[k] += r * a.stride[k][d];
        i = q;
    }
    A x = tti_to_acc(((const T *)a.x)[at[1]]), y = tti_to_acc(((const T *)a.y)[at[2]]);
    A dx = y == y ? (A)0 : y; /* all NaN where the maximum is */
    if (x == y) dx = tti_to_acc(((const T *)a.dy)[at[3]]) / ((const A *)a.ties)[at[2]];
    tti_from_acc((T *)a.dx + at[0], dx);
}

extern "C" cudaError_t tti_cuda_max_grad(tutti_dtype dtype, const tti_nest *nest,
                                         const void *const *in, const void *ties, void *dx,
                                         cudaStream_t stream) {
    max_grad_args a = {};
    a.x = in[0], a.y = in[1], a.dy = in[2], a.ties = ties, a.dx = dx;
    a.n = 1, a.n_dims = nest->n_dims;
    for (int d = 0; d < nest->n_dims; d++) {
        a.n *= nest->dim[d];
        a.dim[d] = tti_divider_of(nest->dim[d] ? nest->dim[d] : 1);
        for (int k = 0; k < 4; k++) a.stride[k][d] = nest->stride[k][d];
    }
    uint64_t n_blocks = (a.n + THREADS - 1) / THREADS;
    if (!n_blocks) return cudaSuccess;
    if (n_blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(dtype, max_grad_kernel<T><<<(unsigned)n_blocks, THREADS, 0, stream>>>(a))
    return cudaGetLastError();
}

/* ---- argmax ---- */

typedef struct place_args {
    const void *x;
    int32_t *y;
    loops kept;
    uint64_t n_kept, n, stride;
    int lanes;
} place_args;

template <class A>
struct place {
    A x;
    int at; /* -1: none */
};

/* The larger, NaN above all; of equals the first. */
template <class A>
__device__ __forceinline__ place<A> better(place<A> a, place<A> b) {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    bool b_above = b.x > a.x || (b.x != b.x && a.x == a.x);
    bool a_above = a.x > b.x || (a.x != a.x && b.x == b.x);
    return b_above || (!a_above && b.at < a.at) ? b : a;
}

template <class A>
__device__ __forceinline__ place<A> better_of_lanes(place<A> p, int lanes) {
    __shared__ place<A> warps[THREADS / 32];
    for (int d = min(lanes, 32) / 2; d > 0; d /= 2) {
        place<A> q;
        q.x = __shfl_xor_sync(0xFFFFFFFFu, p.x, d);
        q.at = __shfl_xor_sync(0xFFFFFFFFu, p.at, d);
        p = better(p, q);
    }
    if (lanes <= 32) return p;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = p;
    __syncthreads();
    p = warps[0];
    for (int w = 1; w < THREADS / 32; w++) p = better(p, warps[w]);
    return p;
}

template <class T>
__global__ void __launch_bounds__(THREADS) argmax_kernel(const __grid_constant__ place_args a) {
    typedef typename tti_acc<T>::type A;
    int lane = threadIdx.x % a.lanes;
    uint64_t k = (uint64_t)blockIdx.x * (THREADS / a.lanes) + threadIdx.x / a.lanes, at = 0;
    place<A> best = {0, -1};
    if (k < a.n_kept) {
        const T *x = (const T *)a.x + walk(a.kept, k, &at);
#pragma unroll 4
        for (uint64_t i = lane; i < a.n; i += a.lanes) {
            place<A> now = {tti_to_acc(x[i * a.stride]), (int)i};
            best = better(best, now);
        }
    }
    best = better_of_lanes(best, a.lanes);
    if (k < a.n_kept && lane == 0) a.y[at] = best.at;
}

extern "C" cudaError_t tti_cuda_argmax(tutti_dtype dtype, const tti_nest *kept, uint64_t n,
                                       uint64_t stride, const void *x, void *y,
                                       cudaStream_t stream) {
    place_args a = {};
    a.x = x, a.y = (int32_t *)y, a.n = n, a.stride = stride, a.n_kept = 1;
    for (int d = 0; d < kept->n_dims; d++) a.n_kept *= kept->dim[d];
    if (a.n_kept == 0) return cudaSuccess;
    a.kept = make_loops(kept, kept->n_dims, 1);
    bool side_by_side = stride > 1 && a.n_kept >= 65536;
    a.lanes = side_by_side ? 1 : n > 2048 ? (int)THREADS : power_for((n + 3) / 4, 32);
    uint64_t teams = (uint64_t)(THREADS / a.lanes), n_blocks = (a.n_kept + teams - 1) / teams;
    if (n_blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(dtype, argmax_kernel<T><<<(unsigned)n_blocks, THREADS, 0, stream>>>(a))
    return cudaGetLastError();
}
