/* norm_16bit_grad.cu - gradients of layer norm if dy is one value (norm_16bit_grad.cuh). */
#include "backend/cuda/norm/norm_16bit_grad.cuh"

namespace {

struct whole_rows {
    static constexpr int TERMS = 1;
    static constexpr bool HAS_BARRIER = false;
    __device__ bool is_far(int) const { return false; }
    __device__ const void *term(const tti_cuda_norm_grad &a, int) const { return a.dy.at; }
    __device__ int place(int, int, int at, int) const { return at; }
    template <class Vec>
    __device__ void put(const tti_cuda_norm_grad &a, const Vec &dx, int, int at, int) const {
        ((Vec *)a.dx.at)[at] = dx;
    }
    __device__ int begin() const { return 0; }
    __device__ void end(int) const {}
};

bool is_16_bit(tutti_dtype dtype) { return dtype == TUTTI_BF16 || dtype == TUTTI_F16; }

bool is_like(tti_cuda_floats value, tutti_dtype dtype) { return !value.at || value.dtype == dtype; }

}  // namespace

extern "C" bool tti_cuda_norm_16bit_backward_can(const tti_cuda_norm_grad *a) {
    tutti_dtype dtype = a->x.dtype;
    bool alike = is_16_bit(dtype) && is_like(a->dy, dtype) && is_like(a->dx, dtype) &&
                 is_like(a->residual, dtype);
    bool all = a->dx.at && !a->copy.at && a->dgamma && a->dbeta;
    return rows_fit(&a->rows) && alike && all;
}

extern "C" size_t tti_cuda_norm_16bit_scratch(const tti_rows *v) {
    return rows_fit(v) ? (size_t)blocks_of(v->n_rows) * N_SUMS * v->width * sizeof(float) : 0;
}

extern "C" cudaError_t tti_cuda_norm_16bit_backward(const tti_cuda_norm_grad *a,
                                                    cudaStream_t stream) {
    return a->x.dtype == TUTTI_BF16 ? launch_width<tti_bf16>(a, whole_rows(), stream)
                                    : launch_width<tti_f16>(a, whole_rows(), stream);
}
