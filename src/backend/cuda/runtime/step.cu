/* step.cu - small kernels between the programs of a step, and the sum of two gradients. */
#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/early.cuh"
#include "backend/cuda/runtime/load.cuh"
#include "backend/cuda/runtime/step.h"

__global__ void begin_kernel(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                             int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    runs[i].seed = fixed[i].seed;
    runs[i].sample0 = fixed[i].sample0;
    runs[i].step = args->step;
}

__global__ void collect_kernel(const __grid_constant__ tti_collected c, double *sums) {
    tti_let_next_start();
    tti_wait_for_before();
    if (threadIdx.x < c.n) sums[threadIdx.x] = *c.from[threadIdx.x];
}

/* ---- steps over samples that stay on the device ---- */

/* A block makes ROWS rows of shard blockIdx.y, ROW_THREADS threads each. */
enum { ROWS = 4, ROW_THREADS = 256 };

/* Index and arguments come out of the host's memory, which is far away: few ask, each once, and for
 * all they want before they wait for any of it. */
__global__ void __launch_bounds__(ROWS *ROW_THREADS)
    gather_kernel(const __grid_constant__ tti_gather g, const tti_run *fixed, tti_run *runs) {
    __shared__ int32_t wanted[ROWS];
    int first = blockIdx.x * ROWS, s = blockIdx.y, n = g.samples.n_elems;
    const int32_t *index = g.index + (size_t)s * (1 + g.b);
    if (threadIdx.x < ROWS)
        wanted[threadIdx.x] = first + threadIdx.x < g.b ? index[1 + first + threadIdx.x] : -1;
    if (first == 0 && threadIdx.x == ROW_THREADS) {
        const tti_step_args args = *g.args_from;
        int32_t n_rows = index[0];
        tti_run run = fixed[s];
        g.rows[s * g.rows_stride] = n_rows;
        runs[s].seed = run.seed;
        runs[s].sample0 = run.sample0;
        runs[s].step = args.step;
        if (s == 0) *g.args = args;
    }
    __syncthreads();
    int part = threadIdx.x / ROW_THREADS, row = first + part, at = wanted[part];
    if (row >= g.b) return;
    if (threadIdx.x % ROW_THREADS == 0) g.y[s * g.y_stride + row] = at < 0 ? -1 : g.samples.y[at];
    float *x = g.x + s * g.x_stride + (size_t)row * n;
    const uint8_t *from = g.samples.x + (size_t)(at < 0 ? 0 : at) * n;
    int n_channels = g.samples.n_channels, plane = n / n_channels;
    for (int i = threadIdx.x % ROW_THREADS; i < n; i += ROW_THREADS) {
        int c = i / plane, pixel = i - c * plane;
        uint8_t byte = from[pixel * n_channels + c];
        x[i] = at < 0 ? 0.0f : g.samples.value[c * 256 + byte];
    }
}

/* ---- bytes into floats ---- */

enum { UNPACK_PIXELS = 1024, UNPACK_THREADS = 256, MAX_UNPACK_ROWS = 65535 };

/* Pixels first .. of a row come through shared memory, so that bytes are read and floats written in
 * runs.  vector: everything of a block begins at 16 bytes. */
__device__ __forceinline__ void stage_bytes(const uint8_t *from, int n, bool vector,
                                            uint8_t *shared) {
    if (vector) {
        for (int i = threadIdx.x * 16; i < n; i += UNPACK_THREADS * 16)
            *(uint4 *)(shared + i) = *(const uint4 *)(from + i);
    } else {
        for (int i = threadIdx.x; i < n; i += UNPACK_THREADS) shared[i] = from[i];
    }
}

/* Block x: UNPACK_PIXELS pixels of a row, block y: the row. */
template <int C>
__global__ void __launch_bounds__(UNPACK_THREADS)
    unpack_kernel(const __grid_constant__ tti_unpack u, bool vector) {
    __shared__ float value[C * 256];
    __shared__ __align__(16) uint8_t bytes[C * UNPACK_PIXELS];
    int plane = u.n_elems / C, first = blockIdx.x * UNPACK_PIXELS;
    int n = min(UNPACK_PIXELS, plane - first);
    for (int i = threadIdx.x; i < C * 256; i += UNPACK_THREADS) value[i] = u.value[i];
    for (int row = blockIdx.y; row < u.n_rows; row += gridDim.y) {
        bool real = u.y[row] >= 0;
        size_t at = (size_t)row * u.n_elems;
        __syncthreads();
        stage_bytes(u.x + at + (size_t)first * C, n * C, vector, bytes);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < C; c++) {
            float *to = u.out + at + (size_t)c * plane + first;
            for (int i = threadIdx.x * 4; vector && i < n; i += UNPACK_THREADS * 4) {
                float x[4];
#pragma unroll
                for (int k = 0; k < 4; k++)
                    x[k] = real ? value[c * 256 + bytes[(i + k) * C + c]] : 0.0f;
                tti_store<float, 4>(to + i, x);
            }
            for (int i = threadIdx.x; !vector && i < n; i += UNPACK_THREADS)
                to[i] = real ? value[c * 256 + bytes[i * C + c]] : 0.0f;
        }
    }
}

template <int C>
static void launch_unpack(const tti_unpack &u, cudaStream_t stream) {
    int plane = u.n_elems / C, n_rows = u.n_rows < MAX_UNPACK_ROWS ? u.n_rows : MAX_UNPACK_ROWS;
    dim3 grid((unsigned)((plane + UNPACK_PIXELS - 1) / UNPACK_PIXELS), (unsigned)n_rows);
    bool vector = plane % 16 == 0 && (uintptr_t)u.x % 16 == 0 && (uintptr_t)u.out % 16 == 0;
    unpack_kernel<C><<<grid, UNPACK_THREADS, 0, stream>>>(u, vector);
}

/* Host memory is written as 8 bytes each; both are multiples of that. */
__global__ void report_kernel(const tti_step_report *report, const double *sums, int n_sums,
                              uint64_t *host_report) {
    int n = (int)(sizeof *report / 8);
    tti_wait_for_before();
    for (int i = threadIdx.x; i < n + n_sums; i += blockDim.x)
        host_report[i] = i < n ? reinterpret_cast<const uint64_t *>(report)[i]
                               : (uint64_t)__double_as_longlong(sums[i - n]);
}

__global__ void nothing_kernel() {}

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

__device__ __forceinline__ float round_bf16(float x) {
    return tti_to_f32(tti_from_f32<tti_bf16>(x));
}

__device__ __forceinline__ float add_rounded(float a, float b) {
    return round_bf16(round_bf16(a) + round_bf16(b));
}

/* ADDS false: dst is only rounded, and src is not read. */
template <bool ADDS>
__global__ void __launch_bounds__(256)
    accumulate_rounded_kernel(float *dst, const float *src, size_t n) {
    size_t stride = (size_t)gridDim.x * blockDim.x * 4;
    size_t first = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    for (size_t i = first; i + 4 <= n; i += stride) {
        float a[4], b[4];
        tti_load<float, 4>(dst + i, a);
        if constexpr (ADDS) tti_load<float, 4>(src + i, b);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if constexpr (ADDS)
                a[k] = add_rounded(a[k], b[k]);
            else
                a[k] = round_bf16(a[k]);
        }
        tti_store<float, 4>(dst + i, a);
    }
    size_t last = (n & ~(size_t)3) + threadIdx.x;
    if (blockIdx.x != 0 || last >= n) return;
    if constexpr (ADDS)
        dst[last] = add_rounded(dst[last], src[last]);
    else
        dst[last] = round_bf16(dst[last]);
}

extern "C" cudaError_t tti_launch_begin_step(const tti_step_args *args, const tti_run *fixed,
                                             tti_run *runs, int n_runs, cudaStream_t stream) {
    if (n_runs) begin_kernel<<<(n_runs + 255) / 256, 256, 0, stream>>>(args, fixed, runs, n_runs);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_collect(const tti_collected *collected, double *sums,
                                          cudaStream_t stream) {
    return tti_launch_early(collect_kernel, dim3(1), TTI_COLLECTED, 0, 1, stream, *collected, sums);
}

extern "C" cudaError_t tti_launch_begin_gather(const tti_gather *g, const tti_run *fixed,
                                               tti_run *runs, cudaStream_t stream) {
    dim3 grid((unsigned)(g->b + ROWS - 1) / ROWS, (unsigned)g->n_shards);
    if (g->b && g->n_shards)
        gather_kernel<<<grid, ROWS * ROW_THREADS, 0, stream>>>(*g, fixed, runs);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_unpack(const tti_unpack *u, cudaStream_t stream) {
    if (u->n_rows < 1 || u->n_elems < 1) return cudaSuccess;
    switch (u->n_channels) {
        case 1:
            launch_unpack<1>(*u, stream);
            break;
        case 2:
            launch_unpack<2>(*u, stream);
            break;
        case 3:
            launch_unpack<3>(*u, stream);
            break;
        default:
            launch_unpack<4>(*u, stream);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_report(const tti_step_report *report, const double *sums,
                                         int n_sums, void *host_report, cudaStream_t stream) {
    return tti_launch_early(report_kernel, dim3(1), 128, 0, 1, stream, report, sums, n_sums,
                            (uint64_t *)host_report);
}

extern "C" cudaError_t tti_launch_nothing(cudaStream_t stream) {
    nothing_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_accumulate(float *dst, const float *src, size_t n,
                                             cudaStream_t stream) {
    size_t n_blocks = (n / 4 + 255) / 256;
    if (n_blocks > 132 * 16) n_blocks = 132 * 16;
    if (n) accumulate_kernel<<<(unsigned)(n_blocks ? n_blocks : 1), 256, 0, stream>>>(dst, src, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_accumulate_rounded(float *dst, const float *src, size_t n,
                                                     cudaStream_t stream) {
    size_t n_blocks = (n / 4 + 255) / 256;
    if (n_blocks > 132 * 16) n_blocks = 132 * 16;
    unsigned grid = (unsigned)(n_blocks ? n_blocks : 1);
    if (n && src) accumulate_rounded_kernel<true><<<grid, 256, 0, stream>>>(dst, src, n);
    if (n && !src) accumulate_rounded_kernel<false><<<grid, 256, 0, stream>>>(dst, src, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_step_load(void) {
    cudaError_t error =
        tti_load_kernels(begin_kernel, nothing_kernel, accumulate_kernel,
                         accumulate_rounded_kernel<true>, accumulate_rounded_kernel<false>);
    cudaGetLastError(); /* clears the error, which belongs to no later launch */
    return error;
}
