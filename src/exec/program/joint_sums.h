/* joint_sums.h - which sums over a tensor axis are made in one go. */
#ifndef TTI_EXEC_JOINT_SUMS_H
#define TTI_EXEC_JOINT_SUMS_H

#include "passes/plan.h"

/* Bytes that the exchange of step s sums, from its value on: more than the value where the steps
 * behind it sum what lies behind it; then theirs are 0, and they are not to run.  0 too for a step
 * that sums nothing.  Only where gradients lie as the flat arrays say. */
size_t tti_joint_bytes(const tti_program *program, int s);

#endif /* TTI_EXEC_JOINT_SUMS_H */
