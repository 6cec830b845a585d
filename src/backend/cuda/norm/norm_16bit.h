/* norm_16bit.h - launchers of the layer norms whose values all have 16 bits, as norm.h says. */
#ifndef TTI_CUDA_NORM_16BIT_H
#define TTI_CUDA_NORM_16BIT_H

#include "backend/cuda/norm/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if there is a kernel: one 16-bit dtype for all values, rows in whole vectors of 8, at least
 * one, up to 2048 elements; backward with dx, dgamma and dbeta, without a copy. */
bool tti_cuda_norm_16bit_forward_can(const tti_cuda_norm *norm);
bool tti_cuda_norm_16bit_backward_can(const tti_cuda_norm_grad *grad);

cudaError_t tti_cuda_norm_16bit_forward(const tti_cuda_norm *norm, cudaStream_t stream);

/* dsums too, if it is given; partials: tti_cuda_norm_16bit_scratch bytes. */
size_t tti_cuda_norm_16bit_scratch(const tti_rows *rows);
cudaError_t tti_cuda_norm_16bit_backward(const tti_cuda_norm_grad *grad, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_NORM_16BIT_H */
