/* norm_16bit.cu - layer norm of rows whose values all have 16 bits; its gradient:
 * norm_16bit_grad.cu.
 *
 * A warp processes a row, in vectors of 16 bytes: vector k of lane t is number 32 k + t of the row.
 * Rows run from the last one down: the end of a product that was just written is in the cache. */
#include "backend/cuda/norm/norm_16bit.h"
#include "backend/cuda/norm/norm_row.cuh"

namespace {

enum {
    THREADS = 256,
    MOST_VECTORS = 8, /* of a lane */
};

template <class T, int NV>
__global__ void __launch_bounds__(THREADS, NV > 4   ? 2
                                           : NV > 3 ? 3
                                                    : 4) forward_16bit(tti_cuda_norm a) {
    place at = {threadIdx.x % WARP, (unsigned)(a.rows.width / V)};
    size_t row = (size_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    float x[NV][V], sum = 0;
    row_of<NV> raw, more;
    if (row >= a.rows.n_rows) return;
    row = a.rows.n_rows - 1 - row;
    load(a.x.at, row, at, raw);
    if (a.branch.at) load(a.branch.at, row, at, more);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float b[V] = {};
        widen<T>(raw.v[k], x[k]);
        if (a.branch.at) widen<T>(more.v[k], b);
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[k][i] += b[i];
            sum += x[k][i];
        }
        if (a.branch.at) store<T>(a.sum.at, row, at, k, x[k]);
    }
    row_norm norm = {a.gamma, a.beta, (float)a.eps, (float)a.rows.width};
    normalise(norm, at, sum, x,
              [&](int k, const float(&y)[V]) { store<T>(a.y.at, row, at, k, y); });
    if (at.lane == 0) a.mean[row] = norm.mean, a.rstd[row] = norm.rstd;
}

bool is_16_bit(tutti_dtype dtype) { return dtype == TUTTI_BF16 || dtype == TUTTI_F16; }

bool is_like(tti_cuda_floats value, tutti_dtype dtype) { return !value.at || value.dtype == dtype; }

bool rows_fit(const tti_rows *v) {
    return v->groups == 1 && v->inner == 1 && v->centred && v->width % V == 0 && v->width > 0 &&
           v->width <= (size_t)MOST_VECTORS * V * WARP && v->n_rows > 0;
}

template <class T, int NV>
void launch_forward(const tti_cuda_norm *a, cudaStream_t stream) {
    size_t each = THREADS / WARP;
    forward_16bit<T, NV>
        <<<(unsigned)((a->rows.n_rows + each - 1) / each), THREADS, 0, stream>>>(*a);
}

/* The least vectors of a lane that hold the row. */
template <class T>
void forward_of(const tti_cuda_norm *a, cudaStream_t stream) {
    size_t n = (a->rows.width + V * WARP - 1) / ((size_t)V * WARP);
    if (n <= 1)
        launch_forward<T, 1>(a, stream);
    else if (n <= 3)
        launch_forward<T, 3>(a, stream);
    else if (n <= 4)
        launch_forward<T, 4>(a, stream);
    else if (n <= 7)
        launch_forward<T, 7>(a, stream);
    else
        launch_forward<T, MOST_VECTORS>(a, stream);
}

}  // namespace

extern "C" bool tti_cuda_norm_16bit_forward_can(const tti_cuda_norm *a) {
    tutti_dtype dtype = a->x.dtype;
    return rows_fit(&a->rows) && is_16_bit(dtype) && is_like(a->branch, dtype) &&
           is_like(a->sum, dtype) && is_like(a->y, dtype) && a->rows.n_rows < ((size_t)1 << 32);
}

extern "C" cudaError_t tti_cuda_norm_16bit_forward(const tti_cuda_norm *a, cudaStream_t stream) {
    if (a->x.dtype == TUTTI_BF16)
        forward_of<tti_bf16>(a, stream);
    else
        forward_of<tti_f16>(a, stream);
    return cudaGetLastError();
}
