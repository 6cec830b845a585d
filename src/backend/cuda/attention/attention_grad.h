/* attention_grad.h - launcher of attention's gradient on Hopper's tensor cores
 * (attention_grad.cu). */
#ifndef TTI_CUDA_ATTENTION_GRAD_H
#define TTI_CUDA_ATTENTION_GRAD_H

#include "backend/cuda/attention/attention_flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True for bf16, D = 64, T a multiple of 128 up to 2048, and enough heads of samples for all
 * multiprocessors.  Depends on its arguments alone. */
bool tti_cuda_attention_grad_can(tutti_dtype dtype, const tti_cuda_heads *heads);

/* Bytes of scratch on the open device. */
size_t tti_cuda_attention_grad_bytes(const tti_cuda_heads *heads);

/* Number of rows of columns [rows][3 heads D], f32, whose sum is that of dqkv's columns. */
int64_t tti_cuda_attention_grad_parts(const tti_cuda_heads *heads);

/* dqkv from qkv, y, lse and dy, without lengths, and columns where they are not NULL, which needs
 * as many key heads as query heads; delta is not used.  Every time the same bits.  scratch: aligned
 * to 64 bytes.  Needs a device where tti_cuda_wgmma_has is true. */
cudaError_t tti_cuda_attention_grad(const tti_cuda_attention *a, void *scratch,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_ATTENTION_GRAD_H */
