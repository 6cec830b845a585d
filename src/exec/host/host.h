/* host.h - the executor on the host: three queues walk the step program of a worker. */
#ifndef TTI_EXEC_HOST_H
#define TTI_EXEC_HOST_H

#include "exec/host/layer_hashes.h"
#include "exec/host/step_passes.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Creates the step programs of a worker and its communication thread.  Call when compute threads
 * and memory exist, and again when its shards have changed.  Destroy before the compute threads
 * end. */
tutti_status tti_host_create(tti_exec *x, tti_host **out);
/* The list for a form; NULL: the worker makes no such steps. */
const tti_step_program *tti_host_program(const tti_host *host, tti_step_form form);

void tti_host_destroy(const tti_exec *x, tti_host *host);

tti_layer_hashes *tti_host_layer_hashes(tti_host *host);

/* Runs a step of a form.  A worker that fails still takes part in the reductions, which the other
 * workers wait for.  Collective. */
tutti_status tti_host_run(tti_exec *x, const tti_step_desc *desc, tti_step_form form,
                          tti_step_result *result);

/* The same of a step of training up to its update, which apply runs.  The result of the step lives
 * as long as the host, until the next one begins. */
tutti_status tti_host_compute_gradients(tti_exec *x, const tti_step_desc *desc, tti_step_form form);
tutti_status tti_host_apply_gradients(tti_exec *x, double lr, bool keeps_params);
tti_step_result *tti_host_begun_result(tti_host *host);

#endif /* TTI_EXEC_HOST_H */
