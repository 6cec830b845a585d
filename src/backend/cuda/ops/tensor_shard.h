/* tensor_shard.h - launchers of tensor_shard.cu: masks and rows of a value of which a device has a
 * tensor shard.
 */
#ifndef TTI_CUDA_TENSOR_SHARD_H
#define TTI_CUDA_TENSOR_SHARD_H

#include <cuda_runtime_api.h>

#include "base/run.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of the tensor shard is n_runs runs of n_elems elements; run i is elements first + i step
 * on of the whole sample. */
typedef struct tti_shard_mask {
    tutti_dtype dtype; /* f32, bf16, f16, f64 */
    uint64_t n_samples, n_runs, n_elems, first, step;
    uint64_t key; /* of the layer */
    double p;     /* 0 <= p < 1 */
} tti_shard_mask;

/* y = x / (1 - p) or 0, both [n_samples, n_runs, n_elems], as the same elements of the whole value;
 * run in device memory. */
cudaError_t tti_launch_shard_mask(const tti_shard_mask *shard, const void *x, void *y,
                                  const tti_run *run, cudaStream_t stream);

/* y = x - first where that is 0 .. n-1, else -1; both [n_ids]. */
cudaError_t tti_launch_own_rows(const int32_t *x, int32_t *y, size_t n_ids, int64_t first,
                                int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_TENSOR_SHARD_H */
