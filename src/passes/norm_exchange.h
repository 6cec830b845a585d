/* norm_exchange.h - a norm between two exchanges of a tensor axis, which devices make in one go. */
#ifndef TTI_PASSES_NORM_EXCHANGE_H
#define TTI_PASSES_NORM_EXCHANGE_H

#include "passes/plan.h"

/* Steps one after the other: the own part of a sum, a bias added to it, the residual and the norm,
 * and the norms' parts of all side by side.  What they leave: outputs 1 .. 3 of the norm, and the
 * result of the gather.  Or the own part of a sum, which is dy and is not left, the gradients of a
 * norm, and dx of all side by side. */
typedef struct tti_norm_exchange {
    const tti_node *scatter, *bias, *norm, *gather; /* bias NULL: there is none */
    bool is_grad;
    int branch; /* input of the norm that is the sum: 0 or 1 */
    int n_steps;
    int64_t n_blocks, n_rows, width; /* a part is [n_blocks][n_rows][width] */
} tti_norm_exchange;

/* Whether steps s and those behind it are one; out is written then.  Only in programs whose memory
 * was laid out for it (tti_program.joins_norms). */
bool tti_norm_exchange_at(const tti_program *program, int s, tti_norm_exchange *out);

/* The step in front of s that makes the terms of what is exchanged there, where nobody else reads
 * them and no other exchange lies in between, so that it may bring them to those who want them; -1:
 * there is none. */
int tti_norm_exchange_product(const tti_program *program, int s);

/* Whether node, in front of whom the sum's part has been exchanged, is the gradient of a norm whose
 * rows have at least that many elements. */
bool tti_is_norm_grad(const tti_node *node, const tutti_value *part, int least);

#endif /* TTI_PASSES_NORM_EXCHANGE_H */
