/* batch_norm.h - launchers of batch norm: statistics, application, gradients, joining.
 *
 * x is [n,c,s] elements, or, with last set, [n*s,c].  Statistics are f32 {count, mean[c], M2[c]},
 * sums {count, sum dy[c], sum dy xhat[c]}.  rows, i32[] in device memory, says how many samples
 * count; NULL: all.  Pointers are device memory, aligned to 64 bytes. */
#ifndef TTI_CUDA_BATCH_NORM_H
#define TTI_CUDA_BATCH_NORM_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tti_cuda_planes {
    size_t n, c, s;    /* samples, channels, places */
    bool last;         /* channels are the last dimension in memory */
    tutti_dtype dtype; /* of x and values of its shape */
} tti_cuda_planes;

/* Bytes of partials that the statistics and the sums need. */
size_t tti_cuda_bn_scratch(const tti_cuda_planes *p);

/* sums [2][c]: of x and of its squares, or NULL; with them x is read only where not all samples
 * count. */
cudaError_t tti_cuda_bn_stats(const tti_cuda_planes *p, const void *x, const int32_t *rows,
                              const float *sums, float *partials, float *stats,
                              cudaStream_t stream);

/* (x - mean) gamma / sqrt(variance + eps) + beta */
typedef struct tti_cuda_bn_affine {
    const float *mean, *m2; /* [c] */
    const float *count;     /* of M2; NULL: m2 is the variance itself */
    const float *gamma, *beta;
    double eps;
} tti_cuda_bn_affine;

/* y = act(affine of x + add), or + affine of add where that has a mean; y may be x. */
typedef struct tti_cuda_bn_apply {
    const void *x, *add; /* add: NULL or like x */
    void *y;
    tti_cuda_bn_affine own, of_add;
    uint8_t *mask; /* NULL, or where y > 0 (bn_apply_mask): [n,c/8,s], [n*s,c/8] where last */
    bool relu;
} tti_cuda_bn_apply;

cudaError_t tti_cuda_bn_forward(const tti_cuda_planes *p, const tti_cuda_bn_apply *apply,
                                cudaStream_t stream);

/* The inputs of the gradients. dy counts where y > 0; with beta instead of y, where gamma xhat +
 * beta > 0; with neither everywhere. */
typedef struct tti_cuda_bn_grad {
    const void *dy, *x, *y;
    const void *more;    /* sums only: added to dy, rounded; NULL: nothing */
    void *dz;            /* sums only: what counted, like dy (may be dy); NULL: not wanted */
    const uint8_t *mask; /* with dz: instead of y; or NULL */
    const float *stats, *gamma, *beta, *sums; /* gamma for dx or with beta; sums for dx */
    const int32_t *rows;
    double eps;
} tti_cuda_bn_grad;

/* sums [2 c + 1], and its two parts once more [c]. */
typedef struct tti_cuda_bn_sums_out {
    float *sums, *dgamma, *dbeta;
} tti_cuda_bn_sums_out;

cudaError_t tti_cuda_bn_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *grad,
                             float *partials, const tti_cuda_bn_sums_out *out, cudaStream_t stream);

/* The last step of it: sums from partials [n_parts][2][c] of dy and of dy (x - mean). */
cudaError_t tti_cuda_bn_join_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *grad,
                                  unsigned n_parts, const float *partials,
                                  const tti_cuda_bn_sums_out *out, cudaStream_t stream);

/* dx = gamma rstd (dy - mean dy - xhat mean(dy xhat)), 0 beyond rows; dx may be dy. */
cudaError_t tti_cuda_bn_backward(const tti_cuda_planes *p, const tti_cuda_bn_grad *grad, void *dx,
                                 cudaStream_t stream);

/* [c] each: rows mean, rows M2 / (count - 1). */
cudaError_t tti_cuda_bn_running(const float *stats, const int32_t *rows, size_t n_channels,
                                float *mean, float *variance, cudaStream_t stream);

/* parts [n_parts][n_elems], n_elems = 2 c + 1, added in a tree over the parts; moments: statistics,
 * joined by Chan's formula. */
cudaError_t tti_cuda_bn_join(bool moments, const float *parts, size_t n_parts, size_t n_elems,
                             float *out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_BATCH_NORM_H */
