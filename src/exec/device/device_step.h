/* device_step.h - the parts of a step on a device. */
#ifndef TTI_EXEC_DEVICE_STEP_H
#define TTI_EXEC_DEVICE_STEP_H

#include "exec/device/device.h"
#include "exec/device/params/device_params.h"
#include "exec/device/state/device_state.h"
#include "exec/program/exec_program.h"
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

/* ---- a worker on a device with a parameter server on the host ----
 *
 * The device computes the gradient, which is copied to pinned host memory, where the server's
 * threads read it (server.h); parameters are copied back.  With one server thread this is known as
 * a tower: variables on the host, computation on its devices. */

typedef struct tti_device_server tti_device_server;

/* The buffers of x exist.  *out is owned by the caller, also after a failure, and borrows x. */
tutti_status tti_device_server_create(tti_exec *x, tti_device_server **out);
void tti_device_server_destroy(tti_device_server *server); /* takes NULL */

/* Enqueues the copy of the gradients to the host in the compute queue. */
tutti_status tti_device_server_bring(tti_device_server *server);

/* The end of a step that was begun for its gradient alone: that lies on the host, and its sums are
 * in result.  TUTTI_E_NUMERICS: the loss is not finite. */
tutti_status tti_device_server_gradient(tti_exec *x, tti_step_result *result);

/* Copies host values [n_flat] to an array of the device; waits. */
tutti_status tti_device_server_put(const tti_device_server *server, float *array,
                                   const float *from);

/* tti_exec_end of a synchronous step: the server makes the update. */
tutti_status tti_device_server_end(tti_exec *x, tti_step_result *result);

/* ---- a stage of a pipeline: the schedule of pipe.h; values go between devices or through the host
 */

typedef struct tti_device_pipe tti_device_pipe;

/* The inputs of a step; all on the device. */
typedef struct tti_device_pipe_step {
    const tti_inputs_shard *shards; /* [shards of the worker] */
    const tti_run *runs;            /* [the same] */
    const float *loss_scale;
    double *sums; /* [V][tti_n_sums] */
    tti_device_reduce
        *reduce; /* of gradients, during the last micro-batch group; NULL: later, or never */
    tti_device_param_gather *param_gather; /* in the first micro-batch group; NULL: none */
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
/* This stage has failed: notifies the others, and ends the waits on its device.  Keeps the thread's
 * error. */
void tti_device_pipe_fail(tti_device_pipe *pipe, tutti_status status);

/* For a completed training step: how long the stages waited in it (tti_pipe_measure). */
tutti_status tti_device_pipe_measure(tti_device_pipe *pipe);

/* ---- the parts of a step on a device ---- */

/* Batch and numbers of a step into a set; what computes next waits for them. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc);
/* The numbers of the step, to where programs read them. */
tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set);

/* The batch and the numbers of a step to the next input set; nothing is launched that computes. */
tutti_status tti_device_prepare_step(tti_exec *x, const tti_step_desc *desc, tti_device_set **out);

/* device.c: launches a step up to the sums of gradients between devices through the host. */
tutti_status tti_device_sum_through_host(tti_exec *x, tti_device_set *set);
/* All gradients to the host, which makes the update. */
tutti_status tti_device_copy_gradients_to_host(tti_exec *x);

/* Launches a step up to the sums of its gradients; overlapped: other devices are read while shards
 * compute. */
tutti_status tti_device_sum_gradients(tti_exec *x, const tti_device_set *set, bool overlapped);

/* The same, and the update with its report. */
tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool overlapped);

/* The end of a step whose gradients are there: the update, and the report to the host. */
tutti_status tti_device_update_and_report(tti_exec *x, const tti_device_set *set);

/* Ends capturing; st is the status of the captured launches. */
tutti_status tti_device_end_capture(tti_exec_device *device, tutti_status st,
                                    void **captured_graph);

/* device_graphs.c: a captured graph of a step with these inputs, nothing runs; and the set's own
 * one into the queue, made if it is not there. */
tutti_status tti_device_replay(tti_exec *x, tti_device_set *set);

/* device_graphs.c: later steps differ from the captured ones, which are all complete on return.
 * Collective. */
tutti_status tti_device_release_graphs(tti_exec *x);

/* device_graphs.c: how many steps over kept samples the device is best given at once; whether
 * the step of this set is one of those; and such a step, marked as every step is, which waits until
 * the others of its launch have been begun. */
int tti_device_n_chained(const tti_exec *x);
bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set);
tutti_status tti_device_chain_step(tti_exec *x, int which);

/* device_graphs.c: before the oldest step at work is awaited.  Steps that wait for others go to
 * the device one by one if it is among them, or if no others come. */
tutti_status tti_device_chain_before_end(tti_exec *x);

/* device_step.c: runs the shards of this worker with their inputs; also the overlapped sums
 * with other workers.  And those of an evaluation. */
tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set);
/* device_step.c: a step of the shard program is in the queue, for a profile. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard);

/* device_step.c: the values of sync number i of all shards become one. */
tutti_status tti_device_join_shards(tti_exec *x, int i);
tutti_status tti_device_copy_outputs(tti_exec *x, const tti_step_desc *desc,
                                     const tti_instance *instance, int index);

/* device_step.c: tti_exec_device_eval. */
tutti_status tti_device_eval_batch(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* device_graphs.c: tti_exec_device_end, of a worker whose device makes the update. */
tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result);
/* Before a step is launched: its report does not say yet that the step is completed. */
void tti_device_expect_report(tti_device_set *set);
/* The same for a step that a lost peer has interrupted, with an idle device: *ended false if it was
 * not completed. */
tutti_status tti_device_end_interrupted(tti_exec *x, tti_step_result *result, bool *ended);

/* device_graphs.c: waits for the host event of an input set, or for the failure of a worker. */
tutti_status tti_device_await_event(tti_exec *x, int which);

/* The oldest step at work is done: its set, until the next step begins. */
tutti_status tti_device_await(tti_exec *x, const tti_device_set **out);
/* Takes its sums into x->sums, and its times into result. */
tutti_status tti_device_read_sums(tti_exec *x, const tti_device_set *set);
void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_STEP_H */
