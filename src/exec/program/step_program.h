/* step_program.h - one worker's step: a flat list of instructions.
 *
 * All compute threads run the instructions of TTI_ON_LANES in order, each for its own shard.  The
 * communication thread runs those of TTI_ON_COMM concurrently, also in order.  Those of
 * TTI_ON_CALLER follow when all compute threads are done.
 *
 * A communication instruction waits until every compute thread has finished the last compute
 * instruction before it in the list, or has done its steps before `after`. A RUN instruction waits,
 * before some of its steps, for communication instructions.  Everything that a compute thread waits
 * for precedes in the list everything that waits for this thread, so there is no deadlock, on one
 * worker or between them.
 *
 * The list follows from plan, shards and windows alone.  All workers of the data axis therefore
 * have the same communication instructions in the same order. */
#ifndef TTI_EXEC_STEP_PROGRAM_H
#define TTI_EXEC_STEP_PROGRAM_H

#include <limits.h>

#include "exec/program/accumulate.h"
#include "exec/program/window.h"
#include "exec/worker/pipe_ends.h"

typedef enum tti_instr_kind {
    TTI_RUN,  /* steps first .. last-1 of the shard program, for one shard of the wave per lane */
    TTI_RECV, /* values of other stages that the part reads */
    TTI_SEND, /* values that the part makes for other stages; frees the slots it read last */
    TTI_ALL_GATHER,     /* parameters of a bucket, from the owners of its parts */
    TTI_JOIN,           /* values of step first of all shards, such as SyncBatchNorm's */
    TTI_MERGE,          /* adds the worker's own partial sums along the tree, over range */
    TTI_REDUCE_SCATTER, /* gradients of range, to the owners of its parts */
    TTI_ALL_REDUCE,     /* gradients of range, to all */
} tti_instr_kind;

typedef enum tti_instr_queue { TTI_ON_LANES, TTI_ON_COMM, TTI_ON_CALLER } tti_instr_queue;

enum { TTI_AT_END = INT_MAX, TTI_NEVER = INT_MAX };

typedef struct tti_instr {
    tti_instr_kind kind;
    tti_instr_queue queue;
    int wave, part;      /* RUN, RECV, SEND: wave in the order of the worker; part of the program */
    int shard, n_shards; /* those: lane i has shard + i; a lane without one only passes */
    const int *buffer;   /* [n_shards]: of gradients */
    int first, last;     /* RUN, JOIN: steps */
    const tti_wave *merges;  /* MERGE */
    tti_range range;         /* MERGE and reductions: elements of the flat gradients */
    int bucket;              /* ALL_GATHER, reductions; -1: of all elements */
    size_t offset;           /* ALL_GATHER: place of the bucket */
    bool averages;           /* ALL_GATHER: averages of the parameters */
    int after;               /* on COMM: steps before this one are done; TTI_AT_END: all are */
    int before;              /* on COMM: the step that waits for it; TTI_NEVER: none does */
    int n_arrivals;          /* on COMM: lanes it waits for; 0: it begins with the step */
    int first_wait, n_waits; /* RUN: in program->waits */
} tti_instr;

/* Before a step, a RUN waits for a communication instruction and all before it. */
typedef struct tti_wait {
    int step, instr;
} tti_wait;

typedef struct tti_step_program {
    const tti_program *program; /* borrowed */
    tti_instr *instrs;          /* [n_instrs] */
    int n_instrs;
    tti_wait *waits; /* [n_waits]: those of each RUN, by step */
    int n_waits;
    int n_lanes, n_idle, n_in_flight;
    bool has_comm; /* some instruction is on COMM */
} tti_step_program;

typedef enum tti_reduction {
    TTI_REDUCE_NOTHING,    /* evaluation; one worker; a server adds the gradients */
    TTI_REDUCE_WHOLE,      /* all elements at once, after the lanes */
    TTI_REDUCE_BUCKETS,    /* bucket by bucket, after the lanes */
    TTI_REDUCE_OVERLAPPED, /* bucket by bucket, during the last wave */
} tti_reduction;

typedef struct tti_step_program_desc {
    const tti_plan *plan;
    const tti_program *program;  /* plan->shard or plan->eval */
    const tti_accumulation *acc; /* shards of the worker and buffers; borrowed by the program */
    int n_lanes;
    int n_idle;  /* waves without a shard before the own ones: other workers gather in them */
    bool joined; /* all shards reach a step before any continues: they are in flight together */
    const int *joins; /* [n_joins]: steps, rising */
    int n_joins;
    const tti_pipe_side *side; /* of a pipeline stage; NULL: none */
    const tti_window *params;  /* ZeRO-3: where gathered parameters lie; NULL: they are whole */
    bool averages;             /* those are averages */
    const tti_window *grads;   /* ZeRO-2: where gradients lie until they are reduced, NULL: whole */
    tti_reduction reduction;
    /* Whether the owners of its parts alone need the sum of a bucket; NULL: no. */
    bool (*is_scattered)(const void *user, size_t first, size_t n_elems);
    const void *user;
} tti_step_program_desc;

/* On success *out is owned by the caller. */
tutti_status tti_step_program_create(const tti_step_program_desc *desc, tti_step_program **out);
void tti_step_program_destroy(tti_step_program *program); /* takes NULL */

/* Index of the instances that lane i uses in a wave, in exec->lane. */
int tti_step_program_lane(const tti_step_program *program, int wave, int lane);

#endif /* TTI_EXEC_STEP_PROGRAM_H */
