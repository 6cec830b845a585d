/* pipe_ends.h - shared declarations of the pipeline: which part of a shard receives and sends which
 * values. pipe.c computes on the host, device_pipe.c on a device. */
#ifndef TTI_EXEC_PIPE_ENDS_H
#define TTI_EXEC_PIPE_ENDS_H

#include "comm/mailbox.h"
#include "exec/program/exec_program.h"
#include "exec/worker/pipe.h"

struct tti_pipe {
    const tti_stages *stages;
    tutti_comm *comm; /* of the stages, borrowed */
    tti_mailbox *box;
    tti_mailbox_slot *slots; /* [n_slots] of the mailbox: the same on all stages */
    int n_slots;
    tti_shard_group *shard_groups; /* [n_shard_groups]: a shard for each compute thread */
    int n_shard_groups;
    int n_idle; /* the first of them, without a shard: other workers of the stage have more */
    tti_pipe_side train, eval;
    int64_t busy_ns; /* of compute thread 0 in this step */
    double measured, expected;
    double busy[TTI_MAX_CHUNKS]; /* share of the last step that each stage computed */
};

/* A part of one shard on its way through the stage. */
typedef struct tti_pipe_part {
    const tti_pipe_side *side;
    tti_instance *instance;
    tti_pipe_action action;
    int index, shard; /* of the compute thread; global number */
    bool timed;
} tti_pipe_part;

/* Values that the part reads come from other stages; those that it makes go to them, and slots
 * that it was the last to read are freed. */
tutti_status tti_pipe_receive(tti_exec *x, const tti_pipe_part *part);
tutti_status tti_pipe_send(tti_exec *x, const tti_pipe_part *part);

/* Call before the compute threads start; reports an earlier failure of the worker to the other
 * stages. */
void tti_pipe_begin(tti_pipe *pipe, tutti_status before);

/* The slot of a micro-batch group's shard on that compute thread. */
int tti_pipe_slot(const tti_setup *setup, const tti_pipe_end *end, int shard_group,
                  int compute_thread);

/* How long this stage computed of a step that took it span_ns.  Collective over the stages. */
tutti_status tti_pipe_measure(tti_exec *x, int64_t busy_ns, int64_t span_ns);

#endif /* TTI_EXEC_PIPE_ENDS_H */
