/* counts.cu - counts of classes, and sums of errors of values.
 *
 * A thread has a row of logits; integers are added atomically, so their order does not matter.  A
 * block has a column of values and adds in a fixed tree. */
#include "backend/cuda/loss/counts.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256 };

template <class T>
__global__ void __launch_bounds__(THREADS)
    class_counts_kernel(const T *logits, const int32_t *labels, size_t rows, int n, int64_t k,
                        int32_t *counts, int32_t *hits) {
    typedef typename tti_acc<T>::type A;
    size_t r = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (r >= rows) return;
    int label = labels[r], best = 0, before = 0;
    if (label < 0 || label >= n) return;
    const T *x = logits + r * (size_t)n;
    A own = tti_widen<A>(x[label]), most = tti_widen<A>(x[0]);
    bool is_nan = false;
    for (int j = 0; j < n; j++) {
        A value = tti_widen<A>(x[j]);
        is_nan |= value != value;
        if (value > most) most = value, best = j;
        before += value > own || (value == own && j < label);
    }
    atomicAdd(&counts[n + label], 1);
    atomicAdd(&hits[1], 1);
    if (is_nan) return;
    atomicAdd(&counts[2 * n + best], 1);
    if (best == label) atomicAdd(&counts[best], 1);
    if (before < k) atomicAdd(&hits[0], 1);
}

/* The sum over the block, in thread 0 and then in all. */
__device__ double block_sum(double own, double *shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    for (int d = THREADS / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) shared[threadIdx.x] += shared[threadIdx.x + d];
        __syncthreads();
    }
    double sum = shared[0];
    __syncthreads();
    return sum;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    value_sums_kernel(const T *x, const T *target, const int32_t *labels, size_t rows, size_t width,
                      double *sums) {
    __shared__ double shared[THREADS];
    size_t c = blockIdx.x;
    double n = 0, size = 0, square = 0, sum = 0, deviation = 0;
    for (size_t r = threadIdx.x; r < rows; r += THREADS) {
        if (labels[r] == -1) continue;
        double t = tti_widen<double>(target[r * width + c]);
        double error = tti_widen<double>(x[r * width + c]) - t;
        n += 1, size += fabs(error), square += error * error, sum += t;
    }
    n = block_sum(n, shared), size = block_sum(size, shared);
    square = block_sum(square, shared), sum = block_sum(sum, shared);
    double mean = n > 0 ? sum / n : 0;
    for (size_t r = threadIdx.x; r < rows; r += THREADS) {
        double d = tti_widen<double>(target[r * width + c]) - mean;
        if (labels[r] != -1) deviation += d * d;
    }
    deviation = block_sum(deviation, shared);
    if (threadIdx.x > 0) return;
    sums[c] = n, sums[width + c] = size, sums[2 * width + c] = square;
    sums[3 * width + c] = mean, sums[4 * width + c] = deviation;
}

}  // namespace

extern "C" cudaError_t tti_cuda_class_counts(tutti_dtype dtype, const void *logits,
                                             const int32_t *labels, size_t rows, int n, int64_t k,
                                             int32_t *counts, int32_t *hits, cudaStream_t stream) {
    cudaError_t error = cudaMemsetAsync(counts, 0, 3 * (size_t)n * sizeof *counts, stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(hits, 0, 2 * sizeof *hits, stream);
    if (error != cudaSuccess || rows == 0) return error;
    if (rows > (size_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    unsigned blocks = (unsigned)((rows + THREADS - 1) / THREADS);
    TTI_FLOAT_DISPATCH(dtype, {
        class_counts_kernel<<<blocks, THREADS, 0, stream>>>((const T *)logits, labels, rows, n, k,
                                                            counts, hits);
    })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_value_sums(tutti_dtype dtype, const void *x, const void *target,
                                           const int32_t *labels, size_t rows, size_t width,
                                           double *sums, cudaStream_t stream) {
    if (width == 0) return cudaSuccess;
    if (width > 0x7FFFFFFF) return cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(dtype, {
        value_sums_kernel<<<(unsigned)width, THREADS, 0, stream>>>((const T *)x, (const T *)target,
                                                                   labels, rows, width, sums);
    })
    return cudaGetLastError();
}
