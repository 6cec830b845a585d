/* mirror.h - the last two committed steps of an elastic run with partitions, in memory that the
 * worker processes of a host share and that outlives each of them.
 *
 * With ZeRO a worker has the only copy of its partition, which would be lost with it.  After each
 * step every worker copies its own partition to its place in the mirror; a step is committed once
 * all have.  Steps alternate between two versions, so one of them is always complete.  Arrays are
 * whole here: a later epoch with another number of workers takes its partitions from the same
 * memory. */
#ifndef TTI_TRAIN_MIRROR_H
#define TTI_TRAIN_MIRROR_H

#include "exec/exec.h"
#include "train/loop/carry.h"
#include "tutti/comm.h"

/* Maps memory of fd, which the supervisor made, for the arrays of plan; fd stays the caller's.  On
 * success *out is owned by the caller.  TUTTI_E_NOMEM: it cannot be as large. */
TUTTI_NODISCARD tutti_status tti_mirror_open(int fd, const tti_plan *plan, bool has_ema,
                                             tti_mirror **out);
void tti_mirror_close(tti_mirror *mirror); /* takes NULL */

/* After a step: copies this worker's partition.  position counts on rank 0.  Collective: afterwards
 * the step is safe. */
TUTTI_NODISCARD tutti_status tti_mirror_put(tti_mirror *mirror, tutti_comm *comm, tti_exec *exec,
                                            const tti_carry_position *position);

/* On rank 0, after an evaluation or a checkpoint: replaces the position of the last step. */
void tti_mirror_note(tti_mirror *mirror, const tti_carry_position *position);

/* Stores the newest complete step in exec and *position.  *any false: there is none.  Collective,
 * once all members of the former epoch have left it. */
TUTTI_NODISCARD tutti_status tti_mirror_load(tti_mirror *mirror, tutti_comm *comm, tti_exec *exec,
                                             tti_carry_position *position, bool *any);

#endif /* TTI_TRAIN_MIRROR_H */
