/* head.cu - the passes of cross_entropy_head around its product, and rows times factors.
 *
 * If wgmma.cu computes the product it writes powers of e at once and partial results of rows; bases
 * before it and sums after it are passes over data that is small compared to the logits.  Otherwise
 * the product has written logits, and a block for each row converts them. */
#include "backend/cuda/gemm/wgmma.h"
#include "backend/cuda/loss/head.h"
#include "backend/cuda/loss/loss_rows.cuh"
#include "ops/loss/head.h"

namespace {

enum { THREADS = 256, WARP = 32, VECTOR = 8 };

__device__ __forceinline__ bool is_class(const tti_head_rows &h, int32_t label) {
    return label != h.ignore && label >= 0 && (size_t)label < h.n_classes;
}

/* ---- before the product: a warp for each row ---- */

__device__ __forceinline__ float product_of(const tti_bf16 *a, const tti_bf16 *b, size_t n,
                                            unsigned lane, bool whole_vectors) {
    float sum = 0;
    size_t i = 0;
    if (whole_vectors)
        for (i = lane * VECTOR; i < n; i += WARP * VECTOR) {
            float x[VECTOR], y[VECTOR];
            tti_load(a + i, x);
            tti_load(b + i, y);
#pragma unroll
            for (int k = 0; k < VECTOR; k++) sum = fmaf(x[k], y[k], sum);
        }
    else
        for (i = lane; i < n; i += WARP) sum = fmaf(tti_to_f32(a[i]), tti_to_f32(b[i]), sum);
    return tti_warp_sum(sum);
}

__device__ __forceinline__ float logit_of(const tti_head_rows &h, size_t row, size_t c) {
    return product_of((const tti_bf16 *)h.x + row * h.width, (const tti_bf16 *)h.w + c * h.width,
                      h.width, threadIdx.x % WARP, h.width % VECTOR == 0);
}

__global__ void __launch_bounds__(THREADS) head_bases_kernel(tti_head_rows h, float *base) {
    size_t row = (size_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= h.n_rows) return;
    int32_t label = h.labels[row];
    float own = is_class(h, label) ? logit_of(h, row, (size_t)label) : 0, largest = own;
    if (own == -INFINITY) /* the run ends with an infinite loss, so this may be slow */
        for (size_t c = 0; c < h.n_classes; c++) largest = fmaxf(largest, logit_of(h, row, c));
    if (threadIdx.x % WARP != 0) return;
    base[row] = largest;
    h.found[2 * row] = own;
}

/* ---- after the product ---- */

/* A row whose label is a class.  own: the label's logit, which is the base of the exponentials
 * unless it is -inf; sum: infinite if a logit is; right: the label is the first maximum. */
__device__ __forceinline__ void end_row(const tti_head_rows &h, size_t row, int32_t label,
                                        float own, float sum, bool right) {
    tti_bf16 *at_label = (tti_bf16 *)h.exps + row * h.n_classes + label;
    bool is_base = own != -INFINITY, finite = sum < INFINITY;
    *at_label = tti_from_f32<tti_bf16>((is_base ? 1 : 0) - sum);
    h.factors[row] = *h.dloss / sum;
    float loss = is_base ? logf(sum) : finite ? INFINITY : nanf("");
    ((float2 *)h.found)[row] = make_float2(loss, right && finite ? 1 : 0);
}

/* Any other: nothing, or NaN where it should have been one. */
__device__ __forceinline__ void end_other(const tti_head_rows &h, size_t row, int32_t label) {
    float value = label == h.ignore ? 0 : nanf("");
    h.factors[row] = value;
    ((float2 *)h.found)[row] = make_float2(value, 0);
}

/* A thread for each row. */
__global__ void __launch_bounds__(THREADS / 2)
    head_ends_kernel(tti_head_rows h, tti_head_parts parts) {
    size_t row = (size_t)blockIdx.x * (THREADS / 2) + threadIdx.x;
    if (row >= h.n_rows) return;
    int32_t label = h.labels[row];
    if (!is_class(h, label)) return end_other(h, row, label);
    size_t home = (size_t)label / TTI_WGMMA_COLS;
    float z = parts.own[row], sum = 0;
    bool right = z == z;
#pragma unroll 8
    for (size_t p = 0; p < parts.n_parts; p++) {
        float best = parts.bests[p * h.n_rows + row];
        sum += best == INFINITY ? best : parts.sums[p * h.n_rows + row];
        if (p < home ? best >= z : p > home && best > z) right = false;
    }
    end_row(h, row, label, h.found[2 * row], sum, right);
}

/* A block for each row of logits. */
__global__ void __launch_bounds__(THREADS) head_whole_kernel(tti_head_rows h, const float *logits) {
    __shared__ float shared[32];
    size_t row = blockIdx.x;
    int32_t label = h.labels[row];
    bool good = is_class(h, label), beaten = false;
    const float *z = logits + row * h.n_classes, most = (float)TTI_HEAD_MOST;
    tti_bf16 *exps = (tti_bf16 *)h.exps + row * h.n_classes;
    float own = good ? z[label] : 0, base = own, sum = 0;
    if (own == -INFINITY) {
        for (size_t c = threadIdx.x; c < h.n_classes; c += THREADS) base = fmaxf(base, z[c]);
        base = tti_block_max(base, shared);
    }
    for (size_t c = threadIdx.x; c < h.n_classes; c += THREADS) {
        float above = z[c] - base, e = expf(above > most ? most : above);
        beaten |= c < (size_t)label ? z[c] >= own : z[c] > own;
        exps[c] = tti_from_f32<tti_bf16>(e);
        sum += z[c] == INFINITY ? z[c] : e;
    }
    sum = tti_block_sum(sum, shared);
    beaten = __syncthreads_or(beaten);
    if (threadIdx.x != 0) return;
    if (good)
        end_row(h, row, label, own, sum, !beaten);
    else
        end_other(h, row, label);
}

cudaError_t finish(const tti_head_rows *h, cudaStream_t stream) {
    entropy e = {h->labels, h->n_rows, h->n_classes, h->ignore, 0};
    entropy_finish<<<1, FINISH_THREADS, 0, stream>>>((const float2 *)h->found, e, h->out[0],
                                                     h->out[1], h->out[2]);
    return cudaGetLastError();
}

/* ---- rows times factors: V elements of a thread, all of one row ---- */

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    scale_rows_kernel(const T *x, const float *factors, size_t n_vectors, size_t row_vectors,
                      T *y) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_vectors) return;
    typedef typename tti_acc<T>::type A;
    tti_vec<T, V> some = reinterpret_cast<const tti_vec<T, V> *>(x)[i];
    A factor = factors[i / row_vectors];
#pragma unroll
    for (int k = 0; k < V; k++) tti_from_acc(&some.v[k], factor * tti_to_acc(some.v[k]));
    reinterpret_cast<tti_vec<T, V> *>(y)[i] = some;
}

template <class T, int V>
cudaError_t launch_scale(size_t n, size_t width, const void *x, const float *factors, void *y,
                         cudaStream_t stream) {
    size_t n_vectors = n / V, n_blocks = (n_vectors + THREADS - 1) / THREADS;
    scale_rows_kernel<T, V><<<(unsigned)n_blocks, THREADS, 0, stream>>>(
        (const T *)x, factors, n_vectors, width / V, (T *)y);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t tti_launch_head_bases(const tti_head_rows *h, float *base,
                                             cudaStream_t stream) {
    size_t n_blocks = (h->n_rows + THREADS / WARP - 1) / (THREADS / WARP);
    if (n_blocks) head_bases_kernel<<<(unsigned)n_blocks, THREADS, 0, stream>>>(*h, base);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_head_ends(const tti_head_rows *h, const tti_head_parts *parts,
                                            cudaStream_t stream) {
    size_t n_blocks = (h->n_rows + THREADS / 2 - 1) / (THREADS / 2);
    if (n_blocks) head_ends_kernel<<<(unsigned)n_blocks, THREADS / 2, 0, stream>>>(*h, *parts);
    cudaError_t error = cudaGetLastError();
    return error != cudaSuccess ? error : finish(h, stream);
}

extern "C" cudaError_t tti_launch_head_whole(const tti_head_rows *h, const float *logits,
                                             cudaStream_t stream) {
    if (h->n_rows) head_whole_kernel<<<(unsigned)h->n_rows, THREADS, 0, stream>>>(*h, logits);
    cudaError_t error = cudaGetLastError();
    return error != cudaSuccess ? error : finish(h, stream);
}

extern "C" cudaError_t tti_launch_scale_rows(tutti_dtype dtype, size_t n_rows, size_t width,
                                             const void *x, const float *factors, void *y,
                                             cudaStream_t stream) {
    size_t n = n_rows * width;
    cudaError_t error = cudaSuccess;
    if (n == 0) return cudaSuccess;
    bool vectors = width % VECTOR == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    if (vectors && dtype == TUTTI_BF16)
        return launch_scale<tti_bf16, VECTOR>(n, width, x, factors, y, stream);
    TTI_FLOAT_DISPATCH(dtype, error = launch_scale<T, 1>(n, width, x, factors, y, stream));
    return error;
}
