/* device_step.h - the parts of a step on a device. */
#ifndef TTI_EXEC_DEVICE_STEP_H
#define TTI_EXEC_DEVICE_STEP_H

#include "exec/device/device.h"
#include "exec/device/params/device_params.h"
#include "exec/device/state/device_state.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Call before a step of local SGD: clears the device's sums of other workers. */
tutti_status tti_device_local_begin(tti_exec *x);

/* For workers that divide the model, after their shards were launched: adds the workers' parts of
 * the sums of the replica's shards, and gradients that several stages share.  Collective over the
 * replica. */
tutti_status tti_device_local_add_parts(tti_exec *x);

/* The rest of such a step after its update. desc->n_rows counts this worker's rows.  With
 * desc->average the parameters of all workers become their mean (collective).  Own sums are in
 * x->sums; for result see tti_local_step. */
tutti_status tti_device_local_end(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* ---- a worker on a device with a parameter server on the host ----
 *
 * The device computes the gradient, which is copied to pinned host memory, where the server's
 * threads read it (server.h).  Parameters are copied back. */

typedef struct tti_device_server tti_device_server;

/* Requires the buffers of x. The caller owns *out, also after a failure; it borrows x. */
tutti_status tti_device_server_create(tti_exec *x, tti_device_server **out);
void tti_device_server_destroy(tti_device_server *server); /* takes NULL */

/* Enqueues the copy of the gradients to the host in the compute queue. */
tutti_status tti_device_server_bring(tti_device_server *server);

/* Ends a step that was begun only for its gradient.  The gradient is in host memory, its sums in
 * result.  TUTTI_E_NUMERICS: the loss is not finite. */
tutti_status tti_device_server_gradient(tti_exec *x, tti_step_result *result);

/* Copies host values [n_flat] to an array of the device; waits. */
tutti_status tti_device_server_put(const tti_device_server *server, float *array,
                                   const float *from);

/* tti_exec_end of a synchronous step in which the server runs the update. */
tutti_status tti_device_server_end(tti_exec *x, tti_step_result *result);

/* ---- a pipeline stage: runs the schedule of pipe.h; values are sent between devices or through
 * the host */

typedef struct tti_device_pipe tti_device_pipe;

/* The inputs of a step, all in device memory. */
typedef struct tti_device_pipe_step {
    const tti_inputs_shard *shards; /* [shards of the worker] */
    const tti_run *runs;            /* [shards of the worker] */
    const float *loss_scale;
    double *sums;              /* [V][tti_n_sums] */
    tti_device_reduce *reduce; /* reduces gradients during the last micro-batch group; NULL: later,
                                  or not at all */
    tti_device_param_gather
        *param_gather; /* fetches parameters during the first micro-batch group; NULL: none */
    uint64_t number;
    const tti_step_desc *desc; /* the outputs to copy */
    bool eval;
} tti_device_pipe_step;

/* Allocates device and pinned memory for messages; without a pipeline sets *out to NULL. Collective
 * over all workers. Call tti_device_pipe_destroy in any case. */
tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out);
void tti_device_pipe_destroy(tti_device_pipe *pipe); /* takes NULL */

/* P2p: the messages between devices; NULL: there are none, or there is no pipeline. Describe:
 * appends how messages are sent, and the reason if not directly. */
tti_device_p2p *tti_device_pipe_p2p(const tti_device_pipe *pipe);
void tti_device_pipe_describe(const tti_device_pipe *pipe, tti_str *str);

/* True if the next step, or evaluation, sends values between devices. */
bool tti_device_pipe_is_loaded(const tti_device_pipe *pipe, bool eval);

/* Before a step: tti_device_p2p_begin. */
void tti_device_pipe_begin(tti_device_pipe *pipe, bool overlapped);

/* Runs all shards of the worker.  Gradients are accumulated in x->buffers; evaluation has none.
 * Between devices it only launches; otherwise it waits for the other stages, and finally for the
 * device.  Collective over mesh->pipeline, like all calls below. */
tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step);

/* All-reduces the gradients of tied parameters (see tti_pipe_reduce_tied_grads), between devices in
 * the queues. */
tutti_status tti_device_pipe_reduce_tied_grads(tti_device_pipe *pipe);

/* Waits for the device, or for an event of the running step; fails if another stage fails. */
tutti_status tti_device_pipe_rest(tti_device_pipe *pipe);
/* Call when this stage has failed: notifies the others and ends the waits on its device.  Keeps the
 * thread's error. */
void tti_device_pipe_fail(tti_device_pipe *pipe, tutti_status status);

/* For a completed training step: measures how long the stages waited (tti_pipe_measure). */
tutti_status tti_device_pipe_measure(tti_device_pipe *pipe);

/* ---- the parts of a step on a device ---- */

/* Copies batch and numbers of a step into a set.  Later kernels wait for the copy. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc);
/* Copies the numbers of the step to where programs read them. */
tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set);

/* Copies batch and numbers of a step to the next input set.  Launches no computation. */
tutti_status tti_device_prepare_step(tti_exec *x, const tti_step_desc *desc, tti_device_set **out);

/* device.c: launches a step up to the sums of gradients, which go between devices through the
 * host. */
tutti_status tti_device_sum_through_host(tti_exec *x, tti_device_set *set);
/* Copies all gradients to the host, which runs the update. */
tutti_status tti_device_copy_gradients_to_host(tti_exec *x);

/* Launches a step up to the sums of its gradients. overlapped: memory of other devices is read
 * while shards compute. */
tutti_status tti_device_sum_gradients(tti_exec *x, const tti_device_set *set, bool overlapped);

/* The same, followed by the update and its report. */
tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool overlapped);

/* Ends a step whose gradients are complete: launches the update, and the report to the host. */
tutti_status tti_device_update_and_report(tti_exec *x, const tti_device_set *set);

/* Ends capturing. st: the status of the captured launches. */
tutti_status tti_device_end_capture(tti_exec_device *device, tutti_status st,
                                    void **captured_graph);

/* device_graphs.c: captures a graph of a step with these inputs without running it; launches the
 * set's graph, after capturing it if necessary. */
tutti_status tti_device_replay(tti_exec *x, tti_device_set *set);

/* device_graphs.c: later steps differ from the captured ones.  All of those are complete on return.
 * Collective. */
tutti_status tti_device_release_graphs(tti_exec *x);

/* device_graphs.c: the best number of resident-sample steps per launch; whether this set's step is
 * one of them; begins such a step, which waits until the other steps of its launch have begun. */
int tti_device_n_chained(const tti_exec *x);
bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set);
tutti_status tti_device_chain_step(tti_exec *x, int which);

/* device_step.c: runs the shards of this worker with their inputs, including overlapped sums with
 * other workers; the same for an evaluation. */
tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set);
/* device_step.c: records for a profile that a step of the shard program was launched. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard);

/* device_step.c: joins the values of sync number i over all shards. */
tutti_status tti_device_join_shards(tti_exec *x, int i);
tutti_status tti_device_copy_outputs(tti_exec *x, const tti_step_desc *desc,
                                     const tti_instance *instance, int index);

/* device_step.c: tti_exec_device_eval. */
tutti_status tti_device_eval_batch(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* device_graphs.c: tti_exec_device_end, of a worker whose device runs the update. */
tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result);
/* Call before a step is launched: marks its report as not completed. */
void tti_device_expect_report(tti_device_set *set);
/* Ends a step that a lost peer interrupted, with an idle device.  *ended false: the step was not
 * completed. */
tutti_status tti_device_end_interrupted(tti_exec *x, tti_step_result *result, bool *ended);

/* device_graphs.c: waits for the host event of an input set; fails if a worker fails. */
tutti_status tti_device_await_event(tti_exec *x, int which);

/* Waits for the oldest step in flight and returns its set, which is valid until the next step
 * begins. */
tutti_status tti_device_await(tti_exec *x, const tti_device_set **out);
/* Copies the set's sums into x->sums, and its times into result. */
tutti_status tti_device_read_sums(tti_exec *x, const tti_device_set *set);
void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_STEP_H */
