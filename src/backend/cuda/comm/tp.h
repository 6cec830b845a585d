/* tp.h - launchers of tp.cu: collectives between the workers of a tensor axis inside a step,
 * and sums of lists of doubles.
 *
 * The first partial sum of every rank is their memory: two alternating halves of half_bytes.  All
 * ranks launch the same sequence of collectives with the same sizes, one after the other. */
#ifndef TTI_CUDA_TP_H
#define TTI_CUDA_TP_H

#include "backend/cuda/comm/peers.h"
#include "backend/cuda/norm/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels, as tti_launch_peers_load. */
cudaError_t tti_launch_tp_load(void);

/* overlapped: on few multiprocessors. cudaErrorInvalidValue: a dtype that cannot be added, or a
 * value with 2^31 elements or more. */
cudaError_t tti_launch_tp(const tti_peers_view *view, const tti_tp_collective *tp,
                          size_t half_bytes, bool overlapped, cudaStream_t stream);

enum { TTI_NORM_RANKS = 2 };

/* A norm between two collectives, or its gradient, as tti_device_norm. */
typedef struct tti_tp_norm {
    const void *terms[TTI_NORM_RANKS]; /* of each rank: [n_blocks][n_ranks][n_rows][width]; pushed:
                                          the other's [n_blocks][n_rows][width] */
    void *whole[TTI_NORM_RANKS];       /* likewise, what each gets */
    size_t n_blocks, n_rows, width;
    bool pushed; /* the terms of the other rank are here */
    bool kept;   /* rows do not go to the other */
    /* forward alone: */
    const void *bias, *x;
    void *sum;
    const float *gamma, *beta;
    float *mean, *rstd;
    float eps;
} tti_tp_norm;

/* dtype: bf16 or f16.  cudaErrorInvalidValue: another one, or ranks are not two. */
cudaError_t tti_launch_tp_norm(const tti_peers_view *view, const tti_tp_norm *norm,
                               tutti_dtype dtype, cudaStream_t stream);
cudaError_t tti_launch_tp_norm_load(void);

/* The gradient, with the bits of norm_16bit.h's; grad: all of it but dy, of the own part. */
cudaError_t tti_launch_tp_norm_grad(const tti_peers_view *view, const tti_tp_norm *norm,
                                    const tti_cuda_norm_grad *grad, cudaStream_t stream);
cudaError_t tti_launch_tp_norm_grad_load(void);

/* Waits until rows_arrived shows that the other rank has ended as many collectives. */
cudaError_t tti_launch_tp_rows_arrived(const tti_peers_view *view, cudaStream_t stream);

/* peers.c: the first source of a rank of such a group, as it is seen here. */
char *tti_cuda_tp_source(const void *group, int rank);

/* peers.c: a group whose terms are the ranks', in order, and the bytes of a half of its memory. */
const tti_peers_view *tti_cuda_tp_view(const void *group, size_t *n_bytes);

/* See tti_device_ops. */
cudaError_t tti_launch_fold(const double *values, const tti_device_lists *lists, double *sums,
                            cudaStream_t stream);
cudaError_t tti_launch_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                              const double *sums, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_TP_H */
