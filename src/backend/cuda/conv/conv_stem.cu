/* conv_stem.cu - the first convolution of a network for images, on tensor cores.
 *
 * With 4 adjacent channels (missing ones are zeros) and a stride of 2, the 8 columns of a window's
 * row are 64 contiguous bytes, and the next window begins 16 bytes later.  So rows of the image in
 * shared memory are the operand of a matrix product without conversion, with overlapping windows: K
 * is rows of the window times 8 columns times 4 channels, and nothing is copied out. forward   [112
 * positions, K] [K, 64]    a warp has 16 positions of each of two rows; weights   [64, positions]
 * [positions, K]   a warp has the K of one row of the window, and a block many positions; the
 * blocks' sums are added in order */
#include "backend/cuda/conv/conv_stem.h"
#include "backend/cuda/gemm/mma.cuh"

namespace {

enum {
    C4 = 4,     /* channels of a place in shared memory */
    S8 = 8,     /* columns of a window */
    K_ROW = 32, /* C4 S8 */
    O = 64,
    TILE_P = 2, /* rows of y */
    TILE_Q = 112,
    MAX_R = 8,
    WIDTH = 232,                       /* columns of x that a tile reads, and room */
    HEIGHT = 2 * (TILE_P - 1) + MAX_R, /* rows */
    WARPS = TILE_Q / 16,
    THREADS = 32 * WARPS,
    W_STRIDE = MAX_R * K_ROW + 8, /* of an output channel: 16 bytes off a multiple of 128 */
    O_STRIDE = O + 8,
    AT_ONCE = 5,
    BLOCKS = 264 /* 2 on each of 132 multiprocessors */
};

/* The parameters of the kernels; sizes as 32 bits. */
struct stem {
    int n, c, h, w, p, q, r, s, pad_h, pad_w;
    int tiles_p, tiles_q, n_tiles;
    bool x_last;
};

struct tile {
    int n, p, q;
};

__device__ __forceinline__ tile tile_of(const stem &v, int index) {
    tile t;
    t.q = index % v.tiles_q * TILE_Q, index /= v.tiles_q;
    t.p = index % v.tiles_p * TILE_P;
    t.n = index / v.tiles_p;
    return t;
}

/* The rows and columns of x that a tile sees, zeros outside: image [HEIGHT][WIDTH][C4].  AT_ONCE
 * places of a thread are on their way together. */
template <class T>
__device__ __forceinline__ void load_image(const stem &v, const tile &t, const T *x, T *image,
                                           int n_threads) {
    const T *from = x + (size_t)t.n * v.c * v.h * v.w;
    int n = (2 * (TILE_P - 1) + v.r) * WIDTH, top = 2 * t.p - v.pad_h, left = 2 * t.q - v.pad_w;
    int channel = v.x_last ? 1 : v.h * v.w, column = v.x_last ? v.c : 1;
    for (int first = threadIdx.x; first < n; first += AT_ONCE * n_threads) {
        tti_vec<T, C4> place[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int i = first + k * n_threads, h = top + i / WIDTH, w = left + i % WIDTH;
            bool inside = i < n && h >= 0 && h < v.h && w >= 0 && w < v.w;
            const T *at = from + (size_t)(h * v.w + w) * column;
#pragma unroll
            for (int c = 0; c < C4; c++)
                place[k].v[c] = inside && c < v.c ? at[c * channel] : tti_from_f32<T>(0.0f);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int i = first + k * n_threads;
            if (i < n) *reinterpret_cast<tti_vec<T, C4> *>(image + (size_t)i * C4) = place[k];
        }
    }
}

/* w[O,c,r,s] as [O][W_STRIDE]: row, column, channel of the window; zeros where there are none. */
template <class T>
__device__ __forceinline__ void load_weights(const stem &v, const T *w, T *weights) {
    for (int i = threadIdx.x; i < O * v.r * K_ROW; i += THREADS) {
        int o = i / (v.r * K_ROW), k = i % (v.r * K_ROW);
        int r = k / K_ROW, s = k % K_ROW / C4, c = k % C4;
        bool there = s < v.s && c < v.c;
        weights[o * W_STRIDE + k] =
            there ? w[((o * v.c + c) * v.r + r) * v.s + s] : tti_from_f32<T>(0.0f);
    }
}

/* ---- forward ---- */

template <class T>
struct forward_memory {
    T image[HEIGHT * WIDTH * C4];
    T weights[O * W_STRIDE];
    T stage[WARPS][16 * O_STRIDE];
};

/* acc [row of y][8 channels each] of this warp's 16 columns. */
template <class T>
__device__ __forceinline__ void multiply(const stem &v, const forward_memory<T> &m, int warp,
                                         int lane, float (&acc)[TILE_P][O / 8][4]) {
    const T *a_at = m.image + 2 * (warp * 16 + lane % 16) * C4 + lane / 16 * 8;
    const T *b_at = m.weights + (lane % 8 + lane / 16 * 8) * W_STRIDE + lane / 8 % 2 * 8;
    for (int step = 0; step < 2 * v.r; step++) { /* 16 of K: half a row of the window */
        uint32_t a[TILE_P][4], b[4];
        int row = step / 2, k = step * 16;
#pragma unroll
        for (int i = 0; i < TILE_P; i++)
            tti_ldmatrix(a[i], a_at + (2 * i + row) * WIDTH * C4 + step % 2 * 16);
#pragma unroll
        for (int j = 0; j < O / 16; j++) {
            tti_ldmatrix(b, b_at + j * 16 * W_STRIDE + k);
#pragma unroll
            for (int i = 0; i < TILE_P; i++) {
                tti_mma<T>(acc[i][2 * j], a[i], b[0], b[1]);
                tti_mma<T>(acc[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* One row of y of this warp, transposed in shared memory so that whole vectors are written. */
template <class T>
__device__ __forceinline__ void put_row(const stem &v, const float (&acc)[O / 8][4], const T *bias,
                                        bool relu, T *stage, T *y, int q, int lane) {
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < O / 8; j++) {
        int o = 8 * j + 2 * t;
        float b0 = bias ? tti_to_f32(bias[o]) : 0, b1 = bias ? tti_to_f32(bias[o + 1]) : 0;
        float x[4] = {acc[j][0] + b0, acc[j][1] + b1, acc[j][2] + b0, acc[j][3] + b1};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (relu && x[i] < 0) x[i] = 0;
        *reinterpret_cast<uint32_t *>(stage + g * O_STRIDE + o) = tti_pack(x[0], x[1], T());
        *reinterpret_cast<uint32_t *>(stage + (g + 8) * O_STRIDE + o) = tti_pack(x[2], x[3], T());
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * O / 8; i += 32) {
        int place = i / (O / 8), part = i % (O / 8) * 8;
        if (q + place < v.q)
            *reinterpret_cast<uint4 *>(y + (size_t)(q + place) * O + part) =
                *reinterpret_cast<const uint4 *>(stage + place * O_STRIDE + part);
    }
    __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(const __grid_constant__ stem v, const T *x, const T *w, const T *bias, bool relu,
                   T *y) {
    extern __shared__ uint4 memory[];
    forward_memory<T> &m = *reinterpret_cast<forward_memory<T> *>(memory);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load_weights(v, w, m.weights);
    for (int index = blockIdx.x; index < v.n_tiles; index += gridDim.x) {
        tile t = tile_of(v, index);
        float acc[TILE_P][O / 8][4] = {};
        __syncthreads();
        load_image(v, t, x, m.image, THREADS);
        __syncthreads();
        multiply(v, m, warp, lane, acc);
#pragma unroll
        for (int i = 0; i < TILE_P; i++) {
            if (t.p + i >= v.p) continue;
            T *row = y + ((size_t)t.n * v.p + t.p + i) * v.q * O;
            put_row(v, acc[i], bias, relu, m.stage[warp], row, t.q + warp * 16, lane);
        }
    }
}

/* ---- gradient of the weights ---- */

template <class T>
struct grad_memory {
    T image[HEIGHT * WIDTH * C4];
    T dy[TILE_P * TILE_Q * O_STRIDE]; /* [row][place][O] */
};

template <class T>
__device__ __forceinline__ void load_dy(const stem &v, const tile &t, const T *dy, T *to) {
    for (int i = threadIdx.x; i < TILE_P * TILE_Q * O / 8; i += blockDim.x) {
        int part = i % (O / 8) * 8, place = i / (O / 8), p = t.p + place / TILE_Q;
        int q = t.q + place % TILE_Q;
        bool inside = p < v.p && q < v.q;
        const T *from = inside ? dy + (((size_t)t.n * v.p + p) * v.q + q) * O + part : dy;
        tti_copy_async(to + place * O_STRIDE + part, from, inside);
    }
    tti_copy_commit();
}

/* partials [block][O][r K_ROW]; a warp for each row of the window. */
template <class T>
__global__ void __launch_bounds__(32 * MAX_R, 2)
    grad_kernel(const __grid_constant__ stem v, const T *dy, const T *x, float *partials) {
    extern __shared__ uint4 memory[];
    grad_memory<T> &m = *reinterpret_cast<grad_memory<T> *>(memory);
    int row = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T *a_at = m.dy + (lane % 8 + lane / 16 * 8) * O_STRIDE + lane / 8 % 2 * 8;
    const T *b_at =
        m.image + (row * WIDTH + 2 * (lane % 8 + lane / 8 % 2 * 8)) * C4 + lane / 16 * 8;
    float acc[O / 16][K_ROW / 8][4] = {};
    for (int index = blockIdx.x; index < v.n_tiles; index += gridDim.x) {
        tile t = tile_of(v, index);
        __syncthreads();
        load_dy(v, t, dy, m.dy);
        load_image(v, t, x, m.image, blockDim.x);
        tti_copy_wait();
        __syncthreads();
        for (int step = 0; step < TILE_P * TILE_Q / 16; step++) { /* 16 places */
            int i = step / (TILE_Q / 16), q = step % (TILE_Q / 16) * 16;
            uint32_t a[4], b[K_ROW / 16][4];
#pragma unroll
            for (int k = 0; k < K_ROW / 16; k++)
                tti_ldmatrix_transposed(b[k], b_at + (2 * i * WIDTH + 2 * q) * C4 + k * 16);
#pragma unroll
            for (int o = 0; o < O / 16; o++) {
                tti_ldmatrix_transposed(a, a_at + step * 16 * O_STRIDE + o * 16);
#pragma unroll
                for (int k = 0; k < K_ROW / 16; k++) {
                    tti_mma<T>(acc[o][2 * k], a, b[k][0], b[k][1]);
                    tti_mma<T>(acc[o][2 * k + 1], a, b[k][2], b[k][3]);
                }
            }
        }
    }
    int g = lane / 4, k0 = row * K_ROW + lane % 4 * 2, width = v.r * K_ROW;
    float *to = partials + (size_t)blockIdx.x * O * width;
#pragma unroll
    for (int o = 0; o < O / 16; o++)
#pragma unroll
        for (int k = 0; k < K_ROW / 8; k++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(to + (o * 16 + g + 8 * half) * width + k0 + k * 8) =
                    make_float2(acc[o][k][2 * half], acc[o][k][2 * half + 1]);
}

enum { RUNS = 8 };

/* dw[O,c,r,s] from n_blocks partials: RUNS runs of them, added in their order. */
template <class T>
__global__ void __launch_bounds__(32 * RUNS)
    add_kernel(const __grid_constant__ stem v, const float *partials, int n_blocks, T *dw) {
    __shared__ float runs[RUNS][32];
    int width = v.r * K_ROW, i = blockIdx.x * 32 + threadIdx.x; /* O width is a multiple of 32 */
    float sum = 0;
#pragma unroll 8
    for (int b = threadIdx.y; b < n_blocks; b += RUNS) sum += partials[(size_t)b * O * width + i];
    runs[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int k = 1; k < RUNS; k++) sum += runs[k][threadIdx.x];
    int o = i / width, r = i % width / K_ROW, s = i % K_ROW / C4, c = i % C4;
    if (s < v.s && c < v.c) dw[((o * v.c + c) * v.r + r) * v.s + s] = tti_from_f32<T>(sum);
}

/* ---- launches ---- */

stem stem_of(const tti_cuda_conv *conv) {
    stem v = {};
    v.n = (int)conv->n, v.c = (int)conv->c, v.h = (int)conv->h, v.w = (int)conv->w;
    v.p = (int)conv->p, v.q = (int)conv->q, v.r = (int)conv->r, v.s = (int)conv->s;
    v.pad_h = (int)conv->pad[0], v.pad_w = (int)conv->pad[1];
    v.tiles_p = (v.p + TILE_P - 1) / TILE_P, v.tiles_q = (v.q + TILE_Q - 1) / TILE_Q;
    v.n_tiles = v.n * v.tiles_p * v.tiles_q;
    v.x_last = conv->x_last;
    return v;
}

int blocks_of(const stem &v) { return v.n_tiles < BLOCKS ? v.n_tiles : BLOCKS; }

template <class T>
cudaError_t forward(const stem &v, const void *x, const void *w, const void *bias, bool relu,
                    void *y, cudaStream_t stream) {
    int bytes = (int)sizeof(forward_memory<T>);
    cudaError_t error =
        cudaFuncSetAttribute(forward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    forward_kernel<T><<<blocks_of(v), THREADS, bytes, stream>>>(v, (const T *)x, (const T *)w,
                                                                (const T *)bias, relu, (T *)y);
    return cudaGetLastError();
}

template <class T>
cudaError_t grad_w(const stem &v, const void *dy, const void *x, float *partials, void *dw,
                   cudaStream_t stream) {
    int bytes = (int)sizeof(grad_memory<T>), n_blocks = blocks_of(v);
    cudaError_t error =
        cudaFuncSetAttribute(grad_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    grad_kernel<T><<<n_blocks, 32 * v.r, bytes, stream>>>(v, (const T *)dy, (const T *)x, partials);
    add_kernel<T><<<O * v.r, dim3(32, RUNS), 0, stream>>>(v, partials, n_blocks, (T *)dw);
    return cudaGetLastError();
}

}  // namespace

extern "C" bool tti_cuda_stem_fits(tutti_dtype dtype, const tti_cuda_conv *v) {
    if ((dtype != TUTTI_BF16 && dtype != TUTTI_F16) || !v->y_last || v->groups != 1) return false;
    if (v->c < 1 || v->c > C4 || v->o != O || v->r > MAX_R || v->s > S8) return false;
    for (int d = 0; d < 2; d++)
        if (v->stride[d] != 2 || v->dilation[d] != 1 || v->pad[d] > 64) return false;
    double places = (double)v->n * (double)v->p * (double)v->q;
    double plane = (double)v->h * (double)v->w * C4;
    return plane < 1e9 && v->h < 1 << 20 && v->w < 1 << 20 && places > 0 && places < 1e9;
}

extern "C" cudaError_t tti_cuda_stem_forward(tutti_dtype dtype, const tti_cuda_conv *conv,
                                             const void *x, const void *w, const void *bias,
                                             bool relu, void *y, cudaStream_t stream) {
    stem v = stem_of(conv);
    return dtype == TUTTI_BF16 ? forward<tti_bf16>(v, x, w, bias, relu, y, stream)
                               : forward<tti_f16>(v, x, w, bias, relu, y, stream);
}

extern "C" size_t tti_cuda_stem_bytes(const tti_cuda_conv *conv) {
    stem v = stem_of(conv);
    return (size_t)blocks_of(v) * O * (size_t)v.r * K_ROW * sizeof(float);
}

extern "C" cudaError_t tti_cuda_stem_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv,
                                            const void *dy, const void *x, void *partials, void *dw,
                                            cudaStream_t stream) {
    stem v = stem_of(conv);
    return dtype == TUTTI_BF16 ? grad_w<tti_bf16>(v, dy, x, (float *)partials, dw, stream)
                               : grad_w<tti_f16>(v, dy, x, (float *)partials, dw, stream);
}
