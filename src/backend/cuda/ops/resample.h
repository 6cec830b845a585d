/* resample.h - launchers of resample.cu: larger planes and their gradients. */
#ifndef TTI_CUDA_RESAMPLE_H
#define TTI_CUDA_RESAMPLE_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x [n,c,in] and y [n,c,out], both N,H,W,C bytes if channels_last. */
typedef struct tti_resample {
    tutti_dtype dtype;
    size_t n, c;
    int32_t in[2], out[2];
    bool nearest, align, channels_last;
} tti_resample;

cudaError_t tti_launch_resample(const tti_resample *r, const void *x, void *y, cudaStream_t stream);
cudaError_t tti_launch_resample_grad(const tti_resample *r, const void *dy, void *dx,
                                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_RESAMPLE_H */
