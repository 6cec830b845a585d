/* gemm_small.h - matrix products of a few million multiplications in one launch; a library would
 * use two or three, and most of the time would be overhead between them. */
#ifndef TTI_CUDA_GEMM_SMALL_H
#define TTI_CUDA_GEMM_SMALL_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

/* d[m][n] = act(op(a)[m][k] op(b)[k][n] + bias[n]), all f32 and row-major without gaps, the
 * operands rounded to tf32. */
typedef struct tti_small_product {
    int m, n, k;           /* each >= 1 */
    bool trans_a, trans_b; /* stored [k][m], [n][k] */
    bool relu;
    const float *a, *b;
    const float *bias; /* [n] or NULL */
    float *d;
    float *sums; /* [m] or NULL; trans_a only: the sums of a over k, not rounded */
} tti_small_product;

#ifdef __cplusplus
extern "C" {
#endif

/* Worth it by its size alone, so that the choice is the same everywhere; pointers are not read. */
bool tti_small_product_fits(const tti_small_product *p);

/* capability: of the device, major * 10 + minor, at least 80; shared_optin: most shared memory of a
 * block there, bytes, which no bit of the result depends on. */
cudaError_t tti_launch_small_product(const tti_small_product *p, int capability,
                                     size_t shared_optin, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_GEMM_SMALL_H */
