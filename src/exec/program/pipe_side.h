/* pipe_side.h - the program of a pipeline stage and the values that it receives and sends. */
#ifndef TTI_EXEC_PIPE_SIDE_H
#define TTI_EXEC_PIPE_SIDE_H

#include "exec/program/compute_threads.h"
#include "exec/program/pipe_schedule.h"
#include "passes/plan.h"

/* One end of a stage boundary's value. */
typedef struct tti_pipe_end {
    int first_slot, depth; /* slots [depth][compute threads] of the mailbox */
    int part, last_part;   /* that sends; that first and last reads it */
    int input;             /* of the program */
    size_t n_bytes;
    char name[32]; /* of the output */
} tti_pipe_end;

/* One of the two programs. */
typedef struct tti_pipe_side {
    const tti_program *program;
    tti_pipe_schedule schedule;
    tti_pipe_end *in, *out; /* [n_in], [n_out] */
    int n_in, n_out;
    tti_range *flat; /* [n_parts]: gradients that a part completes */
} tti_pipe_side;

#endif /* TTI_EXEC_PIPE_SIDE_H */
