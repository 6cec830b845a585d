/* compress.cuh - what the kernels of compressed gradients share. */
#ifndef TTI_COMPRESS_CUH
#define TTI_COMPRESS_CUH

#include <cuda_runtime_api.h>

#include "backend/step_types.h"

/* A sum of gradients is so many times their mean: the loss scale times the rows of the batch;
 * inv_rows is 1 / a whole number, or 0 for none. */
__device__ __forceinline__ float tti_gradient_unit(const tti_step_args &a) {
    return (a.inv_rows > 0 ? rintf(1 / a.inv_rows) : 1) * a.loss_scale;
}

template <class Kernel>
cudaError_t tti_load_kernel(Kernel *kernel) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel);
}

/* That may wait for the device, which a kernel that waits for a peer must not see. */
template <class... Kernels>
cudaError_t tti_load_kernels(Kernels *...kernels) {
    cudaError_t errors[] = {tti_load_kernel(kernels)...};
    for (cudaError_t error : errors)
        if (error != cudaSuccess) return error;
    return cudaSuccess;
}

#endif /* TTI_COMPRESS_CUH */
