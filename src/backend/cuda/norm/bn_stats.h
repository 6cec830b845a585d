/* bn_stats.h - functions of batch_norm.c for convolutions that also compute statistics and joins.
 */
#ifndef TTI_CUDA_BN_STATS_H
#define TTI_CUDA_BN_STATS_H

#include "backend/backend.h"
#include "ir/graph.h"

/* Bytes of scratch. */
size_t tti_cuda_stats_bytes(const tutti_value *value);

/* bn_stats of x, which lies as value does.  sums: f32 [2][C], of x and of its squares over all
 * samples, which then need not be read again unless some do not count; or NULL. */
tutti_status tti_cuda_stats_run(const tutti_value *value, const void *x, const int32_t *rows,
                                const float *sums, void *scratch, float *stats);

/* True if values of input 0's shape have its layout. */
bool tti_cuda_bn_lies_alike(const tti_node *node);

/* conv2d_grad_join and conv2d_grad_sums, when out[0] is the product: the rest of it.  scratch as
 * for the statistics of input 0. */
tutti_status tti_cuda_join_product(const tti_kargs *a);
tutti_status tti_cuda_sum_product(const tti_kargs *a);

#endif /* TTI_CUDA_BN_STATS_H */
