/* pipe.h - a worker that is one stage of a pipeline: runs the segments of its shards in the order
 * of the schedule, and exchanges values with the other stages. */
#ifndef TTI_EXEC_PIPE_H
#define TTI_EXEC_PIPE_H

#include "comm/mailbox.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_pipe {
    const tti_stages *stages;
    tutti_comm *comm; /* of the stages, borrowed */
    tti_mailbox *box;
    tti_mailbox_slot *slots; /* [n_slots] of the mailbox; equal on all stages */
    int n_slots;
    tti_micro_group *micro_groups; /* [n_micro_groups]: one shard per compute thread */
    int n_micro_groups;
    int n_idle; /* the first n_idle groups have no shard: other workers of the stage have more */
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
    int index, shard; /* of the compute thread; global number */
    bool timed;
} tti_pipe_segment;

/* Receives the values that the segment reads from other stages; sends the values that it computes,
 * and frees the slots that it reads last. */
tutti_status tti_pipe_receive(tti_exec *x, const tti_pipe_segment *segment);
tutti_status tti_pipe_send(tti_exec *x, const tti_pipe_segment *segment);

/* Call before the compute threads start; reports an earlier failure of the worker to the other
 * stages. */
void tti_pipe_begin(tti_pipe *pipe, tutti_status before);

/* The mailbox slot of a micro-batch group's shard on that compute thread. */
int tti_pipe_slot(const tti_setup *setup, const tti_pipe_end *end, int micro_group,
                  int compute_thread);

/* Measures the fraction of span_ns that the stages computed; this one busy_ns.  Collective over the
 * stages. */
tutti_status tti_pipe_measure(tti_exec *x, int64_t busy_ns, int64_t span_ns);

/* *out is NULL unless the plan is that of a stage.  Collective over mesh->pipeline, after the
 * micro-batch groups of the worker are known (x->acc).  The number of compute threads must be equal
 * on every stage.  Owned by the caller, also after a failure. */
tutti_status tti_pipe_create(const tti_setup *setup, tti_pipe **out);
void tti_pipe_destroy(tti_pipe *pipe);

/* The schedules of a stage without a worker: n_micro_groups, of which the first n_idle have no
 * shard.  Owned by the caller, also after a failure. */
tutti_status tti_pipe_plan(const tti_plan *plan, int n_compute_threads, int n_micro_groups,
                           int n_idle, tti_pipe **out);

/* The number of groups of n_compute_threads shards that n_shards need. */
int tti_micro_groups_of(int n_shards, int n_compute_threads);

/* Sets the number of compute threads to that of the stage with the fewest, and n_pipe_groups.
 * Collective over mesh->pipeline, and with sharded parameters over setup->desc.comm. */
tutti_status tti_pipe_agree_compute_threads(tti_setup *setup);

/* At most n_compute_threads, such that the micro-batch groups of n_shards pass the stages in whole
 * rounds. */
int tti_pipe_fit_compute_threads(const tti_stages *stages, int n_compute_threads, int n_shards);

/* How many of n_local shards have their own gradient buffers at the same time. */
int tti_pipe_width(const tti_stages *stages, int n_compute_threads, int n_local);

/* The number of micro-batch groups whose activations are live at the same time. */
tutti_status tti_pipe_count_in_flight(const tti_stages *stages, int n_micro_groups, int *n);

/* Computes a shard of this worker again through all stages, and returns the first step of this
 * stage with a NaN or infinity (-1: none) and its slot in the schedule. */
tutti_status tti_pipe_find_nonfinite(tti_exec *x, const tti_step_desc *desc, int shard,
                                     int *sched_slot, int *step);

/* Adds the gradients of parameters that several stages have, in the order of the stages. grads:
 * [n_flat] on the host, of this stage. */
tutti_status tti_pipe_sum_tied(tti_exec *x, float *grads);

/* The slot of such a parameter; NULL: this stage does not have it.  The second function adds one of
 * them; grads [slot->n_elems]. */
const tti_slot *tti_pipe_tied_slot(const tti_plan *plan, const tti_tied_param *tied);
tutti_status tti_pipe_sum_shared(const tti_pipe *pipe, const tti_tied_param *tied,
                                 const tti_slot *slot, float *grads);

/* True if a range of the flat gradients contains such parameters, whose gradients every worker
 * needs whole. */
bool tti_pipe_has_tied(const tti_plan *plan, size_t first, size_t n_elems);

/* Bytes of this stage's slots for values of other stages on the same host. */
tutti_status tti_pipe_slot_bytes(const tti_plan *plan, int n_micro_groups, int n_compute_threads,
                                 size_t *n_bytes);

#endif /* TTI_EXEC_PIPE_H */
