/* softmax.h - launchers of softmax.cu: rows along one axis. */
#ifndef TTI_CUDA_SOFTMAX_H
#define TTI_CUDA_SOFTMAX_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values [outer,n,inner]; a row is along n.  No dimension is 0. */
typedef struct tti_softmax_rows {
    tutti_dtype dtype;
    size_t outer, n, inner;
    bool log; /* log_softmax */
} tti_softmax_rows;

cudaError_t tti_launch_softmax(const tti_softmax_rows *r, const void *x, void *y,
                               cudaStream_t stream);

/* dx of y and dy */
cudaError_t tti_launch_softmax_grad(const tti_softmax_rows *r, const void *y, const void *dy,
                                    void *dx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_SOFTMAX_H */
