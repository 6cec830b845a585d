/* device_pipe.h - a worker on a device that is one stage of a pipeline: the schedule of pipe.h,
 * with values between stages by way of the host's memory. */
#ifndef TTI_EXEC_DEVICE_PIPE_H
#define TTI_EXEC_DEVICE_PIPE_H

#include "exec/exec.h"
#include "exec/fed.h"

typedef struct tti_device_pipe tti_device_pipe;

/* What a step computes with; all on the device. */
typedef struct tti_device_pipe_step {
    const tti_fed_shard *shards; /* [shards of the worker] */
    const tti_run *runs;         /* [the same] */
    const float *loss_scale;
    double *sums; /* [V][3] */
    uint64_t number;
    bool eval;
} tti_device_pipe_step;

/* Memory for what comes and goes, on the device and pinned.  x->pipe is there.  Of x without one
 * *out is NULL.  tti_device_pipe_destroy in any case. */
tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out);
void tti_device_pipe_destroy(tti_device_pipe *pipe); /* takes NULL */

/* Bytes that it takes on the device. */
size_t tti_device_pipe_bytes(const tti_exec *x);

/* All shards of the worker; gradients are added up in x->buffers, of evaluation none.  Waits for
 * the other stages, and at last for the device.  Collective over mesh->pipeline. */
tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step);

#endif /* TTI_EXEC_DEVICE_PIPE_H */
