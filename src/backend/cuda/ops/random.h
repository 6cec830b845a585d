/* random.h - launchers of random.cu; C and C++. */
#ifndef TTI_CUDA_RANDOM_H
#define TTI_CUDA_RANDOM_H

#include <cuda_runtime_api.h>

#include "base/run.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tti_dropout_desc {
    tutti_dtype dtype;              /* f32, bf16, f16, f64 */
    bool by_sample;                 /* one draw for a sample: drop_path */
    uint64_t n_samples, per_sample; /* elements of a sample */
    uint64_t n_channels, n_pixels;  /* of a sample in H,W,C order; 0 channels: plain */
    uint64_t key;                   /* of the layer */
    double p;                       /* 0 <= p < 1 */
} tti_dropout_desc;

/* y = x / (1 - p) or 0, both [n_samples, per_sample]; run in device memory. */
cudaError_t tti_cuda_dropout(const tti_dropout_desc *desc, const void *x, void *y,
                             const tti_run *run, cudaStream_t stream);

/* Numbers [n_samples, per_sample] from desc, whose p and by_sample are not used. */
cudaError_t tti_cuda_noise(const tti_dropout_desc *desc, bool normal, void *y, const tti_run *run,
                           cudaStream_t stream);

/* The place of each of n rows in the batch; -1 where there is -1. */
cudaError_t tti_cuda_batch_rows(const int32_t *there, int32_t *rows, size_t n, const tti_run *run,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_RANDOM_H */
