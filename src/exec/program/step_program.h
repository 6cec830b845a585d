/* step_program.h - what one worker does in a step: a flat list of instructions.
 *
 * The three queues of the list run concurrently, each in order:
 *   MAIN             the worker's own thread.  It runs the first n_head instructions before the
 *                    compute threads start, and the others after all of them have ended.  The first
 *                    one after the threads that is not a reduction also waits for COMM.
 *   COMPUTE_THREADS  every compute thread runs every instruction, for its own shard
 *   COMM             the communication thread
 *
 * A COMM instruction waits until every compute thread has finished the last COMPUTE_THREADS
 * instruction before it in the list, or the steps of that instruction before `after`.  A RUN
 * instruction waits, before some of its steps, for COMM instructions.  An instruction only waits
 * for instructions that stand before it in the list, so no cycle of waits is possible, on one
 * worker or between workers.
 *
 * The list depends only on the plan, the shards and the bucket memory, so all workers of the data
 * axis have the same communication instructions in the same order. */
#ifndef TTI_EXEC_STEP_PROGRAM_H
#define TTI_EXEC_STEP_PROGRAM_H

#include <limits.h>

#include "base/str.h"
#include "exec/program/accumulate.h"
#include "exec/program/bucket_memory.h"
#include "exec/program/pipe_schedule.h"
#include "exec/program/timeline.h"

typedef enum tti_instr_kind {
    TTI_RUN,  /* runs steps first .. last-1 of the shard program, for one shard of the micro-batch
                 group per compute thread */
    TTI_RECV, /* receives the values of other stages that the segment reads */
    TTI_SEND, /* sends the segment's values to other stages; frees the slots that it reads last */
    TTI_ALL_GATHER, /* gathers the parameters of a bucket, or all, from the owners of their
                       partitions */
    TTI_JOIN,  /* joins the values of step first over all shards, for example for SyncBatchNorm */
    TTI_MERGE, /* adds the worker's own partial sums along the tree, over range */
    TTI_ADD_PARTIALS,      /* adds all partial sums of the worker into one, over range */
    TTI_REDUCE_SCATTER,    /* reduces gradients of range to the owners of its partitions */
    TTI_ALL_REDUCE,        /* reduces gradients of range to all workers */
    TTI_TIME_STAGES,       /* gathers how long each pipeline stage computed */
    TTI_REDUCE_TIED_GRADS, /* all-reduces gradients of tied parameters, those that several stages
                              have */
    TTI_REPORT,            /* reduces the sums of the shards; see tti_report */
    TTI_UPDATE_BLOCKS,     /* clips, optimizes and hashes the worker's blocks */
    TTI_PUSH_GRADS,        /* sends gradients to a parameter server, which runs the update */
    TTI_PULL_PARAMS,       /* gets parameters from a parameter server */
    TTI_AVERAGE,           /* replaces an array by its mean over the workers */
    TTI_HASH,              /* hashes parameters received from other workers, or all parameters */
    TTI_SUM_HASHES,        /* combines the hashes of partitions into one */
    TTI_N_INSTR_KINDS
} tti_instr_kind;

/* The kinds of steps of a worker.  Each kind has its own list. */
typedef enum tti_step_form {
    TTI_FORM_STEP,     /* the step that the job asks for */
    TTI_FORM_WARMUP,   /* before local SGD, or before gradients are compressed */
    TTI_FORM_LOCAL,    /* local SGD: an update of the worker's own parameters */
    TTI_FORM_MEAN,     /* a local step followed by the mean of all workers' parameters */
    TTI_FORM_MEAN_ALL, /* the same, followed by the mean of their state */
    TTI_FORM_GRADIENT, /* a step for an asynchronous server, which applies each gradient on arrival
                        */
    TTI_FORM_EVAL,
    TTI_N_FORMS
} tti_step_form;

typedef enum tti_instr_queue { TTI_ON_MAIN, TTI_ON_COMPUTE_THREADS, TTI_ON_COMM } tti_instr_queue;

/* The workers that take part in an instruction, on a mesh of data, tensor and pipeline axes. */
typedef enum tti_mesh_axis {
    TTI_AXIS_NONE,     /* the worker alone */
    TTI_AXIS_DATA,     /* the workers that divide the batch */
    TTI_AXIS_PIPELINE, /* the stages of one copy of the model */
    TTI_AXIS_MODEL,    /* all workers of one copy of the model */
    TTI_AXIS_ALL,
} tti_mesh_axis;

/* How gradients are added between workers. */
typedef enum tti_reduce_method {
    TTI_REDUCE_TREE,         /* along the tree over all shards: exact mode */
    TTI_REDUCE_TREE_ROUNDED, /* along the same tree, each partial sum rounded to 16 bits */
    TTI_REDUCE_ANY,          /* in any order, by the job's algorithm */
    TTI_REDUCE_ROUNDED,      /* rounded to 16 bits on the way */
    TTI_REDUCE_COMPRESS,     /* compressed as top-k pairs or PowerSGD matrices */
} tti_reduce_method;

/* Flags: what REPORT does in addition to adding losses and counts. */
typedef enum tti_report {
    TTI_REPORT_VOTES = 1,  /* adds the workers' votes */
    TTI_REPORT_HASHES = 2, /* compares the hashes of the last update */
    TTI_REPORT_LOSSES = 4, /* fails if a loss is not finite */
} tti_report;

enum { TTI_AT_END = INT_MAX, TTI_NEVER = INT_MAX };

typedef struct tti_instr {
    tti_instr_kind kind;
    tti_instr_queue queue;
    tti_mesh_axis axis; /* NONE for instructions without communication, such as RUN and MERGE */
    int micro_group, segment; /* RUN, RECV, SEND: micro-batch group, in the worker's order; segment
                                 of the program */
    int shard, n_shards; /* compute thread i runs shard + i; threads i >= n_shards do nothing */
    const int *buffer;   /* [n_shards]: gradient buffer of each thread */
    int first, last;     /* RUN, JOIN: steps */
    const tti_micro_group *merges; /* MERGE */
    tti_range range;               /* MERGE, reductions, UPDATE, gathers of all: elements */
    tti_reduce_method method;      /* reductions */
    int bucket;                    /* ALL_GATHER, reductions; -1: of all elements */
    size_t offset;                 /* ALL_GATHER of a bucket: offset of its memory */
    bool averages;                 /* ALL_GATHER: gathers averages of the parameters */
    bool eval;                     /* JOIN: in the evaluation program */
    unsigned report;               /* REPORT: tti_report */
    bool own_rows;                 /* UPDATE: the mean is over the worker's own samples */
    int array;                     /* AVERAGE: number of a state array, TTI_STATE_PARAMS or _EMA */
    bool whole; /* HASH: all parameters; false: all but the worker's own blocks */
    int after; /* on COMM: starts when the steps before this one are complete; TTI_AT_END: all steps
                */
    int before;     /* on COMM: the step that waits for this instruction; TTI_NEVER: none */
    int n_arrivals; /* on COMM: number of compute threads that it waits for; 0: starts with the step
                     */
    int first_wait, n_waits; /* RUN: in program->waits */
} tti_instr;

/* Before step, a RUN waits for a communication instruction and all before it. */
typedef struct tti_wait {
    int step, instr;
} tti_wait;

typedef struct tti_step_program {
    const tti_program *program; /* borrowed */
    const tti_pipe_side *side;  /* borrowed; of a pipeline stage; NULL: none */
    tti_instr *instrs;          /* [n_instrs] */
    int n_instrs, n_head;
    tti_wait *waits; /* [n_waits]: those of each RUN by step */
    int n_waits;
    int n_compute_threads, n_idle, n_in_flight;
    int n_partials; /* number of partial sums of the worker's gradient after all merges */
    bool has_comm;  /* some instruction is on COMM */
} tti_step_program;

typedef enum tti_reduction {
    TTI_REDUCE_NOTHING, /* for evaluation, for a single worker, or if a server adds the gradients */
    TTI_REDUCE_WHOLE,   /* all elements at once, after the compute threads */
    TTI_REDUCE_BUCKETS, /* bucket by bucket, after the compute threads */
    TTI_REDUCE_OVERLAPPED, /* bucket by bucket, overlapped with the last micro-batch group */
} tti_reduction;

typedef struct tti_step_program_desc {
    const tti_plan *plan;
    const tti_program *program;  /* plan->shard or plan->eval */
    const tti_accumulation *acc; /* shards of the worker and buffers; borrowed by the program */
    int n_compute_threads;
    int n_idle; /* micro-batch groups without a shard before the worker's own, because other workers
                   gather parameters in them */
    bool joined;      /* all shards reach a join before any continues, so all of them are in flight
                         together */
    const int *joins; /* [n_joins]: steps, ascending */
    int n_joins;
    const tti_pipe_side *side; /* of a pipeline stage; NULL: none */
    const tti_bucket_memory
        *params;   /* ZeRO-3: where gathered parameters lie; NULL: they are whole */
    bool averages; /* it gathers averages */
    const tti_bucket_memory
        *grads; /* ZeRO-2: where gradients lie until they are reduced, NULL: whole */
    tti_reduction reduction;
    tti_reduce_method method;
    /* How a range of gradients is reduced: ALL_REDUCE, REDUCE_SCATTER or ADD_PARTIALS. NULL:
     * ALL_REDUCE. */
    tti_instr_kind (*reduction_kind)(const void *user, size_t first, size_t n_elems);
    const void *user;
    const tti_instr *head,
        *tail; /* [n_head], [n_tail]: instructions of MAIN at the begin and the end of the list */
    int n_head, n_tail;
} tti_step_program_desc;

/* On success *out is owned by the caller. */
tutti_status tti_step_program_create(const tti_step_program_desc *desc, tti_step_program **out);
void tti_step_program_destroy(tti_step_program *program); /* takes NULL */

/* True for reductions.  They run even if the worker failed to compute, because the other workers
 * wait for them. */
bool tti_is_reduction(tti_instr_kind kind);

/* The span of an instruction in a profile: its name, what it moves, and the kind of work.  The
 * steps of a RUN have their own spans. */
tti_span_id tti_instr_span(tti_instr_kind kind);

/* The name of an instruction in a list and in the flight recorder. */
const char *tti_instr_name(tti_instr_kind kind);

/* Prints the list as a table: number, queue, instruction, what it waits for. */
void tti_step_program_print(const tti_step_program *program, tti_str *out);

/* Index in exec->compute_thread of the instances that compute thread i uses in a micro-batch
 * group. */
int tti_step_program_compute_thread(const tti_step_program *program, int micro_group,
                                    int compute_thread);

#endif /* TTI_EXEC_STEP_PROGRAM_H */
