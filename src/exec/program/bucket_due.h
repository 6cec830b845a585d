/* bucket_due.h - after which step of the shard program, of a worker's last shard, what a bucket has
 * may change hands: its gradients are complete, and nobody reads its parameters any more, so that
 * they may become those of the next step while the rest of this one goes on. */
#ifndef TTI_EXEC_BUCKET_DUE_H
#define TTI_EXEC_BUCKET_DUE_H

#include "passes/plan.h"

/* due[i] of bucket i; [n_buckets], never falling, at most the last step.  No bucket is due before
 * the sums of the shard are made (tti_sums_due). */
void tti_bucket_due(const tti_plan *plan, int *due);

/* The step after which loss_sum, count and correct are there. */
int tti_sums_due(const tti_program *program);

#endif /* TTI_EXEC_BUCKET_DUE_H */
