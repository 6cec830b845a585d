/* host.h - the executor on the host: three queues run the step program of a worker. */
#ifndef TTI_EXEC_HOST_H
#define TTI_EXEC_HOST_H

#include "exec/host/layer_hashes.h"
#include "exec/host/step_passes.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Creates the step programs of a worker and its communication thread.  Call when compute threads
 * and memory exist, and again after rebalancing.  Destroy it before the compute threads end. */
tutti_status tti_host_create(tti_exec *x, tti_host **out);
/* The list for a form; NULL: the worker runs no such steps. */
const tti_step_program *tti_host_program(const tti_host *host, tti_step_form form);

void tti_host_destroy(const tti_exec *x, tti_host *host);

tti_layer_hashes *tti_host_layer_hashes(tti_host *host);

/* Runs a step of the given form.  A worker that fails still takes part in the reductions, because
 * the other workers wait for it.  Collective. */
tutti_status tti_host_run(tti_exec *x, const tti_step_desc *desc, tti_step_form form,
                          tti_step_result *result);

/* Runs a training step up to its update; apply runs the update.  The result of the step is valid
 * until the next step begins. */
tutti_status tti_host_compute_gradients(tti_exec *x, const tti_step_desc *desc, tti_step_form form);
tutti_status tti_host_apply_gradients(tti_exec *x, double lr, bool keeps_params);
tti_step_result *tti_host_begun_result(tti_host *host);

#endif /* TTI_EXEC_HOST_H */
