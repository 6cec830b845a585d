/* powersgd.cu - PowerSGD: sends P = M Q of a matrix, then Q = M^T P with P made orthonormal.
 *
 * The matrix is read three times and written three times, for any r up to 4: these kernels are
 * limited by memory, and a library's products of such shapes would read no less.  A block processes
 * a tile of the matrix; contributions of tiles of one row or column are added in the order of the
 * tiles, so that a step always has the same bits.  Each worker makes the summed P orthonormal: one
 * block per matrix, with sums in an order that does not depend on the device. */
#include "backend/cuda/comm/compress.cuh"
#include "backend/cuda/comm/powersgd.h"
#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/load.cuh"
#include "base/philox.h"

namespace {

enum { THREADS = TTI_POWERSGD_COLS, WARPS = THREADS / 32, WIDE = 1024, ADD_BLOCKS = 64 };

/* Columns of a lane: lane, lane + 32 and so on of a tile. */
enum { PER_LANE = TTI_POWERSGD_COLS / 32 };

/* The tile of a block. */
struct tile_at {
    const tti_powersgd_slot *slot;
    uint32_t row, col, n_rows, n_cols;
    uint64_t first; /* of its first element, in gradients and residuals */
};

__device__ __forceinline__ tile_at find_tile(const tti_powersgd_view &v) {
    tti_powersgd_tile t = v.tiles[blockIdx.x];
    const tti_powersgd_slot *s = &v.slots[t.slot];
    return {s,
            t.row,
            t.col,
            min(s->rows - t.row, (uint32_t)TTI_POWERSGD_ROWS),
            min(s->cols - t.col, (uint32_t)TTI_POWERSGD_COLS),
            s->grads + (uint64_t)t.row * s->cols + t.col};
}

/* K rows of p for the rows of a tile, 0 beyond r. */
template <int K>
__device__ __forceinline__ void load_left(const tti_powersgd_view &v, const tile_at &t, uint32_t k0,
                                          float (*p)[TTI_POWERSGD_ROWS]) {
    const tti_powersgd_slot *s = t.slot;
    for (uint32_t i = threadIdx.x; i < K * TTI_POWERSGD_ROWS; i += THREADS) {
        uint32_t k = i / TTI_POWERSGD_ROWS, row = i % TTI_POWERSGD_ROWS;
        bool is_there = k0 + k < s->r && row < t.n_rows;
        const float *from = v.message + s->left + (uint64_t)(k0 + k) * s->rows + t.row;
        p[k][row] = is_there ? from[row] : 0;
    }
}

/* ---- P = (M + R) Q ---- */

/* A direction that has become zero would stay zero: draws another one, the same on all workers. */
__global__ void __launch_bounds__(THREADS)
    powersgd_redraw_kernel(const __grid_constant__ tti_powersgd_view v) {
    __shared__ double shared[32];
    const tti_powersgd_slot *s = &v.slots[blockIdx.x];
    uint32_t k = blockIdx.y;
    if (k >= s->r) return;
    float *q = v.message + s->right + (uint64_t)k * s->cols;
    int found = 0;
    for (uint32_t i = threadIdx.x; i < s->cols; i += THREADS) found |= q[i] != 0;
    if (tti_block_sum((double)found, shared) != 0) return;
    uint64_t hi = v.args->step << 16 | k;
    for (uint32_t i = threadIdx.x; i < s->cols; i += THREADS)
        q[i] = 2 * tti_philox_unit(tti_philox_draw(s->key, hi, i).v[0]) - 1;
}

/* A warp has a row of the tile at a time; parts of P by tiles of columns. */
template <int K>
__global__ void __launch_bounds__(THREADS)
    powersgd_left_kernel(const __grid_constant__ tti_powersgd_view v) {
    tile_at t = find_tile(v);
    const tti_powersgd_slot *s = t.slot;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *m = v.grads + t.first, unit = tti_gradient_unit(*v.args);
    const float *e = v.residual + t.first;
    if (s->r == 0) { /* travels whole */
        if (threadIdx.x < t.n_cols) v.message[s->left + t.col + threadIdx.x] = m[threadIdx.x];
        return;
    }
    for (uint32_t k0 = 0; k0 < s->r; k0 += K) {
        float q[K][PER_LANE];
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int j = 0; j < PER_LANE; j++) {
                uint32_t c = lane + 32 * j;
                bool is_there = k0 + k < s->r && c < t.n_cols;
                uint64_t at = s->right + (uint64_t)(k0 + k) * s->cols + t.col + c;
                q[k][j] = is_there ? v.message[at] : 0;
            }
        for (uint32_t row = warp; row < t.n_rows; row += WARPS) {
            uint64_t first = (uint64_t)row * s->cols;
            float x[PER_LANE], sum[K] = {0};
#pragma unroll
            for (int j = 0; j < PER_LANE; j++) {
                uint64_t at = first + lane + 32 * j;
                bool is_there = lane + 32 * j < t.n_cols;
                x[j] = is_there ? m[at] : 0;
                if (k0 > 0 || !is_there) continue;
                x[j] += e[at] * unit;
                m[at] = x[j];
            }
#pragma unroll
            for (int k = 0; k < K; k++) {
#pragma unroll
                for (int j = 0; j < PER_LANE; j++) sum[k] += x[j] * q[k][j];
                sum[k] = tti_warp_sum(sum[k]);
                uint64_t part = t.col / TTI_POWERSGD_COLS * s->r + k0 + k;
                if (lane == 0 && k0 + k < s->r)
                    v.scratch[s->scratch + part * s->rows + t.row + row] = sum[k];
            }
        }
    }
}

/* Adds parts of P, or of Q, one after the other; of Q also keeps the own part. */
template <bool LEFT>
__global__ void __launch_bounds__(THREADS)
    powersgd_add_kernel(const __grid_constant__ tti_powersgd_view v) {
    const tti_powersgd_slot *s = &v.slots[blockIdx.x];
    uint64_t n = (uint64_t)s->r * (LEFT ? s->rows : s->cols), to = LEFT ? s->left : s->right;
    uint32_t n_parts = LEFT ? (s->cols + TTI_POWERSGD_COLS - 1) / TTI_POWERSGD_COLS
                            : (s->rows + TTI_POWERSGD_ROWS - 1) / TTI_POWERSGD_ROWS;
    for (uint64_t i = blockIdx.y * THREADS + threadIdx.x; i < n; i += gridDim.y * THREADS) {
        float sum = 0;
#pragma unroll 8
        for (uint32_t part = 0; part < n_parts; part++) sum += v.scratch[s->scratch + part * n + i];
        v.message[to + i] = sum;
        if (!LEFT) v.own[to + i] = sum;
    }
}

/* ---- Q = M^T P ---- */

__device__ __forceinline__ double length_of(const float *x, uint32_t n, double *shared) {
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += WIDE) sum += (double)x[i] * (double)x[i];
    return sqrt(tti_block_sum(sum, shared));
}

/* Modified Gram-Schmidt, as exec/worker/compress_math.c's: one that depends on those before becomes
 * zeros.  A thread writes and reads the same elements throughout. */
__global__ void __launch_bounds__(WIDE)
    powersgd_orthonormal_kernel(const __grid_constant__ tti_powersgd_view v) {
    __shared__ double wide[32];
    __shared__ float narrow[32];
    const tti_powersgd_slot *s = &v.slots[blockIdx.x];
    const double least = 1e-5; /* the rest is rounding error, with a meaningless direction */
    for (uint32_t k = 0; k < s->r; k++) {
        float *x = v.message + s->left + (uint64_t)k * s->rows;
        double before = length_of(x, s->rows, wide);
        float scale = before > 0 ? (float)(1 / before) : 0;
        for (uint32_t i = threadIdx.x; i < s->rows; i += WIDE) x[i] *= scale;
        for (uint32_t l = 0; l < k; l++) {
            const float *other = v.message + s->left + (uint64_t)l * s->rows;
            float dot = 0;
            for (uint32_t i = threadIdx.x; i < s->rows; i += WIDE) dot += x[i] * other[i];
            dot = tti_block_sum(dot, narrow);
            for (uint32_t i = threadIdx.x; i < s->rows; i += WIDE) x[i] -= dot * other[i];
        }
        double rest = length_of(x, s->rows, wide);
        scale = rest > least ? (float)(1 / rest) : rest <= least ? 0 : NAN;
        for (uint32_t i = threadIdx.x; i < s->rows; i += WIDE)
            x[i] = scale > 0 ? x[i] * scale : scale;
    }
}

/* A thread has a column of the tile; parts of Q by tiles of rows. */
template <int K>
__global__ void __launch_bounds__(THREADS)
    powersgd_right_kernel(const __grid_constant__ tti_powersgd_view v) {
    __shared__ float p[K][TTI_POWERSGD_ROWS];
    tile_at t = find_tile(v);
    const tti_powersgd_slot *s = t.slot;
    const float *m = v.grads + t.first + threadIdx.x;
    for (uint32_t k0 = 0; k0 < s->r; k0 += K) {
        float sum[K] = {0};
        __syncthreads();
        load_left<K>(v, t, k0, p);
        __syncthreads();
        if (threadIdx.x >= t.n_cols) continue;
#pragma unroll 8
        for (uint32_t row = 0; row < t.n_rows; row++) {
            float x = m[(uint64_t)row * s->cols];
#pragma unroll
            for (int k = 0; k < K; k++) sum[k] += x * p[k][row];
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            uint64_t part = t.row / TTI_POWERSGD_ROWS * s->r + k0 + k;
            if (k0 + k < s->r)
                v.scratch[s->scratch + part * s->cols + t.col + threadIdx.x] = sum[k];
        }
    }
}

/* ---- R = M - P Q^T of the own Q, and the sum P Q^T ---- */

template <int K>
__global__ void __launch_bounds__(THREADS)
    powersgd_end_kernel(const __grid_constant__ tti_powersgd_view v) {
    __shared__ float p[K][TTI_POWERSGD_ROWS];
    tile_at t = find_tile(v);
    const tti_powersgd_slot *s = t.slot;
    float *m = v.grads + t.first + threadIdx.x, *e = v.residual + t.first + threadIdx.x;
    float inv = 1 / tti_gradient_unit(*v.args);
    if (s->r == 0) {
        if (threadIdx.x < t.n_cols) *m = v.message[s->left + t.col + threadIdx.x];
        return;
    }
    for (uint32_t k0 = 0; k0 < s->r; k0 += K) {
        bool is_first = k0 == 0, is_last = k0 + K >= s->r;
        float own[K], all[K];
        __syncthreads();
        load_left<K>(v, t, k0, p);
        __syncthreads();
        if (threadIdx.x >= t.n_cols) continue;
#pragma unroll
        for (int k = 0; k < K; k++) {
            uint64_t at = s->right + (uint64_t)(k0 + k) * s->cols + t.col + threadIdx.x;
            own[k] = k0 + k < s->r ? v.own[at] : 0;
            all[k] = k0 + k < s->r ? v.message[at] : 0;
        }
#pragma unroll 8
        for (uint32_t row = 0; row < t.n_rows; row++) {
            uint64_t at = (uint64_t)row * s->cols;
            float left = is_first ? m[at] : e[at], sum = is_first ? 0 : m[at];
#pragma unroll
            for (int k = 0; k < K; k++) {
                left -= p[k][row] * own[k];
                sum += p[k][row] * all[k];
            }
            e[at] = is_last ? left * inv : left;
            m[at] = sum;
        }
    }
}

/* ---- launchers ---- */

template <int K>
cudaError_t load_kernels() {
    return tti_load_kernels(powersgd_left_kernel<K>, powersgd_right_kernel<K>,
                            powersgd_end_kernel<K>);
}

}  // namespace

/* K: so many vectors of P and Q at a time. */
#define WITH_WIDTH(r, call)      \
    do {                         \
        if ((r) <= 1) {          \
            constexpr int K = 1; \
            call;                \
        } else if ((r) == 2) {   \
            constexpr int K = 2; \
            call;                \
        } else {                 \
            constexpr int K = 4; \
            call;                \
        }                        \
    } while (0)

extern "C" cudaError_t tti_launch_powersgd_load(int r) {
    cudaError_t error = tti_load_kernels(powersgd_redraw_kernel, powersgd_add_kernel<true>,
                                         powersgd_add_kernel<false>, powersgd_orthonormal_kernel);
    if (error == cudaSuccess) WITH_WIDTH(r, error = load_kernels<K>());
    return error;
}

extern "C" cudaError_t tti_launch_powersgd_left(const tti_powersgd_view *v, cudaStream_t stream) {
    dim3 directions((unsigned)v->n_slots, (unsigned)v->r), sums((unsigned)v->n_slots, ADD_BLOCKS);
    if (v->n_tiles == 0) return cudaSuccess;
    if (v->r > 0) powersgd_redraw_kernel<<<directions, THREADS, 0, stream>>>(*v);
    WITH_WIDTH(v->r, (powersgd_left_kernel<K><<<v->n_tiles, THREADS, 0, stream>>>(*v)));
    if (v->r > 0) powersgd_add_kernel<true><<<sums, THREADS, 0, stream>>>(*v);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_powersgd_right(const tti_powersgd_view *v, cudaStream_t stream) {
    dim3 sums((unsigned)v->n_slots, ADD_BLOCKS);
    if (v->n_tiles == 0 || v->r == 0) return cudaSuccess;
    powersgd_orthonormal_kernel<<<v->n_slots, WIDE, 0, stream>>>(*v);
    WITH_WIDTH(v->r, (powersgd_right_kernel<K><<<v->n_tiles, THREADS, 0, stream>>>(*v)));
    powersgd_add_kernel<false><<<sums, THREADS, 0, stream>>>(*v);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_powersgd_end(const tti_powersgd_view *v, cudaStream_t stream) {
    if (v->n_tiles == 0) return cudaSuccess;
    WITH_WIDTH(v->r, (powersgd_end_kernel<K><<<v->n_tiles, THREADS, 0, stream>>>(*v)));
    return cudaGetLastError();
}
