/* host.h - the executor on the host: compute threads and the communication thread run the step
 * program. */
#ifndef TTI_EXEC_HOST_H
#define TTI_EXEC_HOST_H

#include "exec/exec.h"

/* The worker's programs and its communication thread, when lanes, memory and windows are there; and
 * again when its shards have changed.  destroy: before the lanes end. */
tutti_status tti_host_create(tti_exec *x);
void tti_host_destroy(tti_exec *x);

/* Runs the compute instructions for all shards of a step: afterwards gradients are in x->buffers,
 * sums in x->sums.  Collective. */
tutti_status tti_host_compute(tti_exec *x, const tti_step_desc *desc, bool eval);

/* Runs the following reductions, and waits for the overlapped ones.  Call after compute, even if it
 * failed: the other workers wait for them. */
tutti_status tti_host_finish(tti_exec *x, bool eval);

#endif /* TTI_EXEC_HOST_H */
