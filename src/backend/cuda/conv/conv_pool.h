/* conv_pool.h - launchers of conv_pool.cu: conv2d_pool and its gradients by plain kernels, for what
 * conv_small.cu has no fast ones.
 *
 * One dtype for all values of a call: f32, f64, f16, bf16; sums in f32 (f64 for f64), in a fixed
 * order.  Weights are w[o,c,3,3]; n or a side may be 0. */
#ifndef TTI_CUDA_CONV_POOL_H
#define TTI_CUDA_CONV_POOL_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

/* x[n,c,2p,2q], y and where[n,o,p,q]. */
typedef struct tti_conv_pool {
    tutti_dtype dtype;
    int64_t n, c, o, p, q;
    bool x_last, y_last; /* in N,H,W,C order */
} tti_conv_pool;

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t tti_launch_conv_pool(const tti_conv_pool *v, const void *x, const void *w,
                                 const void *bias, void *y, uint8_t *where, cudaStream_t stream);
cudaError_t tti_launch_conv_pool_grad_x(const tti_conv_pool *v, const void *dp,
                                        const uint8_t *where, const void *w, void *dx,
                                        cudaStream_t stream);
cudaError_t tti_launch_conv_pool_grad_w(const tti_conv_pool *v, const void *dp,
                                        const uint8_t *where, const void *x, void *dw, void *db,
                                        cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_POOL_H */
