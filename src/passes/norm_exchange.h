/* norm_exchange.h - a norm between two exchanges of a tensor axis, which devices make in one go. */
#ifndef TTI_PASSES_NORM_EXCHANGE_H
#define TTI_PASSES_NORM_EXCHANGE_H

#include "passes/plan.h"

/* Steps one after the other: the own part of a sum, a bias added to it, the residual and the norm,
 * and the norms' parts of all side by side.  What they leave: outputs 1 .. 3 of the norm, and the
 * result of the gather. */
typedef struct tti_norm_exchange {
    const tti_node *scatter, *bias, *norm, *gather; /* bias NULL: there is none */
    int branch;                                     /* input of the norm that is the sum: 0 or 1 */
    int n_steps;
    int64_t n_blocks, n_rows, width; /* a part is [n_blocks][n_rows][width] */
} tti_norm_exchange;

/* Whether steps s and those behind it are one; out is written then.  Only in programs whose memory
 * was laid out for it (tti_program.joins_norms). */
bool tti_norm_exchange_at(const tti_program *program, int s, tti_norm_exchange *out);

#endif /* TTI_PASSES_NORM_EXCHANGE_H */
