/* shape.h - launchers of shape.cu: elements of 1, 2, 4 or 8 bytes are moved, not changed. */
#ifndef TTI_CUDA_SHAPE_H
#define TTI_CUDA_SHAPE_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y of shape dim[perm[0]], dim[perm[1]], .. = x of shape dim, both row-major; no dimension is 0. */
typedef struct tti_turn {
    int n_dims;
    int64_t dim[TUTTI_MAX_DIMS];
    int perm[TUTTI_MAX_DIMS];
    size_t elem; /* bytes */
} tti_turn;

cudaError_t tti_launch_turn(const tti_turn *turn, const void *x, void *y, cudaStream_t stream);

/* Runs of bytes from one array to another: run o of n bytes goes from src + o src_pitch to
 * dst + o dst_pitch.  Bytes of a run outside lo .. hi-1 are zeros, and its source starts at lo. */
typedef struct tti_strips {
    const void *src;
    void *dst;
    size_t src_pitch, dst_pitch, n, lo, hi;
} tti_strips;

enum { TTI_MAX_STRIPS = 16 };

/* n_strips sets of n_outer runs each. */
cudaError_t tti_launch_strips(const tti_strips *strips, int n_strips, size_t n_outer,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_SHAPE_H */
