/* device_local.h - local SGD of a worker on a device (local.h): it updates its own parameters
 * there, recorded as if it were alone, and their mean is made by way of the host. */
#ifndef TTI_EXEC_DEVICE_LOCAL_H
#define TTI_EXEC_DEVICE_LOCAL_H

#include "exec/exec.h"

/* Before a step of it: what the device has of the sums of others is 0. */
tutti_status tti_device_local_begin(tti_exec *x);

/* Of workers that divide the model, once their shards are in the queue: what each has of the sums
 * of the copy's shards, and of gradients that stages have in common.  Collective over the copy. */
tutti_status tti_device_local_add_parts(tti_exec *x);

/* The rest of a step whose update is made: desc->n_rows are this worker's own, and with
 * desc->average all workers' parameters become their mean.  Own sums are in x->sums; result as
 * tti_local_step.  With desc->average collective. */
tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_LOCAL_H */
