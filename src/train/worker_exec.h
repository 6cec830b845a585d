/* worker_exec.h - the executor of one worker of a job. */
#ifndef TTI_TRAIN_WORKER_EXEC_H
#define TTI_TRAIN_WORKER_EXEC_H

#include "exec/exec.h"
#include "train/blueprint.h"

/* For worker local_rank of local_n_ranks on this host: its share of the cores, or its device.
 * comm NULL: alone.  Collective.  On success *out is owned by the caller. */
tutti_status tti_worker_exec_create(const tti_blueprint *blueprint, tutti_comm *comm,
                                    int local_rank, int local_n_ranks, tti_exec **out);

#endif /* TTI_TRAIN_WORKER_EXEC_H */
