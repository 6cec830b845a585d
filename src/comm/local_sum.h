/* local_sum.h - the arithmetic of reductions: combines two arrays, or many in tree order.
 *
 * f16 and bf16 are added as f32, the other types as themselves ("wide" dtype); integers wrap.  MIN
 * and MAX give NaN if either is NaN. The bits do not depend on the instruction set. */
#ifndef TTI_COMM_LOCAL_SUM_H
#define TTI_COMM_LOCAL_SUM_H

#include "comm/sum_order.h"
#include "tutti/comm.h"

enum { TTI_SUM_BLOCK = 1024 }; /* elements that tti_sum_block takes at most */

/* f32 for f16 and bf16, dtype itself otherwise. */
tutti_dtype tti_wide_dtype(tutti_dtype dtype);

/* dst[i] = a[i] op b[i] in a wide dtype; dst may be a or b. */
void tti_combine(tutti_dtype wide, tutti_reduce_op op, void *dst, const void *a, const void *b,
                 size_t n_elems);

/* f16 or bf16 to f32 and back (nearest even); a copy for the other dtypes. */
void tti_widen(tutti_dtype dtype, const void *src, void *dst, size_t n_elems);
void tti_narrow(tutti_dtype dtype, const void *src, void *dst, size_t n_elems);

/* Scratch that tti_sum_block needs: a stack of blocks and one for the result. */
size_t tti_sum_scratch_bytes(void);

/* The terms of order, whose n_elems <= TTI_SUM_BLOCK elements start at srcs[i] + offset_bytes,
 * added in order.  Returns the result in dtype: in scratch, or the term itself if it is alone. */
const void *tti_sum_block(const tti_sum_order *order, const void *const *srcs, size_t offset_bytes,
                          tutti_dtype dtype, tutti_reduce_op op, size_t n_elems, void *scratch);

#endif /* TTI_COMM_LOCAL_SUM_H */
