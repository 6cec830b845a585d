/* reduce.h - launchers of reduce.cu and the plan of a reduction; C and C++.
 *
 * A plan has two nests over x: the kept loops and the reduced loops.  Its numbers depend on shapes
 * alone, so that the order of a sum is the same on every machine. */
#ifndef TTI_CUDA_REDUCE_H
#define TTI_CUDA_REDUCE_H

#include <cuda_runtime_api.h>

#include "backend/cuda/runtime/loop_nest.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tti_fold { TTI_FOLD_SUM, TTI_FOLD_MAX, TTI_FOLD_COUNT } tti_fold;

typedef struct tti_reduce_plan {
    tti_fold fold;
    tutti_dtype dtype;         /* of x: f32, bf16, f16, f64 */
    tutti_dtype y_dtype;       /* of y; as x unless changed */
    double divisor;            /* of sums; 1 unless changed */
    tti_nest kept, folded;     /* operand 0: x; 1: y, of kept alone */
    uint64_t n_kept, n_folded; /* elements of y; elements of x for one of y */
    bool by_columns;      /* the innermost loop of x is kept: threads process adjacent columns */
    int width;            /* elements of a load: 16 bytes, or 1 */
    int n_across, n_down; /* by columns: threads of a block; powers of two */
    int n_lanes;          /* by rows: threads for one element of y: 1 .. 32, 256 */
    uint64_t n_splits, chunk; /* parts of the folded loops; loads, or rows, of one */
} tti_reduce_plan;

/* The plan for x folded into y.  nest: operands x and y over x's dimensions, tidy; y's stride is 0
 * where it is folded. */
void tti_cuda_reduce_make(tti_fold fold, tutti_dtype dtype, const tti_nest *nest,
                          tti_reduce_plan *plan);

/* Bytes of scratch: partial results. */
size_t tti_cuda_reduce_scratch(const tti_reduce_plan *plan);

/* y = reduction of x.  COUNT: how many elements of x equal that of compare, which has y's layout;
 * otherwise NULL. */
cudaError_t tti_cuda_reduce(const tti_reduce_plan *plan, const void *x, const void *compare,
                            void *y, void *scratch, cudaStream_t stream);

/* dx = dy / ties where x equals y, else 0.  in: x, y, dy; nest: operands dx, x, y, dy; ties as y,
 * f32, or f64 for f64. */
cudaError_t tti_cuda_max_grad(tutti_dtype dtype, const tti_nest *nest, const void *const *in,
                              const void *ties, void *dx, cudaStream_t stream);

/* y i32 = place of the first maximum along n elements of x that lie stride apart; kept: operands x
 * and y over the other dimensions; NaN is the largest. */
cudaError_t tti_cuda_argmax(tutti_dtype dtype, const tti_nest *kept, uint64_t n, uint64_t stride,
                            const void *x, void *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_REDUCE_H */
