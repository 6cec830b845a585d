/* profile_worker.h - one worker of a profile: runs steps as in training, then timed steps. */
#ifndef TTI_TRAIN_PROFILE_WORKER_H
#define TTI_TRAIN_PROFILE_WORKER_H

#include "exec/exec.h"
#include "ps/server.h"
#include "train/profile/ceilings.h"
#include "train/profile/profile_spans.h"
#include "train/setup/blueprint.h"

typedef struct tti_profile_worker_desc {
    const tti_blueprint *b;           /* blueprint of all workers, or of this one only; borrowed */
    tutti_comm *comm;                 /* borrowed: connects all workers; NULL: a single worker */
    tti_server *server;               /* borrowed; NULL: workers run the update themselves */
    tti_shared_params *shared_params; /* borrowed; NULL: workers have their own parameters */
    int rank;
    int n_warm, n_steps; /* n_warm: steps before the timed ones; n_steps: timed steps */
} tti_profile_worker_desc;

/* Fills the recorded spans, owned by the caller (tti_spans_free); on rank 0 also the ceilings of
 * its device.  Collective; free spans after a failure as well. */
tutti_status tti_profile_worker_run(const tti_profile_worker_desc *desc, tti_worker_spans *spans,
                                    tti_ceilings *ceilings);

#endif /* TTI_TRAIN_PROFILE_WORKER_H */
