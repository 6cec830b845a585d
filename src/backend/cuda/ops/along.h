/* along.h - launchers of along.cu: running sums, sorting, elements by index. */
#ifndef TTI_CUDA_ALONG_H
#define TTI_CUDA_ALONG_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A floating value [outer,n,inner] around the axis. */
typedef struct tti_along {
    tutti_dtype dtype;
    size_t outer, n, inner;
    size_t n_ids; /* of places [outer,n_ids,inner] */
    bool reverse; /* cumsum: from the end; sort: the largest first */
} tti_along;

cudaError_t tti_launch_cumsum(const tti_along *v, const void *x, void *y, cudaStream_t stream);

/* y and places, each [outer,n,inner]. */
cudaError_t tti_launch_sort(const tti_along *v, const void *x, void *y, int32_t *places,
                            cudaStream_t stream);

/* y [outer,n_ids,inner] = x [outer,n,inner] at ids; zeros where a place is outside. */
cudaError_t tti_launch_take_along(const tti_along *v, const void *x, const int32_t *ids, void *y,
                                  cudaStream_t stream);

/* y [outer,n,inner]: x [outer,n_ids,inner] added at ids, in the order of the axis. */
cudaError_t tti_launch_put_along(const tti_along *v, const void *x, const int32_t *ids, void *y,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_ALONG_H */
