/* zero.h - workers that each have partitions: of the optimizer state (ZeRO-1), also of gradients
 * (ZeRO-2), also of parameters (ZeRO-3).
 *
 * With ZeRO-2 a bucket of gradients has memory until it is reduced to the owners of its partitions;
 * with ZeRO-3 a bucket of parameters while steps use it.  bucket_memory.h assigns the memory;
 * instructions of the step program (step_program.h) move the values.  Gradients of all shards but a
 * worker's last ones are accumulated in whole buffers: the tree over all shards adds a worker's own
 * before those of others. */
#ifndef TTI_EXEC_ZERO_H
#define TTI_EXEC_ZERO_H

#include "exec/program/exec_program.h"
#include "exec/update/flat_update.h"
#include "exec/worker/desc.h"

/* Hashes of partitioned parameters after the last update. */
typedef struct tti_param_hashes {
    uint64_t own, all;  /* of the blocks of this worker, and of all blocks */
    uint64_t by_rank[]; /* [n_ranks]: of the blocks of each worker */
} tti_param_hashes;

/* The partitions of a worker in memory.  Made with the worker; the contents of the arrays and the
 * hashes change, the rest does not. */
typedef struct tti_sharded {
    bool params; /* parameters are partitioned, too */
    tti_bucket_memory grads, train, eval;
    bool *is_short;   /* [n_buffers]: the buffer has only the memory of grads */
    float *own_grads; /* sums, in the places of the state; NULL: in a whole buffer */
    float *gathered;  /* memory of train and eval */
    float *staging;   /* [longest slot]: state for a checkpoint */
    float *averages;  /* [n_flat], for evaluation with whole parameters; NULL: none */
    size_t n_averages;
    int n_micro_groups;       /* of the worker that has most: the others gather as often */
    tti_param_hashes *hashes; /* owned */
} tti_sharded;

/* Creates *out if desc.zero is at least 2, else sets it to NULL.  tti_sharded_buffers then finds
 * which of n_buffers gradient buffers are short, and allocates memory; sharded NULL: nothing to do.
 * All functions below are collective, except tti_sharded_fini and those after it. */
tutti_status tti_sharded_init(tti_exec *x, tti_sharded **out);
tutti_status tti_sharded_buffers(tti_exec *x, tti_sharded *sharded, int n_buffers);

/* *sharded is then NULL, as it may be before. */
void tti_sharded_fini(const tti_setup *setup, tti_sharded **sharded);

/* True if parameters are partitioned. */
bool tti_exec_has_sharded_params(const tti_exec *x);

/* Plans grads, and if sharded->params also train and eval.  Freed by fini, also after a failure. */
tutti_status tti_sharded_plan_memory(const tti_plan *plan, tti_sharded *sharded);
void tti_sharded_fini_memory(tti_sharded *sharded);

/* Which buffers of a worker with these shards hold only buckets in flight; is_short
 * [acc->n_buffers].  If other stages add to sums these stay whole. */
void tti_sharded_find_short(const tti_accumulation *acc, const tti_plan *plan, bool *is_short);

/* Shards that run concurrently use the same memory: the next step of the shard program after this
 * one, at most last, that all of them must reach before one of them runs it. sharded NULL: last. */
int tti_sharded_next_stop(const tti_sharded *sharded, int step, int last);

/* Element first of a buffer of gradients, and what follows in its bucket. */
float *tti_exec_grads_at(const tti_exec *x, int buffer, size_t first);

/* The place of a block of this worker's: of its parameters, and of its summed gradient. */
float *tti_own_params(const tti_exec *x, const tti_own_block *own);
float *tti_own_grads(tti_exec *x, const tti_own_block *own);

/* Gathers a bucket of parameters, or of their averages, into its place. */
tutti_status tti_sharded_gather(tti_exec *x, int bucket, size_t offset, bool averages);

/* The own part of a bucket's sum goes to where its place is not taken again, if it must. */
void tti_sharded_keep_sum(tti_exec *x, int bucket);

/* Micro-batch groups without a shard, before the own ones, so that all workers gather as often. */
int tti_sharded_idle_micro_groups(const tti_exec *x);

/* The hash of all parameters, from the hashes of own blocks: stored in sharded->hashes. */
tutti_status tti_sharded_gather_hashes(tti_exec *x, uint64_t own);

/* The same from the parameters as they are in memory. */
tutti_status tti_sharded_rehash(tti_exec *x);

/* Elements of memory for gradients, and for parameters of others (and averages, where evaluation
 * wants whole ones); sharded NULL: of the latter none.  Reads is_short and the planned memory. */
size_t tti_sharded_grads(const tti_sharded *sharded, const tti_accumulation *acc,
                         const tti_share *share, const tti_plan *plan);
size_t tti_sharded_gathered(const tti_sharded *sharded);

/* Elements of a state array, or TTI_STATE_EMA, TTI_STATE_PARAMS, of one slot from all workers, in
 * sharded->staging. */
tutti_status tti_sharded_gather_slot(tti_exec *x, const float *array, size_t first, size_t n_elems);

/* ---- communication between workers that each have a partition of the optimizer state ----
 *
 * Gradients are reduced to the owner of each partition (tti_exec_reduce), which updates its
 * parameters; here they are gathered, and so are sums over blocks, and state if all of it is
 * needed.  Peers read the buffer of the summed gradients, which is free after the update. */

/* True if each worker updates a partition, and if it has the state of that partition only. */
bool tti_exec_divides(const tti_setup *setup);
bool tti_exec_has_partitions(const tti_setup *setup);

/* The server's own where it has a range of the keys: its arrays begin with that. */
bool tti_exec_has_range(const tti_setup *setup);

/* values [n_updates][n_each] by block, of which every worker has those of its own blocks: completes
 * them on every worker.  Nothing to do if all workers update all blocks.  Collective, like all
 * calls here. */
tutti_status tti_zero_join(const tti_setup *setup, double *values, size_t n_each);

/* Bounds [n_ranks + 1] of the partition that each worker receives of the bucket at element first,
 * from the start of the bucket. */
const size_t *tti_zero_bounds(const tti_setup *setup, size_t first);

/* Their digest (tti_reduce_desc). */
int32_t tti_zero_digest(const tti_setup *setup, size_t first);

/* Gathers every worker's partition of all buckets in host memory; src may be dst. */
tutti_status tti_zero_gather(const tti_setup *setup, const float *src, float *dst);

/* Copies the own elements of a state array in a range to the places of their parameters. */
void tti_zero_place_own(const tti_setup *setup, const float *state, tti_range range, float *to);

/* Gathers the averaged parameters of a worker on the host.  They stay valid, at tti_zero_averages,
 * until the next step. */
tutti_status tti_zero_gather_ema(tti_exec *x);
float *tti_zero_averages(tti_exec *x);

#endif /* TTI_EXEC_ZERO_H */
