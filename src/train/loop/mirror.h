/* mirror.h - the last two committed steps of an elastic run with partitions, in memory that the
 * worker processes of a host share and that outlives each of them.
 *
 * With ZeRO a worker has the only copy of its partition, which would be lost with it.  After each
 * step every worker copies its own partition to its place in the mirror; a step is committed once
 * all have.  Steps alternate between two versions, so one of them is always complete.  Arrays are
 * whole here: a later epoch with another number of workers takes its partitions from the same
 * memory.
 *
 * If workers divide the model, the mirror has the arrays of each part of it, and any worker may
 * take any part later.  Without ZeRO only the first replica of each host copies its parts.
 *
 * On several hosts each has its own mirror, with the partitions of its workers and copies of those
 * of a neighbor (neighbors.h). */
#ifndef TTI_TRAIN_MIRROR_H
#define TTI_TRAIN_MIRROR_H

#include "exec/exec.h"
#include "train/loop/carry.h"
#include "tutti/comm.h"

/* Maps memory of fd, which the supervisor made, for the arrays of all workers of the run; fd stays
 * the caller's.  The blueprint has the plans of all parts of the model, and outlives the mirror. On
 * success *out is owned by the caller.  TUTTI_E_NOMEM: it cannot be as large. */
TUTTI_NODISCARD tutti_status tti_mirror_open(int fd, const tti_blueprint *blueprint,
                                             tti_mirror **out);
void tti_mirror_close(tti_mirror *mirror); /* takes NULL */

/* Once per epoch of membership, before the other calls: finds the neighbors of this host.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_mirror_enter(tti_carry *carry, tutti_comm *comm, tti_exec *exec);

/* After a step: copies this worker's partition.  position counts on the first rank of a host.
 * Collective: afterwards the step is safe. */
TUTTI_NODISCARD tutti_status tti_mirror_put(const tti_carry *carry, tutti_comm *comm,
                                            tti_exec *exec, const tti_carry_position *position);

/* On rank 0, after an evaluation or a checkpoint: replaces the position of the last step. */
void tti_mirror_note(tti_mirror *mirror, const tti_carry_position *position);

/* Stores the newest complete step in exec and *position.  *any false: there is none.  Collective,
 * once all members of the former epoch have left it. */
TUTTI_NODISCARD tutti_status tti_mirror_load(const tti_carry *carry, tutti_comm *comm,
                                             tti_exec *exec, tti_carry_position *position,
                                             bool *any);

/* ---- for neighbors.c ---- */

enum { TTI_MIRROR_VERSIONS = 2 };

/* One of the n partitions of an epoch has been written for step1 - 1; step1 0: it has not.  Each
 * rank has a partition; of replicas that are not divided further, each part of the model is one. */
typedef struct tti_mirror_stamp {
    int64_t step1, n, epoch;
} tti_mirror_stamp;

/* Partitions of which a version has stamps, at most. */
int tti_mirror_n_slots(const tti_mirror *mirror);
tti_mirror_stamp tti_mirror_get_stamp(const tti_mirror *mirror, int version, int slot);
/* Before a partition is written for a step, and after. */
void tti_mirror_begin(tti_mirror *mirror, int64_t step, int slot);
void tti_mirror_end(tti_mirror *mirror, int slot, const tti_mirror_stamp *stamp);

/* Whether each rank has its own partition; else partition i is part i of the model. */
bool tti_mirror_divides_parts(const tti_mirror *mirror);
/* The partition of a rank, and the number of partitions of n_ranks ranks. */
int tti_mirror_slot_of(const tti_mirror *mirror, int rank);
int tti_mirror_count_slots(const tti_mirror *mirror, int n_ranks);
/* Whether a rank writes its partition; host_first: the first rank of its host. */
bool tti_mirror_copies(const tti_mirror *mirror, int rank, int host_first);
/* Parts of the model; partition i is of part i % n_parts, which has this plan. */
int tti_mirror_n_parts(const tti_mirror *mirror);
const tti_plan *tti_mirror_plan(const tti_mirror *mirror, int part);

/* The position of a step; at.has 0: there is none. */
tti_carry_position tti_mirror_get_position(const tti_mirror *mirror, int64_t step);

/* Arrays of each part, of n_flat elements of its plan each. */
int tti_mirror_n_arrays(const tti_mirror *mirror);
float *tti_mirror_array(const tti_mirror *mirror, int64_t step, int part, int i);

#endif /* TTI_TRAIN_MIRROR_H */
