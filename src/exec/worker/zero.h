/* zero.h - communication between workers that each have a partition of the optimizer state.
 *
 * Gradients are reduced to the owner of each partition (tti_exec_reduce), which updates its
 * parameters; here they are gathered, and so are sums over blocks, and state if all of it is
 * needed.  Peers read the buffer of the summed gradients, which is free after the update. */
#ifndef TTI_EXEC_ZERO_H
#define TTI_EXEC_ZERO_H

#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* True if each worker updates a part, and if it has the state of that part only. */
bool tti_exec_divides(const tti_setup *setup);
bool tti_exec_has_parts(const tti_setup *setup);

/* The server's own where it has a range of the keys: its arrays begin with that. */
bool tti_exec_has_range(const tti_setup *setup);

/* values [n_updates][n_each] by block, of which every worker has those of its own blocks: completes
 * them on every worker.  Nothing to do if all workers update all blocks.  Collective, like all
 * calls here. */
tutti_status tti_zero_join(const tti_setup *setup, double *values, size_t n_each);

/* What each worker receives of the bucket that begins at element first, relative to its begin:
 * fills bounds [n_ranks + 1]. */
void tti_zero_bounds(const tti_setup *setup, size_t first, size_t *bounds);

/* Every worker's part of all buckets, in memory of the host; src may be dst. */
tutti_status tti_zero_gather(const tti_setup *setup, const float *src, float *dst);

/* The parameters of all parts, each from its owner, which has put them at their places in the
 * buffer of the summed gradients. */
tutti_status tti_zero_gather_params(tti_exec *x);
/* Those of one bucket. */
tutti_status tti_zero_gather_bucket(tti_exec *x, int bucket);

/* Own elements of an array of state in a range, to the places of their parameters. */
void tti_zero_place_own(const tti_setup *setup, const float *state, tti_range range, float *to);

/* Averaged parameters, whole, in the memory that tti_zero_averages names: until the next step.  Of
 * a worker on the host. */
tutti_status tti_zero_gather_ema(tti_exec *x);
float *tti_zero_averages(tti_exec *x);

#endif /* TTI_EXEC_ZERO_H */
