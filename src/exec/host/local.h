/* local.h - local SGD: workers that update their own parameters and average them now and then.
 *
 * Stich, Local SGD converges fast and communicates little (2018).  Between averagings workers do
 * not communicate, so the results of such a step are those of the worker's own shards.  With a
 * divided model the workers of a replica act as one: each position averages its part. */
#ifndef TTI_EXEC_LOCAL_H
#define TTI_EXEC_LOCAL_H

#include "exec/worker/desc.h"

/* values [n_flat], parameters or state, become the mean of all workers', added in the same order on
 * every worker.  Frozen blocks stay as they are.  Collective. */
tutti_status tti_local_average(tti_exec *x, float *values);

#endif /* TTI_EXEC_LOCAL_H */
