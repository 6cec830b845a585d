/* flat_update.h - the update program over flat arrays: clip, optimizer, averages, hash.
 *
 * The update knows the plan, the blocks that are the worker's (share.h) and arrays.  It knows
 * neither the worker nor its communicators: sums by block are left in tti_update_partials, and the
 * caller adds those of other workers before it goes on. */
#ifndef TTI_EXEC_FLAT_UPDATE_H
#define TTI_EXEC_FLAT_UPDATE_H

#include "backend/backend.h"
#include "exec/program/exec_program.h"
#include "exec/update/share.h"

typedef struct tti_update tti_update;

typedef struct tti_flat_update_desc {
    const tti_plan *plan;       /* borrowed, as all pointers here */
    const tti_backend *backend; /* of the host */
    const tti_share *share;
    const bool *counts; /* [n_slots]: slots in the norm; others count elsewhere; copied */
    bool reference;     /* plain-C kernels */
    bool keeps_hashes;  /* no other worker has these blocks: compare them with their past */
    uint64_t seed;
    double beta1, beta2;   /* of Adam, for the bias corrections */
    double l1, clip_value; /* as in tti_exec_desc */
    double ema;            /* decay of averaged parameters */
} tti_flat_update_desc;

/* On success *out is owned by the caller.  destroy takes NULL. */
tutti_status tti_update_create(const tti_flat_update_desc *desc, tti_update **out);
void tti_update_destroy(tti_update *update);

/* What a block adds to the hash of the parameters; w: its elements. */
static inline uint64_t tti_hash_block(const tti_backend *backend, const tti_update_step *step,
                                      const float *w) {
    return step->hash_weight * backend->hash(w, step->n_elems, step->hash_at);
}

/* Prepares the kernels for so many compute threads; releases what an earlier call prepared.
 * 0 releases only. */
tutti_status tti_update_bind(tti_update *update, int n_compute_threads);

/* Reports progress to a consumer that overlaps with the update, from the calling thread: awaited
 * returns when the summed gradients of elements first .. last-1 have come (NULL: they are there);
 * updated is called when these parameters are final until the next step. */
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
    bool own_params, own_grads; /* these hold own blocks alone, in the places of the state */
    float *const *states;       /* [n_states], of own blocks */
    float *ema;                 /* of own blocks; NULL: no averages */
    float *outgoing; /* [n_flat]: copies of updated parameters, for other workers; NULL: none */
} tti_update_arrays;

typedef struct tti_update_step_desc {
    tti_compute_threads *pool; /* of as many threads as were bound */
    tti_update_arrays arrays;
    uint64_t step;
    double lr;
    double inv_count;  /* 1 / (number of counted samples * loss scale) */
    int64_t n_rows;    /* real samples of the global batch */
    bool keeps_params; /* only buffers change */
} tti_update_step_desc;

/* Begins a step: adds the L1 term to the gradients and clips their elements, as desc asks. */
void tti_update_begin(tti_update *update, const tti_update_step_desc *desc);

/* Memory for sums, [n_updates][2]; and the norms [n_slots][2] of parameters and of their steps,
 * which optimizers with norms read. */
double *tti_update_partials(tti_update *update);
double *tti_update_norms(tti_update *update);

/* Squares of gradients, one for each own block, into partials. */
void tti_update_square_grads(tti_update *update);

/* Gradients are multiplied by it. */
void tti_update_set_clip(tti_update *update, double clip);

/* Squares of parameters and of their steps, two for each own block, into partials.  A failure
 * is that of tti_update_run: other workers wait for the sums. */
void tti_update_square_steps(tti_update *update);

/* Updates and hashes own blocks; *hash is their sum. */
tutti_status tti_update_run(tti_update *update, uint64_t *hash);

/* After tti_update_run: hashes the blocks of other workers as they are in params; the sum of all.
 */
uint64_t tti_update_hash_others(tti_update *update);

/* Another function wrote the parameters: the next comparison of their hashes is left out. */
void tti_update_forget_hashes(tti_update *update);

#endif /* TTI_EXEC_FLAT_UPDATE_H */
