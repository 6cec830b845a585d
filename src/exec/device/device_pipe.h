/* device_pipe.h - a worker on a device that is one stage of a pipeline: the schedule of pipe.h,
 * with values that go from device to device, or by way of the host's memory. */
#ifndef TTI_EXEC_DEVICE_PIPE_H
#define TTI_EXEC_DEVICE_PIPE_H

#include "exec/device/device_mail.h"
#include "exec/device/device_parts.h"
#include "exec/device/device_reduce.h"
#include "exec/exec.h"
#include "exec/program/fed.h"

typedef struct tti_device_pipe tti_device_pipe;

/* What a step computes with; all on the device. */
typedef struct tti_device_pipe_step {
    const tti_fed_shard *shards; /* [shards of the worker] */
    const tti_run *runs;         /* [the same] */
    const float *loss_scale;
    double *sums;              /* [V][3] */
    tti_device_reduce *reduce; /* of gradients, beside the last wave; NULL: later, or never */
    tti_device_parts *parts;   /* of parameters, beside the first wave; NULL: they are there */
    uint64_t number;
    bool eval;
} tti_device_pipe_step;

/* Memory for what comes and goes, on the device and pinned.  x->pipe is there.  Of x without one
 * *out is NULL.  Collective over all workers.  tti_device_pipe_destroy in any case. */
tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out);
void tti_device_pipe_destroy(tti_device_pipe *pipe); /* takes NULL */

/* What goes between devices; NULL: nothing does, or there is no pipe.  And how, or why not, in
 * words. */
tti_device_mail *tti_device_pipe_mail(const tti_device_pipe *pipe);
void tti_device_pipe_describe(const tti_device_pipe *pipe, tti_str *str);

/* Bytes that it takes on the device. */
size_t tti_device_pipe_bytes(const tti_exec *x);

/* Whether the next step, or evaluation, goes between devices. */
bool tti_device_pipe_is_loaded(const tti_device_pipe *pipe, bool eval);

/* Before a step: tti_device_mail_begin. */
void tti_device_pipe_begin(tti_device_pipe *pipe, bool beside);

/* All shards of the worker; gradients are added up in x->buffers, of evaluation none.  Between
 * devices it only puts them into the queues.  Else it waits for the other stages, and at last for
 * the device.  Collective over mesh->pipeline, as all of the calls below. */
tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step);

/* Adds up the gradients of parameters that several stages have, as tti_pipe_sum_tied; between
 * devices in the queues. */
tutti_status tti_device_pipe_sum_tied(tti_device_pipe *pipe);

/* Waits for the device, or for a mark in the step at work; or for the failure of another stage. */
tutti_status tti_device_pipe_rest(tti_device_pipe *pipe);
tutti_status tti_device_pipe_await(tti_device_pipe *pipe, int mark);

/* This stage has failed: the others are told, and nothing waits on its device any more.  The error
 * of the thread stays. */
void tti_device_pipe_fail(tti_device_pipe *pipe, tutti_status status);

/* Of a training step that is done: how long the stages waited in it (tti_pipe_measure). */
tutti_status tti_device_pipe_measure(tti_device_pipe *pipe);

#endif /* TTI_EXEC_DEVICE_PIPE_H */
