/* device_local.h - local SGD of a worker on a device (local.h): it updates its own parameters
 * there, captured as if it were alone, and the host averages them. */
#ifndef TTI_EXEC_DEVICE_LOCAL_H
#define TTI_EXEC_DEVICE_LOCAL_H

#include "exec/worker/desc.h"

/* Before such a step: clears the device's sums of other workers. */
tutti_status tti_device_local_begin(tti_exec *x);

/* For workers that divide the model, when their shards are launched: adds each worker's part of the
 * sums of the replica's shards, and of gradients that several stages share.  Collective over the
 * replica. */
tutti_status tti_device_local_add_parts(tti_exec *x);

/* The rest of a step after its update: desc->n_rows counts this worker's rows, and with
 * desc->average the parameters of all workers become their mean.  Own sums are in x->sums; result
 * as in tti_local_step.  Collective with desc->average. */
tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_LOCAL_H */
