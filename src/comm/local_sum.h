/* local_sum.h - the arithmetic of reductions: combines two arrays, or many in tree order.
 *
 * f16 and bf16 are added as f32, the other types as themselves ("wide" dtype); integers wrap.  MIN
 * and MAX give NaN if either is NaN. The bits do not depend on the instruction set.
 *
 * Sums of gradients may also be rounded to bf16 after each addition, so that every partial sum has
 * 16 bits: each term and each sum is bf16, and each addition is computed in f32. */
#ifndef TTI_COMM_LOCAL_SUM_H
#define TTI_COMM_LOCAL_SUM_H

#include "comm/sum_order.h"
#include "tutti/comm.h"

enum { TTI_SUM_BLOCK = 1024 }; /* maximum number of elements of tti_sum_block */

/* Returns f32 for f16 and bf16, else dtype itself. */
tutti_dtype tti_wide_dtype(tutti_dtype dtype);

/* Computes dst[i] = a[i] op b[i] in a wide dtype, or the rounded sum in bf16. dst may be a or b. */
void tti_combine(tutti_dtype wide, tutti_reduce_op op, void *dst, const void *a, const void *b,
                 size_t n_elems);

/* Converts f16 or bf16 to f32 and back (nearest even); copies the other dtypes. */
void tti_widen(tutti_dtype dtype, const void *src, void *dst, size_t n_elems);
void tti_narrow(tutti_dtype dtype, const void *src, void *dst, size_t n_elems);

/* The same conversions in place; the 16-bit values occupy the beginning of the f32 array's memory.
 * tti_narrow_in_place turns the n_elems f32 values at x into n_elems 16-bit values at x.
 * tti_widen_in_place turns the 16-bit values first .. last-1 at x into the f32 elements first ..
 * last-1 of x, and keeps the 16-bit values before first. */
void tti_narrow_in_place(tutti_dtype dtype, float *x, size_t n_elems);
void tti_widen_in_place(tutti_dtype dtype, float *x, size_t first, size_t last);

/* Bytes of scratch for tti_sum_block: a stack of blocks and one block for the result. */
size_t tti_sum_scratch_bytes(void);

/* The dtypes of a sum. term: of the terms and the result. sum: of the additions, either
 * tti_wide_dtype(term), or bf16 to round each partial sum.  With bf16 the op must be SUM, and term
 * bf16, or f32 with values that bf16 can represent. */
typedef struct tti_sum_dtypes {
    tutti_dtype term, sum;
} tti_sum_dtypes;

/* For terms of dtype that are added in its wide dtype. */
tti_sum_dtypes tti_sum_dtypes_of(tutti_dtype dtype);

/* Converts a sum in dtypes.sum to dst in dtypes.term. */
void tti_sum_result(tti_sum_dtypes dtypes, const void *sum, void *dst, size_t n_elems);

/* A sum whose terms are passed one after the other, at most TTI_SUM_BLOCK elements of each. */
typedef struct tti_adder {
    tti_sum_dtypes dtypes;
    void (*combine)(void *dst, const void *a, const void *b, size_t n_elems);
    size_t n_elems;
    unsigned char *blocks; /* scratch */
    const void *stack[TTI_SUM_DEPTH];
    int n;
} tti_adder;

/* Starts a sum. scratch: tti_sum_scratch_bytes() bytes, used until tti_adder_end. */
tti_adder tti_adder_begin(tti_sum_dtypes dtypes, tutti_reduce_op op, size_t n_elems, void *scratch);

/* Pushes the next term, then performs the n_adds additions that follow it (sum_order.h).  The term
 * must stay valid until tti_adder_end. */
void tti_adder_add(tti_adder *adder, const void *term, int n_adds);

/* Returns the result in dtypes.term: in scratch, or the term itself if there is only one. */
const void *tti_adder_end(tti_adder *adder);

/* Adds the terms of order, whose n_elems <= TTI_SUM_BLOCK elements start at srcs[i] + offset_bytes.
 * Returns the result in dtypes.term: in scratch, or the term itself if there is only one. */
const void *tti_sum_block(const tti_sum_order *order, const void *const *srcs, size_t offset_bytes,
                          tti_sum_dtypes dtypes, tutti_reduce_op op, size_t n_elems, void *scratch);

#endif /* TTI_COMM_LOCAL_SUM_H */
