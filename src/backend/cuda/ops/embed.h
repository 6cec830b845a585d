/* embed.h - launchers of embed.cu: lookups, their gradients, and rotary positions. */
#ifndef TTI_CUDA_EMBED_H
#define TTI_CUDA_EMBED_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [n_labels,n] f32: 1 where the label is the class. */
cudaError_t tti_launch_one_hot(const int32_t *labels, size_t n_labels, size_t n, float *y,
                               cudaStream_t stream);

/* x [outer,n,inner] at ids [n_ids] is y [outer,n_ids,inner]; n_ids and n below 2^31. */
typedef struct tti_lookup {
    tutti_dtype dtype;
    size_t outer, n, inner, n_ids;
    const int32_t *ids;
} tti_lookup;

/* y = x at ids, zeros where an id is outside 0 .. n-1. */
cudaError_t tti_launch_gather(const tti_lookup *l, const void *x, void *y, cudaStream_t stream);

/* Scratch of tti_launch_scatter, bytes. */
size_t tti_scatter_scratch(const tti_lookup *l);

/* dx [outer,n,inner] = for each row of n the sum of dy [outer,n_ids,inner] at its ids, in one fixed
 * order: runs of 64 ids in order of position, then the runs. */
cudaError_t tti_launch_scatter(const tti_lookup *l, const void *dy, void *dx, void *scratch,
                               cudaStream_t stream);

/* Positions turned: x [n_rows,width], n_rows = batch * n_t, the first heads of dim elements each.
 */
typedef struct tti_rotation {
    tutti_dtype dtype;
    size_t n_rows, n_t, width, heads, dim;
    double base, sign; /* sign -1: back */
    int64_t start;
    const int32_t *pos; /* [1], added to start, or NULL */
} tti_rotation;

/* Scratch of tti_launch_rotary, bytes. */
size_t tti_rotary_scratch(const tti_rotation *r);

cudaError_t tti_launch_rotary(const tti_rotation *r, const void *x, void *y, void *scratch,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_EMBED_H */
