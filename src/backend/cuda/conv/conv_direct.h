/* conv_direct.h - convolutions by plain kernels, and what cuDNN's need around them.
 *
 * One dtype for all values of a call: f32, f64, f16, bf16; sums in f32 (f64 for f64), in a fixed
 * order.  Weights are w[O,C/groups,R,S], row-major. */
#ifndef TTI_CUDA_CONV_DIRECT_H
#define TTI_CUDA_CONV_DIRECT_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

/* x[n,c,h,w] * w[o,c/groups,r,s] -> y[n,o,p,q] */
typedef struct tti_cuda_conv {
    int64_t n, c, h, w, o, p, q, r, s, groups;
    int64_t stride[2], pad[2], dilation[2];
    bool x_last, y_last; /* in N,H,W,C order */
} tti_cuda_conv;

/* A tensor of planes v[n,c,plane], or v[n,plane,c] where last. */
typedef struct tti_cuda_planes {
    int64_t n, c, plane;
    bool last;
} tti_cuda_planes;

#ifdef __cplusplus
extern "C" {
#endif

/* bias[o] or NULL. */
cudaError_t tti_cuda_conv_forward(tutti_dtype dtype, const tti_cuda_conv *conv, const void *x,
                                  const void *w, const void *bias, bool relu, void *y,
                                  cudaStream_t stream);
cudaError_t tti_cuda_conv_grad_x(tutti_dtype dtype, const tti_cuda_conv *conv, const void *dy,
                                 const void *w, void *dx, cudaStream_t stream);
cudaError_t tti_cuda_conv_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv, const void *dy,
                                 const void *x, void *dw, cudaStream_t stream);

/* db[c] = the sum of dy's channel c; partials: tti_cuda_conv_sum_bytes. */
size_t tti_cuda_conv_sum_bytes(tutti_dtype dtype, const tti_cuda_planes *dy);
cudaError_t tti_cuda_conv_sum(tutti_dtype dtype, const tti_cuda_planes *dy, const void *values,
                              void *partials, void *db, cudaStream_t stream);

/* In place: y = max(y + bias[c], 0); bias may be NULL, relu false. */
cudaError_t tti_cuda_conv_epilogue(tutti_dtype dtype, const tti_cuda_planes *y, const void *bias,
                                   bool relu, void *values, cudaStream_t stream);

/* w[o,c,area] -> turned[o,area,c_to], zeros for channels beyond c; element: bytes (2 or 4). */
cudaError_t tti_cuda_conv_turn(int element, int64_t o, int64_t c, int64_t area, int64_t c_to,
                               const void *w, void *turned, cudaStream_t stream);
/* turned[o,area,c_from] -> w[o,c,area], c <= c_from. */
cudaError_t tti_cuda_conv_turn_back(int element, int64_t o, int64_t c, int64_t area, int64_t c_from,
                                    const void *turned, void *w, cudaStream_t stream);

/* x -> padded[n,plane,c_to], zeros for channels beyond c; c <= 8 and c_to 4 or 8 where element is
 * 4 or 2 bytes. */
cudaError_t tti_cuda_conv_pad(int element, const tti_cuda_planes *x, int64_t c_to, const void *from,
                              void *padded, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_DIRECT_H */
