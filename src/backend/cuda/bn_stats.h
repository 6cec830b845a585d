/* bn_stats.h - statistics of a value as a part of other ops: what batch_norm.c gives conv.c. */
#ifndef TTI_CUDA_BN_STATS_H
#define TTI_CUDA_BN_STATS_H

#include "ir/graph.h"

/* Bytes of scratch. */
size_t tti_cuda_stats_bytes(const tutti_value *value);

/* bn_stats of x, which lies as value does.  sums: f32 [2][C], of x and of its squares over all
 * samples, which then need not be read again unless some do not count; or NULL. */
tutti_status tti_cuda_stats_run(const tutti_value *value, const void *x, const int32_t *rows,
                                const float *sums, void *scratch, float *stats);

#endif /* TTI_CUDA_BN_STATS_H */
