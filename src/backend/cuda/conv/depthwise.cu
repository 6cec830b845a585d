/* depthwise.cu - y of depthwise convolutions, and dx, which is one too: of dy with the window
 * turned around, or with every second position of it.
 *
 * The least time is that of reading the source and writing the result once.  A block has 32
 * channels (64 bytes of a pixel in 16 bits) of a tile with its border in shared memory, while the
 * next tile is on its way.  Each row of the tile is converted to f32 in registers once for all
 * columns of a task and both of its rows. */
#include "backend/cuda/conv/depthwise.cuh"

namespace {

using namespace depthwise;

/* w[c,1,K,K] of the block's channels as to[K K][CHANNELS]; zeros for channels that do not exist. */
template <class T, int K>
__device__ __forceinline__ void load_weights(const tti_depthwise_plan &p, int c0, const T *w,
                                             float *to) {
    for (int i = (int)threadIdx.x; i < K * K * CHANNELS; i += (int)blockDim.x) {
        int channel = c0 + i % CHANNELS, tap = i / CHANNELS;
        int at = p.flip ? K * K - 1 - tap : tap;
        to[i] = channel < p.c ? tti_to_f32(w[(int64_t)channel * (K * K) + at]) : 0.0f;
    }
}

/* Adds row r of the window to a row of results: x is the row of the source. */
template <int K, tti_depthwise_mode MODE>
__device__ __forceinline__ void add_row(const float2 (&x)[window<K, MODE>::SPAN_W],
                                        const float2 (&w)[K],
                                        float2 (&sum)[window<K, MODE>::COLUMNS]) {
    using W = window<K, MODE>;
#pragma unroll
    for (int s = 0; s < K; s++)
#pragma unroll
        for (int b = 0; b < W::SPAN_W; b++)
#pragma unroll
            for (int t = 0; t < W::COLUMNS; t++)
                if (tti_depthwise_tap(MODE, K, b, t) == s) {
                    sum[t].x = fmaf(x[b].x, w[s].x, sum[t].x);
                    sum[t].y = fmaf(x[b].y, w[s].y, sum[t].y);
                }
}

template <class T, int N>
__device__ __forceinline__ void load_row(const T *source, float2 (&x)[N]) {
#pragma unroll
    for (int b = 0; b < N; b++) x[b] = load_pair(source + b * CHANNELS);
}

template <int K>
__device__ __forceinline__ void load_window_row(const float *weights, int r, float2 (&w)[K]) {
#pragma unroll
    for (int s = 0; s < K; s++)
        w[s] = *reinterpret_cast<const float2 *>(weights + (r * K + s) * CHANNELS);
}

/* The results of a task: source is its first position in the tile, plus the thread's channels.
 * With a stride of 1 a row of the window meets two adjacent rows of the source; for 7x7 that loop
 * is not unrolled, which is 2 % faster: its instructions fit into the cache of a scheduler. */
template <class T, int K, tti_depthwise_mode MODE>
__device__ __forceinline__ void compute(const T *source, int row_elems, const float *weights,
                                        float2 (&sum)[ROWS][window<K, MODE>::COLUMNS]) {
    using W = window<K, MODE>;
    static_assert(ROWS == 2, "two rows of a task");
    if constexpr (MODE == TTI_DEPTHWISE_ONE && K >= 7) {
        float2 x[W::SPAN_W], below[W::SPAN_W], w[K];
        load_row(source, x);
#pragma unroll 1
        for (int r = 0; r < K; r++) {
            source += row_elems;
            load_row(source, below);
            load_window_row<K>(weights, r, w);
            add_row<K, MODE>(x, w, sum[0]);
            add_row<K, MODE>(below, w, sum[1]);
#pragma unroll
            for (int b = 0; b < W::SPAN_W; b++) x[b] = below[b];
        }
    } else {
#pragma unroll
        for (int a = 0; a < W::SPAN_H; a++) {
            float2 x[W::SPAN_W], w[K];
            load_row(source + a * row_elems, x);
#pragma unroll
            for (int u = 0; u < ROWS; u++) {
                const int r = tti_depthwise_tap(MODE, K, a, u);
                if (!W::has_tap(r)) continue;
                load_window_row<K>(weights, r, w);
                add_row<K, MODE>(x, w, sum[u]);
            }
        }
    }
}

/* Channels c and c + 1 of a result, as far as they exist. */
template <class T>
__device__ __forceinline__ void store_pair(T *to, int c, int n_channels, float2 value) {
    if (n_channels % 2 == 0) { /* aligned to two elements */
        float both[2] = {value.x, value.y};
        if (c < n_channels) tti_store<T, 2>(to, both);
        return;
    }
    if (c < n_channels) to[0] = tti_from_f32<T>(value.x);
    if (c + 1 < n_channels) to[1] = tti_from_f32<T>(value.y);
}

__device__ __forceinline__ float2 relu_of(float2 v) {
    return make_float2(v.x < 0.0f ? 0.0f : v.x, v.y < 0.0f ? 0.0f : v.y); /* keeps NaN */
}

template <class T, int K, tti_depthwise_mode MODE, bool VECTORS>
__global__ void __launch_bounds__(MAX_THREADS, tti_depthwise_blocks(K, false))
    tiled_kernel(tti_depthwise_plan p, tti_divisor rows, tti_divisor columns, const T *source,
                 const T *w, const T *bias, bool relu, T *out) {
    using W = window<K, MODE>;
    extern __shared__ __align__(128) unsigned char memory[];
    float *weights = reinterpret_cast<float *>(memory);
    T *tiles = reinterpret_cast<T *>(weights + K * K * CHANNELS);
    const tti_depthwise_axis &down = p.axis[0], &across = p.axis[1];
    int c0 = (int)blockIdx.x * CHANNELS;
    task own = task_of(p);
    int c = c0 + 2 * own.lane, row_elems = across.span * CHANNELS;
    int from =
        ((own.image * down.span + own.row * W::STEP_H) * across.span + own.column * W::STEP_W) *
            CHANNELS +
        2 * own.lane;
    float2 start = make_float2(0.0f, 0.0f);
    if (bias && c < p.c) start.x = tti_to_f32(bias[c]);
    if (bias && c + 1 < p.c) start.y = tti_to_f32(bias[c + 1]);
    load_weights<T, K>(p, c0, w, weights);
    auto load = [&](int tile, int stage) {
        place at = place_of(p, tile);
        box of_source = {at.n, down.base + at.tile[0] * down.step,
                         across.base + at.tile[1] * across.step, rows, columns};
        load_box<T, VECTORS>(p, of_source, down.source, across.source, c0, source,
                             tiles + stage * p.tile_elems);
    };
    int index = (int)blockIdx.y, step = (int)gridDim.y;
    if (index < p.n_tiles) load(index, 0);
    for (int stage = 0; index < p.n_tiles; index += step, stage = 1 - stage) {
        place now = place_of(p, index);
        wait_for_boxes(VECTORS); /* no thread reads the other stage any more */
        if (index + step < p.n_tiles) load(index + step, 1 - stage);
        int n = now.n + own.image;
        if (own.exists && n < p.n) {
            float2 sum[ROWS][W::COLUMNS];
#pragma unroll
            for (int u = 0; u < ROWS; u++)
#pragma unroll
                for (int t = 0; t < W::COLUMNS; t++) sum[u][t] = start;
            compute<T, K, MODE>(tiles + stage * p.tile_elems + from, row_elems,
                                weights + 2 * own.lane, sum);
            int i0 = down.out_base + now.tile[0] * down.out_step + own.row * ROWS;
            int j0 = across.out_base + now.tile[1] * across.out_step + own.column * W::COLUMNS;
#pragma unroll
            for (int u = 0; u < ROWS; u++) {
                int i = i0 + u;
                if (i < 0 || i >= down.out) continue;
                T *row = out + (int64_t)((n * down.out + i) * across.out) * p.c + c;
#pragma unroll
                for (int t = 0; t < W::COLUMNS; t++) {
                    int j = j0 + t;
                    if (j < 0 || j >= across.out) continue;
                    store_pair(row + (int64_t)j * p.c, c, p.c,
                               relu ? relu_of(sum[u][t]) : sum[u][t]);
                }
            }
        }
    }
}

/* ---- any window, stride and dilation: a thread has two channels of one result ---- */

template <class T, bool GRAD_X>
__global__ void __launch_bounds__(256)
    plain_kernel(tti_cuda_conv v, const T *source, const T *w, const T *bias, bool relu, T *out) {
    int n_h = (int)(GRAD_X ? v.h : v.p), n_w = (int)(GRAD_X ? v.w : v.q), n_c = (int)v.c;
    int in_h = (int)(GRAD_X ? v.p : v.h), in_w = (int)(GRAD_X ? v.q : v.w);
    int n_pairs = (n_c + 1) / 2, n_r = (int)v.r, n_s = (int)v.s, area = n_r * n_s;
    int64_t total = v.n * n_h * n_w * n_pairs, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t flat = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; flat < total;
         flat += step) {
        int c = (int)(flat % n_pairs) * 2;
        int64_t at = flat / n_pairs, row = at / n_w;
        int j = (int)(at % n_w), i = (int)(row % n_h), n = (int)(row / n_h);
        bool both = c + 1 < n_c;
        float2 sum = make_float2(0.0f, 0.0f);
        if (bias) sum.x = tti_to_f32(bias[c]), sum.y = both ? tti_to_f32(bias[c + 1]) : 0.0f;
        for (int r = 0; r < n_r; r++) {
            int64_t h = GRAD_X ? i + v.pad[0] - r * v.dilation[0]
                               : i * v.stride[0] - v.pad[0] + r * v.dilation[0];
            if (GRAD_X && (h < 0 || h % v.stride[0])) continue;
            if (GRAD_X) h /= v.stride[0];
            if (h < 0 || h >= in_h) continue;
            for (int s = 0; s < n_s; s++) {
                int64_t k = GRAD_X ? j + v.pad[1] - s * v.dilation[1]
                                   : j * v.stride[1] - v.pad[1] + s * v.dilation[1];
                if (GRAD_X && (k < 0 || k % v.stride[1])) continue;
                if (GRAD_X) k /= v.stride[1];
                if (k < 0 || k >= in_w) continue;
                const T *x = source + (((int64_t)n * in_h + h) * in_w + k) * n_c + c;
                const T *by = w + (int64_t)c * area + r * n_s + s;
                sum.x = fmaf(tti_to_f32(x[0]), tti_to_f32(by[0]), sum.x);
                if (both) sum.y = fmaf(tti_to_f32(x[1]), tti_to_f32(by[area]), sum.y);
            }
        }
        store_pair(out + at * n_c + c, c, n_c, relu ? relu_of(sum) : sum);
    }
}

/* ---- launching ---- */

template <class T, int K, tti_depthwise_mode MODE>
cudaError_t run_tiled(const tti_depthwise_plan &p, const T *source, const T *w, const T *bias,
                      bool relu, T *out, cudaStream_t stream) {
    auto *kernel =
        has_vectors<T>(p.c) ? tiled_kernel<T, K, MODE, true> : tiled_kernel<T, K, MODE, false>;
    cudaError_t error = tti_make_room((const void *)kernel, (size_t)p.n_shared);
    if (error != cudaSuccess) return error;
    dim3 grid((unsigned)p.n_groups, (unsigned)p.n_blocks);
    kernel<<<grid, (unsigned)p.n_threads, (size_t)p.n_shared, stream>>>(
        p, tti_make_divisor((uint32_t)p.axis[0].span), tti_make_divisor((uint32_t)p.axis[1].span),
        source, w, bias, relu, out);
    return cudaGetLastError();
}

template <class T, int K>
cudaError_t run_mode(const tti_depthwise_plan &p, const T *source, const T *w, const T *bias,
                     bool relu, T *out, cudaStream_t stream) {
    if (p.mode == TTI_DEPTHWISE_ONE)
        return run_tiled<T, K, TTI_DEPTHWISE_ONE>(p, source, w, bias, relu, out, stream);
    if (p.mode == TTI_DEPTHWISE_TWO)
        return run_tiled<T, K, TTI_DEPTHWISE_TWO>(p, source, w, bias, relu, out, stream);
    return run_tiled<T, K, TTI_DEPTHWISE_TRANSPOSED>(p, source, w, bias, relu, out, stream);
}

template <class T, bool GRAD_X>
cudaError_t run(const tti_cuda_conv &v, const tti_depthwise_plan &p, const void *source,
                const void *w, const void *bias, bool relu, void *out, cudaStream_t stream) {
    int64_t n = v.n * (GRAD_X ? v.h * v.w : v.p * v.q) * ((v.c + 1) / 2), most = 1 << 20;
    if (n == 0) return cudaSuccess;
    if (p.is_tiled) {
        TTI_DEPTHWISE_KERNEL(
            p.kernel, return (run_mode<T, K>(p, (const T *)source, (const T *)w, (const T *)bias,
                                             relu, (T *)out, stream)))
    }
    int64_t blocks = (n + 255) / 256;
    plain_kernel<T, GRAD_X><<<(unsigned)(blocks < most ? blocks : most), 256, 0, stream>>>(
        v, (const T *)source, (const T *)w, (const T *)bias, relu, (T *)out);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t tti_depthwise_forward(tutti_dtype dtype, const tti_cuda_conv *conv,
                                             const tti_depthwise_plan *plan, const void *x,
                                             const void *w, const void *bias, bool relu, void *y,
                                             cudaStream_t stream) {
    TTI_FLOAT_DISPATCH_NO_F64(dtype,
                              return (run<T, false>(*conv, *plan, x, w, bias, relu, y, stream)))
}

extern "C" cudaError_t tti_depthwise_grad_x(tutti_dtype dtype, const tti_cuda_conv *conv,
                                            const tti_depthwise_plan *plan, const void *dy,
                                            const void *w, void *dx, cudaStream_t stream) {
    TTI_FLOAT_DISPATCH_NO_F64(
        dtype, return (run<T, true>(*conv, *plan, dy, w, nullptr, false, dx, stream)))
}
