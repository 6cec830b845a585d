/* conv_stem.h - the first convolution of a network for images: few channels, stride 2. */
#ifndef TTI_CUDA_CONV_STEM_H
#define TTI_CUDA_CONV_STEM_H

#include "backend/cuda/conv/conv_direct.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 16 bits, at most 4 channels in and 64 out, stride 2, windows up to 8x8, y in N,H,W,C bytes. */
bool tti_cuda_stem_fits(tutti_dtype dtype, const tti_cuda_conv *conv);

/* y = act(x * w + bias[o]); bias or NULL. */
cudaError_t tti_cuda_stem_forward(tutti_dtype dtype, const tti_cuda_conv *conv, const void *x,
                                  const void *w, const void *bias, bool relu, void *y,
                                  cudaStream_t stream);

/* partials: tti_cuda_stem_bytes. */
size_t tti_cuda_stem_bytes(const tti_cuda_conv *conv);
cudaError_t tti_cuda_stem_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv, const void *dy,
                                 const void *x, void *partials, void *dw, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_STEM_H */
