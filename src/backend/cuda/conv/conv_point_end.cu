/* conv_point_end.cu - joins the sums of all tiles of a 1x1 convolution: a cluster for 32 channels,
 * in double, in an order that depends on the number of tiles alone. */
#include "backend/cuda/conv/conv_point.cuh"
#include "backend/cuda/norm/bn_scale.cuh"
#include "backend/cuda/runtime/cluster.cuh"

namespace {

enum { JOIN_COLS = 32, JOIN_ROWS = 32, JOIN_BLOCKS = 8 /* of a cluster */ };

struct point_end {
    const int32_t *rows;
    const float *partials, *stats;
    float *out, *of_x, *plain;
    double eps;
    int m, n, per_sample, n_parts;
};

/* Two sums in double over a thread's parts; moments are about the mean k of part 0, which is near:
 * sums of n d and M2 + n d^2 with d = mean - k. */
template <bool JOINS>
__device__ __forceinline__ double2 sum_parts(const point_end &end, int rank, int col, int n_real,
                                             double k) {
    double2 own = {0, 0};
#pragma unroll 8
    for (int p = rank * JOIN_ROWS + threadIdx.y; p < end.n_parts; p += JOIN_BLOCKS * JOIN_ROWS) {
        const float *from = end.partials + (int64_t)p * 2 * end.n + col;
        double first = (double)from[0], second = (double)from[end.n];
        if (JOINS) {
            own.x += first, own.y += second;
        } else {
            double n = clip(n_real, p * POINT_ROWS, POINT_ROWS), d = n > 0 ? first - k : 0;
            own.x += n * d, own.y += second + n * d * d;
        }
    }
    return own;
}

template <bool JOINS>
__device__ __forceinline__ void put_end(const point_end &end, int col, int n_real, double k,
                                        double2 all) {
    double count = n_real;
    if (col == 0) end.out[0] = (float)count;
    if (JOINS) {
        float m2 = end.stats[1 + end.n + col];
        float dot = (float)(all.y * rstd_of<double>(end.stats, m2, end.eps));
        end.out[1 + col] = end.plain[col] = (float)all.x;
        end.out[1 + end.n + col] = end.of_x[col] = dot;
    } else {
        double moved = count > 0 ? all.x / count : 0, m2 = all.y - all.x * moved;
        end.out[1 + col] = count > 0 ? (float)(k + moved) : 0;
        end.out[1 + end.n + col] = m2 < 0 ? 0 : (float)m2;
    }
}

/* A cluster for JOIN_COLS columns. */
template <bool JOINS>
__global__ void __launch_bounds__(JOIN_COLS *JOIN_ROWS) point_end_kernel(point_end end) {
    __shared__ double2 runs[JOIN_ROWS][JOIN_COLS];
    int rank = blockIdx.x % JOIN_BLOCKS, col = blockIdx.x / JOIN_BLOCKS * JOIN_COLS + threadIdx.x;
    int n_real = real_rows(end.rows, end.m, end.per_sample);
    double k = JOINS ? 0 : (double)end.partials[col];
    double2 *own = &runs[threadIdx.y][threadIdx.x];
    *own = sum_parts<JOINS>(end, rank, col, n_real, k);
    for (int d = JOIN_ROWS / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.y >= d) continue;
        double2 other = runs[threadIdx.y + d][threadIdx.x];
        own->x += other.x, own->y += other.y;
    }
    tti_sync_cluster();
    if (rank == 0 && threadIdx.y == 0) {
        double2 all = *own;
        for (int i = 1; i < JOIN_BLOCKS; i++) {
            double2 other = tti_load_remote(own, i);
            all.x += other.x, all.y += other.y;
        }
        put_end<JOINS>(end, col, n_real, k, all);
    }
    tti_sync_cluster(); /* no block exits while it is read */
}

template <bool JOINS>
cudaError_t finish(const tti_cuda_point_desc &g, cudaStream_t stream) {
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t config = {};
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = JOIN_BLOCKS, attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    config.attrs = &attr, config.numAttrs = 1;
    config.gridDim = dim3((unsigned)(g.n / JOIN_COLS) * JOIN_BLOCKS);
    config.blockDim = dim3(JOIN_COLS, JOIN_ROWS), config.stream = stream;
    point_end end = {g.rows,
                     g.partials,
                     g.stats,
                     g.out,
                     g.of_x,
                     g.plain,
                     g.eps,
                     (int)g.m,
                     (int)g.n,
                     (int)g.per_sample,
                     (int)ceil_div(g.m, POINT_ROWS)};
    return cudaLaunchKernelEx(&config, point_end_kernel<JOINS>, end);
}

}  // namespace

extern "C" size_t tti_cuda_point_bytes(int64_t m, int64_t n) {
    return (size_t)(2 * ceil_div(m, POINT_ROWS) * n) * sizeof(float);
}

extern "C" cudaError_t tti_cuda_point_end(const tti_cuda_point_desc *g, cudaStream_t stream) {
    return g->kind == TTI_POINT_STATS ? finish<false>(*g, stream) : finish<true>(*g, stream);
}
