/* joint_sums.h - which sums over a tensor axis are computed together. */
#ifndef TTI_EXEC_JOINT_SUMS_H
#define TTI_EXEC_JOINT_SUMS_H

#include "passes/plan.h"

/* Bytes that the collective of step s sums, from its value on: more than the value if the next
 * steps sum adjacent ranges; then theirs are 0, and they do not run.  Also 0 for a step that sums
 * nothing.  Only if gradients are laid out as the flat arrays say. */
size_t tti_joint_bytes(const tti_program *program, int s);

#endif /* TTI_EXEC_JOINT_SUMS_H */
