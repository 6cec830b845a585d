/* carry.h - what a worker of an elastic run keeps in memory from one epoch of membership to the
 * next: parameters, optimizer state and position, in a form that does not depend on the number of
 * workers.
 */
#ifndef TTI_TRAIN_CARRY_H
#define TTI_TRAIN_CARRY_H

#include "exec/exec.h"
#include "train/loop/snapshot.h"
#include "tutti/comm.h"

/* The position of a run, as all workers of an epoch have it. */
typedef struct tti_carry_position {
    int64_t has; /* 0: this worker has no state yet */
    tti_run_state state;
    int64_t eval_step, saved_step;
    double eval_loss, eval_accuracy;
    tti_step_result last; /* of the last committed step, .. */
    double lr;            /* .. and its learning rate */
    int64_t n_rows;       /* samples, .. */
    int64_t step_ns;      /* and duration */
} tti_carry_position;

typedef struct tti_mirror tti_mirror;
typedef struct tti_neighbors tti_neighbors;

typedef struct tti_carry {
    bool is_on;               /* the run is elastic */
    bool has_changed;         /* this is not the first epoch of the run */
    int slot;                 /* rank of this worker when it was started */
    int64_t recorded;         /* the last step that this worker has recorded; 0: none */
    double group_s;           /* speed of this worker, as in tti_throughput; 0: not measured */
    bool has_partitions;      /* each worker has a partition, which is not carried .. */
    tti_mirror *mirror;       /* .. but taken from here; NULL: from the last checkpoint; owned */
    uint64_t epoch;           /* on several hosts: its number; else 0 */
    int host_first;           /* first rank of this host */
    tti_neighbors *neighbors; /* on several hosts: for the mirror of another one; owned */
    tti_carry_position at;
    float **arrays; /* [n_arrays] of [n_flat] each: parameters, state, averages; owned */
    int n_arrays;
    const tti_device_ops *device; /* the arrays are memory of a device; NULL: of the host */
    size_t n_flat;
    tti_lasting_samples samples; /* the training samples, on the device .. */
    int samples_place;           /* .. that this place selects */
} tti_carry;

/* Copies the worker's arrays before it is destroyed; the position is set by the caller. */
TUTTI_NODISCARD tutti_status tti_carry_keep(tti_carry *carry, tti_exec *exec, const tti_plan *plan);

/* Gives all workers of comm (NULL: one) the state of the one that is furthest: its arrays go to
 * exec, its position to carry->at.  *any false: no worker has a state, and nothing was done.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_carry_share(tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                                             const tti_plan *plan, bool *any);

/* The further of two positions of a run has the larger number; -1: it has none. */
int64_t tti_carry_order(const tti_carry_position *at);

/* The same plan and data for another number of workers. */
tti_blueprint tti_carry_blueprint(const tti_blueprint *whole, int n_workers);

/* The samples that the device of a place has or may get; carry NULL: NULL. */
tti_lasting_samples *tti_carry_samples(tti_carry *carry, int place);

void tti_carry_free(tti_carry *carry); /* the arrays: the worker stays */
void tti_carry_end(tti_carry *carry);

#endif /* TTI_TRAIN_CARRY_H */
