/* pipe_schedule.h - the order in which a pipeline stage runs the segments of its shards.
 *
 * A micro-batch group is the group of shards that passes the stages together, one shard for each
 * compute thread. The schedule is 1F1B (Narayanan et al. 2019): a stage first runs as many forward
 * segments as there are later stages, then alternates between forward and backward segments. So few
 * micro-batch groups are in flight. With several chunks (Narayanan et al. 2021, interleaved)
 * micro-batch groups circulate through the stages in groups of n_stages. If values of all shards
 * are joined, all micro-batch groups finish a segment before any begins the next one, so only one
 * stage works at a time.
 *
 * The schedule depends only on the numbers in tti_pipe_shape, so every stage can compute the order
 * of every other stage. */
#ifndef TTI_EXEC_PIPE_SCHEDULE_H
#define TTI_EXEC_PIPE_SCHEDULE_H

#include "exec/program/compute_threads.h"
#include "passes/plan.h"
#include "passes/stages/stages.h"

/* Segments 0 .. n_chunks-1 are the forward passes of the chunks; segments from n_chunks on are the
 * backward passes, the last chunk first. */
typedef struct tti_pipe_action {
    int micro_group, segment;
} tti_pipe_action;

typedef struct tti_pipe_schedule {
    tti_pipe_action *actions; /* [n_actions] */
    int n_actions;
    int n_in_flight; /* the largest number of micro-batch groups that have begun and not ended */
} tti_pipe_schedule;

/* The parameters of a schedule, without the stage. */
typedef struct tti_pipe_shape {
    int n_stages, n_chunks, n_micro_groups;
    bool training; /* false: forward only */
    bool joined;   /* training with joined values: all groups finish a segment before the next one
                      begins */
} tti_pipe_shape;

tti_pipe_shape tti_pipe_shape_of(const tti_stages *stages, int n_micro_groups, bool training);

/* TUTTI_E_INVALID: there are several chunks and n_micro_groups is not a multiple of n_stages. On
 * success the caller frees *out with fini. */
tutti_status tti_pipe_schedule_init(const tti_pipe_shape *shape, int stage, tti_pipe_schedule *out);
void tti_pipe_schedule_fini(tti_pipe_schedule *schedule);

/* Sets *bubble to the fraction of time that stages wait for each other. cost [chunks of the model]
 * is the time of each chunk, a third of it forward; messages take no time. cost NULL: all chunks
 * take equally long, which gives (n_stages - 1) / (n_chunks * n_micro_groups + n_stages - 1), and
 * with joined values (n_stages - 1) / n_stages. *bubble -1: a stage would wait forever. */
tutti_status tti_pipe_bubble(const tti_pipe_shape *shape, const double *cost, double *bubble);

/* ---- the program of a pipeline stage, and the values that it receives and sends ---- */

/* One end of a value that crosses a stage boundary. */
typedef struct tti_pipe_end {
    int first_slot, depth; /* slots [depth][compute threads] of the mailbox */
    int segment,
        last_segment; /* segment that sends or first reads the value; segment that reads it last */
    int input;        /* index of the program's input */
    size_t n_bytes;
    char name[32]; /* index of the program's output */
} tti_pipe_end;

/* The training or evaluation program. */
typedef struct tti_pipe_side {
    const tti_program *program;
    tti_pipe_schedule schedule;
    tti_pipe_end *in, *out; /* [n_in], [n_out] */
    int n_in, n_out;
    tti_range *flat; /* [n_segments]: range of the flat gradients that each segment completes */
} tti_pipe_side;

#endif /* TTI_EXEC_PIPE_SCHEDULE_H */
