/* tp_waits.h - which steps of a program must wait for overlapped collectives. */
#ifndef TTI_EXEC_TP_WAITS_H
#define TTI_EXEC_TP_WAITS_H

#include "passes/plan.h"
#include "passes/tensor/norm_exchange.h"

/* The role of a program's step in a norm between collectives. */
typedef struct tti_joint_step {
    tti_norm_exchange norm; /* that begins here; n_steps 0: none does */
    int to;                 /* of a product that brings one its terms: the norm's step; else 0 */
    int from;               /* of that norm: the product's step */
    bool pulls;             /* of a norm: rows may arrive after the next step has begun */
} tti_joint_step;

/* waits [n_steps]: before step s the collectives of earlier steps must be complete, because it
 * reads the output of one of them, or overwrites its input or output.  Collectives run one after
 * the other, so they need not wait for each other.  Gradients of collectives are read after the
 * program: no step waits for them here. joints [n_steps], NULL: there are none.  After a product
 * has pulled the rows of others the own ones may still be being sent, so steps that overwrite them
 * wait; of steps that run as one, the first. */
void tti_tp_waits(const tti_program *program, const tti_joint_step *joints, bool *waits);

#endif /* TTI_EXEC_TP_WAITS_H */
