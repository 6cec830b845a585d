/* vocabulary.h - launchers of vocabulary.cu: cross entropy where the classes are on several devices
 * (ops/loss/vocabulary.c). */
#ifndef TTI_CUDA_VOCABULARY_H
#define TTI_CUDA_VOCABULARY_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of logits with the classes first .. first + n_own - 1 of n_classes. */
typedef struct tti_class_rows {
    tutti_dtype dtype; /* of the logits */
    size_t n_rows, n_own, n_classes;
    int64_t first, ignore;
    double smoothing;
    const int32_t *labels; /* [n_rows] */
} tti_class_rows;

/* logits [n_rows,n_own], n_own >= 1 -> parts f32[n_rows,5]: maximum, sum of e^(x - maximum), the
 * label's logit or 0, sum, class of the first maximum. */
cudaError_t tti_launch_entropy_part(const tti_class_rows *r, const void *logits, float *parts,
                                    cudaStream_t stream);

/* Scratch of tti_launch_entropy_join, bytes. */
size_t tti_entropy_join_scratch(size_t n_rows);

/* parts f32[n_rows,n,5] of n devices -> out: loss_sum, count, correct, f32 scalars each, and rows
 * [n_rows,2]: maximum, sum of e^(x - maximum). */
cudaError_t tti_launch_entropy_join(const tti_class_rows *r, size_t n, const float *parts,
                                    float *const out[4], void *scratch, cudaStream_t stream);

/* dx [n_rows,n_own], which may be the logits; dloss [1], rows [n_rows,2] */
cudaError_t tti_launch_entropy_join_grad(const tti_class_rows *r, const void *logits,
                                         const float *dloss, const float *rows, void *dx,
                                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_VOCABULARY_H */
