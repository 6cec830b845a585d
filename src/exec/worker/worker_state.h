/* worker_state.h - the state of one worker, for the files that create and destroy it. */
#ifndef TTI_EXEC_WORKER_STATE_H
#define TTI_EXEC_WORKER_STATE_H

#include "exec/worker/worker.h"

struct tti_exec {
    tti_setup setup;
    tti_arrays *arrays;
    tti_sharded *sharded;
    tti_thread_set *threads;
    tti_tally *tally;
    tti_joins *joins;
    tti_update *update;
    tti_pipe *pipe;
    tti_compress *compress;
    tti_profile *profile;
    tti_host *host;
    tti_exec_device *device;
    tti_device_tp *tp;
    tti_offload *offload;
};

/* Allocates an empty worker; NULL: out of memory.  The second function frees it, but not the
 * objects that its parts point to. */
tti_exec *tti_exec_alloc(void);
void tti_exec_free(tti_exec *exec);

#endif /* TTI_EXEC_WORKER_STATE_H */
