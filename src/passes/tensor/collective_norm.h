/* collective_norm.h - norms and products beside collectives of a tensor axis, which devices compute
 * with them. */
#ifndef TTI_PASSES_COLLECTIVE_NORM_H
#define TTI_PASSES_COLLECTIVE_NORM_H

#include "passes/plan.h"

/* Consecutive steps: the reduce-scatter, the addition of a bias, the residual and the norm, and the
 * all-gather.  They leave outputs 1 .. 3 of the norm, and the result of the gather.  Or the
 * reduce-scatter that makes dy (not stored), the gradients of a norm, and the all-gather of dx.
 * Without a gather, where every worker continues with its own rows, they leave all outputs.  Or a
 * gather alone (tti_rows_gather_at). */
typedef struct tti_collective_norm {
    const tti_node *scatter, *bias, *norm, *gather; /* NULL: there is none */
    bool is_grad;
    int branch; /* input of the norm that is the sum: 0 or 1 */
    int n_steps;
    int64_t n_blocks, n_rows, width; /* a part is [n_blocks][n_rows][width] */
} tti_collective_norm;

/* Whether step s and the following ones match; fills out if so.  Only in programs whose memory was
 * laid out for it (tti_program.joins_norms). */
bool tti_collective_norm_at(const tti_program *program, int s, tti_collective_norm *out);

/* Whether step s is an all-gather of 16-bit rows that belongs to no such norm: products after it
 * can begin with the own rows.  Fills out if so. */
bool tti_rows_gather_at(const tti_program *program, int s, tti_collective_norm *out);

/* The step before s that makes the terms of its collective, if they have no other reader and no
 * other collective lies in between, so that the product may send them directly; -1: none. */
int tti_collective_norm_product(const tti_program *program, int s);

/* Whether node, which reads the reduce-scattered part of a sum, is the gradient of a norm whose
 * rows have at least that many elements. */
bool tti_is_norm_grad(const tti_node *node, const tutti_value *part, int least);

#endif /* TTI_PASSES_COLLECTIVE_NORM_H */
