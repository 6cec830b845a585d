/* grouped.cu - products of rows with one of several matrices (experts), and the sums of their
 * gradients.
 *
 * First the rows are sorted by matrix: a block counts the rows of one, then a block writes its rows
 * in their order.  Then each block of a product has 64 rows of one matrix and 64 columns; each
 * block of a gradient has 64 x 64 elements of one matrix and adds the rows in their order.  Sums
 * are in f32 (f64 of f64), in one fixed order. */
#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, TILE = 64, STEP = 16, EACH = 4, MOST_BLOCKS = 0x7fffffff };

/* start[e + 1] = the number of rows of matrix e; start[0] = 0. */
__global__ void __launch_bounds__(THREADS)
    count_kernel(const int32_t *ids, size_t rows, int32_t *start) {
    __shared__ int shared[32];
    int n = 0;
    for (size_t r = threadIdx.x; r < rows; r += THREADS) n += ids[r] == (int32_t)blockIdx.x;
    int all;
    tti_block_sum_before(n, shared, &all);
    if (threadIdx.x == 0) start[blockIdx.x + 1] = all;
    if (threadIdx.x == 0 && blockIdx.x == 0) start[0] = 0;
}

/* Counts to places: start[e] = rows of the matrices before e. */
__global__ void start_kernel(int32_t *start, size_t matrices) {
    for (size_t e = 1; e <= matrices; e++) start[e] += start[e - 1];
}

__global__ void __launch_bounds__(THREADS)
    order_kernel(const int32_t *ids, size_t rows, const int32_t *start, int32_t *order) {
    __shared__ int shared[32];
    size_t at = (size_t)start[blockIdx.x];
    for (size_t first = 0; first < rows; first += THREADS) {
        size_t r = first + threadIdx.x;
        int own = r < rows && ids[r] == (int32_t)blockIdx.x, all;
        int before = tti_block_sum_before(own, shared, &all);
        if (own) order[at + (size_t)before] = (int32_t)r;
        at += (size_t)all;
    }
}

/* The matrix and the first row, in sorted order, of tile number `tile`; false: there are fewer. */
__device__ bool find_tile(const int32_t *start, size_t matrices, size_t tile, size_t *matrix,
                          size_t *row) {
    for (size_t e = 0; e < matrices; e++) {
        size_t n = ((size_t)(start[e + 1] - start[e]) + TILE - 1) / TILE;
        if (tile < n) {
            *matrix = e;
            *row = (size_t)start[e] + tile * TILE;
            return true;
        }
        tile -= n;
    }
    return false;
}

/* acc += a b of the tiles in shared memory. */
template <class A>
__device__ __forceinline__ void add_tiles(const A (&a)[STEP][TILE + 1],
                                          const A (&b)[STEP][TILE + 1], A (&acc)[EACH][EACH]) {
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < STEP; i++)
#pragma unroll
        for (int p = 0; p < EACH; p++)
#pragma unroll
            for (int q = 0; q < EACH; q++) acc[p][q] += a[i][ty + 16 * p] * b[i][tx + 16 * q];
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    product_kernel(const T *x, const T *w, T *y, tti_grouped g) {
    typedef typename tti_acc<T>::type A;
    __shared__ A a[STEP][TILE + 1], b[STEP][TILE + 1];
    __shared__ size_t place[2];
    __shared__ bool there;
    if (threadIdx.x == 0) there = find_tile(g.start, g.matrices, blockIdx.x, &place[0], &place[1]);
    __syncthreads();
    if (!there) return;
    size_t first = place[1], end = (size_t)g.start[place[0] + 1];
    size_t column = (size_t)blockIdx.y * TILE;
    w += place[0] * g.k * g.n;
    A acc[EACH][EACH] = {};
    for (size_t k0 = 0; k0 < g.k; k0 += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += THREADS) {
            size_t r = first + (size_t)(i / STEP), k = k0 + (size_t)(i % STEP);
            bool in = r < end && k < g.k;
            a[i % STEP][i / STEP] = in ? tti_to_acc(x[(size_t)g.order[r] * g.k + k]) : (A)0;
            int kk = g.trans_b ? i % STEP : i / TILE, j = g.trans_b ? i / STEP : i % TILE;
            size_t c = column + (size_t)j, kw = k0 + (size_t)kk;
            in = c < g.n && kw < g.k;
            b[kk][j] = in ? tti_to_acc(w[g.trans_b ? c * g.k + kw : kw * g.n + c]) : (A)0;
        }
        __syncthreads();
        add_tiles(a, b, acc);
        __syncthreads();
    }
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int p = 0; p < EACH; p++)
        for (int q = 0; q < EACH; q++) {
            size_t r = first + (size_t)(ty + 16 * p), c = column + (size_t)(tx + 16 * q);
            if (r < end && c < g.n) tti_from_acc(y + (size_t)g.order[r] * g.n + c, acc[p][q]);
        }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    grad_kernel(const T *dy, const T *x, T *dw, tti_grouped g) {
    typedef typename tti_acc<T>::type A;
    __shared__ A a[STEP][TILE + 1], b[STEP][TILE + 1];
    size_t k0 = (size_t)blockIdx.y * TILE, n0 = (size_t)blockIdx.z * TILE;
    size_t first = (size_t)g.start[blockIdx.x], end = (size_t)g.start[blockIdx.x + 1];
    A acc[EACH][EACH] = {};
    for (; first < end; first += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += THREADS) {
            size_t r = first + (size_t)(i / TILE), k = k0 + (size_t)(i % TILE);
            size_t n = n0 + (size_t)(i % TILE), row = r < end ? (size_t)g.order[r] : 0;
            a[i / TILE][i % TILE] = r < end && k < g.k ? tti_to_acc(x[row * g.k + k]) : (A)0;
            b[i / TILE][i % TILE] = r < end && n < g.n ? tti_to_acc(dy[row * g.n + n]) : (A)0;
        }
        __syncthreads();
        add_tiles(a, b, acc);
        __syncthreads();
    }
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    dw += (size_t)blockIdx.x * g.k * g.n;
    for (int p = 0; p < EACH; p++)
        for (int q = 0; q < EACH; q++) {
            size_t k = k0 + (size_t)(ty + 16 * p), n = n0 + (size_t)(tx + 16 * q);
            if (k < g.k && n < g.n)
                tti_from_acc(dw + (g.trans_b ? n * g.k + k : k * g.n + n), acc[p][q]);
        }
}

size_t tiles_of(size_t n) { return (n + TILE - 1) / TILE; }

cudaError_t sort_rows(const tti_grouped *g, const int32_t *ids, cudaStream_t stream) {
    if (g->matrices > MOST_BLOCKS || g->rows > MOST_BLOCKS) return cudaErrorInvalidValue;
    unsigned matrices = (unsigned)g->matrices;
    count_kernel<<<matrices, THREADS, 0, stream>>>(ids, g->rows, g->start);
    start_kernel<<<1, 1, 0, stream>>>(g->start, g->matrices);
    order_kernel<<<matrices, THREADS, 0, stream>>>(ids, g->rows, g->start, g->order);
    return cudaGetLastError();
}

size_t bytes_of(tutti_dtype dtype) { return dtype == TUTTI_F64 ? 8 : dtype == TUTTI_F32 ? 4 : 2; }

}  // namespace

extern "C" size_t tti_grouped_words(size_t rows, size_t matrices) { return rows + matrices + 1; }

extern "C" cudaError_t tti_launch_grouped_matmul(const tti_grouped *g, const void *x, const void *w,
                                                 const int32_t *ids, void *y, cudaStream_t stream) {
    if (g->rows == 0 || g->n == 0) return cudaSuccess;
    cudaError_t error = cudaMemsetAsync(y, 0, g->rows * g->n * bytes_of(g->dtype), stream);
    if (error != cudaSuccess || g->matrices == 0) return error;
    error = sort_rows(g, ids, stream);
    if (error != cudaSuccess) return error;
    if (tiles_of(g->n) > 65535) return cudaErrorInvalidValue;
    dim3 grid((unsigned)(tiles_of(g->rows) + g->matrices), (unsigned)tiles_of(g->n));
    TTI_FLOAT_DISPATCH(g->dtype, {
        product_kernel<<<grid, THREADS, 0, stream>>>((const T *)x, (const T *)w, (T *)y, *g);
    })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_grouped_grad(const tti_grouped *g, const void *dy, const void *x,
                                               const int32_t *ids, void *dw, cudaStream_t stream) {
    if (g->k == 0 || g->n == 0 || g->matrices == 0) return cudaSuccess;
    cudaError_t error = sort_rows(g, ids, stream);
    if (error != cudaSuccess) return error;
    if (tiles_of(g->n) > 65535 || tiles_of(g->k) > 65535) return cudaErrorInvalidValue;
    dim3 grid((unsigned)g->matrices, (unsigned)tiles_of(g->k), (unsigned)tiles_of(g->n));
    TTI_FLOAT_DISPATCH(g->dtype, {
        grad_kernel<<<grid, THREADS, 0, stream>>>((const T *)dy, (const T *)x, (T *)dw, *g);
    })
    return cudaGetLastError();
}
