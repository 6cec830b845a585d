/* attention_flash.h - own attention kernels: tiled, online softmax, never a T x T matrix.
 *
 * Values as the ops have them: qkv[B,T,(H+2KV)D], y[B,T,H D], lse f32[B,H,T], lengths i32[B] or
 * NULL.  Sums in f32 (f64 for f64), in a fixed order: no atomics, dK and dV by one pass over blocks
 * of keys, dQ by another over blocks of queries. */
#ifndef TTI_CUDA_ATTENTION_FLASH_H
#define TTI_CUDA_ATTENTION_FLASH_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

typedef struct tti_cuda_heads {
    int64_t n_batch, n_t;
    int heads, kv_heads, dim;
    bool causal;
    float scale;
} tti_cuda_heads;

/* The inputs and outputs of attention and its gradient; unused members are NULL. */
typedef struct tti_cuda_attention {
    tti_cuda_heads heads;
    tutti_dtype dtype;
    const void *qkv;
    const int32_t *lengths;
    void *y;        /* written by forward, read by backward */
    float *lse;     /* likewise */
    const void *dy; /* backward */
    void *delta;    /* backward: scratch, tti_cuda_attention_delta_bytes */
    void *dqkv;     /* backward */
    float *columns; /* attention_grad.h */
} tti_cuda_attention;

#ifdef __cplusplus
extern "C" {
#endif

size_t tti_cuda_attention_delta_bytes(tutti_dtype dtype, const tti_cuda_heads *heads);

/* Any float dtype and any D, in plain arithmetic. */
cudaError_t tti_cuda_attention_forward(const tti_cuda_attention *a, cudaStream_t stream);
cudaError_t tti_cuda_attention_backward(const tti_cuda_attention *a, cudaStream_t stream);

/* The same on tensor cores: f16 and bf16, D a multiple of 8 and at most 128. */
bool tti_cuda_attention_mma_can(tutti_dtype dtype, const tti_cuda_heads *heads);
cudaError_t tti_cuda_attention_mma_forward(const tti_cuda_attention *a, cudaStream_t stream);
cudaError_t tti_cuda_attention_mma_backward(const tti_cuda_attention *a, cudaStream_t stream);

/* a->delta [B,H,T] = the sum over D of dy y. */
cudaError_t tti_cuda_attention_delta(const tti_cuda_attention *a, cudaStream_t stream);

/* ---- around cuDNN's ---- */

/* queries[b] = T, keys[b] = lengths[b] within 1 .. T. */
cudaError_t tti_cuda_attention_lengths(const tti_cuda_heads *heads, const int32_t *lengths,
                                       int32_t *queries, int32_t *keys, cudaStream_t stream);
/* y and lse of samples without keys = 0. */
cudaError_t tti_cuda_attention_mend(const tti_cuda_attention *a, cudaStream_t stream);
/* Sets dqkv of masked positions to 0. */
cudaError_t tti_cuda_attention_mend_grad(const tti_cuda_attention *a, cudaStream_t stream);

/* ---- decoding ---- */

/* Caches [B,t_max,KV D] in and out, pos i32[1] in device memory, qkv of one position. */
typedef struct tti_cuda_cached {
    tti_cuda_heads heads;
    tutti_dtype dtype;
    int64_t t_max;
    const void *qkv, *k_in, *v_in;
    const int32_t *pos;
    void *y, *k_out, *v_out;
} tti_cuda_cached;

cudaError_t tti_cuda_attention_cached(const tti_cuda_cached *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_ATTENTION_FLASH_H */
