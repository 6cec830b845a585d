/* host_epoch.h - the communicator of one epoch of an elastic run on several hosts.
 *
 * The supervisors of the hosts cannot break a group in shared memory for each other.  Instead each
 * holds a pipe for the workers of its host: when it hangs up, the epoch is over. */
#ifndef TTI_TRAIN_HOST_EPOCH_H
#define TTI_TRAIN_HOST_EPOCH_H

#include <pthread.h>

#include "launch/supervised.h"
#include "train/job/job.h"
#include "tutti/comm.h"

typedef struct tti_host_epoch {
    tutti_comm *comm;
    tutti_comm_group *group; /* of a member that is alone; else NULL */
    int alive_fd, stop_fd;   /* -1: none */
    pthread_t watcher;
    bool is_watched;
} tti_host_epoch;

/* Connects the members of the epoch, and takes over its descriptor.  TUTTI_E_PEER: a member is
 * missing, so that the next epoch is waited for.  On success leave the epoch. */
TUTTI_NODISCARD tutti_status tti_host_epoch_join(const tti_epoch *epoch, const tti_job_config *c,
                                                 tti_host_epoch *out);
void tti_host_epoch_leave(tti_host_epoch *e);

#endif /* TTI_TRAIN_HOST_EPOCH_H */
