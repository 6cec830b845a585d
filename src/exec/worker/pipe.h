/* pipe.h - a worker that is one stage of a pipeline: runs the segments of its shards in the order
 * of the schedule, and exchanges activations and their gradients with other stages. Compute threads
 * call tti_pipe_receive and tti_pipe_send; the worker's own thread calls the other functions. */
#ifndef TTI_EXEC_PIPE_H
#define TTI_EXEC_PIPE_H

#include "comm/mailbox.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_pipe {
    const tti_stages *stages;
    tutti_comm *comm; /* communicator of the stages, borrowed */
    tti_mailbox *box;
    tti_mailbox_slot *slots; /* [n_slots] of the mailbox; equal on all stages */
    int n_slots;
    tti_micro_group *micro_groups; /* [n_micro_groups]: one shard per compute thread */
    int n_micro_groups;
    int n_idle; /* the first n_idle groups have no shard here, because other workers of the stage
                   have more shards */
    tti_pipe_side train, eval;
    int64_t busy_ns;           /* compute time of thread 0 in this step */
    double measured, expected; /* fraction of the last step that stages waited for each other */
    double *busy;              /* [n_stages]: fraction of the last step that each stage computed */
    double *times;             /* [2 * n_stages]: scratch of tti_pipe_measure; owned */
} tti_pipe;

/* One segment of one shard. */
typedef struct tti_pipe_segment {
    const tti_pipe_side *side;
    tti_instance *instance;
    tti_pipe_action action;
    int index, shard; /* index of the compute thread; number of the shard in the batch */
    bool timed;
} tti_pipe_segment;

/* Receive waits for the values that the segment reads from other stages. Send sends the values that
 * the segment computes, and frees the slots for which it was the last reader. TUTTI_E_PEER: a stage
 * failed. */
tutti_status tti_pipe_receive(tti_exec *x, const tti_pipe_segment *segment);
tutti_status tti_pipe_send(tti_exec *x, const tti_pipe_segment *segment);

/* Starts a step; call before the compute threads start. before: an earlier failure of this worker,
 * which is reported to the other stages, or TUTTI_OK. */
void tti_pipe_begin(tti_pipe *pipe, tutti_status before);

/* The index of the mailbox slot for the shard that compute_thread has in a micro-batch group. */
int tti_pipe_slot(const tti_setup *setup, const tti_pipe_end *end, int micro_group,
                  int compute_thread);

/* Gathers the fraction of the step that each stage computed: this stage computed for busy_ns of
 * span_ns. Collective over the stages. */
tutti_status tti_pipe_measure(tti_exec *x, int64_t busy_ns, int64_t span_ns);

/* Sets *out to NULL if the plan is not that of a stage. Collective over mesh->pipeline. Requires
 * the worker's micro-batch groups (setup->acc) and the same number of compute threads on every
 * stage. The caller owns *out, also after a failure. */
tutti_status tti_pipe_create(const tti_setup *setup, tti_pipe **out);
void tti_pipe_destroy(tti_pipe *pipe);

/* Creates only the schedules of a stage, without a worker, for n_micro_groups groups of which the
 * first n_idle have no shard. The caller owns *out, also after a failure. */
tutti_status tti_pipe_plan(const tti_plan *plan, int n_compute_threads, int n_micro_groups,
                           int n_idle, tti_pipe **out);

/* The number of micro-batch groups of n_shards shards, n_compute_threads in each group. */
int tti_micro_groups_of(int n_shards, int n_compute_threads);

/* Sets n_compute_threads to the minimum over the stages, and n_pipe_groups. Collective over
 * mesh->pipeline, and over setup->desc.comm if parameters are sharded. */
tutti_status tti_pipe_agree_compute_threads(tti_setup *setup);

/* The largest number of compute threads, at most n_compute_threads, with which the number of
 * micro-batch groups is a multiple of the stages. Without several chunks, n_compute_threads. */
int tti_pipe_fit_compute_threads(const tti_stages *stages, int n_compute_threads, int n_shards);

/* The number of shards, out of n_local, that have their own gradient buffers at the same time. */
int tti_pipe_width(const tti_stages *stages, int n_compute_threads, int n_local);

/* The number of micro-batch groups whose activations are live at the same time. */
tutti_status tti_pipe_count_in_flight(const tti_stages *stages, int n_micro_groups, int *n);

/* Computes a shard of this worker again through all stages. Sets *step to the first step of this
 * stage with a NaN or infinity (-1: none) and *sched_slot to its slot in the schedule. */
tutti_status tti_pipe_find_nonfinite(tti_exec *x, const tti_step_desc *desc, int shard,
                                     int *sched_slot, int *step);

/* All-reduces the gradients of tied parameters, those that several stages have, in the order of the
 * stages. grads [n_flat]: this stage's gradients in host memory. Collective over the stages. */
tutti_status tti_pipe_reduce_tied_grads(tti_exec *x, float *grads);

/* Returns the slot of a tied parameter in plan; NULL: this stage does not have it. The second
 * function all-reduces the gradient of one tied parameter, grads [slot->n_elems]. */
const tti_slot *tti_pipe_find_tied_slot(const tti_plan *plan, const tti_tied_param *tied);
tutti_status tti_pipe_reduce_tied_grad(const tti_pipe *pipe, const tti_tied_param *tied,
                                       const tti_slot *slot, float *grads);

/* True if a range of the flat gradients contains a tied parameter. The whole gradient of a tied
 * parameter must then be on every worker. */
bool tti_pipe_has_tied(const tti_plan *plan, size_t first, size_t n_elems);

/* Sets *n_bytes to the size of this stage's mailbox slots, if all stages are on the same host. */
tutti_status tti_pipe_slot_bytes(const tti_plan *plan, int n_micro_groups, int n_compute_threads,
                                 size_t *n_bytes);

#endif /* TTI_EXEC_PIPE_H */
