/* collective.h - ops that communicate with the other workers of a tensor axis, as kernels. */
#ifndef TTI_EXEC_COLLECTIVE_H
#define TTI_EXEC_COLLECTIVE_H

#include "backend/backend.h"
#include "passes/plan.h"
#include "tutti/comm.h"

/* The kernel of TTI_COLLECTIVE ops on the host.  Its state is the tutti_comm of the axis, borrowed,
 * which one thread uses at a time; all workers run the same ops in the same order.  Sums are added
 * in the order of TUTTI_ALG_DIRECT: the same bits on every worker, in every run.  NULL: it can only
 * be looked at. */
extern const tti_kernel tti_collective_kernel;

/* How the whole value of an exchange lies in memory: [n_rows][workers][part_bytes]; of a sum it is
 * one part. */
void tti_collective_rows(const tti_node *node, size_t *n_rows, size_t *part_bytes);

/* Fails with TUTTI_E_INVALID where comm is not the axis that the program was made for. */
tutti_status tti_collective_check(const tti_program *program, const tutti_comm *comm);

/* A communicator of the axis for each compute thread, so that they communicate concurrently, each
 * with its counterparts: thread k of every worker has the same shard. *n_compute_threads becomes
 * the smallest number over all workers of the axis, and 1 if its transport cannot be divided.
 * Collective over axis, which is the first of *out [*n_compute_threads] and borrowed; the others
 * are destroyed before it. axis NULL: *out is NULL. */
TUTTI_NODISCARD tutti_status tti_compute_thread_comms_create(tutti_comm *axis,
                                                             int *n_compute_threads,
                                                             tutti_comm ***out);
void tti_compute_thread_comms_destroy(tutti_comm **comms, int n_compute_threads);

/* Bytes that a worker of n sends at a node that exchanges values; -1: it exchanges none. */
double tti_exchange_bytes(const tti_node *node, int n);

#endif /* TTI_EXEC_COLLECTIVE_H */
