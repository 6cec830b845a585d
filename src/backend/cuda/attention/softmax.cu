/* softmax.cu - softmax, its logarithm, and their gradients.
 *
 * If rows are contiguous a warp, or a block, processes a row: once for the sums, and once more,
 * from the caches, to write.  Otherwise a thread processes a row and neighbours have neighbouring
 * ones. */
#include "backend/cuda/attention/softmax.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, SMALL_ROW = 1024 };

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

/* Maximum and sum of e^(x - max) so far. */
template <class A>
struct sums {
    A max, sum;
};

template <class A>
__device__ __forceinline__ sums<A> join(sums<A> a, sums<A> b) {
    sums<A> s;
    s.max = larger(a.max, b.max);
    A base = s.max == -INFINITY ? (A)0 : s.max;
    s.sum = a.sum * exp(a.max - base) + b.sum * exp(b.max - base);
    return s;
}

template <int N, class A>
__device__ __forceinline__ void see(sums<A> &s, const A (&x)[N]) {
    A max = s.max;
#pragma unroll
    for (int i = 0; i < N; i++) max = larger(max, x[i]);
    A base = max == -INFINITY ? (A)0 : max;
    s.sum *= exp(s.max - base);
#pragma unroll
    for (int i = 0; i < N; i++) s.sum += exp(x[i] - base);
    s.max = max;
}

template <class A>
__device__ __forceinline__ A written(A x, sums<A> s, A log_sum, bool log) {
    return log ? (x - s.max) - log_sum : exp(x - s.max) / s.sum;
}

/* The order of all threads of a group of G: a warp, or the block. */
template <int G, class A>
__device__ __forceinline__ sums<A> join_group(sums<A> s) {
    __shared__ sums<A> shared[THREADS / 32];
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        sums<A> other;
        other.max = __shfl_xor_sync(0xffffffffu, s.max, d);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, d);
        s = join(s, other);
    }
    if (G == 32) return s;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = s;
    __syncthreads();
    s = shared[0];
    for (int i = 1; i < G / 32; i++) s = join(s, shared[i]);
    return s;
}

template <int G, class A>
__device__ __forceinline__ A sum_group(A x) {
    __shared__ A shared[32];
    return G == 32 ? tti_warp_sum(x) : tti_block_sum(x, shared);
}

/* V divides n. */
template <class T, int V, int G>
__global__ void __launch_bounds__(THREADS)
    softmax_rows(const T *in, T *out, size_t n_rows, size_t n, bool log_of) {
    typedef typename tti_acc<T>::type A;
    size_t row = (size_t)blockIdx.x * (THREADS / G) + threadIdx.x / G;
    if (row >= n_rows) return; /* whole groups */
    const T *x = in + row * n;
    T *y = out + row * n;
    sums<A> s = {(A)-INFINITY, 0};
    for (size_t i = threadIdx.x % G * V; i < n; i += G * V) {
        A some[V];
        tti_load(x + i, some);
        see(s, some);
    }
    s = join_group<G>(s);
    A log_sum = log_of ? log(s.sum) : (A)0;
    for (size_t i = threadIdx.x % G * V; i < n; i += G * V) {
        A some[V];
        tti_load(x + i, some);
#pragma unroll
        for (int k = 0; k < V; k++) some[k] = written(some[k], s, log_sum, log_of);
        tti_store(y + i, some);
    }
}

template <class T, int V, int G>
__global__ void __launch_bounds__(THREADS)
    softmax_grad_rows(const T *ys, const T *dys, T *out, size_t n_rows, size_t n, bool log_of) {
    typedef typename tti_acc<T>::type A;
    size_t row = (size_t)blockIdx.x * (THREADS / G) + threadIdx.x / G;
    if (row >= n_rows) return;
    const T *y = ys + row * n, *dy = dys + row * n;
    T *dx = out + row * n;
    A sum = 0;
    for (size_t i = threadIdx.x % G * V; i < n; i += G * V) {
        A a[V], b[V];
        tti_load(y + i, a);
        tti_load(dy + i, b);
#pragma unroll
        for (int k = 0; k < V; k++) sum += log_of ? b[k] : a[k] * b[k];
    }
    sum = sum_group<G>(sum);
    for (size_t i = threadIdx.x % G * V; i < n; i += G * V) {
        A a[V], b[V];
        tti_load(y + i, a);
        tti_load(dy + i, b);
#pragma unroll
        for (int k = 0; k < V; k++) a[k] = log_of ? b[k] - exp(a[k]) * sum : a[k] * (b[k] - sum);
        tti_store(dx + i, a);
    }
}

/* ---- rows across: a thread for each of outer * inner ---- */

template <class T>
__global__ void __launch_bounds__(THREADS)
    softmax_across(const T *x, T *y, size_t n_rows, size_t n, size_t inner, bool log_of) {
    typedef typename tti_acc<T>::type A;
    size_t row = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n_rows) return;
    size_t first = row / inner * n * inner + row % inner;
    sums<A> s = {(A)-INFINITY, 0};
    for (size_t i = 0; i < n; i++) {
        A one[1] = {tti_to_acc(x[first + i * inner])};
        see(s, one);
    }
    A log_sum = log_of ? log(s.sum) : (A)0;
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i * inner;
        tti_from_acc(y + at, written((A)tti_to_acc(x[at]), s, log_sum, log_of));
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    softmax_grad_across(const T *y, const T *dy, T *dx, size_t n_rows, size_t n, size_t inner,
                        bool log_of) {
    typedef typename tti_acc<T>::type A;
    size_t row = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n_rows) return;
    size_t first = row / inner * n * inner + row % inner;
    A sum = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i * inner;
        A b = tti_to_acc(dy[at]);
        sum += log_of ? b : (A)tti_to_acc(y[at]) * b;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i * inner;
        A a = tti_to_acc(y[at]), b = tti_to_acc(dy[at]);
        tti_from_acc(dx + at, log_of ? b - exp(a) * sum : a * (b - sum));
    }
}

/* ---- launches ---- */

unsigned blocks_for(size_t n_rows, size_t rows_per_block) {
    return (unsigned)((n_rows + rows_per_block - 1) / rows_per_block);
}

template <class T, int V>
void launch_rows(const tti_softmax_rows *r, const void *x, void *y, cudaStream_t stream) {
    unsigned by_warp = blocks_for(r->outer, THREADS / 32), by_block = blocks_for(r->outer, 1);
    if (r->n <= SMALL_ROW)
        softmax_rows<T, V, 32>
            <<<by_warp, THREADS, 0, stream>>>((const T *)x, (T *)y, r->outer, r->n, r->log);
    else
        softmax_rows<T, V, THREADS>
            <<<by_block, THREADS, 0, stream>>>((const T *)x, (T *)y, r->outer, r->n, r->log);
}

template <class T, int V>
void launch_grad_rows(const tti_softmax_rows *r, const void *y, const void *dy, void *dx,
                      cudaStream_t stream) {
    unsigned by_warp = blocks_for(r->outer, THREADS / 32), by_block = blocks_for(r->outer, 1);
    const T *a = (const T *)y, *b = (const T *)dy;
    if (r->n <= SMALL_ROW)
        softmax_grad_rows<T, V, 32>
            <<<by_warp, THREADS, 0, stream>>>(a, b, (T *)dx, r->outer, r->n, r->log);
    else
        softmax_grad_rows<T, V, THREADS>
            <<<by_block, THREADS, 0, stream>>>(a, b, (T *)dx, r->outer, r->n, r->log);
}

template <class T>
void launch(const tti_softmax_rows *r, const void *x, void *y, cudaStream_t stream) {
    size_t n_rows = r->outer * r->inner;
    if (r->inner > 1)
        softmax_across<T><<<blocks_for(n_rows, THREADS), THREADS, 0, stream>>>(
            (const T *)x, (T *)y, n_rows, r->n, r->inner, r->log);
    else if (r->n % (16 / sizeof(T)) == 0)
        launch_rows<T, 16 / sizeof(T)>(r, x, y, stream);
    else
        launch_rows<T, 1>(r, x, y, stream);
}

template <class T>
void launch_grad(const tti_softmax_rows *r, const void *y, const void *dy, void *dx,
                 cudaStream_t stream) {
    size_t n_rows = r->outer * r->inner;
    if (r->inner > 1)
        softmax_grad_across<T><<<blocks_for(n_rows, THREADS), THREADS, 0, stream>>>(
            (const T *)y, (const T *)dy, (T *)dx, n_rows, r->n, r->inner, r->log);
    else if (r->n % (16 / sizeof(T)) == 0)
        launch_grad_rows<T, 16 / sizeof(T)>(r, y, dy, dx, stream);
    else
        launch_grad_rows<T, 1>(r, y, dy, dx, stream);
}

}  // namespace

extern "C" cudaError_t tti_launch_softmax(const tti_softmax_rows *r, const void *x, void *y,
                                          cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(r->dtype, launch<T>(r, x, y, stream));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_softmax_grad(const tti_softmax_rows *r, const void *y,
                                               const void *dy, void *dx, cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(r->dtype, launch_grad<T>(r, y, dy, dx, stream));
    return cudaGetLastError();
}
