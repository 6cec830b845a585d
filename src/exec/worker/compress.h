/* compress.h - compressed gradients between workers; fast mode.
 *
 *   top-k      for each matrix the largest elements, as pairs of index and value
 *   PowerSGD   for each matrix a product of two low-rank ones
 * The part of a worker's gradient that was not sent is its residual, which is added to its next
 * gradient. Vectors and running statistics are sent whole. The sums have the same bits on every
 * worker. */
#ifndef TTI_EXEC_COMPRESS_H
#define TTI_EXEC_COMPRESS_H

#include "backend/backend.h"
#include "exec/worker/desc.h"

/* Matrices of low rank: M [rows, cols] ~ the sum over k < r of p[k] q[k]^T.  p [r, rows] and
 * q [r, cols] are stored by vectors, so that all loops run along memory.  Plain C in one fixed
 * order: the same bits wherever the same program runs. */
typedef struct tti_low_rank {
    size_t rows, cols;
    int r;
} tti_low_rank;

/* p[k] = M q[k]. */
void tti_low_rank_left(const tti_low_rank *shape, const float *m, const float *q, float *p);

/* q[k] = M^T p[k]. */
void tti_low_rank_right(const tti_low_rank *shape, const float *m, const float *p, float *q);

/* out = the sum over k of p[k] q[k]^T, [rows, cols]; or out -= it. */
void tti_low_rank_product(const tti_low_rank *shape, const float *p, const float *q, float *out);
void tti_low_rank_subtract(const tti_low_rank *shape, const float *p, const float *q, float *out);

/* Makes the r vectors of n elements orthonormal, one after the other (modified Gram-Schmidt).  A
 * vector that depends on earlier ones, or is zero, becomes zeros. */
void tti_low_rank_orthonormalize(float *vectors, int r, size_t n);

/* The Euclidean norm of a vector. */
double tti_low_rank_norm(const float *v, size_t n);

/* ---- the largest elements of a vector, by magnitude ---- */

enum { TTI_TOPK_COUNTS = 1 << 16 };

/* Selects the k elements of x [n] with the largest magnitude, as ascending indices in index [k]; 0
 * <= k <= n < 2^32. Ties go to the lower index; NaN counts as larger than any number. counts
 * [TTI_TOPK_COUNTS] is scratch. */
void tti_topk_select(const float *x, size_t n, size_t k, uint32_t *counts, uint32_t *index);

/* ---- compressed gradients ---- */

typedef struct tti_compress tti_compress;

/* True if the job compresses gradients in some step. A single worker sends none. */
bool tti_compress_wanted(const tti_exec_desc *desc, int n_ranks);

/* Starts with empty residuals.  Collective; *out is owned by the caller, also after a failure. */
tutti_status tti_compress_create(const tti_setup *setup, tti_compress **out);
void tti_compress_destroy(tti_compress *c);

/* Bytes of memory for compression. */
size_t tti_compress_bytes(const tti_exec_desc *desc, int n_ranks);

/* Bytes of a worker's gradient that it sends to each other worker as pairs, and bytes that are
 * summed over the workers. */
void tti_compress_kinds(const tti_exec_desc *desc, double *pairs, double *summed);

/* Bytes that a worker sends in a compressed step, as the mean over the workers. */
double tti_compress_sent(const tti_exec_desc *desc, int n_ranks);

/* Bytes that the whole slots in n_elems elements from first on have in the messages of a compressed
 * step. */
size_t tti_compress_message_bytes(const tti_exec_desc *desc, size_t first, size_t n_elems);

/* True if the host compresses the gradients of the current step. */
bool tti_compress_is_on(const tti_exec *x);

/* sum: this worker's gradient [n_elems] of the whole slots from element first of the flat arrays
 * on; becomes the sum over all workers of what they sent.  Collective. */
tutti_status tti_compress_reduce(tti_exec *x, float *sum, size_t first, size_t n_elems);

/* ---- the layout of compressed messages between workers on devices ----
 *
 * A bucket has two summed messages, one after the other: P of each matrix and the uncompressed
 * values, then Q, which stays there as the start of the next step; and pairs that are gathered.
 * Every vector begins at a multiple of 4 elements, as sums between devices require. */

typedef struct tti_compress_places {
    tti_powersgd_slot *powersgd; /* all slots sent as matrices or whole, bucket by bucket */
    int *first_powersgd;         /* [n_buckets + 1]: index of a bucket's first slot */
    size_t *message;             /* [2 n_buckets + 1]: offsets of its messages, in elements */
    tti_topk_slot *topk;         /* all slots whose largest elements are sent */
    int *first_topk;             /* [n_buckets + 1] */
    size_t *pairs;               /* [n_buckets + 1]: offset of a bucket's pairs, in pairs */
    size_t n_longest;            /* elements of the longest messages of a bucket */
    size_t n_scratch;            /* largest scratch for the products of one bucket */
    size_t n_most_pairs;         /* largest number of pairs of one bucket */
} tti_compress_places;

/* On success out is released by _fini. */
TUTTI_NODISCARD tutti_status tti_compress_places_init(const tti_exec_desc *desc,
                                                      tti_compress_places *out);
void tti_compress_places_fini(tti_compress_places *places);

#endif /* TTI_EXEC_COMPRESS_H */
