/* sdpa.h - launchers of sdpa.cu, sdpa_mma.cu and sdpa_short.cu: attention with separate queries,
 * keys and values. */
#ifndef TTI_CUDA_SDPA_H
#define TTI_CUDA_SDPA_H

#include <cuda_runtime_api.h>

#include "base/run.h"
#include "ops/sequence/sdpa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes, and the arrays on the device. */
typedef struct tti_cuda_sdpa {
    tti_sdpa sizes;
    tutti_dtype dtype;
    const void *q, *k, *v, *bias; /* bias NULL: none */
    const int32_t *query_segments, *key_segments;
    const tti_run *run; /* device */
    void *y;
    void *max, *log_sum; /* of rows: f32 [B,H,T]; f64 if dtype is */
    const void *dy;      /* of the gradient, which reads these three too */
    void *dq, *dk, *dv, *dbias_out;
    void *mean;      /* scratch of the gradient: f32 or f64 [B,H,T], sums of dy y */
    size_t n_dbias;  /* elements of dbias; 0: it is not computed */
    size_t dbias[4]; /* its dimensions */
} tti_cuda_sdpa;

/* Bytes of shared memory of the largest block: forward, or of the gradient. */
size_t tti_sdpa_shared_bytes(const tti_cuda_sdpa *a);

cudaError_t tti_launch_sdpa(const tti_cuda_sdpa *a, cudaStream_t stream);
cudaError_t tti_launch_sdpa_grad(const tti_cuda_sdpa *a, cudaStream_t stream);

/* The same on tensor cores: f16 and bf16, widths of multiples of 8 up to 128; a gradient of the
 * bias only where the bias has all queries and keys. */
bool tti_sdpa_mma_can(const tti_cuda_sdpa *a);
/* Bytes of a->mean: the sums of dy y, and after them those of the bias. */
size_t tti_sdpa_mma_scratch(const tti_cuda_sdpa *a);
cudaError_t tti_launch_sdpa_mma(const tti_cuda_sdpa *a, cudaStream_t stream);
cudaError_t tti_launch_sdpa_mma_grad(const tti_cuda_sdpa *a, cudaStream_t stream);

/* The same for at most 64 queries and keys of widths up to 64, with as many heads of keys as of
 * queries, without cap and dropout. */
bool tti_sdpa_short_can(const tti_cuda_sdpa *a);
/* Bytes of a->mean: the sums of the bias. */
size_t tti_sdpa_short_scratch(const tti_cuda_sdpa *a);
cudaError_t tti_launch_sdpa_short(const tti_cuda_sdpa *a, cudaStream_t stream);
cudaError_t tti_launch_sdpa_short_grad(const tti_cuda_sdpa *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_SDPA_H */
