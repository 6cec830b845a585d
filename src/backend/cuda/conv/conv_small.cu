/* conv_small.cu - 3x3 convolutions whose planes fit into shared memory, one launch each.
 *
 * On tensor cores a tile of 16 pixels is two rows of eight, so that planes of any size divide into
 * few tiles, and a shift of the window is a shift of the address.  A block loads its rows with
 * their border and all weights once, rounded to tf32, and reads nothing else; strides in shared
 * memory are chosen so that the loads of a fragment use 32 different banks.  Gradients of weights
 * write a partial sum per block, which a second kernel adds in a fixed order.  If a pooling
 * follows, a convolution writes only the pooled values, and its gradients read only these. */
#include "backend/cuda/conv/conv_small.cuh"
#include "backend/cuda/runtime/early.cuh"

namespace {

/* The maxima of the windows of a tile.  A lane has both rows of a column of eight channels, and its
 * neighbour the other column: each takes one out of two quads of channels. */
__device__ __forceinline__ quad_at pool_tile(const float (&acc)[4][4], const float *bias,
                                             bool odd) {
    quad_at quad;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float window[4], b = bias[odd ? 4 + j : j];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float even = acc[j][2 * half], next = acc[j][2 * half + 1];
            float own = odd ? next : even, other = odd ? even : next;
            other = __shfl_xor_sync(0xffffffffu, other, 4);
            window[2 * half] = (odd ? other : own) + b;
            window[2 * half + 1] = (odd ? own : other) + b;
        }
        pick(window, quad.v[j], quad.at[j]);
    }
    return quad;
}

/* y[.., N] = act(x[.., K] * w + bias): M tiles by 32 channels of y for each warp and round.  POOL:
 * x is after a pooling for a gradient, else y is, and relu and bias are there. */
template <int K, int N, int M, bool GRAD, bool POOL>
__global__ void __launch_bounds__(MAX_WARPS * 32)
    cores_kernel(const float *x, const float *w, const float *bias, bool relu, float *y,
                 const __grid_constant__ pooled s, const __grid_constant__ tiling k) {
    enum { PIXEL = K + 4 };
    typedef weights<K, N, GRAD> wt;
    extern __shared__ uint32_t shared[];
    uint32_t *taps = shared, *patch = shared + (wt::ELEMS + 3) / 4 * 4;
    int image = blockIdx.x / k.n_groups, first = blockIdx.x % k.n_groups * k.rows;
    size_t plane = (size_t)k.h * k.w;
    tti_let_next_start();
    if (k.early) wt::load(w, taps);
    tti_wait_for_before();
    if (!k.early) wt::load(w, taps);
    if (GRAD && POOL) {
        float unused[4] = {};
        load_windows<K, PIXEL, 1>(s, image, k, first, patch, unused);
    } else
        load_patch<K, PIXEL>(x + image * plane * K, k, first, patch);
    __syncthreads();
    int lane = threadIdx.x % 32, g = lane / 4, t4 = lane % 4, width = k.cols + 2;
    int n_units = (n_tiles(k) + M - 1) / M, n_items = n_units * (N / 32);
    for (int item = threadIdx.x / 32; item < n_items; item += blockDim.x / 32) {
        int unit = item % n_units, n0 = item / n_units * 32;
        int row[M], col[M];
        float acc[M][4][4] = {};
#pragma unroll
        for (int m = 0; m < M; m++)
            place_tile(k, min(unit * M + m, n_tiles(k) - 1), &row[m], &col[m]);
        for (int tap = 0; tap < TAPS; tap++) {
            int down = tap / 3, right = tap % 3;
            const uint32_t *b_at =
                taps + (GRAD ? TAPS - 1 - tap : tap) + t4 * wt::PER_K + (n0 + 4 * g) * wt::PER_N;
            const uint32_t *a_at[M];
#pragma unroll
            for (int m = 0; m < M; m++)
                a_at[m] = patch + ((row[m] + down) * width + col[m] + g + right) * PIXEL + t4;
#pragma unroll
            for (int c = 0; c < K; c += 8) {
                uint32_t b[4][2];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    b[j][0] = b_at[c * wt::PER_K + j * wt::PER_N];
                    b[j][1] = b_at[(c + 4) * wt::PER_K + j * wt::PER_N];
                }
#pragma unroll
                for (int m = 0; m < M; m++) {
                    const uint32_t *low = a_at[m] + c, *high = low + width * PIXEL;
                    uint32_t a[4] = {low[0], high[0], low[4], high[4]};
#pragma unroll
                    for (int j = 0; j < 4; j++) tti_mma_tf32(acc[m][j], a, b[j]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            int q = col[m] + g;
            if (unit * M + m >= n_tiles(k)) continue;
            if (!GRAD && POOL) {
                bool odd = g % 2;
                quad_at quad = pool_tile(acc[m], bias + n0 + 8 * t4, odd);
                int at = (first + row[m]) / 2 * (k.w / 2) + q / 2;
                if (q < k.w && first + row[m] < k.h)
                    store_quad(s,
                               image * s.image + (size_t)at * s.pixel +
                                   (size_t)(n0 + 8 * t4 + (odd ? 4 : 0)) * s.channel,
                               quad);
                continue;
            }
            if (q >= k.w) continue;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int p = first + row[m] + half;
                if (p >= k.h) continue;
                float *to = y + (image * plane + (size_t)p * k.w + q) * N + n0 + 8 * t4;
#pragma unroll
                for (int i = 0; i < 2; i++) { /* four neighbours, one out of each tile */
                    float v[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        v[j] = acc[m][j][2 * half + i];
                        if (bias) v[j] += bias[n0 + 8 * t4 + 4 * i + j];
                        if (relu) v[j] = v[j] < 0 ? 0.0f : v[j]; /* NaN stays NaN */
                    }
                    tti_store<float, 4>(to + 4 * i, v);
                }
            }
        }
    }
}

/* ---- gradients of weights on tensor cores ----
 * dw[o, c, tap] = sum over pixels of dy[pixel, o] x[pixel + tap, c]: eight pixels of a row are the
 * inner dimension.  A warp has 32 o and 8 c at all taps; what warps are left over takes every
 * SLICES-th group of pixels, and their sums are added through shared memory. */

template <int C, int O>
struct grad_w_of {
    enum {
        X = C + 8, /* strides of a pixel */
        DY = O + 8,
        SLICES = MAX_WARPS / ((O / 32) * (C / 8)),
        SUMS = TAPS * O * C + O /* of a block: [tap][o][c], then db[o] */
    };
};

template <int C, int O>
__device__ __forceinline__ void grad_w_rows(const tiling &k, const uint32_t *x_at,
                                            const uint32_t *dy_at, int slice,
                                            float (&acc)[2][TAPS][4]) {
    typedef grad_w_of<C, O> of;
    int across = k.cols / WIDE, width = k.cols + 2;
    for (int i = slice; i < k.rows * across; i += of::SLICES) {
        int row = i / across, col = i % across * WIDE;
        const uint32_t *d = dy_at + (row * k.cols + col) * of::DY;
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            a[m][0] = d[16 * m], a[m][1] = d[16 * m + 8];
            a[m][2] = d[4 * of::DY + 16 * m], a[m][3] = d[4 * of::DY + 16 * m + 8];
        }
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            const uint32_t *v = x_at + ((row + tap / 3) * width + col + tap % 3) * of::X;
            uint32_t b[2] = {v[0], v[4 * of::X]};
            tti_mma_tf32(acc[0][tap], a[0], b);
            tti_mma_tf32(acc[1][tap], a[1], b);
        }
    }
}

/* Sums of the slices, one after the other, into slice 0's. */
template <int SLICES>
__device__ __forceinline__ void add_slices(float *shared, int slice, int team, int lane,
                                           float (&acc)[2][TAPS][4]) {
    enum { PER_LANE = 2 * TAPS * 4 };
    for (int s = 1; s < SLICES; s++) {
        float *mine = shared + (size_t)team * PER_LANE * 32 + lane;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (slice == s) mine[i * 32] = acc[i / (TAPS * 4)][i / 4 % TAPS][i % 4];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (slice == 0) acc[i / (TAPS * 4)][i / 4 % TAPS][i % 4] += mine[i * 32];
    }
}

/* The sums of dy that threads of the same channels hold, in order of the threads. */
template <int O>
__device__ __forceinline__ void add_bias(float *shared, const float (&sum)[4], float *db) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) shared[threadIdx.x * 4 + i] = sum[i];
    __syncthreads();
    if (threadIdx.x >= O) return;
    float total = 0; /* thread i holds channels i % (O / 4) * 4 .. + 3 */
    for (int i = threadIdx.x; i < MAX_WARPS * 32 * 4; i += O) total += shared[i];
    db[threadIdx.x] = total;
}

/* As add_bias, for channels i % (O / 4) * 4 .. + 3 in warp i. */
template <int O>
__device__ __forceinline__ void add_bias_of_warps(float *shared, const float (&sum)[4], float *db) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float total = tti_warp_sum(sum[i]);
        if (lane == 0) shared[warp * 4 + i] = total;
    }
    __syncthreads();
    if (threadIdx.x >= O) return;
    float total = 0;
    for (int i = threadIdx.x; i < MAX_WARPS * 4; i += O) total += shared[i];
    db[threadIdx.x] = total;
}

template <int C, int O, bool POOL>
__global__ void __launch_bounds__(MAX_WARPS * 32)
    grad_w_kernel(const float *dy, const float *x, float *partials, int n_items,
                  const __grid_constant__ pooled s, const __grid_constant__ tiling k) {
    typedef grad_w_of<C, O> of;
    extern __shared__ uint32_t shared[];
    uint32_t *patch = shared, *rows = shared + (k.rows + 2) * (k.cols + 2) * of::X;
    int lane = threadIdx.x % 32, g = lane / 4, t4 = lane % 4, warp = threadIdx.x / 32;
    int slice = warp % of::SLICES, team = warp / of::SLICES;
    int o0 = team % (O / 32) * 32, c0 = team / (O / 32) * 8;
    float acc[2][TAPS][4] = {}, sum[4] = {};
    tti_let_next_start();
    tti_wait_for_before();
    for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
        int image = item / k.n_groups, first = item % k.n_groups * k.rows;
        size_t at = (size_t)image * k.h * k.w;
        if (item != (int)blockIdx.x) __syncthreads();
        load_patch<C, of::X>(x + at * C, k, first, patch);
        if (POOL)
            load_windows<O, of::DY, 0>(s, image, k, first, rows, sum);
        else
            load_dy<O, of::DY>(dy + at * O, k, first, rows, sum);
        __syncthreads();
        grad_w_rows<C, O>(k, patch + t4 * of::X + c0 + g, rows + t4 * of::DY + o0 + g, slice, acc);
    }
    float *to = partials + (size_t)blockIdx.x * of::SUMS;
    add_slices<of::SLICES>((float *)shared, slice, team, lane, acc);
#pragma unroll
    for (int i = 0; i < 2 * TAPS * 2; i++) {
        int m = i / (TAPS * 2), tap = i / 2 % TAPS, half = i % 2;
        float pair[2] = {acc[m][tap][2 * half], acc[m][tap][2 * half + 1]};
        int o = o0 + 16 * m + 8 * half + g;
        if (slice == 0) tti_store<float, 2>(to + (tap * O + o) * C + c0 + 2 * t4, pair);
    }
    if (POOL && s.channel != 1)
        add_bias_of_warps<O>((float *)shared, sum, to + TAPS * O * C);
    else
        add_bias<O>((float *)shared, sum, to + TAPS * O * C);
}

/* ---- images of few channels, in f32 ---- A thread has four channels of y at STRIP pixels of a
 * row; neighbours have the next channels, so that they read the same values of x. */

struct strips {
    int n, c, h, w, o;
    int across;  /* strips of a row */
    int n_items; /* strips of all images, times o / 4 */
    tti_divisor by_quads, by_across, by_h;
    bool early; /* weights are parameters */
};

struct strip_place {
    int quad; /* channels 4 quad .. 4 quad + 3 */
    int image, p, q;
};

__device__ __forceinline__ strip_place place_strip(const strips &k, int item) {
    strip_place s;
    uint32_t quad = (uint32_t)item;
    uint32_t q = tti_split_index(quad, k.by_quads), p = tti_split_index(q, k.by_across);
    s.image = (int)tti_split_index(p, k.by_h);
    s.quad = (int)quad, s.p = (int)p, s.q = (int)q * STRIP;
    return s;
}

/* ROWS rows of PATCH pixels from above a strip on, zeros outside.  C: the channels, 0: k.c. */
template <int C, int ROWS>
__device__ __forceinline__ void load_strip(const strips &k, const strip_place &s, const float *x,
                                           int c, float (&v)[ROWS][PATCH]) {
    int n_channels = C ? C : k.c;
    const float *middle = x + ((s.image * k.h + s.p) * k.w + s.q) * n_channels + c;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool row = s.p + r >= 1 && s.p + r <= k.h;
        const float *from = middle + (r - 1) * k.w * n_channels;
#pragma unroll
        for (int j = 0; j < PATCH; j++) {
            bool inside = row && s.q + j >= 1 && s.q + j <= k.w;
            v[r][j] = inside ? from[(j - 1) * n_channels] : 0.0f;
        }
    }
}

/* Weights w[o,c,3,3] as taps[c][t][o]. */
__device__ __forceinline__ void load_taps(const strips &k, const float *w, float *taps) {
    for (int i = threadIdx.x; i < k.o * k.c * TAPS; i += blockDim.x) {
        int rest = i / TAPS, o = rest / k.c;
        taps[((rest - o * k.c) * TAPS + i - rest * TAPS) * k.o + o] = w[i];
    }
    __syncthreads();
}

template <int C>
__global__ void __launch_bounds__(256)
    image_kernel(const float *x, const float *w, const float *bias, bool relu, float *y,
                 const __grid_constant__ strips k) {
    __shared__ alignas(16) float taps[4 * TAPS * 64];
    tti_let_next_start();
    if (k.early) load_taps(k, w, taps);
    tti_wait_for_before();
    if (!k.early) load_taps(k, w, taps);
    int item = blockIdx.x * 256 + threadIdx.x;
    if (item >= k.n_items) return;
    strip_place s = place_strip(k, item);
    float acc[STRIP][4] = {}, b[4] = {};
    for (int c = 0; c < (C ? C : k.c); c++) {
        float v[3][PATCH];
        load_strip<C, 3>(k, s, x, c, v);
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            float weight[4];
            tti_load<float, 4>(taps + (c * TAPS + t) * k.o + s.quad * 4, weight);
#pragma unroll
            for (int j = 0; j < STRIP; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) acc[j][i] += weight[i] * v[t / 3][j + t % 3];
        }
    }
    for (int i = 0; bias && i < 4; i++) b[i] = bias[s.quad * 4 + i];
#pragma unroll
    for (int j = 0; j < STRIP; j++) {
        if (s.q + j >= k.w) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            acc[j][i] += b[i];
            if (relu) acc[j][i] = acc[j][i] < 0 ? 0.0f : acc[j][i]; /* NaN stays NaN */
        }
        size_t pixel = ((size_t)s.image * k.h + s.p) * k.w + s.q + j;
        tti_store<float, 4>(y + pixel * k.o + s.quad * 4, acc[j]);
    }
}

/* As image_kernel, for two rows of a strip and their 2x2 pooling. */
template <int C>
__global__ void __launch_bounds__(256)
    image_pool_kernel(const float *x, const float *w, const float *bias,
                      const __grid_constant__ pooled y, const __grid_constant__ strips k) {
    __shared__ alignas(16) float taps[4 * TAPS * 64];
    tti_let_next_start();
    if (k.early) load_taps(k, w, taps);
    tti_wait_for_before();
    if (!k.early) load_taps(k, w, taps);
    int item = blockIdx.x * 256 + threadIdx.x;
    if (item >= k.n_items) return;
    strip_place s = place_strip(k, item);
    s.p *= 2;
    float acc[2][STRIP][4] = {}, b[4];
    tti_load<float, 4>(bias + s.quad * 4, b);
    for (int c = 0; c < (C ? C : k.c); c++) {
        float v[4][PATCH];
        load_strip<C, 4>(k, s, x, c, v);
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            float weight[4];
            tti_load<float, 4>(taps + (c * TAPS + t) * k.o + s.quad * 4, weight);
#pragma unroll
            for (int j = 0; j < 2 * STRIP; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[j / STRIP][j % STRIP][i] +=
                        weight[i] * v[j / STRIP + t / 3][j % STRIP + t % 3];
        }
    }
#pragma unroll
    for (int j = 0; j < STRIP; j += 2) {
        if (s.q + j >= k.w) break;
        quad_at quad;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float window[4] = {acc[0][j][i] + b[i], acc[0][j + 1][i] + b[i], acc[1][j][i] + b[i],
                               acc[1][j + 1][i] + b[i]};
            pick(window, quad.v[i], quad.at[i]);
        }
        int at = s.p / 2 * (k.w / 2) + (s.q + j) / 2;
        store_quad(y, s.image * y.image + (size_t)at * y.pixel + (size_t)s.quad * 4 * y.channel,
                   quad);
    }
}

/* dy of a strip, of four channels. */
template <bool POOL>
__device__ __forceinline__ void load_strip_dy(const strips &k, const strip_place &s,
                                              const float *dy, const pooled &from,
                                              float (&d)[STRIP][4]) {
    size_t pixel = ((size_t)s.image * k.h + s.p) * k.w + s.q;
#pragma unroll
    for (int j = 0; j < STRIP; j += POOL ? 2 : 1) {
        if (s.q + j >= k.w) break;
        if constexpr (!POOL) {
            tti_load<float, 4>(dy + (pixel + j) * k.o + s.quad * 4, d[j]);
        } else {
            int at = s.p / 2 * (k.w / 2) + (s.q + j) / 2;
            quad_at quad = load_quad(from, s.image * from.image + (size_t)at * from.pixel +
                                               (size_t)s.quad * 4 * from.channel);
#pragma unroll
            for (int i = 0; i < 8; i++)
                d[j + i / 4][i % 4] = quad.at[i % 4] == s.p % 2 * 2 + i / 4 ? quad.v[i % 4] : 0.0f;
        }
    }
}

/* Adds the values of threads with the same four channels over the lanes of a warp, then over the
 * warps; quads divides 32. */
__device__ __forceinline__ float add_quad(float value, int quads) {
    for (int d = quads; d < 32; d *= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

/* One channel c of x, blockIdx.y; o a power of two.  Sums of a block as in grad_w_of. */
template <int C, bool POOL>
__global__ void __launch_bounds__(256)
    image_grad_w_kernel(const float *dy, const float *x, float *partials,
                        const __grid_constant__ pooled from, const __grid_constant__ strips k) {
    __shared__ float shared[8][(TAPS + 1) * 64];
    int c = blockIdx.y, quads = k.o / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float acc[TAPS][4] = {}, sum[4] = {};
    int quad = (blockIdx.x * 256 + threadIdx.x) % quads; /* the same in every round */
    tti_let_next_start();
    tti_wait_for_before();
    for (int item = blockIdx.x * 256 + threadIdx.x; item < k.n_items; item += gridDim.x * 256) {
        strip_place s = place_strip(k, item);
        float v[3][PATCH], d[STRIP][4] = {};
        load_strip_dy<POOL>(k, s, dy, from, d);
        load_strip<C, 3>(k, s, x, c, v);
#pragma unroll
        for (int j = 0; j < STRIP; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i] += d[j][i];
#pragma unroll
                for (int t = 0; t < TAPS; t++) acc[t][i] += d[j][i] * v[t / 3][j + t % 3];
            }
    }
#pragma unroll
    for (int t = 0; t <= TAPS; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float total = add_quad(t < TAPS ? acc[t < TAPS ? t : 0][i] : sum[i], quads);
            if (lane < quads) shared[warp][t * k.o + quad * 4 + i] = total;
        }
    __syncthreads();
    float *to = partials + (size_t)blockIdx.x * ((TAPS * k.c + 1) * k.o);
    for (int i = threadIdx.x; i < (TAPS + 1) * k.o; i += 256) {
        float total = 0;
        for (int j = 0; j < 8; j++) total += shared[j][i];
        if (i < TAPS * k.o)
            to[i * k.c + c] = total;
        else if (c == 0)
            to[TAPS * k.o * k.c + i - TAPS * k.o] = total;
    }
}

/* ---- the sum of the blocks' partial sums ---- */

enum { SUM_COLS = 8 /* of four elements */, SUM_PARTS = 32 };

/* dw[o,c,tap] and db[o] from partials[n_parts][(9 c + 1) o]. */
__global__ void __launch_bounds__(256)
    add_partials_kernel(const float *partials, int n_parts, int o, int c, float *dw, float *db) {
    __shared__ float4 shared[8][SUM_COLS];
    int n = (TAPS * c + 1) * o, col = threadIdx.x % SUM_COLS, part = threadIdx.x / SUM_COLS;
    int at = (blockIdx.x * SUM_COLS + col) * 4;
    float4 s = make_float4(0, 0, 0, 0);
    tti_let_next_start();
    tti_wait_for_before();
#pragma unroll 9
    for (int i = part; at < n && i < n_parts; i += SUM_PARTS) {
        float4 v = *reinterpret_cast<const float4 *>(partials + (size_t)i * n + at);
        s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
    }
#pragma unroll
    for (int d = SUM_COLS; d < 32; d *= 2) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, d), s.y += __shfl_xor_sync(0xffffffffu, s.y, d);
        s.z += __shfl_xor_sync(0xffffffffu, s.z, d), s.w += __shfl_xor_sync(0xffffffffu, s.w, d);
    }
    if (threadIdx.x % 32 < SUM_COLS) shared[threadIdx.x / 32][col] = s;
    __syncthreads();
    int i = threadIdx.x, e = blockIdx.x * SUM_COLS * 4 + i;
    if (i >= SUM_COLS * 4 || e >= n) return;
    float total = 0;
    for (int j = 0; j < 8; j++) total += reinterpret_cast<const float *>(shared[j])[i];
    if (e < TAPS * c * o) {
        int tap = e / (c * o), rest = e - tap * (c * o);
        dw[rest * TAPS + tap] = total;
    } else
        db[e - TAPS * c * o] = total;
}

/* ---- launches ---- */

tiling tiling_of(const tti_small_conv *v, int rows) {
    tiling k = {v->n, v->h, v->w, rows, (v->h + rows - 1) / rows, (v->w + WIDE - 1) / WIDE * WIDE};
    k.by_width = tti_make_divisor((uint32_t)k.cols + 2);
    k.by_cols = tti_make_divisor((uint32_t)k.cols);
    k.by_windows = tti_make_divisor((uint32_t)k.cols / 2);
    k.by_framed = tti_make_divisor((uint32_t)k.cols / 2 + 2);
    return k;
}

size_t cores_bytes(const tiling *k, int from, int to) {
    size_t taps = (size_t)TAPS * from * to + (from > to ? from : to) + 3;
    return (taps + (size_t)(k->rows + 2) * (k->cols + 2) * (from + 4)) * sizeof(float);
}

size_t grad_w_shared(const tiling *k, int c, int o) {
    size_t staged =
        (size_t)(k->rows + 2) * (k->cols + 2) * (c + 8) + (size_t)k->rows * k->cols * (o + 8);
    size_t slices = (size_t)MAX_WARPS * 32 * 2 * TAPS * 4; /* the most that add_slices wants */
    if ((o / 32) * (c / 8) == MAX_WARPS) slices = 0;
    slices = slices / 2;
    size_t bias = MAX_WARPS * 32 * 4;
    size_t most = staged > slices ? staged : slices;
    return (most > bias ? most : bias) * sizeof(float);
}

typedef size_t (*bytes_fn)(const tiling *k, int from, int to);

/* As many rows as fit, while there are blocks for all multiprocessors; rows 0: none fit. */
tiling fit(const tti_small_conv *v, bytes_fn bytes, int from, int to) {
    int rows = (v->h + 1) / 2 * 2;
    tiling k = tiling_of(v, rows);
    while (rows > 2 &&
           (bytes(&k, from, to) > v->shared_optin || (long)v->n * k.n_groups * 2 <= v->n_sms)) {
        rows = (rows / 2 + 1) / 2 * 2;
        k = tiling_of(v, rows);
    }
    if (bytes(&k, from, to) > v->shared_optin) k.rows = 0;
    return k;
}

/* The pooling after y[n,o,h,w]; from NULL: none. */
pooled pooled_of(const tti_small_conv *v, const tti_small_pooled *from) {
    pooled s = {};
    if (!from) return s;
    int plane = v->h / 2 * (v->w / 2);
    s.values = from->values, s.where = from->where;
    s.channel = from->last ? 1 : plane;
    s.pixel = from->last ? v->o : 1;
    s.image = (size_t)plane * v->o;
    return s;
}

template <int K, int N, bool GRAD, bool POOL>
cudaError_t launch_cores(const tti_small_conv *v, const float *x, const float *w, const float *bias,
                         bool relu, float *y, const tti_small_pooled *from, cudaStream_t stream) {
    enum { M = N == 64 ? 2 : 1 };
    auto kernel = cores_kernel<K, N, M, GRAD, POOL>;
    tiling k = fit(v, cores_bytes, K, N);
    size_t n_bytes = cores_bytes(&k, K, N);
    int n_items = (k.rows / 2 * (k.cols / WIDE) + M - 1) / M * (N / 32);
    int n_rounds = (n_items + MAX_WARPS - 1) / MAX_WARPS;
    int n_warps = (n_items + n_rounds - 1) / n_rounds;
    cudaError_t error = tti_allow_shared((const void *)kernel, n_bytes);
    if (error != cudaSuccess) return error;
    k.early = v->w_is_param;
    return tti_launch_early(kernel, dim3((unsigned)(v->n * k.n_groups)),
                            (n_warps < 4 ? 4u : (unsigned)n_warps) * 32, n_bytes, 1, stream, x, w,
                            bias, relu, y, pooled_of(v, from), k);
}

template <int C, int O, bool POOL>
cudaError_t launch_grad_w(const tti_small_conv *v, const float *dy, const tti_small_pooled *dp,
                          const float *x, float *partials, int n_parts, cudaStream_t stream) {
    auto kernel = grad_w_kernel<C, O, POOL>;
    tiling k = fit(v, grad_w_shared, C, O);
    size_t n_bytes = grad_w_shared(&k, C, O);
    cudaError_t error = tti_allow_shared((const void *)kernel, n_bytes);
    if (error != cudaSuccess) return error;
    return tti_launch_early(kernel, dim3((unsigned)n_parts), MAX_WARPS * 32, n_bytes, 1, stream, dy,
                            x, partials, v->n * k.n_groups, pooled_of(v, dp), k);
}

strips strips_of(const tti_small_conv *v) {
    strips k = {v->n, v->c, v->h, v->w, v->o, (v->w + STRIP - 1) / STRIP, 0, {}, {}, {}, false};
    k.n_items = v->n * v->h * k.across * (v->o / 4);
    k.by_quads = tti_make_divisor((uint32_t)v->o / 4);
    k.by_across = tti_make_divisor((uint32_t)k.across);
    k.by_h = tti_make_divisor((uint32_t)v->h);
    k.early = v->w_is_param;
    return k;
}

/* Blocks that leave partial sums. */
int grad_w_parts(const tti_small_conv *v) {
    if (tti_small_conv_is_image(v)) {
        int n = (strips_of(v).n_items + 255) / 256;
        return n < 2 * v->n_sms ? n : 2 * v->n_sms;
    }
    tiling k = fit(v, grad_w_shared, v->c, v->o);
    int n = v->n * k.n_groups;
    return n < v->n_sms ? n : v->n_sms;
}

bool is_wide(int c) { return c == 32 || c == 64; }

}  // namespace

extern "C" bool tti_small_conv_is_image(const tti_small_conv *v) {
    return v->c >= 1 && v->c <= 4 &&
           (v->o == 4 || v->o == 8 || v->o == 16 || v->o == 32 || v->o == 64);
}

extern "C" bool tti_small_conv_fits_cores(const tti_small_conv *v) {
    if (!is_wide(v->c) || !is_wide(v->o)) return false;
    return fit(v, cores_bytes, v->c, v->o).rows && fit(v, cores_bytes, v->o, v->c).rows &&
           fit(v, grad_w_shared, v->c, v->o).rows;
}

extern "C" cudaError_t tti_launch_small_conv_image(const tti_small_conv *v, const float *x,
                                                   const float *w, const float *bias, bool relu,
                                                   float *y, cudaStream_t stream) {
    strips k = strips_of(v);
    unsigned n_blocks = (unsigned)(k.n_items + 255) / 256;
    if (n_blocks == 0) return cudaSuccess;
    return tti_launch_early(k.c == 1 ? image_kernel<1> : image_kernel<0>, dim3(n_blocks), 256, 0, 1,
                            stream, x, w, bias, relu, y, k);
}

extern "C" cudaError_t tti_launch_small_conv_image_pool(const tti_small_conv *v, const float *x,
                                                        const float *w, const float *bias,
                                                        const tti_small_pooled *y,
                                                        cudaStream_t stream) {
    strips k = strips_of(v);
    k.by_h = tti_make_divisor((uint32_t)v->h / 2);
    k.n_items /= 2;
    unsigned n_blocks = (unsigned)(k.n_items + 255) / 256;
    if (n_blocks == 0) return cudaSuccess;
    return tti_launch_early(k.c == 1 ? image_pool_kernel<1> : image_pool_kernel<0>, dim3(n_blocks),
                            256, 0, 1, stream, x, w, bias, pooled_of(v, y), k);
}

/* Runs the statement with A and B, 32 or 64 each, as constants. */
#define FOR_SIDES(a, b, ...)      \
    if ((a) == 32 && (b) == 32) { \
        enum { A = 32, B = 32 };  \
        __VA_ARGS__;              \
    } else if ((a) == 32) {       \
        enum { A = 32, B = 64 };  \
        __VA_ARGS__;              \
    } else if ((b) == 32) {       \
        enum { A = 64, B = 32 };  \
        __VA_ARGS__;              \
    } else {                      \
        enum { A = 64, B = 64 };  \
        __VA_ARGS__;              \
    }

extern "C" cudaError_t tti_launch_small_conv_cores(const tti_small_conv *v, const float *x,
                                                   const float *w, const float *bias, bool relu,
                                                   float *y, cudaStream_t stream) {
    FOR_SIDES(v->c, v->o,
              return launch_cores<A, B, false, false>(v, x, w, bias, relu, y, NULL, stream));
}

extern "C" cudaError_t tti_launch_small_conv_cores_pool(const tti_small_conv *v, const float *x,
                                                        const float *w, const float *bias,
                                                        const tti_small_pooled *y,
                                                        cudaStream_t stream) {
    FOR_SIDES(v->c, v->o,
              return launch_cores<A, B, false, true>(v, x, w, bias, true, NULL, y, stream));
}

extern "C" cudaError_t tti_launch_small_conv_grad_x(const tti_small_conv *v, const float *dy,
                                                    const tti_small_pooled *dp, const float *w,
                                                    float *dx, cudaStream_t stream) {
    if (dp)
        FOR_SIDES(v->o, v->c,
                  return launch_cores<A, B, true, true>(v, NULL, w, NULL, false, dx, dp, stream));
    FOR_SIDES(v->o, v->c,
              return launch_cores<A, B, true, false>(v, dy, w, NULL, false, dx, NULL, stream));
}

extern "C" size_t tti_small_conv_grad_w_bytes(const tti_small_conv *v) {
    return (size_t)grad_w_parts(v) * (size_t)((TAPS * v->c + 1) * v->o) * sizeof(float);
}

namespace {

template <bool POOL>
cudaError_t launch_image_grad_w(const tti_small_conv *v, const float *dy,
                                const tti_small_pooled *dp, const float *x, float *partials,
                                cudaStream_t stream) {
    dim3 grid((unsigned)grad_w_parts(v), (unsigned)v->c);
    auto kernel = v->c == 1 ? image_grad_w_kernel<1, POOL> : image_grad_w_kernel<0, POOL>;
    return tti_launch_early(kernel, grid, 256, 0, 1, stream, dy, x, partials, pooled_of(v, dp),
                            strips_of(v));
}

cudaError_t launch_parts(const tti_small_conv *v, const float *dy, const tti_small_pooled *dp,
                         const float *x, float *partials, int n_parts, cudaStream_t stream) {
    if (tti_small_conv_is_image(v))
        return dp ? launch_image_grad_w<true>(v, dy, dp, x, partials, stream)
                  : launch_image_grad_w<false>(v, dy, dp, x, partials, stream);
    if (dp)
        FOR_SIDES(v->c, v->o,
                  return launch_grad_w<A, B, true>(v, dy, dp, x, partials, n_parts, stream));
    FOR_SIDES(v->c, v->o,
              return launch_grad_w<A, B, false>(v, dy, dp, x, partials, n_parts, stream));
}

}  // namespace

extern "C" cudaError_t tti_launch_small_conv_grad_w(const tti_small_conv *v, const float *dy,
                                                    const tti_small_pooled *dp, const float *x,
                                                    float *partials, float *dw, float *db,
                                                    cudaStream_t stream) {
    int n_parts = grad_w_parts(v), n = (TAPS * v->c + 1) * v->o;
    cudaError_t error = launch_parts(v, dy, dp, x, partials, n_parts, stream);
    if (error != cudaSuccess) return error;
    return tti_launch_early(add_partials_kernel,
                            dim3((unsigned)((n + SUM_COLS * 4 - 1) / (SUM_COLS * 4))), 256, 0, 1,
                            stream, partials, n_parts, v->o, v->c, dw, db);
}
