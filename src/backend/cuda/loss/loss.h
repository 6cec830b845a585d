/* loss.h - launchers of loss.cu: losses over rows, as sums with their counts, and gradients. */
#ifndef TTI_CUDA_LOSS_H
#define TTI_CUDA_LOSS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rows of cross entropy. */
typedef struct tti_entropy_rows {
    tutti_dtype dtype; /* of the logits */
    size_t n_rows, n_classes;
    int64_t ignore;
    double smoothing;
    const int32_t *labels; /* [n_rows] */
} tti_entropy_rows;

/* Scratch of tti_launch_cross_entropy, bytes. */
size_t tti_cross_entropy_scratch(size_t n_rows);

/* logits [n_rows,n_classes] -> out: loss_sum, count, correct, f32 scalars each, and rows
 * [n_rows,2]: maximum, sum of e^(x - maximum). */
cudaError_t tti_launch_cross_entropy(const tti_entropy_rows *r, const void *logits,
                                     float *const out[4], void *scratch, cudaStream_t stream);

/* dx [n_rows,n_classes], which may be the logits; rows [n_rows,2] or NULL; dloss [1] */
cudaError_t tti_launch_cross_entropy_grad(const tti_entropy_rows *r, const void *logits,
                                          const float *dloss, const float *rows, void *dx,
                                          cudaStream_t stream);

/* Both at once (loss_both.cu), reading the logits once where a row fits in shared memory: dx as
 * above, out: loss_sum, count, correct, and sums [n_classes] over the rows of dx or NULL; scratch:
 * tti_entropy_both_scratch bytes. */
size_t tti_entropy_both_scratch(const tti_entropy_rows *r, bool sums);
cudaError_t tti_launch_entropy_both(const tti_entropy_rows *r, const void *logits,
                                    const float *dloss, void *dx, float *const out[4],
                                    void *scratch, cudaStream_t stream);

typedef enum tti_pair_kind { TTI_PAIR_MSE, TTI_PAIR_BCE, TTI_PAIR_KL } tti_pair_kind;

/* Losses of two values [n_rows,width]. */
typedef struct tti_pair_rows {
    tti_pair_kind kind;
    tutti_dtype dtype;
    size_t n_rows, width;
    const int32_t *labels; /* [n_rows] or NULL: every row counts */
    int64_t ignore;
    const void *x, *t;
} tti_pair_rows;

/* Scratch of tti_launch_pair_loss, bytes. */
size_t tti_pair_loss_scratch(void);

/* loss_sum and count, f32 scalars. */
cudaError_t tti_launch_pair_loss(const tti_pair_rows *r, float *loss_sum, float *count,
                                 void *scratch, cudaStream_t stream);

/* dx [n_rows,width] of x, or of t */
cudaError_t tti_launch_pair_grad(const tti_pair_rows *r, bool of_target, const float *dloss,
                                 void *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_LOSS_H */
