/* compress.h - compressed gradients between workers; fast mode.
 *
 *   top-k      for each matrix the largest elements, as pairs of index and value
 *   PowerSGD   for each matrix a product of two low-rank ones
 * The part of a worker's gradient that was not sent is its residual: kept, and added to its next
 * gradient.  Vectors and running statistics are sent whole.  The sums have the same bits on every
 * worker. */
#ifndef TTI_EXEC_COMPRESS_H
#define TTI_EXEC_COMPRESS_H

#include "exec/worker/desc.h"
#include "exec/worker/low_rank.h"

typedef struct tti_compress tti_compress;

/* Whether gradients of a worker of n_ranks are ever compressed; alone they do not travel. */
bool tti_compress_wanted(const tti_exec_desc *desc, int n_ranks);

/* Starts with empty residuals.  Collective; on success *out is owned by the caller. */
tutti_status tti_compress_create(const tti_setup *setup, tti_compress **out);
void tti_compress_destroy(tti_compress *c);

/* Memory that it takes. */
size_t tti_compress_bytes(const tti_exec_desc *desc, int n_ranks);

/* Bytes of a worker's gradient that it sends to each of the others as pairs, and those that are
 * summed over the workers. */
void tti_compress_kinds(const tti_exec_desc *desc, double *pairs, double *summed);

/* Bytes that a worker sends in a step that is compressed, in the mean over the workers. */
double tti_compress_sent(const tti_exec_desc *desc, int n_ranks);

/* Bytes that a worker's gradient of the whole slots in n_elems elements from first on has in the
 * messages of a step that is compressed. */
size_t tti_compress_message_bytes(const tti_exec_desc *desc, size_t first, size_t n_elems);

/* Whether a slot does not travel at all. */
bool tti_compress_leaves_out(const tti_slot *slot);

/* With TTI_COMPRESS_POWERSGD: the matrix of a slot; r is 0 if it is sent whole. */
tti_low_rank tti_compress_shape(const tti_exec_desc *desc, const tti_slot *slot);

/* With TTI_COMPRESS_TOPK: number of elements of a slot that are sent as pairs; 0 if it is sent
 * whole. */
size_t tti_compress_k(const tti_exec_desc *desc, const tti_slot *slot);

/* The key of the random directions of a slot: element i of direction k in a step is 2 u - 1, u of
 * the first word of the draw at (step << 16 | k, i). */
uint64_t tti_compress_key(const tti_exec_desc *desc, const tti_slot *slot);

/* Whether gradients of the step at work are compressed, by the host. */
bool tti_compress_is_on(const tti_exec *x);

/* sum: this worker's gradient [n_elems] of the whole slots from element first of the flat arrays
 * on; becomes the sum over all workers of what they sent.  Collective. */
tutti_status tti_compress_reduce(tti_exec *x, float *sum, size_t first, size_t n_elems);

#endif /* TTI_EXEC_COMPRESS_H */
