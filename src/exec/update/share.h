/* share.h - which blocks of the update a worker owns, and where their state is stored.
 *
 * Each worker of n_ranks has one partition of every bucket: it stores the state of that partition,
 * gets the sum of its gradients and updates its parameters.  Partitions begin and end between
 * blocks of the update, so sums by block are the same for any number of workers.  Over all buckets
 * a worker's partitions have 1 / n_ranks of the elements, to within a block. */
#ifndef TTI_EXEC_SHARE_H
#define TTI_EXEC_SHARE_H

#include "exec/program/exec_program.h"
#include "passes/plan.h"

typedef struct tti_own_block {
    int update;   /* in plan->updates */
    size_t state; /* where it begins in each array of state */
} tti_own_block;

typedef struct tti_share {
    int n_ranks;    /* that have parts; 1: every worker has all of it */
    size_t *bounds; /* [n_buckets][n_ranks + 1]: rank r has elements bounds[r] .. bounds[r+1]-1
                       of the flat arrays */
    size_t *from; /* [n_buckets][n_ranks]: where the part of a rank begins in its arrays of state */
    size_t n_most;         /* elements of such an array of the rank that has most */
    tti_own_block *blocks; /* [n_blocks], in the order of the plan */
    int n_blocks;
    bool *is_own;   /* [n_updates] */
    size_t n_elems; /* of each array of state; n_flat with one rank, in the same places */
} tti_share;

/* The part of rank where the first n_owners of n_ranks have the same of all elements, and the
 * others nothing; freed by fini, also after a failure. */
tutti_status tti_share_init_among(const tti_plan *plan, int rank, int n_ranks, int n_owners,
                                  tti_share *share);

/* Every rank an owner. */
tutti_status tti_share_init(const tti_plan *plan, int rank, int n_ranks, tti_share *share);
void tti_share_fini(tti_share *share);

/* Divides the flat arrays at block boundaries into n ranges of about equal size: range r of them.
 * With more ranges than blocks some are empty. */
tti_range tti_share_range(const tti_plan *plan, int r, int n);

/* The blocks of range r of n and no others, without other ranks; arrays of state are as long as the
 * range, and begin with it. */
tutti_status tti_share_init_range(const tti_plan *plan, int r, int n, tti_share *share);

/* Makes arrays of state whole, with the offsets of the parameters. */
void tti_share_make_whole(const tti_plan *plan, tti_share *share);

/* Own elements that are contiguous in the flat arrays and in those of state. */
typedef struct tti_share_run {
    size_t first, state, n_elems;
} tti_share_run;

/* The run that begins with own block *at, which becomes the next one's; false: there is none. */
bool tti_share_next(const tti_share *share, const tti_plan *plan, int *at, tti_share_run *run);

/* The bounds of the bucket that element first of the flat arrays lies in. */
const size_t *tti_share_bounds(const tti_share *share, const tti_plan *plan, size_t first);

#endif /* TTI_EXEC_SHARE_H */
