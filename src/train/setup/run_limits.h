/* run_limits.h - how many workers a run can start.  A job can name more of them (TTI_MAX_WORKERS),
 * for which layouts are planned and drawn. */
#ifndef TTI_TRAIN_RUN_LIMITS_H
#define TTI_TRAIN_RUN_LIMITS_H

#include "train/job/job.h"

/* TUTTI_E_CONFIG if the workers of a resolved job exceed what the processes and threads of one host
 * connect (on_one_host), or what a parameter server serves.  Call it before anything is started or
 * written. */
TUTTI_NODISCARD tutti_status tti_run_limits_check(const tti_job_config *config, bool on_one_host);

/* The same for the ranks of another launcher, whose hosts are connected by sockets or MPI; place
 * describes this rank for the message. */
TUTTI_NODISCARD tutti_status tti_run_limits_check_launcher(int n_ranks, const char *place);

#endif /* TTI_TRAIN_RUN_LIMITS_H */
