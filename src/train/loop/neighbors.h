/* neighbors.h - copies of the partitions of a host in the mirror of another one.
 *
 * The mirror of a host is lost with the host.  So each worker sends its partition to a worker of
 * the next host, which copies it to the mirror there.  When a host is lost, the others still have
 * all partitions, and give each other what they miss; when two hosts are lost at once, one of them
 * may have had the only copies of the other's partitions.
 *
 * Without ZeRO the mirror of a host has each part of the model that a worker of the host has, and
 * a part that the next host does not have is sent. */
#ifndef TTI_TRAIN_NEIGHBORS_H
#define TTI_TRAIN_NEIGHBORS_H

#include "exec/exec.h"
#include "train/loop/mirror.h"
#include "tutti/comm.h"

/* host_first: the first rank of this host.  mirror is borrowed.  Collective.  On success *out is
 * owned by the caller; NULL: all ranks are on one host. */
TUTTI_NODISCARD tutti_status tti_neighbors_create(int host_first, tutti_comm *comm, tti_exec *exec,
                                                  tti_mirror *mirror, tti_neighbors **out);
void tti_neighbors_destroy(tti_neighbors *n); /* takes NULL */

/* Sends this worker's partition of a step, which is in the mirror of this host, and stores those
 * of others.  NULL: does nothing.  Collective. */
TUTTI_NODISCARD tutti_status tti_neighbors_put(tti_neighbors *n, tutti_comm *comm,
                                               const tti_mirror_stamp *now);

/* Finds the newest step, of the newest epoch, of which the hosts together have all partitions, and
 * completes the mirror of each host.  *step -1: there is none.  Collective. */
TUTTI_NODISCARD tutti_status tti_neighbors_collect(const tti_carry *carry, tutti_comm *comm,
                                                   tti_exec *exec, int64_t *step,
                                                   tti_carry_position *position);

#endif /* TTI_TRAIN_NEIGHBORS_H */
