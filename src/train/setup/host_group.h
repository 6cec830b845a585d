/* host_group.h - elastic runs on several hosts: checks their requirements and connects the
 * supervisors. */
#ifndef TTI_TRAIN_HOST_GROUP_H
#define TTI_TRAIN_HOST_GROUP_H

#include "launch/hosts.h"
#include "train/job/devices.h"
#include "train/job/job.h"

/* Returns TUTTI_E_CONFIG or TUTTI_E_UNSUPPORTED if the job cannot be an elastic run on these
 * hosts. */
TUTTI_NODISCARD tutti_status tti_host_group_check(const tti_host_layout *place,
                                                  const tti_job_config *c);

/* Connects this host's supervisor to the others. devices: the devices of this host; yaml: the
 * job, equal on all hosts; run_dir: the run folder of host 0.  On success *out is owned by the
 * caller. */
TUTTI_NODISCARD tutti_status tti_host_group_open(const tti_host_layout *place,
                                                 const tti_job_config *c,
                                                 const tti_devices *devices, const char *yaml,
                                                 const char *run_dir, tti_hosts **out);

#endif /* TTI_TRAIN_HOST_GROUP_H */
