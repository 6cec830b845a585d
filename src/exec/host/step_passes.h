/* step_passes.h - the passes that build the step programs of a worker on the host.
 *
 * The host's step depends on the parallelism strategies only here: executors just run the lists.
 * To add a strategy, add a pass to the table in step_passes.c. */
#ifndef TTI_EXEC_STEP_PASSES_H
#define TTI_EXEC_STEP_PASSES_H

#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"

/* The inputs of the passes, for a worker that runs or is only planned. */
typedef struct tti_step_basis {
    const tti_exec_desc
        *desc;       /* plan, zero, fast, local and others; its communicator is not used */
    int n_ranks;     /* on the data axis */
    bool is_divided; /* other workers have other parts of the model */
    bool has_server; /* a parameter server runs the updates */
    bool divides;    /* the ranks divide the update */
    const tti_accumulation *acc; /* borrowed by the lists, like the pointers below */
    int n_compute_threads, n_idle;
    const int *joins, *eval_joins; /* [n_joins] of training, [n_eval_joins] of evaluation */
    int n_joins, n_eval_joins;
    const tti_pipe_side *train, *eval; /* NULL: no pipeline */
    const tti_sharded
        *sharded; /* memory of buckets; NULL: gradients and parameters are unsharded */
} tti_step_basis;

/* True if the worker runs steps of this form. */
bool tti_step_has_form(const tti_step_basis *basis, tti_step_form form);

/* On success *out is owned by the caller. */
tutti_status tti_step_build(const tti_step_basis *basis, tti_step_form form,
                            tti_step_program **out);

/* The form of a training step. */
tti_step_form tti_step_form_of(const tti_exec_desc *desc, int n_ranks, const tti_step_desc *step);

#endif /* TTI_EXEC_STEP_PASSES_H */
