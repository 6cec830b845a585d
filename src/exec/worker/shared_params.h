/* shared_params.h - parameters and optimizer state that workers of one process share.
 *
 * Each worker updates its part of them (share.h), and a barrier follows before any worker reads the
 * result, where workers with separate copies would send parts.  Updates start only after all shard
 * gradients are reduced, so running shards read consistent parameters. */
#ifndef TTI_EXEC_ONE_COPY_H
#define TTI_EXEC_ONE_COPY_H

#include "exec/worker/desc.h"

struct tti_shared_params {
    const tti_backend *backend;
    size_t n_bytes; /* of each array */
    float *params;
    float *states[TTI_MAX_OUT]; /* [plan->n_states], zero to begin with */
    float *ema;                 /* NULL: none */
};

#endif /* TTI_EXEC_ONE_COPY_H */
