/* main_queue.h - the instructions of a step that the worker's own thread runs. */
#ifndef TTI_EXEC_MAIN_QUEUE_H
#define TTI_EXEC_MAIN_QUEUE_H

#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_host_main {
    tti_exec *x;
    const tti_step_desc *desc;
    const tti_step_program *program;
    tti_step_result *result;
    bool eval;
    int64_t start_ns, computed_ns; /* the compute threads began and ended */
    int64_t comm_ns, update_ns;    /* of the instructions after them, by what they do */
    int next;                      /* the next instruction */
    bool stops;                    /* before the update */
} tti_host_main;

/* Before the compute threads; the reductions after them; and the rest, which fills the result. */
tutti_status tti_host_begin(tti_host_main *m);
tutti_status tti_host_reduce(tti_host_main *m);
tutti_status tti_host_finish(tti_host_main *m);

/* An instruction of any queue that communicates or merges. */
tutti_status tti_host_communicate(tti_exec *x, const tti_instr *instr);

#endif /* TTI_EXEC_MAIN_QUEUE_H */
