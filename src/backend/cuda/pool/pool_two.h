/* pool_two.h - launchers of pool_two.cu: maxima of windows of 2x2 that cover a plane, the usual
 * pooling of small networks. */
#ifndef TTI_CUDA_POOL_TWO_H
#define TTI_CUDA_POOL_TWO_H

#include "backend/cuda/pool/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* N,H,W,C bytes, whole vectors of channels, an even plane, f32, bf16 or f16; not empty. */
bool tti_pool_is_two(const tti_pool *p);

/* As the functions of pool.h without _two, with the same bits. */
cudaError_t tti_launch_max_pool_two(const tti_pool *p, const void *x, void *y, void *index,
                                    cudaStream_t stream);
cudaError_t tti_launch_max_pool_two_grad(const tti_pool *p, const void *dy, const void *index,
                                         void *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_POOL_TWO_H */
