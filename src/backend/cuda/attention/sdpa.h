/* sdpa.h - launchers of sdpa.cu: attention with separate queries, keys and values. */
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
    float *lse;
    const void *dy; /* of the gradient, which reads y and lse */
    void *dq, *dk, *dv, *dbias_out;
    void *mean;      /* scratch of the gradient: f32 or f64 [B,H,T], sums of dy y */
    size_t n_dbias;  /* elements of dbias; 0: it is not computed */
    size_t dbias[4]; /* its dimensions */
} tti_cuda_sdpa;

/* Bytes of shared memory of the largest block: forward, or of the gradient. */
size_t tti_sdpa_shared_bytes(const tti_cuda_sdpa *a);

cudaError_t tti_launch_sdpa(const tti_cuda_sdpa *a, cudaStream_t stream);
cudaError_t tti_launch_sdpa_grad(const tti_cuda_sdpa *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_SDPA_H */
