/* bn_pool.h - launchers of batch norm followed by 3x3 pooling with stride 2 (ops/norm/bn_pool.c).
 *
 * Pools have x [n,c,in] and y [n,c,out], both channels last or neither, as in pool.h; statistics
 * and sums are those of batch_norm.h. where: u8, like y. */
#ifndef TTI_CUDA_BN_POOL_H
#define TTI_CUDA_BN_POOL_H

#include "backend/cuda/norm/batch_norm.h"
#include "backend/cuda/pool/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TTI_POOL_CHANNELS = 512 }; /* that the kernels for whole vectors know at once */

/* y, where: the forward pass; of whole vectors of 16 bits in pool_three.cu. */
cudaError_t tti_launch_bn_pool_three(const tti_pool *pool, const tti_cuda_bn_affine *norm,
                                     const void *x, void *y, void *where, cudaStream_t stream);
cudaError_t tti_launch_bn_pool(const tti_pool *pool, const tti_cuda_bn_affine *norm, const void *x,
                               void *y, void *where, cudaStream_t stream);

/* grad: dy is dp, like y; x, stats, rows, eps; for dx gamma and sums. */
size_t tti_cuda_bn_pool_scratch(const tti_pool *pool);
cudaError_t tti_cuda_bn_pool_sums(const tti_pool *pool, const tti_cuda_bn_grad *grad,
                                  const uint8_t *where, float *partials,
                                  const tti_cuda_bn_sums_out *out, cudaStream_t stream);
cudaError_t tti_cuda_bn_pool_backward(const tti_pool *pool, const tti_cuda_bn_grad *grad,
                                      const uint8_t *where, void *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_BN_POOL_H */
