/* carry.h - the state that a worker of an elastic run keeps in memory from one epoch of membership
 * to the next: parameters, optimizer state and position, in a form that does not depend on the
 * number of workers. */
#ifndef TTI_TRAIN_CARRY_H
#define TTI_TRAIN_CARRY_H

#include "exec/exec.h"
#include "train/loop/snapshot.h"
#include "tutti/comm.h"

/* The position of a run, equal on all workers of an epoch. */
typedef struct tti_carry_position {
    int64_t has; /* 0: this worker has no state yet */
    tti_run_state state;
    int64_t eval_step, saved_step;
    double eval_loss, eval_accuracy;
    tti_step_result last; /* result of the last committed step */
    double lr;            /* learning rate of that step */
    int64_t n_rows;       /* samples of that step */
    int64_t step_ns;      /* duration of that step */
} tti_carry_position;

typedef struct tti_mirror tti_mirror;
typedef struct tti_neighbors tti_neighbors;

typedef struct tti_carry {
    bool is_on;               /* the run is elastic */
    bool has_changed;         /* this is not the first epoch of the run */
    int slot;                 /* rank of this worker when it was started */
    int64_t recorded;         /* the last step that this worker has recorded; 0: none */
    double group_s;           /* seconds per micro-batch group of this worker; 0: not measured */
    bool has_partitions;      /* each worker has a partition, which is not kept here */
    tti_mirror *mirror;       /* owned; source of the partitions; NULL: the last checkpoint */
    uint64_t epoch;           /* on several hosts: number of the epoch; else 0 */
    int host_first;           /* first rank of this host */
    tti_neighbors *neighbors; /* on several hosts: copies for the mirror of another host; owned */
    tti_carry_position at;
    float **arrays; /* [n_arrays] of [n_flat] each: parameters, state, averages; owned */
    int n_arrays;
    const tti_device_ops *device; /* the arrays are in device memory; NULL: in host memory */
    size_t n_flat;
    tti_lasting_samples samples; /* the training samples on the device */
    int samples_place;           /* place that selects that device */
} tti_carry;

/* Copies the worker's arrays before it is destroyed; the position is set by the caller. */
TUTTI_NODISCARD tutti_status tti_carry_keep(tti_carry *carry, tti_exec *exec, const tti_plan *plan);

/* Sends the state of the most advanced worker to all workers of comm (NULL: one worker): its arrays
 * go to exec, its position to carry->at. *any false: no worker has a state, and nothing was done.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_carry_share(tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                                             const tti_plan *plan, bool *any);

/* A number that orders positions of a run: the more advanced position has the larger number; -1: no
 * state. */
int64_t tti_carry_order(const tti_carry_position *at);

/* Returns a blueprint with the same plan and data for another number of workers. */
tti_blueprint tti_carry_blueprint(const tti_blueprint *whole, int n_workers);

/* The resident samples of the device of a place, which may still be empty; NULL if carry is
 * NULL. */
tti_lasting_samples *tti_carry_samples(tti_carry *carry, int place);

void tti_carry_free(tti_carry *carry); /* frees the arrays only */
void tti_carry_end(tti_carry *carry);

#endif /* TTI_TRAIN_CARRY_H */
