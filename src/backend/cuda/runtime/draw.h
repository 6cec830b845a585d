/* draw.h - launcher of draw.cu: initial values of parameters. */
#ifndef TTI_CUDA_DRAW_H
#define TTI_CUDA_DRAW_H

#include <cuda_runtime_api.h>

#include "ops/draw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See draw of tti_device_step_ops; draws [n] on the device. */
cudaError_t tti_launch_draw(const tti_draws *draws, int n, float *params, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_DRAW_H */
