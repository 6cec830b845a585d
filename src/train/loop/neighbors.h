/* neighbors.h - copies the partitions of a host into the mirror of another host.
 *
 * The mirror of a host is lost with the host.  So each worker sends its partition to a worker of
 * the next host, which copies it into the mirror there.  When one host is lost, the remaining hosts
 * still have all partitions and send each other the missing ones.  When two hosts are lost at once,
 * the partitions of one may be lost with their only copies on the other.
 *
 * Without ZeRO the mirror of a host has the parts of the model that its workers have, and only
 * parts that the next host does not have are sent. */
#ifndef TTI_TRAIN_NEIGHBORS_H
#define TTI_TRAIN_NEIGHBORS_H

#include "exec/exec.h"
#include "train/loop/mirror.h"
#include "tutti/comm.h"

/* Plans the transfers. host_first: the first rank of this host. mirror is borrowed.  Collective.
 * On success *out is owned by the caller; NULL: all ranks are on one host. */
TUTTI_NODISCARD tutti_status tti_neighbors_create(int host_first, tutti_comm *comm, tti_exec *exec,
                                                  tti_mirror *mirror, tti_neighbors **out);
void tti_neighbors_destroy(tti_neighbors *n); /* NULL is a no-op */

/* Sends this worker's partition of a step from the mirror of this host, and stores the partitions
 * that other workers send. n NULL: no-op.  Collective. */
TUTTI_NODISCARD tutti_status tti_neighbors_put(tti_neighbors *n, tutti_comm *comm,
                                               const tti_mirror_stamp *now);

/* Finds the newest step of the newest epoch for which the hosts together have all partitions, and
 * completes the mirror of each host. *step -1: there is none.  Collective. */
TUTTI_NODISCARD tutti_status tti_neighbors_collect(const tti_carry *carry, tutti_comm *comm,
                                                   tti_exec *exec, int64_t *step,
                                                   tti_carry_position *position);

#endif /* TTI_TRAIN_NEIGHBORS_H */
