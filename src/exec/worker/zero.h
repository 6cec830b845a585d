/* zero.h - workers that each have partitions: of the optimizer state (ZeRO-1), also of gradients
 * (ZeRO-2), also of parameters (ZeRO-3).
 *
 * With ZeRO-2 a bucket of gradients has memory until it is reduced to the owners of its partitions;
 * with ZeRO-3 a bucket of parameters has memory while steps use it.  bucket_memory.h assigns the
 * memory; instructions of the step program (step_program.h) move the values.  Only the gradients of
 * a worker's last shards use this memory. Those of the others are accumulated in whole buffers,
 * because the tree over all shards adds a worker's own gradients first. */
#ifndef TTI_EXEC_ZERO_H
#define TTI_EXEC_ZERO_H

#include "exec/program/exec_program.h"
#include "exec/update/flat_update.h"
#include "exec/worker/desc.h"

/* Hashes of sharded parameters after the last update. */
typedef struct tti_param_hashes {
    uint64_t own, all;  /* of this worker's blocks; of all blocks */
    uint64_t by_rank[]; /* [n_ranks]: of the blocks of each worker */
} tti_param_hashes;

/* The partitions of a worker in memory.  Only the contents of the arrays and the hashes change
 * after creation. */
typedef struct tti_sharded {
    bool params; /* parameters are sharded, too */
    tti_bucket_memory grads, train, eval;
    bool *is_short;   /* [n_buffers]: the buffer has only the memory of grads */
    float *own_grads; /* summed gradients of own blocks, at the offsets of the state; NULL: they are
                         in a whole buffer */
    float *gathered;  /* memory of train and eval */
    float *staging;   /* [longest slot]: state for a checkpoint */
    float *averages;  /* [n_flat], if evaluation reads whole parameters; NULL: none */
    size_t n_averages;
    int n_micro_groups;       /* the largest number of a worker: all gather equally often */
    tti_param_hashes *hashes; /* owned */
} tti_sharded;

/* Creates *out if desc.zero is at least 2, else sets it to NULL. tti_sharded_buffers then finds out
 * which of n_buffers gradient buffers are short, and allocates memory; sharded NULL: does nothing.
 * All functions below are collective, except tti_sharded_fini and those after it. */
tutti_status tti_sharded_init(tti_exec *x, tti_sharded **out);
tutti_status tti_sharded_buffers(tti_exec *x, tti_sharded *sharded, int n_buffers);

/* Sets *sharded to NULL; it may be NULL. */
void tti_sharded_fini(const tti_setup *setup, tti_sharded **sharded);

/* True if parameters are sharded. */
bool tti_exec_has_sharded_params(const tti_exec *x);

/* Plans grads, and if sharded->params also train and eval.  Freed by fini, also after a failure. */
tutti_status tti_sharded_plan_memory(const tti_plan *plan, tti_sharded *sharded);
void tti_sharded_fini_memory(tti_sharded *sharded);

/* Finds the buffers of a worker with these shards that hold only buckets in flight: is_short
 * [acc->n_buffers].  If other stages add to sums these buffers are whole. */
void tti_sharded_find_short(const tti_accumulation *acc, const tti_plan *plan, bool *is_short);

/* Shards that run in parallel use the same memory.  Returns the next step of the shard program, at
 * most last, that all of them must reach before any of them runs it. sharded NULL: last. */
int tti_sharded_next_stop(const tti_sharded *sharded, int step, int last);

/* Element first of a gradient buffer, followed by the rest of its bucket. */
float *tti_exec_grads_at(const tti_exec *x, int buffer, size_t first);

/* The parameters, and the summed gradient, of an own block. */
float *tti_own_params(const tti_exec *x, const tti_own_block *own);
float *tti_own_grads(tti_exec *x, const tti_own_block *own);

/* Gathers a bucket of parameters, or of their averages, into its memory. */
tutti_status tti_sharded_gather(tti_exec *x, int bucket, size_t offset, bool averages);

/* Copies this worker's partition of a bucket's sum to memory that is not reused in this step, if
 * necessary. */
void tti_sharded_keep_sum(tti_exec *x, int bucket);

/* Number of micro-batch groups without a shard before this worker's own, so that all workers gather
 * equally often. */
int tti_sharded_idle_micro_groups(const tti_exec *x);

/* Computes the hash of all parameters from the hashes of own blocks and stores it in
 * sharded->hashes. */
tutti_status tti_sharded_gather_hashes(tti_exec *x, uint64_t own);

/* The same, with hashes of the parameters as they are in memory. */
tutti_status tti_sharded_rehash(tti_exec *x);

/* Number of elements of memory for gradients; for fetched parameters (and averages, if evaluation
 * reads them whole), 0 if sharded is NULL. Reads is_short and the planned memory. */
size_t tti_sharded_grads(const tti_sharded *sharded, const tti_accumulation *acc,
                         const tti_share *share, const tti_plan *plan);
size_t tti_sharded_gathered(const tti_sharded *sharded);

/* Gathers one slot of a state array, of TTI_STATE_EMA or of TTI_STATE_PARAMS from all workers into
 * sharded->staging. */
tutti_status tti_sharded_gather_slot(tti_exec *x, const float *array, size_t first, size_t n_elems);

/* ---- communication between workers that each have a partition of the optimizer state ----
 *
 * Gradients are reduced to the owner of each partition (tti_exec_reduce), which updates its
 * parameters.  These functions gather the parameters, sums over blocks, and the whole state when it
 * is needed.  Peers read the buffer of the summed gradients, which is free after the update. */

/* True if each worker updates a partition; true if it also has only the state of that partition. */
bool tti_exec_divides(const tti_setup *setup);
bool tti_exec_has_partitions(const tti_setup *setup);

/* True for a server that has a range of the keys: its arrays begin with the range. */
bool tti_exec_has_range(const tti_setup *setup);

/* Completes values [n_updates][n_each] by block, of which every worker has those of its own blocks,
 * on every worker.  Does nothing if all workers update all blocks.  Collective, like all calls
 * here. */
tutti_status tti_zero_join(const tti_setup *setup, double *values, size_t n_each);

/* Bounds [n_ranks + 1] of the workers' partitions of the bucket at element first, relative to the
 * start of the bucket. */
const size_t *tti_zero_bounds(const tti_setup *setup, size_t first);

/* The digest of these bounds (tti_reduce_desc). */
int32_t tti_zero_digest(const tti_setup *setup, size_t first);

/* Gathers every worker's partition of all buckets in host memory; src may be dst. */
tutti_status tti_zero_gather(const tti_setup *setup, const float *src, float *dst);

/* Copies the own elements of a state array in a range to the offsets of their parameters. */
void tti_zero_place_own(const tti_setup *setup, const float *state, tti_range range, float *to);

/* Gathers the averaged parameters of a worker on the host. tti_zero_averages returns them until the
 * next step. */
tutti_status tti_zero_gather_ema(tti_exec *x);
float *tti_zero_averages(tti_exec *x);

#endif /* TTI_EXEC_ZERO_H */
