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

/* ---- steps over samples that stay on the device ---- */

/* One block makes row blockIdx.x of shard blockIdx.y. */
__global__ void __launch_bounds__(256)
    gather_kernel(const __grid_constant__ tti_gather g, const tti_run *fixed, tti_run *runs) {
    int row = blockIdx.x, s = blockIdx.y, n = g.samples.n_elems;
    const int32_t *index = g.index + (size_t)s * (1 + g.b);
    int32_t at = index[1 + row];
    if (row == 0 && threadIdx.x == 0) {
        g.rows[s * g.rows_stride] = index[0];
        runs[s].seed = fixed[s].seed;
        runs[s].sample0 = fixed[s].sample0;
        runs[s].step = g.args_from->step;
        if (s == 0) *g.args = *g.args_from;
    }
    if (threadIdx.x == 0) g.y[s * g.y_stride + row] = at < 0 ? -1 : g.samples.y[at];
    float *x = g.x + s * g.x_stride + (size_t)row * n;
    const uint8_t *from = g.samples.x + (size_t)(at < 0 ? 0 : at) * n;
    int n_channels = g.samples.n_channels, plane = n / n_channels;
    for (int i = threadIdx.x; i < n; i += 256) {
        int c = i / plane, pixel = i - c * plane;
        uint8_t byte = from[pixel * n_channels + c];
        x[i] = at < 0 ? 0.0f : g.samples.value[c * 256 + byte];
    }
}

/* Host memory is written as 8 bytes each; both are multiples of that. */
__global__ void tell_kernel(const tti_step_report *report, const double *sums, int n_sums,
                            uint64_t *told) {
    int n = (int)(sizeof *report / 8);
    for (int i = threadIdx.x; i < n + n_sums; i += blockDim.x)
        told[i] = i < n ? reinterpret_cast<const uint64_t *>(report)[i]
                        : (uint64_t)__double_as_longlong(sums[i - n]);
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

extern "C" cudaError_t tti_launch_begin_gather(const tti_gather *g, const tti_run *fixed,
                                               tti_run *runs, cudaStream_t stream) {
    dim3 grid((unsigned)g->b, (unsigned)g->n_shards);
    if (g->b && g->n_shards) gather_kernel<<<grid, 256, 0, stream>>>(*g, fixed, runs);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_tell(const tti_step_report *report, const double *sums,
                                       int n_sums, void *told, cudaStream_t stream) {
    tell_kernel<<<1, 128, 0, stream>>>(report, sums, n_sums, (uint64_t *)told);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_accumulate(float *dst, const float *src, size_t n,
                                             cudaStream_t stream) {
    size_t n_blocks = (n / 4 + 255) / 256;
    if (n_blocks > 132 * 16) n_blocks = 132 * 16;
    if (n) accumulate_kernel<<<(unsigned)(n_blocks ? n_blocks : 1), 256, 0, stream>>>(dst, src, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_step_load(void) {
    cudaFuncAttributes unused;
    return cudaFuncGetAttributes(&unused, begin_kernel);
}
