/* worker_threads.h - runs the workers of a job as threads of this process. */
#ifndef TTI_TRAIN_WORKER_THREADS_H
#define TTI_TRAIN_WORKER_THREADS_H

#include "base/error.h"
#include "train/job/job.h"
#include "tutti/comm.h"

typedef struct tti_worker_threads_desc {
    const char *who; /* prefix of messages: "train" */
    int n;           /* workers */
    tutti_comm_group
        *group; /* group of the workers, aborted if one cannot be started; NULL: n is 1 */
    tutti_status (*run)(void *user, int rank);
    void *user;
    /* Called once, on the thread of the worker that failed first, if another worker has not ended
     * after grace_ms; see tutti_train_desc.  NULL: no call. */
    void (*on_stuck)(void *user, tutti_status status, const char *text);
    int64_t grace_ms;
} tti_worker_threads_desc;

/* Calls run(user, rank) for every rank and returns when all have ended.  Rank 0 runs on the calling
 * thread.  Fails with the status and message of the worker that failed first, because it caused the
 * failures of the other workers.  TUTTI_E_NOMEM: not all threads could be started. */
tutti_status tti_worker_threads_run(const tti_worker_threads_desc *desc);

/* Connects the communicator of n workers, threads or processes; returns when all are connected.
 * *out is owned by the caller, NULL if n is 1. */
tutti_status tti_worker_threads_join(tutti_comm_group *group, int rank, int n,
                                     const tti_job_config *config, tutti_comm **out);

#endif /* TTI_TRAIN_WORKER_THREADS_H */
