/* trade_waits.h - which steps of a program must wait for exchanges that go on beside them. */
#ifndef TTI_EXEC_TRADE_WAITS_H
#define TTI_EXEC_TRADE_WAITS_H

#include "passes/norm_exchange.h"
#include "passes/plan.h"

/* What a step of a program has to do with a norm between exchanges. */
typedef struct tti_joint_step {
    tti_norm_exchange norm; /* that begins here; n_steps 0: none does */
    int to;                 /* of a product that brings one its terms: the norm's step; else 0 */
    int from;               /* of that norm: the product's step */
    bool pulls;             /* of a norm: rows may come while the step behind it has begun */
} tti_joint_step;

/* waits [n_steps]: before step s the exchanges of the steps in front must be done, since it reads
 * what one of them gives, or writes over what one of them reads or gives.  Exchanges are done one
 * after the other, so that they need not wait for each other.  Gradients that exchanges give are
 * read after the program: nobody waits for them here.
 * joints [n_steps], NULL: there are none.  When a product has pulled the rows of the others the own
 * ones may still be leaving, so who writes over them waits; of steps that are made as one, the
 * first. */
void tti_trade_waits(const tti_program *program, const tti_joint_step *joints, bool *waits);

#endif /* TTI_EXEC_TRADE_WAITS_H */
