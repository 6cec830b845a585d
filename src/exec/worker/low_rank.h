/* low_rank.h - matrices of low rank: M [rows, cols] ~ the sum over k < r of p[k] q[k]^T.
 *
 * p [r, rows] and q [r, cols] are stored by vectors, so that all loops run along memory.  Plain C
 * in one fixed order: the same bits wherever the same program runs. */
#ifndef TTI_EXEC_LOW_RANK_H
#define TTI_EXEC_LOW_RANK_H

#include <stddef.h>

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

/* The length of a vector. */
double tti_low_rank_norm(const float *v, size_t n);

#endif /* TTI_EXEC_LOW_RANK_H */
