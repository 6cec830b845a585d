/* run_limits.h - checks how many workers a run can start.  A job file may set more
 * (TTI_MAX_WORKERS), to plan and draw layouts. */
#ifndef TTI_TRAIN_RUN_LIMITS_H
#define TTI_TRAIN_RUN_LIMITS_H

#include "train/job/job.h"

/* Returns TUTTI_E_CONFIG if the workers of a resolved job exceed the limit of one host
 * (on_one_host) or the limit of a parameter server.  Call it before anything is started or
 * written. */
TUTTI_NODISCARD tutti_status tti_run_limits_check(const tti_job_config *config, bool on_one_host);

/* The same for the ranks of another launcher, whose hosts are connected by sockets or MPI; place
 * describes this rank for the message. */
TUTTI_NODISCARD tutti_status tti_run_limits_check_launcher(int n_ranks, const char *place);

#endif /* TTI_TRAIN_RUN_LIMITS_H */
