/* crew.h - workers that are threads of this process. */
#ifndef TTI_TRAIN_CREW_H
#define TTI_TRAIN_CREW_H

#include "base/error.h"
#include "train/job.h"
#include "tutti/comm.h"

typedef struct tti_crew_desc {
    const char *who;         /* begins messages: "train" */
    int n;                   /* workers */
    tutti_comm_group *group; /* of them, aborted if one cannot be started; NULL: n is 1 */
    tutti_status (*run)(void *user, int rank);
    void *user;
} tti_crew_desc;

/* Runs run(user, rank) for each rank, that of rank 0 on the calling thread after the others were
 * started, until all have ended.  Fails as the worker that failed first by itself, in its words:
 * the others only heard of it.  TUTTI_E_NOMEM: not all could be started; what has begun ended. */
tutti_status tti_crew_run(const tti_crew_desc *desc);

/* The communicator of one of n workers, threads or processes, which it destroys; NULL: it is alone.
 * Returns when all have joined. */
tutti_status tti_crew_join(tutti_comm_group *group, int rank, int n, const tti_job_config *config,
                           tutti_comm **out);

#endif /* TTI_TRAIN_CREW_H */
