/* bucket_due.h - the step of the shard program, of a worker's last shard, after which a bucket may
 * be updated: its gradients are complete, and its parameters have no more readers, so that they can
 * change while the rest of this step continues. */
#ifndef TTI_EXEC_BUCKET_DUE_H
#define TTI_EXEC_BUCKET_DUE_H

#include "passes/plan.h"

/* due[i] of bucket i; [n_buckets], ascending, at most the last step.  No bucket is due before the
 * sums of the shard are computed (tti_sums_due). */
void tti_bucket_due(const tti_plan *plan, int *due);

/* The step after which loss_sum, count and correct are there. */
int tti_sums_due(const tti_program *program);

#endif /* TTI_EXEC_BUCKET_DUE_H */
