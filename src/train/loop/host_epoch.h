/* host_epoch.h - the communicator of one epoch of an elastic run on several hosts.
 *
 * A supervisor cannot break the shared-memory group of another host.  Instead each supervisor holds
 * a pipe to the workers of its host, and closes it when the epoch is over. */
#ifndef TTI_TRAIN_HOST_EPOCH_H
#define TTI_TRAIN_HOST_EPOCH_H

#include <pthread.h>

#include "launch/supervised.h"
#include "train/job/job.h"
#include "tutti/comm.h"

typedef struct tti_host_epoch {
    tutti_comm *comm;
    tutti_comm_group *group; /* set if the epoch has one member; else NULL */
    int alive_fd, stop_fd;   /* -1: none */
    pthread_t watcher;
    bool is_watched;
} tti_host_epoch;

/* Connects the members of the epoch, and takes ownership of its descriptor.  TUTTI_E_PEER: a member
 * is missing; the caller waits for the next epoch.  On success the caller must call
 * tti_host_epoch_leave. */
TUTTI_NODISCARD tutti_status tti_host_epoch_join(const tti_epoch *epoch, const tti_job_config *c,
                                                 tti_host_epoch *out);
void tti_host_epoch_leave(tti_host_epoch *e);

#endif /* TTI_TRAIN_HOST_EPOCH_H */
