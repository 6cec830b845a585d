/* grouped.h - launchers of grouped.cu: products of rows with one of several matrices. */
#ifndef TTI_CUDA_GROUPED_H
#define TTI_CUDA_GROUPED_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tti_grouped {
    tutti_dtype dtype;
    size_t rows, k, n, matrices; /* x[rows,k], y[rows,n] */
    bool trans_b;                /* matrices are [n,k], not [k,n] */
    int32_t *order, *start;      /* scratch: [rows], [matrices + 1]; see tti_grouped_words */
} tti_grouped;

/* Elements of order and start together. */
size_t tti_grouped_words(size_t rows, size_t matrices);

/* y[rows,n] = x[s] w[ids[s]]; w[matrices,..]; zeros where an id is outside. */
cudaError_t tti_launch_grouped_matmul(const tti_grouped *g, const void *x, const void *w,
                                      const int32_t *ids, void *y, cudaStream_t stream);

/* dw[matrices,..] = sums of x[s]^T dy[s] by id, in the order of the rows. */
cudaError_t tti_launch_grouped_grad(const tti_grouped *g, const void *dy, const void *x,
                                    const int32_t *ids, void *dw, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_GROUPED_H */
