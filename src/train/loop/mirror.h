/* mirror.h - stores the last two committed steps of an elastic run with partitions in shared memory
 * of a host, which survives the worker processes.
 *
 * With ZeRO a worker has the only copy of its partition, which would be lost with the worker.
 * After each step every worker copies its partition into the mirror; the step is committed once all
 * workers have done so.  Steps alternate between two versions, so one of them is always complete.
 * The mirror stores whole arrays, so a later epoch with another number of workers can partition
 * them differently.
 *
 * If workers divide the model, the mirror has the arrays of each part of the model, and any worker
 * may load any part later.  Without ZeRO only the first replica of each host copies its parts.
 *
 * Each host has its own mirror, with the partitions of its workers and copies of the partitions of
 * a neighbor host (neighbors.h). */
#ifndef TTI_TRAIN_MIRROR_H
#define TTI_TRAIN_MIRROR_H

#include "exec/exec.h"
#include "train/loop/carry.h"
#include "tutti/comm.h"

/* Maps the memory of fd, which the supervisor created, for the arrays of all workers of the run;
 * the caller keeps fd.  The blueprint has the plans of all parts of the model, and must outlive the
 * mirror.  On success *out is owned by the caller.  TUTTI_E_NOMEM: the memory cannot be made large
 * enough. */
TUTTI_NODISCARD tutti_status tti_mirror_open(int fd, const tti_blueprint *blueprint,
                                             tti_mirror **out);
void tti_mirror_close(tti_mirror *mirror); /* NULL is a no-op */

/* Once per epoch of membership, before the other calls: finds the neighbors of this host.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_mirror_enter(tti_carry *carry, tutti_comm *comm, tti_exec *exec);

/* Copies this worker's partition after a step. position is used on the first rank of each host.
 * Collective: after it the step is committed. */
TUTTI_NODISCARD tutti_status tti_mirror_put(const tti_carry *carry, tutti_comm *comm,
                                            tti_exec *exec, const tti_carry_position *position);

/* On rank 0, after an evaluation or a checkpoint: replaces the position of the last step. */
void tti_mirror_note(tti_mirror *mirror, const tti_carry_position *position);

/* Loads the newest complete step into exec and *position. *any false: there is none.  Collective,
 * called after all members of the previous epoch have left it. */
TUTTI_NODISCARD tutti_status tti_mirror_load(const tti_carry *carry, tutti_comm *comm,
                                             tti_exec *exec, tti_carry_position *position,
                                             bool *any);

/* ---- for neighbors.c ---- */

enum { TTI_MIRROR_VERSIONS = 2 };

/* Records that one of the n partitions of an epoch was written for step step1 - 1; step1 0: it was
 * not.  With ZeRO each rank has a partition; without ZeRO each part of the model is a partition. */
typedef struct tti_mirror_stamp {
    int64_t step1, n, epoch;
} tti_mirror_stamp;

/* The maximum number of partitions, and the stamp of a partition in a version. */
int tti_mirror_n_slots(const tti_mirror *mirror);
tti_mirror_stamp tti_mirror_get_stamp(const tti_mirror *mirror, int version, int slot);
/* Called before and after a partition is written for a step. */
void tti_mirror_begin(tti_mirror *mirror, int64_t step, int slot);
void tti_mirror_end(tti_mirror *mirror, int slot, const tti_mirror_stamp *stamp);

/* True if each rank has its own partition; else partition i is part i of the model. */
bool tti_mirror_divides_parts(const tti_mirror *mirror);
/* The partition of a rank, and the number of partitions of n_ranks ranks. */
int tti_mirror_slot_of(const tti_mirror *mirror, int rank);
int tti_mirror_count_slots(const tti_mirror *mirror, int n_ranks);
/* True if a rank writes its partition. host_first: the first rank of its host. */
bool tti_mirror_copies(const tti_mirror *mirror, int rank, int host_first);
/* The number of parts of the model, and the plan of a part.  Partition i belongs to part i %
 * n_parts. */
int tti_mirror_n_parts(const tti_mirror *mirror);
const tti_plan *tti_mirror_plan(const tti_mirror *mirror, int part);

/* The position of a step; at.has 0: there is none. */
tti_carry_position tti_mirror_get_position(const tti_mirror *mirror, int64_t step);

/* The number of arrays of each part, and array i of a part.  An array has as many elements as the
 * flat parameters of the part's plan. */
int tti_mirror_n_arrays(const tti_mirror *mirror);
float *tti_mirror_array(const tti_mirror *mirror, int64_t step, int part, int i);

#endif /* TTI_TRAIN_MIRROR_H */
