/* flat_update.h - the update program over flat arrays: clip, optimizer, averages, hash.
 *
 * The update knows the plan, the blocks that are the worker's (tti_share) and arrays.  It does not
 * use the worker or its communicators: it stores sums by block in tti_update_partials, and the
 * caller adds those of other workers before it continues. */
#ifndef TTI_EXEC_FLAT_UPDATE_H
#define TTI_EXEC_FLAT_UPDATE_H

#include "backend/backend.h"
#include "exec/program/exec_program.h"
#include "passes/plan.h"

/* ---- partitions of the update: the blocks of a worker, and where their state is stored ----
 *
 * Each worker of n_ranks has one partition of every bucket: it stores the state of that partition,
 * gets the sum of its gradients and updates its parameters.  Partitions begin and end between
 * blocks of the update, so sums by block are the same for any number of workers.  Over all buckets
 * a worker's partitions have 1 / n_ranks of the elements, to within a block. */

typedef struct tti_own_block {
    int update;   /* in plan->updates */
    size_t state; /* its offset in each array of state */
} tti_own_block;

/* The partitions of all ranks; equal on each of them. */
typedef struct tti_share_table {
    int n_ranks;
    size_t *bounds, *in_bucket, *from, n_most; /* see tti_share */
    int32_t *digests;                          /* [n_buckets]: tti_bounds_digest of in_bucket */
} tti_share_table;

/* The first n_owners of n_ranks have equal partitions of all elements; the other ranks have
 * none. */
tutti_status tti_share_table_create(const tti_plan *plan, int n_ranks, int n_owners,
                                    tti_share_table **out);
void tti_share_table_destroy(tti_share_table *table); /* takes NULL */

typedef struct tti_share {
    int n_ranks;       /* ranks with partitions; 1: every worker has everything */
    size_t *bounds;    /* [n_buckets][n_ranks + 1]: rank r has elements bounds[r] .. bounds[r+1]-1
                          of the flat arrays */
    size_t *in_bucket; /* the same as bounds, from the start of each bucket */
    size_t *from; /* [n_buckets][n_ranks]: offset of a rank's partition in its arrays of state */
    const int32_t *digests; /* [n_buckets]: tti_bounds_digest of in_bucket */
    tti_share_table *own;   /* owns the four arrays; NULL: they are borrowed */
    size_t n_most;          /* elements of an array of state on the rank that has most */
    tti_own_block *blocks;  /* [n_blocks], in the order of the plan */
    int n_blocks;
    bool *is_own;   /* [n_updates] */
    size_t n_elems; /* of each array of state; with one rank n_flat, with the same offsets */
} tti_share;

/* The partition of rank from a table, which is borrowed; freed by fini, also after a failure. */
tutti_status tti_share_init_by(const tti_plan *plan, int rank, const tti_share_table *table,
                               tti_share *share);

/* The same, with its own table. */
tutti_status tti_share_init_among(const tti_plan *plan, int rank, int n_ranks, int n_owners,
                                  tti_share *share);

void tti_share_fini(tti_share *share);

/* Divides the flat arrays at block boundaries into n ranges of about equal size and returns range
 * r. With more ranges than blocks some are empty. */
tti_range tti_share_range(const tti_plan *plan, int r, int n);

/* The blocks of range r of n, without other ranks.  Arrays of state are as long as the range and
 * begin with it. */
tutti_status tti_share_init_range(const tti_plan *plan, int r, int n, tti_share *share);

/* Makes arrays of state whole, with the offsets of the parameters. */
void tti_share_make_whole(const tti_plan *plan, tti_share *share);

/* Own elements that are contiguous in the flat arrays and in the arrays of state. */
typedef struct tti_share_run {
    size_t first, state, n_elems;
} tti_share_run;

/* The run that begins with own block *at; *at becomes the first block of the next run.  False:
 * there is none. */
bool tti_share_next(const tti_share *share, const tti_plan *plan, int *at, tti_share_run *run);

/* The bounds of the bucket that contains element first of the flat arrays. */
const size_t *tti_share_bounds(const tti_share *share, const tti_plan *plan, size_t first);

/* ---- the update program over flat arrays ---- */

typedef struct tti_update tti_update;

typedef struct tti_flat_update_desc {
    const tti_plan *plan;       /* borrowed, as all pointers here */
    const tti_backend *backend; /* of the host */
    const tti_share *share;
    const bool *counts; /* [n_slots]: slots whose squares this worker adds to the norm; copied */
    bool reference;     /* use plain-C kernels */
    bool keeps_hashes;  /* no other worker has these blocks: compare their hashes with the previous
                           update */
    uint64_t seed;
    double beta1, beta2;   /* of Adam, for the bias corrections */
    double l1, clip_value; /* see tti_exec_desc */
    double ema;            /* decay of averaged parameters */
} tti_flat_update_desc;

/* On success *out is owned by the caller.  destroy takes NULL. */
tutti_status tti_update_create(const tti_flat_update_desc *desc, tti_update **out);
void tti_update_destroy(tti_update *update);

/* The contribution of a block with elements w to the hash of the parameters. */
static inline uint64_t tti_hash_block(const tti_backend *backend, const tti_update_step *step,
                                      const float *w) {
    return step->hash_weight * backend->hash(w, step->n_elems, step->hash_at);
}

/* Prepares the kernels for n threads, and releases those of an earlier call; 0 only releases. */
tutti_status tti_update_bind(tti_update *update, int n_compute_threads);

/* For a consumer that overlaps with the update; called on the calling thread. awaited returns when
 * the summed gradients of elements first .. last-1 are available (NULL: all are already); updated
 * is called when these parameters are final for this step. */
typedef struct tti_update_overlap {
    tutti_status (*awaited)(void *user, size_t first, size_t last);
    tutti_status (*updated)(void *user, size_t first, size_t last);
    void *user;
} tti_update_overlap;
void tti_update_set_overlap(tti_update *update, const tti_update_overlap *overlap);
bool tti_update_overlaps(const tti_update *update);
tutti_status tti_update_report(const tti_update *update, size_t first, size_t last);

/* The flat arrays of a step. */
typedef struct tti_update_arrays {
    float *params, *grads;
    bool own_params, own_grads; /* they hold only own blocks, at the offsets of the state */
    float *const *states;       /* [n_states], only own blocks */
    float *ema;                 /* only own blocks; NULL: no averages */
    float
        *outgoing; /* [n_flat]: copies of updated parameters, for other workers; NULL: not needed */
} tti_update_arrays;

typedef struct tti_update_step_desc {
    tti_compute_threads *pool; /* as many as threads were bound */
    tti_update_arrays arrays;
    uint64_t step;
    double lr;
    double inv_count;  /* 1 / (number of counted samples * loss scale) */
    int64_t n_rows;    /* real samples of the global batch */
    bool keeps_params; /* only buffers change */
} tti_update_step_desc;

/* Begins a step: adds the L1 term to the gradients and clips their elements as desc says. */
void tti_update_begin(tti_update *update, const tti_update_step_desc *desc);

/* partials [n_updates][2]: sums by block. norms [n_slots][2]: norms of parameters and of their
 * steps, for optimizers that read norms. */
double *tti_update_partials(tti_update *update);
double *tti_update_norms(tti_update *update);

/* Stores squares of gradients, one per own block, in partials. */
void tti_update_square_grads(tti_update *update);

/* The factor of the gradients. */
void tti_update_set_clip(tti_update *update, double clip);

/* Stores squares of parameters and of their steps, two per own block, in partials. tti_update_run
 * returns a failure, because other workers wait for the sums. */
void tti_update_square_steps(tti_update *update);

/* Updates and hashes own blocks.  *hash is the sum of their hashes. */
tutti_status tti_update_run(tti_update *update, uint64_t *hash);

/* After tti_update_run: hashes the blocks of other workers as they are in params, and returns the
 * sum over all blocks. */
uint64_t tti_update_hash_others(tti_update *update);

/* Call when other code has written the parameters: skips the next comparison of their hashes. */
void tti_update_forget_hashes(tti_update *update);

#endif /* TTI_EXEC_FLAT_UPDATE_H */
