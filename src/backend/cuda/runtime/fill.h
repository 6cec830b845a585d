/* fill.h - random numbers to time kernels with: zeros draw less power and run faster. */
#ifndef TTI_CUDA_FILL_H
#define TTI_CUDA_FILL_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* data[n]: floats in [-1, 1], or zeros of any other type. */
cudaError_t tti_cuda_fill_random(tutti_dtype dtype, void *data, size_t n, uint32_t seed,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_FILL_H */
