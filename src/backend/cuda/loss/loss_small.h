/* loss_small.h - launcher of loss_small.cu: cross entropy over few rows of few classes. */
#ifndef TTI_CUDA_LOSS_SMALL_H
#define TTI_CUDA_LOSS_SMALL_H

#include "backend/cuda/loss/loss.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f32, at most 1024 rows of at most 32 classes, not empty. */
bool tti_entropy_is_small(const tti_entropy_rows *r);

/* As tti_launch_entropy_both, in one launch without scratch. */
cudaError_t tti_launch_entropy_small(const tti_entropy_rows *r, const float *logits,
                                     const float *dloss, float *dx, float *const out[3],
                                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_LOSS_SMALL_H */
