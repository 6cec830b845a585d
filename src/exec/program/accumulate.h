/* accumulate.h - which buffer each shard's gradient uses, and which are added to which.
 *
 * A worker owns shards first .. last-1 and computes n_compute_threads of them in parallel,
 * micro-batch group after micro-batch group. Gradients are added along the binary tree over all
 * shards, as a binary counter adds carries, so that few buffers are live at once: n_compute_threads
 * + log2 of the shards.  The canonical partial sums of the run remain at the end (comm/shards.h).
 * The whole plan is made before the first step. */
#ifndef TTI_EXEC_ACCUMULATE_H
#define TTI_EXEC_ACCUMULATE_H

#include "comm/shards.h"
#include "passes/plan.h"

enum { TTI_MAX_COMPUTE_THREADS = 256 };

/* buffer dst += buffer src; src is free afterwards.  src -1: dst is only rounded, where partial
 * sums are. */
typedef struct tti_merge {
    int dst, src;
} tti_merge;

typedef struct tti_micro_group {
    int first, n_shards; /* shards of this micro-batch group, by global number          */
    int buffer[TTI_MAX_COMPUTE_THREADS]; /* [n_shards]: where compute thread i's gradient goes */
    int first_merge, n_merges; /* in accumulation->merges, to do after the micro-batch group  */
} tti_micro_group;

typedef struct tti_accumulation {
    tti_micro_group *micro_groups;
    int n_micro_groups;
    tti_merge *merges;
    int n_merges;
    int n_buffers;
    tti_partial partials[TTI_MAX_PARTIALS]; /* data NULL */
    int partial_buffer[TTI_MAX_PARTIALS];
    int n_partials;
} tti_accumulation;

tutti_status tti_accumulation_init(tti_accumulation *acc, int first, int last,
                                   int n_compute_threads);

/* Adds the rounding of the only shard of a job, which no merge rounds and nothing sends. */
void tti_accumulation_round_alone(tti_accumulation *acc);

void tti_accumulation_fini(tti_accumulation *acc);

/* ---- the step of the shard program, of a worker's last shard, after which a bucket is due ----
 *
 * Its gradients are complete, and its parameters have no more readers, so that they can change
 * while the rest of this step continues. */

/* due[i] of bucket i; [n_buckets], ascending, at most the last step.  No bucket is due before the
 * sums of the shard are computed (tti_sums_due). */
void tti_bucket_due(const tti_plan *plan, int *due);

/* The step after which all sums of the shard are there. */
int tti_sums_due(const tti_program *program);

#endif /* TTI_EXEC_ACCUMULATE_H */
