/* gemm.h - launchers of our matrix product and of the passes around cublasLt's (gemm.cu). */
#ifndef TTI_CUDA_GEMM_H
#define TTI_CUDA_GEMM_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d[b][i][j] = sum over l of a[b][i][l] b[b][l][j] [+ d], sums in f32 (f64 for f64). */
typedef struct tti_cuda_gemm_desc {
    int64_t m, n, k, n_batch;
    int64_t a_row, a_col, b_row, b_col; /* elements from row to row, from column to column */
    int64_t ldd;                        /* of d; its columns are neighbours */
    int64_t a_step, b_step, d_step;     /* elements from batch to batch */
    tutti_dtype in, out;                /* equal, or 16 bits to f32 */
    const void *a, *b, *c; /* c: added, of d's type, rows and batches; may be d; NULL: nothing */
    void *d;
} tti_cuda_gemm_desc;

/* True if there is a kernel for these dtypes. */
bool tti_cuda_gemm_has(tutti_dtype in, tutti_dtype out);
cudaError_t tti_cuda_gemm(const tti_cuda_gemm_desc *desc, cudaStream_t stream);

/* The operation after a product without epilogue; one pass over d[rows][n]. */
typedef enum tti_cuda_tail {
    TTI_TAIL_BIAS,     /* d += bias                                         */
    TTI_TAIL_RELU,     /* d = max(d + bias, 0)                              */
    TTI_TAIL_GELU,     /* aux = d + bias, d = gelu(aux)                     */
    TTI_TAIL_GELU_GRAD /* d *= gelu'(aux); no bias                          */
} tti_cuda_tail;

typedef struct tti_cuda_tail_desc {
    tti_cuda_tail kind;
    bool exact;        /* gelu by erf; else by tanh */
    tutti_dtype dtype; /* of all */
    int64_t rows, n;
    void *d, *aux;    /* [rows][n] */
    const void *bias; /* [n], NULL: none */
    const float
        *wide; /* [rows][n]: the product of a d in 16 bits, not yet rounded; NULL: it is d */
} tti_cuda_tail_desc;

cudaError_t tti_cuda_run_tail(const tti_cuda_tail_desc *desc, cudaStream_t stream);

/* sums[n] = sum over rows of x[rows][n], in a fixed order.  partials: tti_cuda_column_bytes. */
typedef struct tti_cuda_columns_desc {
    tutti_dtype in, out; /* floats */
    int64_t rows, n;
    const void *x;
    void *sums, *partials;
} tti_cuda_columns_desc;

/* Applies TTI_TAIL_GELU_GRAD while summing: x, which is overwritten, times gelu'(aux). exact: as
 * above. */
cudaError_t tti_cuda_gelu_grad_sums(const tti_cuda_columns_desc *desc, void *x, const void *aux,
                                    bool exact, cudaStream_t stream);

size_t tti_cuda_column_bytes(tutti_dtype in, int64_t rows, int64_t n);
cudaError_t tti_cuda_column_sums(const tti_cuda_columns_desc *desc, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_GEMM_H */
