/* tp_norm.cu - a norm between two collectives inside a step, between devices that access each
 * other's memory.
 *
 * A warp processes a row of the own part: it reads the row of all ranks' terms where the products
 * wrote them, adds them, the bias and the residual, and writes the norm's row to every rank's copy
 * of the whole.  So a link carries terms one way and norms the other at the same time, with two
 * barriers: first all ranks have their terms, and none reads the memory of the whole any more; then
 * all have read and written.  If the preceding product has sent the other's terms here while it ran
 * (wgmma.cu), only norms remain to be sent.  Every value is rounded where the separate steps round
 * it.
 *
 * A lane copies the inputs of the next row into shared memory while it works on this one, and,
 * before the first barrier, those inputs of its first row that belong to its own device. */
#include "backend/cuda/comm/tp.cuh"
#include "backend/cuda/norm/norm_row.cuh"
#include "backend/cuda/runtime/load.cuh"
#include "backend/cuda/runtime/shared_memory.h"

namespace {

enum { MOST_WARPS = 16 /* of a block; a multiprocessor has one block */ };

/* Vectors of a warp in shared memory: [N terms and the residual][NV][WARP]. */
template <int NV, int N>
struct slot_of {
    static constexpr int ROW = NV * WARP, SIZE = (N + 1) * ROW;
};

template <int NV>
__device__ __forceinline__ void copy_row(uint4 *to, const void *from, size_t row, place at) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        copy_vector(to + k * WARP, (const uint4 *)from + row * at.n, (int)at.lane + k * WARP,
                    has(at, k));
}

/* The position of a row of the own part among the parts of all. */
template <int N>
__device__ __forceinline__ size_t far_row(const tti_tp_norm &a, size_t row, int rank) {
    return (row / a.n_rows * N + rank) * a.n_rows + row % a.n_rows;
}

/* Memory that other devices may have written: valid after the barrier. */
template <int NV, int N>
__device__ __forceinline__ void copy_far(const tti_tp_norm &a, place at, size_t row, int rank,
                                         uint4 *slot) {
#pragma unroll
    for (int t = 0; t < N; t++)
        if (t != rank)
            copy_row<NV>(slot + t * slot_of<NV, N>::ROW, a.terms[t],
                         a.pushed ? row : far_row<N>(a, row, rank), at);
}

template <int NV, int N>
__device__ __forceinline__ void copy_near(const tti_tp_norm &a, place at, size_t row, int rank,
                                          uint4 *slot) {
    copy_row<NV>(slot + rank * slot_of<NV, N>::ROW, a.terms[rank], far_row<N>(a, row, rank), at);
    copy_row<NV>(slot + N * slot_of<NV, N>::ROW, a.x, row, at);
}

template <class T>
__device__ __forceinline__ float rounded(float x) {
    return tti_to_f32(tti_from_f32<T>(x));
}

/* The sum of a vector of the terms, in the order of ranks, which lie ROW vectors apart. */
template <class T, int N, int ROW>
__device__ __forceinline__ void add_terms(const uint4 *from, float (&s)[V]) {
    float p[N][V];
#pragma unroll
    for (int t = 0; t < N; t++) widen<T>(from[t * ROW], p[t]);
#pragma unroll
    for (int d = 1; d < N; d *= 2)
#pragma unroll
        for (int t = 0; t + d < N; t += 2 * d)
#pragma unroll
            for (int i = 0; i < V; i++) p[t][i] = p[t][i] + p[t + d][i];
#pragma unroll
    for (int i = 0; i < V; i++) s[i] = rounded<T>(p[0][i]);
}

template <class T>
__device__ __forceinline__ void add_bias(const void *bias, place at, int k, float (&s)[V]) {
    float b[V];
    if (!bias || !has(at, k)) return;
    widen<T>(((const uint4 *)bias)[at.lane + k * WARP], b);
#pragma unroll
    for (int i = 0; i < V; i++) s[i] = rounded<T>(s[i] + b[i]);
}

/* x of a row, which is also written, from the copied inputs; adds this lane's part to sum. */
template <class T, int NV, int N>
__device__ __forceinline__ void add_row(const tti_tp_norm &a, place at, size_t row,
                                        const uint4 *slot, float (&x)[NV][V], float &sum) {
    const int ROW = slot_of<NV, N>::ROW;
    sum = 0;
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float s[V];
        add_terms<T, N, ROW>(slot + k * WARP, s);
        add_bias<T>(a.bias, at, k, s);
        widen<T>(slot[N * ROW + k * WARP], x[k]);
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[k][i] += s[i];
            sum += x[k][i];
        }
        store<T>(a.sum, row, at, k, x[k]);
    }
}

template <class T, int NV, int N>
__device__ __forceinline__ void finish_row(const tti_tp_norm &a, place at, size_t row, int rank,
                                           float (&x)[NV][V], float sum) {
    size_t far = far_row<N>(a, row, rank);
    row_norm norm = {a.gamma, a.beta, a.eps, (float)a.width};
    normalise(norm, at, sum, x, [&](int k, const float(&y)[V]) {
#pragma unroll
        for (int r = 0; r < N; r++)
            if (r == rank || !a.kept) store<T>(a.whole[r], far, at, k, y);
    });
    if (at.lane == 0) a.mean[row] = norm.mean, a.rstd[row] = norm.rstd;
}

/* Shared memory: slot_of of each warp. */
template <class T, int NV, int N>
__global__ void __launch_bounds__(MOST_WARPS *WARP)
    tp_norm_kernel(const __grid_constant__ tti_peers_view v,
                   const __grid_constant__ tti_tp_norm a) {
    extern __shared__ uint4 memory[];
    uint64_t epoch = tti_tp_epoch(v);
    place at = {threadIdx.x % WARP, (unsigned)(a.width / V)};
    unsigned warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    size_t n = a.n_blocks * a.n_rows, step = (size_t)gridDim.x * n_warps;
    size_t row = (size_t)blockIdx.x * n_warps + warp;
    uint4 *slot = memory + warp * slot_of<NV, N>::SIZE + at.lane;
    if (row < n) copy_near<NV, N>(a, at, row, v.rank, slot);
    tti_tp_barrier(v, epoch + 1);
    if (row < n) copy_far<NV, N>(a, at, row, v.rank, slot);
    for (; row < n; row += step) {
        float x[NV][V], sum;
        asm volatile("cp.async.wait_all;" ::: "memory");
        add_row<T, NV, N>(a, at, row, slot, x, sum);
        if (row + step < n) {
            copy_near<NV, N>(a, at, row + step, v.rank, slot);
            copy_far<NV, N>(a, at, row + step, v.rank, slot);
        }
        finish_row<T, NV, N>(a, at, row, v.rank, x, sum);
    }
    if (!a.kept) tti_tp_barrier(v, epoch + 2);
    tti_tp_end(v, epoch);
}

/* ---- rows that copy engines move ---- */

/* One warp with few registers, so that it fits next to the products of wgmma.cu. */
__global__ void __launch_bounds__(WARP)
    tp_brought_kernel(const __grid_constant__ tti_peers_view v) {
    const tti_peers_arena *mine = v.arena[v.rank];
    uint64_t wanted = mine->tp_epochs[0], seen, start = tti_now_ns();
    for (uint32_t n = 1; threadIdx.x == 0; n++) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                     : "=l"(seen)
                     : "l"(&mine->rows_arrived)
                     : "memory");
        if (seen >= wanted) break;
        if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) break;
    }
}

/* ---- launching ---- */

/* Launches, or only loads it, which may wait for the device as a kernel that waits must not. */
struct norm_launch {
    const tti_peers_view *view;
    const tti_tp_norm *norm; /* NULL: load */
    cudaStream_t stream;
};

/* As many warps as fit.  All devices have the same number of blocks, which synchronize. */
template <class T, int NV, int N>
cudaError_t launch(const norm_launch &l) {
    auto kernel = tp_norm_kernel<T, NV, N>;
    if (!l.norm) return tti_load_kernel(kernel);
    size_t n = (l.norm->n_blocks * l.norm->n_rows + MOST_WARPS - 1) / MOST_WARPS;
    unsigned grid = (unsigned)(n < TTI_TP_BLOCKS ? n : TTI_TP_BLOCKS);
    size_t n_slot = slot_of<NV, N>::SIZE * sizeof(uint4), n_warps = most_shared() / n_slot;
    if (n_warps > MOST_WARPS) n_warps = MOST_WARPS;
    cudaError_t error = tti_allow_shared((const void *)kernel, n_warps * n_slot);
    if (error != cudaSuccess) return error;
    kernel<<<grid, (unsigned)n_warps * WARP, n_warps * n_slot, l.stream>>>(*l.view, *l.norm);
    return cudaGetLastError();
}

template <class T>
cudaError_t launch_width(const norm_launch &l, size_t width) {
    size_t n = (width + V * WARP - 1) / ((size_t)V * WARP);
    if (n <= 1) return launch<T, 1, TTI_NORM_RANKS>(l);
    if (n <= 3) return launch<T, 3, TTI_NORM_RANKS>(l);
    if (n <= 4) return launch<T, 4, TTI_NORM_RANKS>(l);
    return n <= 7 ? launch<T, 7, TTI_NORM_RANKS>(l) : launch<T, 8, TTI_NORM_RANKS>(l);
}

}  // namespace

extern "C" cudaError_t tti_launch_tp_norm(const tti_peers_view *view, const tti_tp_norm *norm,
                                          tutti_dtype dtype, cudaStream_t stream) {
    norm_launch l = {view, norm, stream};
    if (view->n_ranks != TTI_NORM_RANKS || view->terms.balanced != TTI_NORM_RANKS)
        return cudaErrorInvalidValue;
    if (dtype == TUTTI_BF16) return launch_width<tti_bf16>(l, norm->width);
    if (dtype == TUTTI_F16) return launch_width<tti_f16>(l, norm->width);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_tp_rows_arrived(const tti_peers_view *view, cudaStream_t stream) {
    tp_brought_kernel<<<1, WARP, 0, stream>>>(*view);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_tp_norm_load(void) {
    static const size_t widths[] = {256, 768, 1024, 1792, 2048};
    norm_launch l = {NULL, NULL, NULL};
    for (size_t width : widths) {
        cudaError_t error = launch_width<tti_bf16>(l, width);
        if (error == cudaSuccess) error = launch_width<tti_f16>(l, width);
        if (error != cudaSuccess) return error;
    }
    return tti_load_kernel(tp_brought_kernel);
}
