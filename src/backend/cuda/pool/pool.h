/* pool.h - launchers of pool.cu: maximum and average over windows of a plane, and gradients. */
#ifndef TTI_CUDA_POOL_H
#define TTI_CUDA_POOL_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [n,c,in], y [n,c,out], both N,H,W,C bytes if channels_last.  kernel[0] 0: adaptive windows. */
typedef struct tti_pool {
    tutti_dtype dtype;
    size_t n, c;
    int32_t in[2], out[2], kernel[2], stride[2], pad[2];
    bool count_pad, channels_last;
} tti_pool;

/* index: u8 place in the window, i32 place in the plane for adaptive windows. */
/* The first two in pool_three.cu's way, where it fits; they take it by themselves. */
bool tti_pool_three_fits(const tti_pool *pool);
cudaError_t tti_launch_max_pool_three(const tti_pool *pool, const void *x, void *y, void *index,
                                      cudaStream_t stream);
cudaError_t tti_launch_max_pool_three_grad(const tti_pool *pool, const void *dy, const void *index,
                                           void *dx, cudaStream_t stream);

cudaError_t tti_launch_max_pool(const tti_pool *p, const void *x, void *y, void *index,
                                cudaStream_t stream);
cudaError_t tti_launch_max_pool_grad(const tti_pool *p, const void *dy, const void *index, void *dx,
                                     cudaStream_t stream);
cudaError_t tti_launch_avg_pool(const tti_pool *p, const void *x, void *y, cudaStream_t stream);
cudaError_t tti_launch_avg_pool_grad(const tti_pool *p, const void *dy, void *dx,
                                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_POOL_H */
