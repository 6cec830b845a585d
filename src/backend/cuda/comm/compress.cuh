/* compress.cuh - code shared by the kernels of compressed gradients. */
#ifndef TTI_COMPRESS_CUH
#define TTI_COMPRESS_CUH

#include <cuda_runtime_api.h>

#include "backend/step_types.h"

/* A sum of gradients is so many times their mean: the loss scale times the rows of the batch;
 * inv_rows is 1 / a whole number, or 0 for none. */
__device__ __forceinline__ float tti_gradient_unit(const tti_step_args &a) {
    return (a.inv_rows > 0 ? rintf(1 / a.inv_rows) : 1) * a.loss_scale;
}

#endif /* TTI_COMPRESS_CUH */
