/* tp_norm_grad.cu - the gradient of a norm between two collectives inside a step:
 * norm_16bit_grad.cuh with the rows of tp_norm.cu.  Its dy, the sum of two terms, is never stored.
 */
#include "backend/cuda/comm/tp.cuh"
#include "backend/cuda/norm/norm_16bit_grad.cuh"
#include "backend/cuda/runtime/load.cuh"

namespace {

/* Rows of the own part, blocks of n_rows. */
struct tp_rows {
    static constexpr int TERMS = TTI_NORM_RANKS;
    static constexpr bool HAS_BARRIER = true;
    tti_peers_view view;
    const void *terms[TERMS];
    void *whole[TERMS];
    int n_rows;
    bool pushed, kept;

    /* Vector at of a row, where the parts of both ranks are. */
    __device__ int far(int row, int at, int n) const {
        return at + (row / n_rows + view.rank) * n_rows * n;
    }
    __device__ bool is_far(int k) const { return k != view.rank; }
    __device__ const void *term(const tti_cuda_norm_grad &, int k) const { return terms[k]; }
    __device__ int place(int k, int row, int at, int n) const {
        return pushed && k != view.rank ? at : far(row, at, n);
    }
    template <class Vec>
    __device__ void put(const tti_cuda_norm_grad &a, const Vec &dx, int row, int at, int n) const {
        ((Vec *)a.dx.at)[at] = dx;
#pragma unroll
        for (int r = 0; r < TERMS; r++)
            if (r == view.rank || !kept) ((Vec *)whole[r])[far(row, at, n)] = dx;
    }
    __device__ uint64_t begin() const {
        uint64_t epoch = tti_tp_epoch(view);
        tti_tp_barrier(view, epoch + 1);
        return epoch;
    }
    __device__ void end(uint64_t epoch) const {
        if (!kept) tti_tp_barrier(view, epoch + 2);
        tti_tp_end(view, epoch);
    }
};

static_assert((int)BLOCKS <= (int)TTI_TP_BLOCKS, "all blocks wait for each other");

template <class T>
cudaError_t load_all() {
    return tti_load_kernels(norm_16bit_grad<T, 1, tp_rows>, norm_16bit_grad<T, 2, tp_rows>,
                            norm_16bit_grad<T, 3, tp_rows>, norm_16bit_grad<T, 4, tp_rows>,
                            norm_16bit_grad<T, 7, tp_rows>,
                            norm_16bit_grad<T, MOST_WARPS, tp_rows>);
}

}  // namespace

extern "C" cudaError_t tti_launch_tp_norm_grad(const tti_peers_view *view, const tti_tp_norm *norm,
                                               const tti_cuda_norm_grad *grad,
                                               cudaStream_t stream) {
    tti_rows all = grad->rows;
    all.n_rows *= TTI_NORM_RANKS;
    if (view->n_ranks != TTI_NORM_RANKS || view->terms.balanced != TTI_NORM_RANKS ||
        !rows_fit(&all))
        return cudaErrorInvalidValue;
    tp_rows rows = {.view = *view,
                    .terms = {norm->terms[0], norm->terms[1]},
                    .whole = {norm->whole[0], norm->whole[1]},
                    .n_rows = (int)norm->n_rows,
                    .pushed = norm->pushed,
                    .kept = norm->kept};
    if (grad->x.dtype == TUTTI_BF16) return launch_width<tti_bf16>(grad, rows, stream);
    if (grad->x.dtype == TUTTI_F16) return launch_width<tti_f16>(grad, rows, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_tp_norm_grad_load(void) {
    return tti_first_error(load_all<tti_bf16>(), load_all<tti_f16>(), tti_load_kernel(add_blocks));
}
