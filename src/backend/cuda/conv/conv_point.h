/* conv_point.h - launchers of 1x1 convolutions on Hopper's tensor cores that end with the sums of
 * the batch norm after them (conv_point.cu). */
#ifndef TTI_CUDA_CONV_POINT_H
#define TTI_CUDA_CONV_POINT_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The result that is computed from z[m][n] = a[m][k] op(b), rounded. */
typedef enum tti_cuda_point_kind {
    TTI_POINT_STATS, /* d = z, out = {count, mean[n], M2[n]} of its columns; b is stored [n][k]  */
    TTI_POINT_JOIN,  /* d = z + more, rounded, where the mask's bit is set, else 0, and out =
                      * {count, sum d [n], sum d (x - mean) rstd [n]}; b is [k][n]               */
    TTI_POINT_SUMS   /* d = z, and those sums of it where bn(x) > 0; b is [k][n]                 */
} tti_cuda_point_kind;

enum { TTI_POINT_MAX_SUMS = 512 }; /* columns, of TTI_POINT_SUMS */

/* bf16 values in rows without gaps, aligned to 16 bytes; n a multiple of 64, k of 8. */
typedef struct tti_cuda_point_desc {
    tti_cuda_point_kind kind;
    int64_t m, n, k;
    int64_t per_sample;        /* rows of z */
    const int32_t *rows;       /* i32[]: samples whose rows count; NULL: all */
    const void *a, *b;         /* [m][k] */
    const void *x;             /* JOIN, SUMS: [m][n] */
    const float *stats;        /* with x: {count, mean[n], M2[n]} of it */
    double eps;                /* with x: added to the variance */
    const void *more;          /* JOIN: [m][n], or NULL */
    const uint8_t *mask;       /* JOIN: [m][n/8] */
    const float *gamma, *beta; /* SUMS: [n], of bn */
    void *d;                   /* [m][n] */
    float *out;                /* [2 n + 1] */
    float *of_x, *plain;       /* JOIN, SUMS: out's last n, its first n once more */
    float *partials;           /* scratch: tti_cuda_point_bytes */
} tti_cuda_point_desc;

/* Needs a device where tti_cuda_wgmma_has is true. */
cudaError_t tti_cuda_point(const tti_cuda_point_desc *desc, cudaStream_t stream);

/* Its end: computes out from the partials of the tiles. */
cudaError_t tti_cuda_point_end(const tti_cuda_point_desc *desc, cudaStream_t stream);

size_t tti_cuda_point_bytes(int64_t m, int64_t n);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_POINT_H */
