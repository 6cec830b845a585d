/* topk.h - the largest elements of a vector, by magnitude. */
#ifndef TTI_EXEC_TOPK_H
#define TTI_EXEC_TOPK_H

#include <stddef.h>
#include <stdint.h>

enum { TTI_TOPK_COUNTS = 1 << 16 };

/* The k elements of x [n] with the largest magnitude, as ascending indices in index [k]; 0 <= k <=
 * n < 2^32.  Of equal ones the first; NaN counts as larger than any number. counts
 * [TTI_TOPK_COUNTS] is scratch. */
void tti_topk_select(const float *x, size_t n, size_t k, uint32_t *counts, uint32_t *index);

#endif /* TTI_EXEC_TOPK_H */
