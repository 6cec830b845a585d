/* attention_tiles.cuh - tiles of attention on tensor cores: 16-bit values, products of 16 rows a
 * warp.
 *
 * A tile in shared memory has 64 rows of DP elements, the head's width padded with zeros.  A warp
 * holds c[n][4] of 16 rows by 8 n columns as mma leaves it: rows g and g + 8, columns 2 t and 2 t +
 * 1 of each eight, with g = lane / 4 and t = lane % 4. */
#ifndef TTI_ATTENTION_TILES_CUH
#define TTI_ATTENTION_TILES_CUH

#include "backend/cuda/gemm/mma.cuh"

enum { TTI_TILE_THREADS = 128, TTI_TILE_ROWS = 64 };
#define TTI_LOG2E 1.4426950408889634f

/* A row of a tile in shared memory: DP elements and 16 bytes, so that 8 rows fall into all banks.
 */
template <int DP>
struct tti_tile {
    static const int STEP = DP + 8;
};

/* tile[n_rows][DP] = rows first .. of a matrix, zeros beyond end and beyond dim. */
template <class T, int DP>
__device__ __forceinline__ void tti_fetch_tile(T *to, const T *from, int64_t step, int first,
                                               int end, int n_rows, int dim) {
    for (int i = threadIdx.x; i < n_rows * (DP / 8); i += TTI_TILE_THREADS) {
        int row = i / (DP / 8), d = i % (DP / 8) * 8;
        bool inside = first + row < end && d < dim;
        const T *at = inside ? from + (first + row) * step + d : from;
        tti_copy_async(to + row * tti_tile<DP>::STEP + d, at, inside);
    }
}

/* c[16][8 N] = the warp's 16 rows of own times N * 8 rows of other, over DP. */
template <class T, int DP, int N>
__device__ __forceinline__ void tti_row_products(const T *own, const T *other, float (&c)[N][4]) {
    const int STEP = tti_tile<DP>::STEP;
    int lane = threadIdx.x % 32;
    const T *pa = own + (lane % 16) * STEP + lane / 16 * 8;
    const T *pb = other + (lane / 16 * 8 + lane % 8) * STEP + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int d = 0; d < DP; d += 16) {
        uint32_t a[4], b[4];
        tti_ldmatrix(a, pa + d);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            tti_ldmatrix(b, pb + n * 8 * STEP + d);
            tti_mma<T>(c[n], a, b[0], b[1]);
            tti_mma<T>(c[n + 1], a, b[2], b[3]);
        }
    }
}

/* out[16][DP] += p[16][8 N] times values[8 N][DP]. */
template <class T, int DP, int N>
__device__ __forceinline__ void tti_add_products(const float (&p)[N][4], const T *values,
                                                 float (&out)[DP / 8][4]) {
    const int STEP = tti_tile<DP>::STEP;
    int lane = threadIdx.x % 32;
    const T *pv = values + (lane % 16) * STEP + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t a[4] = {tti_pack(p[n][0], p[n][1], T()), tti_pack(p[n][2], p[n][3], T()),
                         tti_pack(p[n + 1][0], p[n + 1][1], T()),
                         tti_pack(p[n + 1][2], p[n + 1][3], T())};
#pragma unroll
        for (int d = 0; d < DP / 8; d += 2) {
            uint32_t b[4];
            tti_ldmatrix_transposed(b, pv + n * 8 * STEP + d * 8);
            tti_mma<T>(out[d], a, b[0], b[1]);
            tti_mma<T>(out[d + 1], a, b[2], b[3]);
        }
    }
}

/* Rows row + g and row + g + 8 of out, times factor of each, to memory. */
template <class T, int DP>
__device__ __forceinline__ void tti_store_rows(const float (&out)[DP / 8][4],
                                               const float (&factor)[2], int row, int end, int dim,
                                               int64_t step, T *to) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = row + g + 8 * i;
        if (at >= end) continue;
#pragma unroll
        for (int d = 0; d < DP / 8; d++) {
            int column = d * 8 + 2 * t;
            if (column < dim)
                *reinterpret_cast<uint32_t *>(to + at * step + column) =
                    tti_pack(out[d][2 * i] * factor[i], out[d][2 * i + 1] * factor[i], T());
        }
    }
}

/* Over the four threads that hold a row. */
__device__ __forceinline__ float tti_quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float tti_quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* The task of a block: task -> tile, head, sample. */
struct tti_tile_task {
    int tile, h;
    int64_t b;
};

__device__ __forceinline__ tti_tile_task tti_tile_task_of(int64_t at, int n_tiles, int n_heads) {
    tti_tile_task t;
    t.tile = (int)(at % n_tiles), at /= n_tiles;
    t.h = (int)(at % n_heads), t.b = at / n_heads;
    return t;
}

/* Rows of the other side in a step: with DP 128 the sums fill the registers. */
template <int DP>
struct tti_other_rows {
    static const int N = DP > 64 ? 32 : 64;
};

template <int N>
__device__ __forceinline__ void tti_clear_rows(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

/* Blocks for n tasks, of which each block makes every so many. */
static inline unsigned tti_tile_grid(int64_t n) { return (unsigned)(n < (1 << 30) ? n : 1 << 30); }

/* Shared memory beyond 48 KB must be asked for. */
template <class K>
static cudaError_t tti_allow_shared(K *kernel, int n_bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes);
}

#endif /* TTI_ATTENTION_TILES_CUH */
