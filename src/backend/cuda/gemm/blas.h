/* blas.h - matrix products by cublasLt: descriptions, plans, runs.
 *
 * Everything here is row-major; blas.c alone knows that cublasLt is column-major.  A plan belongs
 * to one thread and the device that was open when it was made. */
#ifndef TTI_CUDA_BLAS_H
#define TTI_CUDA_BLAS_H

#include "tutti/types.h"

/* The epilogue of a product z = op(a) op(b) [+ c].  ReLU is none of them: cublasLt's turns NaN into
 * 0. */
typedef enum tti_blas_epilogue {
    TTI_BLAS_PLAIN,         /* d = z                                                     */
    TTI_BLAS_BIAS,          /* d = z + bias[n]                                           */
    TTI_BLAS_GELU_AUX,      /* aux = z, d = gelu(z) by tanh                              */
    TTI_BLAS_GELU_AUX_BIAS, /* aux = z + bias[n], d = gelu(aux) by tanh                  */
    TTI_BLAS_DGELU,         /* d = z gelu'(aux) by tanh                                  */
    TTI_BLAS_ROW_SUMS       /* d = z, bias[m] = sum over k of op(a): a bias' gradient    */
} tti_blas_epilogue;

/* d[b][m][n] = op(a)[b][m][k] op(b)[b][k][n].  Filled from zeros: its bytes are a key. */
typedef struct tti_blas_problem {
    int64_t m, n, k, n_batch;       /* each >= 1 */
    int64_t lda, ldb, ldd;          /* elements from row to row as stored; c's and aux' are ldd */
    int64_t a_step, b_step, d_step; /* elements from batch to batch; 0: shared */
    int32_t trans_a, trans_b;       /* 1: stored [k][m], [n][k] */
    int32_t in, out;                /* tutti_dtype of a, b and of c, d, bias, aux */
    int32_t epilogue;               /* of tti_blas_epilogue; all but PLAIN: n_batch == 1 */
    int32_t add;                    /* 1: + c, which may be d */
    int32_t tf32, exact;            /* the device's settings: filled by tti_blas_plan_create */
} tti_blas_problem;

/* Pointers to device memory, aligned to 64 bytes. */
typedef struct tti_blas_args {
    const void *a, *b, *c;
    void *d, *bias, *aux; /* as the epilogue needs them */
    void *workspace;      /* tti_blas_workspace bytes */
} tti_blas_args;

typedef struct tti_blas_plan tti_blas_plan;

/* Chooses an algorithm for the open device.  Large products are timed, once per machine, unless
 * the device was opened for exact work: there it is the first choice of cublasLt, which depends on
 * nothing but the problem, the library and the device.  *out is NULL, with TUTTI_OK, where no
 * algorithm has this epilogue; PLAIN always has one. */
tutti_status tti_blas_plan_create(const tti_blas_problem *problem, tti_blas_plan **out);
void tti_blas_plan_destroy(tti_blas_plan *plan); /* takes NULL */

/* Bytes of workspace that tti_blas_run needs. */
size_t tti_blas_workspace(const tti_blas_plan *plan);

/* Microseconds of one run; 0: never timed. */
double tti_blas_time_us(const tti_blas_plan *plan);

/* Puts the product into tti_cuda_stream(). */
tutti_status tti_blas_run(tti_blas_plan *plan, const tti_blas_args *args);

#endif /* TTI_CUDA_BLAS_H */
