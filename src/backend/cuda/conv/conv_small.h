/* conv_small.h - 3x3 convolutions of small planes and few channels, one kernel each.
 *
 * f32 values in N,H,W,C bytes, stride 1, pad 1, weights w[o,c,3,3].  Two kinds: images of 1 to 4
 * channels in f32 ("image"), and 32 or 64 channels on both sides on tensor cores in tf32 ("cores"),
 * whose operands are rounded to 10 bits of fraction.  All sums have one fixed order. */
#ifndef TTI_CUDA_CONV_SMALL_H
#define TTI_CUDA_CONV_SMALL_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

/* The result of 2x2 pooling of y, or its gradient dp: values and where[n,o,h/2,w/2] as in the op
 * conv2d_pool. */
typedef struct tti_small_pooled {
    float *values;
    uint8_t *where;
    bool last; /* in N,H,W,C bytes */
} tti_small_pooled;

/* x[n,c,h,w] and y[n,o,h,w]; h and w are even where a pooling follows. */
typedef struct tti_small_conv {
    int n, c, h, w, o;
    int n_sms;           /* of the device */
    size_t shared_optin; /* most shared memory of a block, bytes */
    bool w_is_param;     /* only updates write it */
} tti_small_conv;

#ifdef __cplusplus
extern "C" {
#endif

/* c 1 .. 4, o a multiple of 4 up to 64. */
bool tti_small_conv_is_image(const tti_small_conv *v);
/* c and o 32 or 64, and a few rows of both fit into shared memory. */
bool tti_small_conv_fits_cores(const tti_small_conv *v);

/* y = act(conv(x, w) + bias); bias[o] or NULL. */
cudaError_t tti_launch_small_conv_image(const tti_small_conv *v, const float *x, const float *w,
                                        const float *bias, bool relu, float *y,
                                        cudaStream_t stream);
cudaError_t tti_launch_small_conv_cores(const tti_small_conv *v, const float *x, const float *w,
                                        const float *bias, bool relu, float *y,
                                        cudaStream_t stream);

/* The same followed by relu and 2x2 pooling; bias is required. */
cudaError_t tti_launch_small_conv_image_pool(const tti_small_conv *v, const float *x,
                                             const float *w, const float *bias,
                                             const tti_small_pooled *y, cudaStream_t stream);
cudaError_t tti_launch_small_conv_cores_pool(const tti_small_conv *v, const float *x,
                                             const float *w, const float *bias,
                                             const tti_small_pooled *y, cudaStream_t stream);

/* Gradients take dy, or, if dp is not NULL, the gradient after relu and pooling. */

/* dx[n,c,h,w] of "cores" from dy[n,o,h,w]. */
cudaError_t tti_launch_small_conv_grad_x(const tti_small_conv *v, const float *dy,
                                         const tti_small_pooled *dp, const float *w, float *dx,
                                         cudaStream_t stream);

/* dw[o,c,3,3] and db[o] of either kind; partials: tti_small_conv_grad_w_bytes. */
size_t tti_small_conv_grad_w_bytes(const tti_small_conv *v);
cudaError_t tti_launch_small_conv_grad_w(const tti_small_conv *v, const float *dy,
                                         const tti_small_pooled *dp, const float *x,
                                         float *partials, float *dw, float *db,
                                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_SMALL_H */
