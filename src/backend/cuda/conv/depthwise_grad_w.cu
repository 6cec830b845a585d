/* depthwise_grad_w.cu - dw and db of depthwise convolutions.
 *
 * Tiles of x and dy are in shared memory as in depthwise.cu.  A thread keeps the sums for all
 * positions of the window of its two channels in registers over all tiles of its block.  At the end
 * the tasks of a block are added, then the blocks, both in order: the bits depend on the shape
 * alone. */
#include "backend/cuda/conv/depthwise.cuh"

namespace {

using namespace depthwise;

/* x and dy are the first positions of the task in the tiles, plus the thread's channels. */
template <class T, int K, tti_depthwise_mode MODE>
__device__ __forceinline__ void add_task(const T *x, int x_row, const T *dy, int dy_row,
                                         float2 (&sum)[K * K], float2 &total) {
    using W = window<K, MODE>;
    float2 d[ROWS][W::COLUMNS];
#pragma unroll
    for (int u = 0; u < ROWS; u++)
#pragma unroll
        for (int t = 0; t < W::COLUMNS; t++) {
            d[u][t] = load_pair(dy + u * dy_row + t * CHANNELS);
            total.x += d[u][t].x, total.y += d[u][t].y;
        }
#pragma unroll
    for (int a = 0; a < W::SPAN_H; a++)
#pragma unroll
        for (int b = 0; b < W::SPAN_W; b++) {
            float2 v = load_pair(x + a * x_row + b * CHANNELS);
#pragma unroll
            for (int u = 0; u < ROWS; u++)
#pragma unroll
                for (int t = 0; t < W::COLUMNS; t++) {
                    const int r = tti_depthwise_tap(MODE, K, a, u);
                    const int s = tti_depthwise_tap(MODE, K, b, t);
                    if (!W::has_tap(r) || !W::has_tap(s)) continue;
                    sum[r * K + s].x = fmaf(d[u][t].x, v.x, sum[r * K + s].x);
                    sum[r * K + s].y = fmaf(d[u][t].y, v.y, sum[r * K + s].y);
                }
        }
}

/* The sum of both tasks of a warp into to[CHANNELS]. */
__device__ __forceinline__ void put_pair(float2 v, int lane, float *to) {
    v.x += __shfl_xor_sync(0xffffffffu, v.x, LANES);
    v.y += __shfl_xor_sync(0xffffffffu, v.y, LANES);
    if (threadIdx.x % 32 < LANES) *reinterpret_cast<float2 *>(to + 2 * lane) = v;
}

/* partials[block][K K + 1][n_groups CHANNELS]; the last row is of db. */
template <class T, int K, tti_depthwise_mode MODE, bool VECTORS>
__global__ void __launch_bounds__(MAX_THREADS, tti_depthwise_blocks(K, true))
    tiled_kernel(tti_depthwise_plan p, tti_divisor rows, tti_divisor columns, tti_divisor dy_rows,
                 tti_divisor dy_columns, const T *x, const T *dy, float *partials) {
    using W = window<K, MODE>;
    extern __shared__ __align__(128) unsigned char memory[];
    T *tiles = reinterpret_cast<T *>(memory), *dy_tiles = tiles + 2 * p.tile_elems;
    const tti_depthwise_axis &down = p.axis[0], &across = p.axis[1];
    int c0 = (int)blockIdx.x * CHANNELS;
    task own = task_of(p);
    int x_from =
        ((own.image * down.span + own.row * W::STEP_H) * across.span + own.column * W::STEP_W) *
            CHANNELS +
        2 * own.lane;
    int dy_from =
        ((own.image * down.out_step + own.row * ROWS) * across.out_step + own.column * W::COLUMNS) *
            CHANNELS +
        2 * own.lane;
    float2 sum[K * K], total = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < K * K; k++) sum[k] = total;
    auto load = [&](int tile, int stage) {
        place at = place_of(p, tile);
        box of_x = {at.n, down.base + at.tile[0] * down.step,
                    across.base + at.tile[1] * across.step, rows, columns};
        box of_dy = {at.n, at.tile[0] * down.out_step, at.tile[1] * across.out_step, dy_rows,
                     dy_columns};
        load_box<T, VECTORS>(p, of_x, down.source, across.source, c0, x,
                             tiles + stage * p.tile_elems);
        load_box<T, VECTORS>(p, of_dy, down.out, across.out, c0, dy,
                             dy_tiles + stage * p.out_elems);
    };
    int index = (int)blockIdx.y, step = (int)gridDim.y;
    if (index < p.n_tiles) load(index, 0);
    for (int stage = 0; index < p.n_tiles; index += step, stage = 1 - stage) {
        wait_for_boxes(VECTORS); /* no thread reads the other stage any more */
        if (index + step < p.n_tiles) load(index + step, 1 - stage);
        if (own.exists)
            add_task<T, K, MODE>(tiles + stage * p.tile_elems + x_from, across.span * CHANNELS,
                                 dy_tiles + stage * p.out_elems + dy_from,
                                 across.out_step * CHANNELS, sum, total);
    }
    __syncthreads(); /* the sums of warps take the place of the tiles */
    float *sums = reinterpret_cast<float *>(memory);
    int warp = (int)threadIdx.x / 32, n_warps = (int)blockDim.x / 32;
    const int n_sums = (K * K + 1) * CHANNELS;
#pragma unroll
    for (int k = 0; k < K * K; k++) put_pair(sum[k], own.lane, sums + warp * n_sums + k * CHANNELS);
    put_pair(total, own.lane, sums + warp * n_sums + K * K * CHANNELS);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_sums; i += (int)blockDim.x) {
        float all = 0.0f;
        for (int k = 0; k < n_warps; k++) all += sums[k * n_sums + i];
        int64_t row = (int64_t)blockIdx.y * (K * K + 1) + i / CHANNELS;
        partials[row * p.n_groups * CHANNELS + c0 + i % CHANNELS] = all;
    }
}

/* ---- any window, stride and dilation: a block adds one position of it, or db ---- */

enum { PLAIN_TASKS = 16 };

/* Block (group, position, split) adds every gridDim.z-th row (n, p) of dy. */
template <class T>
__global__ void __launch_bounds__(PLAIN_TASKS *LANES)
    plain_kernel(tti_cuda_conv v, int n_groups, const T *x, const T *dy, float *partials) {
    __shared__ float sums[PLAIN_TASKS][CHANNELS];
    int lane = (int)threadIdx.x % LANES, slot = (int)threadIdx.x / LANES, n_c = (int)v.c;
    int c = (int)blockIdx.x * CHANNELS + 2 * lane, tap = (int)blockIdx.y;
    bool is_bias = tap == (int)(v.r * v.s), first = c < n_c, second = c + 1 < n_c;
    int64_t r = tap / v.s, s = tap % v.s;
    float2 sum = make_float2(0.0f, 0.0f);
    for (int64_t row = blockIdx.z; first && row < v.n * v.p; row += gridDim.z) {
        int64_t n = row / v.p, h = row % v.p * v.stride[0] - v.pad[0] + r * v.dilation[0];
        if (!is_bias && (h < 0 || h >= v.h)) continue;
        for (int64_t q = slot; q < v.q; q += PLAIN_TASKS) {
            int64_t k = q * v.stride[1] - v.pad[1] + s * v.dilation[1];
            if (!is_bias && (k < 0 || k >= v.w)) continue;
            const T *d = dy + (row * v.q + q) * n_c + c;
            const T *at = is_bias ? nullptr : x + ((n * v.h + h) * v.w + k) * n_c + c;
            sum.x = fmaf(tti_to_f32(d[0]), is_bias ? 1.0f : tti_to_f32(at[0]), sum.x);
            if (second) sum.y = fmaf(tti_to_f32(d[1]), is_bias ? 1.0f : tti_to_f32(at[1]), sum.y);
        }
    }
    sums[slot][2 * lane] = sum.x, sums[slot][2 * lane + 1] = sum.y;
    __syncthreads();
    if (threadIdx.x >= CHANNELS) return;
    float all = 0.0f;
    for (int k = 0; k < PLAIN_TASKS; k++) all += sums[k][threadIdx.x];
    int64_t row = (int64_t)blockIdx.z * gridDim.y + tap;
    partials[row * n_groups * CHANNELS + blockIdx.x * CHANNELS + threadIdx.x] = all;
}

/* ---- the sums of blocks ---- */

enum { SLICES = 8 };

/* dw[c][area] and db[c] from partials[n][area + 1][width]; block (group, position). */
template <class T>
__global__ void __launch_bounds__(CHANNELS *SLICES)
    sum_kernel(const float *partials, int n, int area, int n_channels, T *dw, T *db) {
    __shared__ float sums[SLICES][CHANNELS];
    int lane = (int)threadIdx.x % CHANNELS, slice = (int)threadIdx.x / CHANNELS;
    int c = (int)blockIdx.x * CHANNELS + lane, tap = (int)blockIdx.y;
    int64_t width = (int64_t)gridDim.x * CHANNELS;
    float sum = 0.0f;
    for (int i = slice; i < n; i += SLICES)
        sum += partials[((int64_t)i * (area + 1) + tap) * width + c];
    sums[slice][lane] = sum;
    __syncthreads();
    if (slice != 0 || c >= n_channels) return;
    for (int k = 1; k < SLICES; k++) sum += sums[k][lane];
    if (tap < area)
        dw[(int64_t)c * area + tap] = tti_from_f32<T>(sum);
    else if (db)
        db[c] = tti_from_f32<T>(sum);
}

/* ---- launching ---- */

template <class T, int K, tti_depthwise_mode MODE>
cudaError_t run_tiled(const tti_depthwise_plan &p, const T *x, const T *dy, float *partials,
                      cudaStream_t stream) {
    auto *kernel =
        has_vectors<T>(p.c) ? tiled_kernel<T, K, MODE, true> : tiled_kernel<T, K, MODE, false>;
    cudaError_t error = tti_make_room((const void *)kernel, (size_t)p.n_shared);
    if (error != cudaSuccess) return error;
    dim3 grid((unsigned)p.n_groups, (unsigned)p.n_blocks);
    const tti_depthwise_axis &down = p.axis[0], &across = p.axis[1];
    kernel<<<grid, (unsigned)p.n_threads, (size_t)p.n_shared, stream>>>(
        p, tti_make_divisor((uint32_t)down.span), tti_make_divisor((uint32_t)across.span),
        tti_make_divisor((uint32_t)down.out_step), tti_make_divisor((uint32_t)across.out_step), x,
        dy, partials);
    return cudaGetLastError();
}

template <class T>
cudaError_t run_plain(const tti_cuda_conv &v, const tti_depthwise_plan &p, const T *x, const T *dy,
                      float *partials, cudaStream_t stream) {
    dim3 grid((unsigned)p.n_groups, (unsigned)(v.r * v.s + 1), (unsigned)p.n_blocks);
    plain_kernel<T><<<grid, PLAIN_TASKS * LANES, 0, stream>>>(v, p.n_groups, x, dy, partials);
    return cudaGetLastError();
}

template <class T>
cudaError_t run_partials(const tti_cuda_conv &v, const tti_depthwise_plan &p, const T *x,
                         const T *dy, float *partials, cudaStream_t stream) {
    if (!p.is_tiled) return run_plain<T>(v, p, x, dy, partials, stream);
    TTI_DEPTHWISE_KERNEL(
        p.kernel, return p.mode == TTI_DEPTHWISE_ONE
                             ? (run_tiled<T, K, TTI_DEPTHWISE_ONE>(p, x, dy, partials, stream))
                             : (run_tiled<T, K, TTI_DEPTHWISE_TWO>(p, x, dy, partials, stream)))
}

template <class T>
cudaError_t run(const tti_cuda_conv &v, const tti_depthwise_plan &p, const void *dy, const void *x,
                float *partials, void *dw, void *db, cudaStream_t stream) {
    cudaError_t error = run_partials<T>(v, p, (const T *)x, (const T *)dy, partials, stream);
    if (error != cudaSuccess) return error;
    int area = (int)(v.r * v.s);
    dim3 grid((unsigned)p.n_groups, (unsigned)area + 1);
    sum_kernel<T><<<grid, CHANNELS * SLICES, 0, stream>>>(partials, p.n_blocks, area, (int)v.c,
                                                          (T *)dw, (T *)db);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t tti_depthwise_grad_w_bytes(const tti_cuda_conv *conv,
                                             const tti_depthwise_plan *plan) {
    return (size_t)plan->n_blocks * (size_t)(conv->r * conv->s + 1) * (size_t)plan->n_groups *
           CHANNELS * sizeof(float);
}

extern "C" cudaError_t tti_depthwise_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv,
                                            const tti_depthwise_plan *plan, const void *dy,
                                            const void *x, float *partials, void *dw, void *db,
                                            cudaStream_t stream) {
    TTI_FLOAT_DISPATCH_NO_F64(dtype, return (run<T>(*conv, *plan, dy, x, partials, dw, db, stream)))
}
