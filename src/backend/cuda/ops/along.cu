/* along.cu - running sums, sorting, and elements gathered and added by index.
 *
 * Nothing is added atomically: one thread has a whole line along the axis, or one result.
 * Sorting counts for each element how many come before it, which is its index in the result: n^2
 * comparisons, in any order of execution, and equal elements keep their order. */
#include "backend/cuda/ops/along.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 0x7fffffff };

template <class T>
__global__ void __launch_bounds__(THREADS) cumsum_kernel(const T *x, T *y, tti_along v) {
    typedef typename tti_acc<T>::type A;
    size_t line = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (line >= v.outer * v.inner) return;
    size_t first = line / v.inner * v.n * v.inner + line % v.inner;
    A sum = 0;
    for (size_t k = 0; k < v.n; k++) {
        size_t at = first + (v.reverse ? v.n - 1 - k : k) * v.inner;
        sum = k ? sum + tti_to_acc(x[at]) : tti_to_acc(x[at]);
        tti_from_acc(y + at, sum);
    }
}

/* Whether an element a, which is earlier on the axis than b, comes before it. */
template <class A>
__device__ __forceinline__ bool in_order(A a, A b, bool descending) {
    bool a_nan = a != a, b_nan = b != b;
    if (a_nan || b_nan) return descending ? a_nan || !b_nan : b_nan;
    return descending ? a >= b : a <= b;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    sort_kernel(const T *x, T *y, int32_t *places, tti_along v) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.outer * v.n * v.inner) return;
    size_t inner = i % v.inner, k = i / v.inner % v.n, outer = i / v.inner / v.n;
    const T *line = x + outer * v.n * v.inner + inner;
    auto own = tti_to_acc(line[k * v.inner]);
    size_t rank = 0;
    for (size_t j = 0; j < v.n; j++) {
        auto other = tti_to_acc(line[j * v.inner]);
        rank += j < k ? in_order(other, own, v.reverse) : j > k && !in_order(own, other, v.reverse);
    }
    size_t at = (outer * v.n + rank) * v.inner + inner;
    y[at] = line[k * v.inner];
    places[at] = (int32_t)k;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    take_kernel(const T *x, const int32_t *ids, T *y, tti_along v) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.outer * v.n_ids * v.inner) return;
    size_t inner = i % v.inner, outer = i / v.inner / v.n_ids;
    int32_t id = ids[i];
    T value = {};
    if (id >= 0 && (size_t)id < v.n) value = x[(outer * v.n + id) * v.inner + inner];
    y[i] = value;
}

/* A thread has one element of y and reads all places of its line: no order of execution matters. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    put_kernel(const T *x, const int32_t *ids, T *y, tti_along v) {
    typedef typename tti_acc<T>::type A;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.outer * v.n * v.inner) return;
    size_t inner = i % v.inner, k = i / v.inner % v.n, outer = i / v.inner / v.n;
    size_t first = outer * v.n_ids * v.inner + inner;
    A sum = 0;
    for (size_t j = 0; j < v.n_ids; j++) {
        size_t at = first + j * v.inner;
        if (ids[at] == (int32_t)k) sum += tti_to_acc(x[at]);
    }
    tti_from_acc(y + i, sum);
}

cudaError_t blocks_of(size_t n, unsigned *blocks) {
    size_t count = (n + THREADS - 1) / THREADS;
    *blocks = (unsigned)count;
    return count > MOST_BLOCKS ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

extern "C" cudaError_t tti_launch_cumsum(const tti_along *v, const void *x, void *y,
                                         cudaStream_t stream) {
    unsigned blocks;
    cudaError_t error = blocks_of(v->outer * v->inner, &blocks);
    if (error != cudaSuccess || blocks == 0 || v->n == 0) return error;
    TTI_FLOAT_DISPATCH(v->dtype,
                       { cumsum_kernel<<<blocks, THREADS, 0, stream>>>((const T *)x, (T *)y, *v); })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_sort(const tti_along *v, const void *x, void *y, int32_t *places,
                                       cudaStream_t stream) {
    unsigned blocks;
    cudaError_t error = blocks_of(v->outer * v->n * v->inner, &blocks);
    if (error != cudaSuccess || blocks == 0) return error;
    TTI_FLOAT_DISPATCH(v->dtype, {
        sort_kernel<<<blocks, THREADS, 0, stream>>>((const T *)x, (T *)y, places, *v);
    })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_take_along(const tti_along *v, const void *x, const int32_t *ids,
                                             void *y, cudaStream_t stream) {
    unsigned blocks;
    cudaError_t error = blocks_of(v->outer * v->n_ids * v->inner, &blocks);
    if (error != cudaSuccess || blocks == 0) return error;
    TTI_FLOAT_DISPATCH(
        v->dtype, { take_kernel<<<blocks, THREADS, 0, stream>>>((const T *)x, ids, (T *)y, *v); })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_put_along(const tti_along *v, const void *x, const int32_t *ids,
                                            void *y, cudaStream_t stream) {
    unsigned blocks;
    cudaError_t error = blocks_of(v->outer * v->n * v->inner, &blocks);
    if (error != cudaSuccess || blocks == 0) return error;
    TTI_FLOAT_DISPATCH(
        v->dtype, { put_kernel<<<blocks, THREADS, 0, stream>>>((const T *)x, ids, (T *)y, *v); })
    return cudaGetLastError();
}
