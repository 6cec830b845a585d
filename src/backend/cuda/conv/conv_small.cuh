/* conv_small.cuh - shared memory operations of conv_small.cu's kernels: patches of pixels and
 * weights in tf32, and pooled gradients expanded over their windows as they are read. */
#ifndef TTI_CONV_SMALL_CUH
#define TTI_CONV_SMALL_CUH

#include "backend/cuda/conv/conv_small.h"
#include "backend/cuda/gemm/mma.cuh"

namespace {

/* BATCH: loads of 16 bytes that a thread has in flight. */
enum { TAPS = 9, WIDE = 8, STRIP = 4, MAX_WARPS = 16, PATCH = STRIP + 2, BATCH = 6 };

/* Rows h of one image a block works on, and columns rounded up to tiles. */
struct tiling {
    int n, h, w;
    int rows;                          /* of a block, even */
    int n_groups;                      /* of rows in an image */
    int cols;                          /* w rounded up to WIDE */
    tti_divisor by_width, by_cols;     /* of a patch, cols + 2; cols */
    tti_divisor by_windows, by_framed; /* cols / 2, cols / 2 + 2 */
    bool early;                        /* weights are parameters */
};

__device__ __forceinline__ uint4 to_tf32(const float4 &v) {
    return make_uint4(tti_to_tf32(v.x), tti_to_tf32(v.y), tti_to_tf32(v.z), tti_to_tf32(v.w));
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
            int at = inside ? (p * k.w + q) * C + c : 0; /* loads without branches */
            v[j] = *reinterpret_cast<const float4 *>(image + at);
            if (!inside) v[j] = make_float4(0, 0, 0, 0);
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
                v[j] = w[i < ALL ? i : 0]; /* loads without branches */
            }
#pragma unroll
            for (int j = 0; j < FEW; j++) {
                int i = first + j * blockDim.x;
                if (i < ALL) to[i + i / ROW] = tti_to_tf32(v[j]);
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

/* ---- with 2x2 pooling: y or dp, and the index of each element in its window ---- */

/* Strides in elements, for values and indices. */
struct pooled {
    float *values;
    uint8_t *where;
    int channel, pixel;
    size_t image;
};

enum { NOWHERE = 4 }; /* of no window */

struct quad_at {
    float v[4];
    uint8_t at[4];
};

/* Four channels at an offset. */
__device__ __forceinline__ quad_at load_quad(const pooled &s, size_t offset) {
    quad_at q;
    if (s.channel == 1) {
        tti_load<float, 4>(s.values + offset, q.v);
        tti_vec<uint8_t, 4> at = *reinterpret_cast<const tti_vec<uint8_t, 4> *>(s.where + offset);
#pragma unroll
        for (int i = 0; i < 4; i++) q.at[i] = at.v[i];
        return q;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        q.v[i] = s.values[offset + (size_t)i * s.channel];
        q.at[i] = s.where[offset + (size_t)i * s.channel];
    }
    return q;
}

__device__ __forceinline__ void store_quad(const pooled &s, size_t offset, const quad_at &q) {
    if (s.channel == 1) {
        tti_vec<uint8_t, 4> at;
#pragma unroll
        for (int i = 0; i < 4; i++) at.v[i] = q.at[i];
        tti_store<float, 4>(s.values + offset, q.v);
        *reinterpret_cast<tti_vec<uint8_t, 4> *>(s.where + offset) = at;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s.values[offset + (size_t)i * s.channel] = q.v[i];
        s.where[offset + (size_t)i * s.channel] = q.at[i];
    }
}

/* The maximum of a window in row-major order, what relu lets through of it, and where it was. */
__device__ __forceinline__ void pick(const float (&window)[4], float &y, uint8_t &where) {
    float best = window[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
        bool wins = (window[i] > best) | ((window[i] != window[i]) & (best == best));
        best = wins ? window[i] : best;
        at = wins ? i : at;
    }
    y = best < 0 ? 0.0f : best; /* NaN stays NaN */
    where = best <= 0 ? (uint8_t)NOWHERE : (uint8_t)at;
}

/* The windows of a block's rows, BORDER more on each side, expanded over to[..][..] pixels STRIDE
 * apart in tf32, with a border of as many pixels; zeros where a window has none.  Adds to sum the
 * values of the thread's four channels: 4 (i mod O / 4) .. with channels last, else 4 (warp mod O /
 * 4) .. */
template <int O, int STRIDE, int BORDER>
__device__ __forceinline__ void load_windows(const pooled &s, int image, const tiling &k, int first,
                                             uint32_t *to, float (&sum)[4]) {
    enum { QUADS = O / 4, AT_ONCE = 3 };
    int across = k.cols / 2 + 2 * BORDER, n_windows = (k.rows / 2 + 2 * BORDER) * across;
    int width = k.cols + 2 * BORDER, height = k.rows + 2 * BORDER;
    bool last = s.channel == 1;
    int n = QUADS * (last ? n_windows : (n_windows + 31) / 32 * 32);
    for (int start = threadIdx.x; start < n; start += AT_ONCE * blockDim.x) {
        quad_at q[AT_ONCE];
        int row[AT_ONCE], col[AT_ONCE], o[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = start + j * blockDim.x;
            int window = last ? i / QUADS : i / 32 / QUADS * 32 + i % 32;
            o[j] = (last ? i : i / 32) % QUADS * 4;
            row[j] = (int)tti_quotient((uint32_t)window, BORDER ? k.by_framed : k.by_windows);
            col[j] = window - row[j] * across;
            int p = first / 2 + row[j] - BORDER, c = col[j] - BORDER;
            bool inside =
                i < n && window < n_windows && p >= 0 && p < k.h / 2 && c >= 0 && c < k.w / 2;
            if (i >= n || window >= n_windows) row[j] = height; /* nothing to write */
#pragma unroll
            for (int e = 0; e < 4; e++) q[j].v[e] = 0, q[j].at[e] = NOWHERE;
            if (inside)
                q[j] = load_quad(s, image * s.image + (size_t)(p * (k.w / 2) + c) * s.pixel +
                                        (size_t)o[j] * s.channel);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) sum[e] += q[j].at[e] < NOWHERE ? q[j].v[e] : 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int r = 2 * row[j] + i / 2 - BORDER, c = 2 * col[j] + i % 2 - BORDER;
                if (r < 0 || r >= height || c < 0 || c >= width) continue;
                float v[4];
#pragma unroll
                for (int e = 0; e < 4; e++) v[e] = q[j].at[e] == i ? q[j].v[e] : 0.0f;
                *reinterpret_cast<uint4 *>(to + (r * width + c) * STRIDE + o[j]) =
                    to_tf32(make_float4(v[0], v[1], v[2], v[3]));
            }
        }
    }
}

}  // namespace

#endif /* TTI_CONV_SMALL_CUH */
