/* device_pipe.h - a worker on a device that is one stage of a pipeline: the schedule of pipe.h,
 * with values sent from device to device, or through host memory. */
#ifndef TTI_EXEC_DEVICE_PIPE_H
#define TTI_EXEC_DEVICE_PIPE_H

#include "exec/device/params/device_params.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_device_pipe tti_device_pipe;

/* The inputs of a step; all on the device. */
typedef struct tti_device_pipe_step {
    const tti_inputs_shard *shards; /* [shards of the worker] */
    const tti_run *runs;            /* [the same] */
    const float *loss_scale;
    double *sums; /* [V][3] */
    tti_device_reduce
        *reduce; /* of gradients, during the last micro-batch group; NULL: later, or never */
    tti_device_parts
        *parts; /* of parameters, during the first micro-batch group; NULL: they are complete */
    uint64_t number;
    const tti_step_desc *desc; /* whose outputs are wanted */
    bool eval;
} tti_device_pipe_step;

/* Allocates memory for messages, on the device and pinned. x->pipe exists; without it *out is NULL.
 * Collective over all workers.  Call tti_device_pipe_destroy in any case. */
tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out);
void tti_device_pipe_destroy(tti_device_pipe *pipe); /* takes NULL */

/* The messages between devices; NULL: there are none, or there is no pipeline.  And a description
 * of the method, or of the reason against it. */
tti_device_p2p *tti_device_pipe_p2p(const tti_device_pipe *pipe);
void tti_device_pipe_describe(const tti_device_pipe *pipe, tti_str *str);

/* Whether the next step, or evaluation, goes between devices. */
bool tti_device_pipe_is_loaded(const tti_device_pipe *pipe, bool eval);

/* Before a step: tti_device_p2p_begin. */
void tti_device_pipe_begin(tti_device_pipe *pipe, bool overlapped);

/* Runs all shards of the worker; gradients are accumulated in x->buffers, none for evaluation.
 * Between devices it only launches.  Otherwise it waits for the other stages, and finally for the
 * device.  Collective over mesh->pipeline, like all calls below. */
tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step);

/* Adds up the gradients of parameters that several stages have, as tti_pipe_sum_tied; between
 * devices in the queues. */
tutti_status tti_device_pipe_sum_tied(tti_device_pipe *pipe);

/* Waits for the device, or for an event in the step at work; or for the failure of another stage.
 */
tutti_status tti_device_pipe_rest(tti_device_pipe *pipe);
tutti_status tti_device_pipe_await(tti_device_pipe *pipe, int event);

/* This stage has failed: notifies the others, and ends the waits on its device.  Keeps the thread's
 * error. */
void tti_device_pipe_fail(tti_device_pipe *pipe, tutti_status status);

/* For a completed training step: how long the stages waited in it (tti_pipe_measure). */
tutti_status tti_device_pipe_measure(tti_device_pipe *pipe);

#endif /* TTI_EXEC_DEVICE_PIPE_H */
