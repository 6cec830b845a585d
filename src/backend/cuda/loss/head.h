/* head.h - launchers of head.cu: the loss of a head without logits (ops/loss/head.c), and rows
 * times factors. */
#ifndef TTI_CUDA_HEAD_H
#define TTI_CUDA_HEAD_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory; bf16 but where said. */
typedef struct tti_head_rows {
    size_t n_rows, n_classes, width;
    int64_t ignore;
    const int32_t *labels; /* [n_rows] */
    const float *dloss;    /* [1] */
    const void *x, *w;     /* [n_rows,width], [n_classes,width] */
    void *exps;            /* [n_rows,n_classes] */
    float *factors;        /* f32[n_rows] */
    float *out[3];         /* loss_sum, count, correct, f32 scalars */
    float *found;          /* f32[n_rows,2], scratch */
} tti_head_rows;

/* base f32[n_rows]: the label's logit x w[label], or 0 where the label is not a class.  A logit of
 * -inf is not a base: the largest logit of the row is, and found keeps the label's own for
 * tti_launch_head_ends. */
cudaError_t tti_launch_head_bases(const tti_head_rows *h, float *base, cudaStream_t stream);

/* The results of TTI_WGMMA_EXPS for each row and part of its columns; n_parts parts. */
typedef struct tti_head_parts {
    size_t n_parts;
    const float *sums, *bests; /* f32[n_parts,n_rows] */
    const float *own;          /* f32[n_rows]: NaN where another logit of its tile is larger */
} tti_head_parts;

/* The label's place in exps, factors and out, where exps are there. */
cudaError_t tti_launch_head_ends(const tti_head_rows *h, const tti_head_parts *parts,
                                 cudaStream_t stream);

/* The same and exps, of logits f32[n_rows,n_classes]. */
cudaError_t tti_launch_head_whole(const tti_head_rows *h, const float *logits, cudaStream_t stream);

/* y[r][c] = factors[r] x[r][c]; x, y [n_rows,width] of the dtype, and may be the same. */
cudaError_t tti_launch_scale_rows(tutti_dtype dtype, size_t n_rows, size_t width, const void *x,
                                  const float *factors, void *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_HEAD_H */
