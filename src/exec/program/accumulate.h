/* accumulate.h - assigns a buffer to each shard's gradient and plans which buffers are added. */
#ifndef TTI_EXEC_ACCUMULATE_H
#define TTI_EXEC_ACCUMULATE_H

#include "comm/shards.h"
#include "passes/plan.h"

enum { TTI_MAX_COMPUTE_THREADS = 256 };

/* Buffer dst += buffer src; src is free afterwards. src -1: dst is only rounded, if partial sums
 * are rounded. */
typedef struct tti_merge {
    int dst, src;
} tti_merge;

typedef struct tti_micro_group {
    int first, n_shards; /* shards of this micro-batch group, by global number          */
    int buffer[TTI_MAX_COMPUTE_THREADS]; /* [n_shards]: buffer of compute thread i's gradient */
    int first_merge, n_merges;           /* in accumulation->merges, to run after the group */
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

/* Adds the rounding of a job's only shard, which no merge rounds and no worker sends. */
void tti_accumulation_round_alone(tti_accumulation *acc);

void tti_accumulation_fini(tti_accumulation *acc);

/* ---- the step of a worker's last shard after which a bucket is due ----
 *
 * Its gradients are complete, and its parameters have no more readers, so that they can change
 * while the rest of this step continues. */

/* due[i]: the step after which bucket i is due; [n_buckets], ascending, at most the last step.  No
 * bucket is due before the sums of the shard are computed (tti_sums_due). */
void tti_bucket_due(const tti_plan *plan, int *due);

/* The step after which all sums of the shard are computed. */
int tti_sums_due(const tti_program *program);

#endif /* TTI_EXEC_ACCUMULATE_H */
