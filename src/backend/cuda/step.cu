/* step.cu - small kernels between the programs of a step, and the sum of two gradients. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/step.h"

__global__ void begin_kernel(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                             int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    runs[i].seed = fixed[i].seed;
    runs[i].sample0 = fixed[i].sample0;
    runs[i].step = args->step;
}

__global__ void collect_kernel(const float *loss_sum, const float *count, const float *correct,
                               double *sums) {
    sums[0] = *loss_sum;
    sums[1] = *count;
    sums[2] = *correct;
}

/* Four at once; the rest by the first threads. */
__global__ void __launch_bounds__(256) accumulate_kernel(float *dst, const float *src, size_t n) {
    size_t stride = (size_t)gridDim.x * blockDim.x * 4;
    size_t first = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    for (size_t i = first; i + 4 <= n; i += stride) {
        float a[4], b[4];
        tti_load<float, 4>(dst + i, a);
        tti_load<float, 4>(src + i, b);
#pragma unroll
        for (int k = 0; k < 4; k++) a[k] += b[k];
        tti_store<float, 4>(dst + i, a);
    }
    size_t rest = n & ~(size_t)3;
    if (blockIdx.x == 0 && threadIdx.x < n - rest)
        dst[rest + threadIdx.x] += src[rest + threadIdx.x];
}

extern "C" cudaError_t tti_launch_begin_step(const tti_step_args *args, const tti_run *fixed,
                                             tti_run *runs, int n_runs, cudaStream_t stream) {
    if (n_runs) begin_kernel<<<(n_runs + 255) / 256, 256, 0, stream>>>(args, fixed, runs, n_runs);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_collect(const float *loss_sum, const float *count,
                                          const float *correct, double *sums, cudaStream_t stream) {
    collect_kernel<<<1, 1, 0, stream>>>(loss_sum, count, correct, sums);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_accumulate(float *dst, const float *src, size_t n,
                                             cudaStream_t stream) {
    size_t n_blocks = (n / 4 + 255) / 256;
    if (n_blocks > 132 * 16) n_blocks = 132 * 16;
    if (n) accumulate_kernel<<<(unsigned)(n_blocks ? n_blocks : 1), 256, 0, stream>>>(dst, src, n);
    return cudaGetLastError();
}
