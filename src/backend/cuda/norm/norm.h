/* norm.h - launchers of layer, RMS and group norm and their gradients.
 *
 * x is rows (ops/norm/rows.h).  Pointers are device memory, aligned to 64 bytes; those said to be
 * optional may be NULL. */
#ifndef TTI_CUDA_NORM_H
#define TTI_CUDA_NORM_H

#include <cuda_runtime_api.h>

#include "ops/norm/rows.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A value of some floating dtype. */
typedef struct tti_cuda_floats {
    void *at; /* NULL: absent */
    tutti_dtype dtype;
} tti_cuda_floats;

/* sum = x + branch; y = (sum - mean) rstd gamma + beta. */
typedef struct tti_cuda_norm {
    tti_rows rows;
    double eps;
    tti_cuda_floats x;           /* [n_rows,width] */
    tti_cuda_floats branch, sum; /* likewise, optional, both or none */
    tti_cuda_floats y;           /* likewise */
    const float *gamma, *beta;   /* [groups*per_group]; beta optional */
    float *mean, *rstd;          /* [n_rows]; mean optional */
} tti_cuda_norm;

cudaError_t tti_cuda_norm_forward(const tti_cuda_norm *norm, cudaStream_t stream);

/* dx = rstd (d - mean d - xhat mean(d xhat)) + residual, d = dy gamma; copy = dx;
 * dgamma = sum dy xhat, dbeta = sum dy over the rows. */
typedef struct tti_cuda_norm_grad {
    tti_rows rows;
    tti_cuda_floats dy, x;            /* [n_rows,width] */
    tti_cuda_floats residual;         /* likewise, optional */
    const float *mean, *rstd, *gamma; /* mean NULL: RMS norm; gamma only for dx */
    tti_cuda_floats dx, copy;         /* [n_rows,width], optional; a copy only with dx */
    float *dgamma, *dbeta;            /* [groups*per_group], optional; dbeta only with dgamma */
    float *dsums;                     /* [width], the column sums of dx: norm_16bit.h's alone */
    float *partials;                  /* tti_cuda_norm_scratch bytes; only for dgamma */
} tti_cuda_norm_grad;

size_t tti_cuda_norm_scratch(const tti_rows *rows);
cudaError_t tti_cuda_norm_backward(const tti_cuda_norm_grad *grad, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_NORM_H */
