/* trade_waits.h - which steps of a program must wait for exchanges that go on beside them. */
#ifndef TTI_EXEC_TRADE_WAITS_H
#define TTI_EXEC_TRADE_WAITS_H

#include "passes/plan.h"

/* waits [n_steps]: before step s the exchanges of the steps in front must be done, since it reads
 * what one of them gives, or writes over what one of them reads or gives.  Exchanges are done one
 * after the other, so that they need not wait for each other.  Gradients that exchanges give are
 * read after the program: nobody waits for them here. */
void tti_trade_waits(const tti_program *program, bool *waits);

/* The first step from first on that writes over the memory of value; program->n_steps: none. */
int tti_trade_overwriter(const tti_program *program, const tutti_value *value, int first);

#endif /* TTI_EXEC_TRADE_WAITS_H */
