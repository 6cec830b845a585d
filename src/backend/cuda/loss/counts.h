/* counts.h - launchers of counts.cu: the counts and sums from which metrics are computed. */
#ifndef TTI_CUDA_COUNTS_H
#define TTI_CUDA_COUNTS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* logits [rows,n] of dtype, labels [rows] -> counts [3,n], hits [2]; all n_rows and n >= 1. */
cudaError_t tti_cuda_class_counts(tutti_dtype dtype, const void *logits, const int32_t *labels,
                                  size_t rows, int n, int64_t k, int32_t *counts, int32_t *hits,
                                  cudaStream_t stream);

/* x, target [rows,width] of dtype, labels [rows] -> sums [5,width]. */
cudaError_t tti_cuda_value_sums(tutti_dtype dtype, const void *x, const void *target,
                                const int32_t *labels, size_t rows, size_t width, double *sums,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_COUNTS_H */
