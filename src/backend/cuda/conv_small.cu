/* conv_small.cu - 3x3 convolutions whose planes fit into shared memory, one launch each.
 *
 * On tensor cores a tile of 16 pixels is two rows of eight, so that planes of any size cut into
 * few tiles, and a shift of the window is a shift of the address.  A block stages its rows with
 * their border and all weights once, rounded to tf32, and reads nothing else; strides in shared
 * memory are chosen so that the loads of a fragment meet 32 different banks.  Gradients of weights
 * leave a partial sum per block, which a second kernel adds in a fixed order. */
#include "backend/cuda/conv_small.h"
#include "backend/cuda/device.cuh"

namespace {

/* BATCH: loads of 16 bytes that a thread has in flight. */
enum { TAPS = 9, WIDE = 8, STRIP = 4, MAX_WARPS = 16, PATCH = STRIP + 2, BATCH = 6 };

/* Rows h of one image a block works on, and columns rounded up to tiles. */
struct tiling {
    int n, h, w;
    int rows;                      /* of a block, even */
    int n_groups;                  /* of rows in an image */
    int cols;                      /* w rounded up to WIDE */
    tti_divisor by_width, by_cols; /* of a patch, cols + 2; cols */
};

/* ---- tensor cores in tf32: m16n8k8, g = lane / 4, t = lane % 4 ----
 * a: (g, t), (g+8, t), (g, t+4), (g+8, t+4); b: (t, g), (t+4, g); c: (g, 2t), (g, 2t+1), (g+8, ..)
 */

__device__ __forceinline__ uint32_t to_tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint4 to_tf32(const float4 &v) {
    return make_uint4(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w));
}

/* Rows first-1 .. first+rows of an image with a border of one column, C channels each: into
 * patch[rows+2][cols+2] pixels STRIDE apart. */
template <int C, int STRIDE>
__device__ __forceinline__ void load_patch(const float *image, const tiling &k, int first,
                                           uint32_t *patch) {
    int width = k.cols + 2, n = (k.rows + 2) * width * (C / 4);
    for (int start = threadIdx.x; start < n; start += BATCH * blockDim.x) {
        float4 v[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            int i = start + j * blockDim.x, pixel = i / (C / 4), c = i % (C / 4) * 4;
            int row = (int)tti_quotient((uint32_t)pixel, k.by_width), col = pixel - row * width;
            int p = first + row - 1, q = col - 1;
            bool inside = i < n && p >= 0 && p < k.h && q >= 0 && q < k.w;
            v[j] = make_float4(0, 0, 0, 0);
            if (inside) v[j] = *reinterpret_cast<const float4 *>(image + (p * k.w + q) * C + c);
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            int i = start + j * blockDim.x, pixel = i / (C / 4), c = i % (C / 4) * 4;
            if (i < n) *reinterpret_cast<uint4 *>(patch + pixel * STRIDE + c) = to_tf32(v[j]);
        }
    }
}

/* Weights w[o,c,3,3] as they lie, but for one element between rows of o.  Channel j of a group of
 * four neighbours belongs to tile j of the product, at column g = channel / 4: then the banks of a
 * fragment, 4 g + t or 4 g + 9 t, are all different.  GRAD: the inner dimension k is o, n is c and
 * taps are turned round; else k is c and n is o. */
template <int K, int N, bool GRAD>
struct weights {
    enum {
        ROW = TAPS * (GRAD ? N : K),
        ELEMS = (ROW + 1) * (GRAD ? K : N),
        PER_K = GRAD ? ROW + 1 : TAPS, /* from k to k + 1 */
        PER_N = GRAD ? TAPS : ROW + 1
    };

    static __device__ __forceinline__ void load(const float *w, uint32_t *to) {
        enum { FEW = 14, ALL = TAPS * K * N }; /* FEW: loads in flight */
        for (int first = threadIdx.x; first < ALL; first += FEW * blockDim.x) {
            float v[FEW];
#pragma unroll
            for (int j = 0; j < FEW; j++) {
                int i = first + j * blockDim.x;
                v[j] = i < ALL ? w[i] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < FEW; j++) {
                int i = first + j * blockDim.x;
                if (i < ALL) to[i + i / ROW] = to_tf32(v[j]);
            }
        }
    }
};

/* Tiles of a block: two rows by WIDE columns. */
__device__ __forceinline__ int n_tiles(const tiling &k) { return k.rows / 2 * (k.cols / WIDE); }

__device__ __forceinline__ void place_tile(const tiling &k, int tile, int *row, int *col) {
    int across = k.cols / WIDE;
    *row = tile / across * 2;
    *col = tile % across * WIDE;
}

/* y[.., N] = act(x[.., K] * w + bias): M tiles by 32 channels of y for each warp and round. */
template <int K, int N, int M, bool GRAD>
__global__ void __launch_bounds__(MAX_WARPS * 32)
    cores_kernel(const float *x, const float *w, const float *bias, bool relu, float *y,
                 const __grid_constant__ tiling k) {
    enum { PIXEL = K + 4 };
    typedef weights<K, N, GRAD> wt;
    extern __shared__ uint32_t shared[];
    uint32_t *taps = shared, *patch = shared + (wt::ELEMS + 3) / 4 * 4;
    int image = blockIdx.x / k.n_groups, first = blockIdx.x % k.n_groups * k.rows;
    size_t plane = (size_t)k.h * k.w;
    load_patch<K, PIXEL>(x + image * plane * K, k, first, patch);
    wt::load(w, taps);
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
                    for (int j = 0; j < 4; j++) mma_tf32(acc[m][j], a, b[j]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            int q = col[m] + g;
            if (unit * M + m >= n_tiles(k) || q >= k.w) continue;
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

/* dy of the block's rows, zeros outside, and on top of sum the four channels of this thread. */
template <int O, int STRIDE>
__device__ __forceinline__ void load_dy(const float *image, const tiling &k, int first,
                                        uint32_t *to, float (&sum)[4]) {
    int n = k.rows * k.cols * (O / 4);
#pragma unroll 7
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int pixel = i / (O / 4), o = i % (O / 4) * 4;
        int row = (int)tti_quotient((uint32_t)pixel, k.by_cols), q = pixel - row * k.cols;
        int p = first + row;
        float4 v = make_float4(0, 0, 0, 0);
        if (p < k.h && q < k.w)
            v = *reinterpret_cast<const float4 *>(image + (p * k.w + q) * O + o);
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        *reinterpret_cast<uint4 *>(to + pixel * STRIDE + o) = to_tf32(v);
    }
}

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
            mma_tf32(acc[0][tap], a[0], b);
            mma_tf32(acc[1][tap], a[1], b);
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

template <int C, int O>
__global__ void __launch_bounds__(MAX_WARPS * 32)
    grad_w_kernel(const float *dy, const float *x, float *partials, int n_items,
                  const __grid_constant__ tiling k) {
    typedef grad_w_of<C, O> of;
    extern __shared__ uint32_t shared[];
    uint32_t *patch = shared, *rows = shared + (k.rows + 2) * (k.cols + 2) * of::X;
    int lane = threadIdx.x % 32, g = lane / 4, t4 = lane % 4, warp = threadIdx.x / 32;
    int slice = warp % of::SLICES, team = warp / of::SLICES;
    int o0 = team % (O / 32) * 32, c0 = team / (O / 32) * 8;
    float acc[2][TAPS][4] = {}, sum[4] = {};
    for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
        int image = item / k.n_groups, first = item % k.n_groups * k.rows;
        size_t at = (size_t)image * k.h * k.w;
        if (item != (int)blockIdx.x) __syncthreads();
        load_patch<C, of::X>(x + at * C, k, first, patch);
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
    add_bias<O>((float *)shared, sum, to + TAPS * O * C);
}

/* ---- images of few channels, in f32 ----
 * A thread has four channels of y at STRIP pixels of a row; neighbours have the next channels, so
 * that what they read of x is the same. */

struct strips {
    int n, c, h, w, o;
    int across;  /* strips of a row */
    int n_items; /* strips of all images, times o / 4 */
    tti_divisor by_quads, by_across, by_h;
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

/* Three rows of PATCH pixels around a strip, zeros outside.  C: the channels, 0: k.c. */
template <int C>
__device__ __forceinline__ void load_strip(const strips &k, const strip_place &s, const float *x,
                                           int c, float (&v)[3][PATCH]) {
    int n_channels = C ? C : k.c;
    const float *middle = x + ((s.image * k.h + s.p) * k.w + s.q) * n_channels + c;
#pragma unroll
    for (int r = 0; r < 3; r++) {
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
    load_taps(k, w, taps);
    int item = blockIdx.x * 256 + threadIdx.x;
    if (item >= k.n_items) return;
    strip_place s = place_strip(k, item);
    float acc[STRIP][4] = {}, b[4] = {};
    for (int c = 0; c < (C ? C : k.c); c++) {
        float v[3][PATCH];
        load_strip<C>(k, s, x, c, v);
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

/* Threads of one quad of channels: what they hold is added over the lanes of a warp, then over the
 * warps; quads divides 32. */
__device__ __forceinline__ float add_quad(float value, int quads) {
    for (int d = quads; d < 32; d *= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

/* One channel c of x, blockIdx.y; o a power of two.  Sums of a block as in grad_w_of. */
template <int C>
__global__ void __launch_bounds__(256)
    image_grad_w_kernel(const float *dy, const float *x, float *partials,
                        const __grid_constant__ strips k) {
    __shared__ float shared[8][(TAPS + 1) * 64];
    int c = blockIdx.y, quads = k.o / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float acc[TAPS][4] = {}, sum[4] = {};
    int quad = (blockIdx.x * 256 + threadIdx.x) % quads; /* the same in every round */
    for (int item = blockIdx.x * 256 + threadIdx.x; item < k.n_items; item += gridDim.x * 256) {
        strip_place s = place_strip(k, item);
        float v[3][PATCH], d[STRIP][4] = {};
        size_t pixel = ((size_t)s.image * k.h + s.p) * k.w + s.q;
#pragma unroll
        for (int j = 0; j < STRIP; j++)
            if (s.q + j < k.w) tti_load<float, 4>(dy + (pixel + j) * k.o + s.quad * 4, d[j]);
        load_strip<C>(k, s, x, c, v);
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
    tiling k = {v->n, v->h, v->w, rows, (v->h + rows - 1) / rows, (v->w + WIDE - 1) / WIDE * WIDE,
                {},   {}};
    k.by_width = tti_make_divisor((uint32_t)k.cols + 2);
    k.by_cols = tti_make_divisor((uint32_t)k.cols);
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

template <int K, int N, bool GRAD>
cudaError_t launch_cores(const tti_small_conv *v, const float *x, const float *w, const float *bias,
                         bool relu, float *y, cudaStream_t stream) {
    enum { M = N == 64 ? 2 : 1 };
    auto kernel = cores_kernel<K, N, M, GRAD>;
    tiling k = fit(v, cores_bytes, K, N);
    size_t n_bytes = cores_bytes(&k, K, N);
    int n_items = (k.rows / 2 * (k.cols / WIDE) + M - 1) / M * (N / 32);
    int n_rounds = (n_items + MAX_WARPS - 1) / MAX_WARPS;
    int n_warps = (n_items + n_rounds - 1) / n_rounds;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
    if (error != cudaSuccess) return error;
    kernel<<<v->n * k.n_groups, (n_warps < 4 ? 4 : n_warps) * 32, n_bytes, stream>>>(x, w, bias,
                                                                                     relu, y, k);
    return cudaGetLastError();
}

template <int C, int O>
cudaError_t launch_grad_w(const tti_small_conv *v, const float *dy, const float *x, float *partials,
                          int n_parts, cudaStream_t stream) {
    auto kernel = grad_w_kernel<C, O>;
    tiling k = fit(v, grad_w_shared, C, O);
    size_t n_bytes = grad_w_shared(&k, C, O);
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
    if (error != cudaSuccess) return error;
    kernel<<<n_parts, MAX_WARPS * 32, n_bytes, stream>>>(dy, x, partials, v->n * k.n_groups, k);
    return cudaGetLastError();
}

strips strips_of(const tti_small_conv *v) {
    strips k = {v->n, v->c, v->h, v->w, v->o, (v->w + STRIP - 1) / STRIP, 0, {}, {}, {}};
    k.n_items = v->n * v->h * k.across * (v->o / 4);
    k.by_quads = tti_make_divisor((uint32_t)v->o / 4);
    k.by_across = tti_make_divisor((uint32_t)k.across);
    k.by_h = tti_make_divisor((uint32_t)v->h);
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
    if (n_blocks && k.c == 1)
        image_kernel<1><<<n_blocks, 256, 0, stream>>>(x, w, bias, relu, y, k);
    else if (n_blocks)
        image_kernel<0><<<n_blocks, 256, 0, stream>>>(x, w, bias, relu, y, k);
    return cudaGetLastError();
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
    FOR_SIDES(v->c, v->o, return launch_cores<A, B, false>(v, x, w, bias, relu, y, stream));
}

extern "C" cudaError_t tti_launch_small_conv_grad_x(const tti_small_conv *v, const float *dy,
                                                    const float *w, float *dx,
                                                    cudaStream_t stream) {
    FOR_SIDES(v->o, v->c, return launch_cores<A, B, true>(v, dy, w, NULL, false, dx, stream));
}

extern "C" size_t tti_small_conv_grad_w_bytes(const tti_small_conv *v) {
    return (size_t)grad_w_parts(v) * (size_t)((TAPS * v->c + 1) * v->o) * sizeof(float);
}

extern "C" cudaError_t tti_launch_small_conv_grad_w(const tti_small_conv *v, const float *dy,
                                                    const float *x, float *partials, float *dw,
                                                    float *db, cudaStream_t stream) {
    int n_parts = grad_w_parts(v), n = (TAPS * v->c + 1) * v->o;
    cudaError_t error = cudaSuccess;
    if (tti_small_conv_is_image(v)) {
        dim3 grid((unsigned)n_parts, (unsigned)v->c);
        if (v->c == 1)
            image_grad_w_kernel<1><<<grid, 256, 0, stream>>>(dy, x, partials, strips_of(v));
        else
            image_grad_w_kernel<0><<<grid, 256, 0, stream>>>(dy, x, partials, strips_of(v));
        error = cudaGetLastError();
    } else {
        FOR_SIDES(v->c, v->o, error = launch_grad_w<A, B>(v, dy, x, partials, n_parts, stream));
    }
    if (error != cudaSuccess) return error;
    add_partials_kernel<<<(n + SUM_COLS * 4 - 1) / (SUM_COLS * 4), 256, 0, stream>>>(
        partials, n_parts, v->o, v->c, dw, db);
    return cudaGetLastError();
}
