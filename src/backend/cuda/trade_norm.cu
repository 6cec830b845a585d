/* trade_norm.cu - a norm between two exchanges inside a step, between devices that read and write
 * each other's memory.
 *
 * A warp has a row of the own part: it reads the row of all ranks' terms where the products left
 * them, adds them, the bias and the residual, and writes the norm's row to where every rank wants
 * the whole.  So a link carries terms one way and norms the other at the same time, and there are
 * two meetings: all have their terms, and nobody reads the memory of the whole any more; all have
 * read and written.  Where the product in front has brought the other's terms here while it ran
 * (wgmma.cu), only norms are left to go.  Every value is rounded where the steps one by one round
 * it. */
#include "backend/cuda/norm_row.cuh"
#include "backend/cuda/trade.cuh"

namespace {

enum { THREADS = 512, WARPS = THREADS / WARP };

/* What other devices may have written. */
template <int NV>
__device__ __forceinline__ void load_far(const void *from, size_t row, place at, row_of<NV> &x) {
    const uint4 *p = (const uint4 *)from + row * at.n + at.lane;
#pragma unroll
    for (int k = 0; k < NV; k++)
        x.v[k] = has(at, k) ? __ldcg(p + k * WARP) : make_uint4(0, 0, 0, 0);
}

template <class T>
__device__ __forceinline__ float rounded(float x) {
    return tti_to_f32(tti_from_f32<T>(x));
}

/* Vector k of the sum of the terms, in the order of ranks. */
template <class T, int NV, int N>
__device__ __forceinline__ void add_terms(const row_of<NV> (&raw)[N], int k, float (&s)[V]) {
    float p[N][V];
#pragma unroll
    for (int t = 0; t < N; t++) widen<T>(raw[t].v[k], p[t]);
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

template <class T, int NV, int N>
__device__ __forceinline__ void one_row(const tti_trade_norm &a, place at, size_t row, int rank) {
    size_t far = (row / a.n_rows * N + rank) * a.n_rows + row % a.n_rows;
    row_of<NV> raw[N], residual;
    float x[NV][V], sum = 0;
#pragma unroll
    for (int t = 0; t < N; t++) load_far(a.terms[t], a.pushed && t != rank ? row : far, at, raw[t]);
    load(a.x, row, at, residual);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float s[V];
        add_terms<T>(raw, k, s);
        add_bias<T>(a.bias, at, k, s);
        widen<T>(residual.v[k], x[k]);
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[k][i] += s[i];
            sum += x[k][i];
        }
        store<T>(a.sum, row, at, k, x[k]);
    }
    row_norm norm = {a.gamma, a.beta, a.eps, (float)a.width};
    normalise(norm, at, sum, x, [&](int k, const float(&y)[V]) {
#pragma unroll
        for (int r = 0; r < N; r++)
            if (r == rank || !a.kept) store<T>(a.whole[r], far, at, k, y);
    });
    if (at.lane == 0) a.mean[row] = norm.mean, a.rstd[row] = norm.rstd;
}

template <class T, int NV, int N>
__global__ void __launch_bounds__(THREADS)
    trade_norm_kernel(const __grid_constant__ tti_peers_view v,
                      const __grid_constant__ tti_trade_norm a) {
    uint64_t epoch = tti_trade_epoch(v);
    place at = {threadIdx.x % WARP, (unsigned)(a.width / V)};
    size_t n = a.n_blocks * a.n_rows, step = (size_t)gridDim.x * WARPS;
    tti_trade_meet(v, epoch + 1);
    for (size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < n; row += step)
        one_row<T, NV, N>(a, at, row, v.rank);
    if (!a.kept) tti_trade_meet(v, epoch + 2);
    tti_trade_end(v, epoch);
}

/* ---- rows that are brought by copies ---- */

/* One warp, with so few registers that it finds room beside the products of wgmma.cu. */
__global__ void __launch_bounds__(WARP)
    trade_brought_kernel(const __grid_constant__ tti_peers_view v) {
    const tti_peers_arena *mine = v.arena[v.rank];
    uint64_t wanted = mine->trade_epochs[0], seen, start = tti_now_ns();
    for (uint32_t n = 1; threadIdx.x == 0; n++) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                     : "=l"(seen)
                     : "l"(&mine->brought)
                     : "memory");
        if (seen >= wanted) break;
        if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) break;
    }
}

/* ---- launching ---- */

/* Launches, or only loads it, which may wait for the device as a kernel that waits must not. */
struct norm_launch {
    const tti_peers_view *view;
    const tti_trade_norm *norm; /* NULL: load */
    cudaStream_t stream;
};

template <class T, int NV, int N>
cudaError_t launch(const norm_launch &l) {
    cudaFuncAttributes attributes;
    if (!l.norm) return cudaFuncGetAttributes(&attributes, trade_norm_kernel<T, NV, N>);
    size_t n = (l.norm->n_blocks * l.norm->n_rows + WARPS - 1) / WARPS;
    unsigned grid = (unsigned)(n < TTI_TRADE_BLOCKS ? n : TTI_TRADE_BLOCKS);
    trade_norm_kernel<T, NV, N><<<grid, THREADS, 0, l.stream>>>(*l.view, *l.norm);
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

extern "C" cudaError_t tti_launch_trade_norm(const tti_peers_view *view, const tti_trade_norm *norm,
                                             tutti_dtype dtype, cudaStream_t stream) {
    norm_launch l = {view, norm, stream};
    if (view->n_ranks != TTI_NORM_RANKS || view->terms.balanced != TTI_NORM_RANKS)
        return cudaErrorInvalidValue;
    if (dtype == TUTTI_BF16) return launch_width<tti_bf16>(l, norm->width);
    if (dtype == TUTTI_F16) return launch_width<tti_f16>(l, norm->width);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_trade_brought(const tti_peers_view *view, cudaStream_t stream) {
    trade_brought_kernel<<<1, WARP, 0, stream>>>(*view);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_trade_norm_load(void) {
    static const size_t widths[] = {256, 768, 1024, 1792, 2048};
    norm_launch l = {NULL, NULL, NULL};
    for (size_t width : widths) {
        cudaError_t error = launch_width<tti_bf16>(l, width);
        if (error == cudaSuccess) error = launch_width<tti_f16>(l, width);
        if (error != cudaSuccess) return error;
    }
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, trade_brought_kernel);
}
