/* device_lean.h - gradients, and parameters too, of which a worker on a device keeps its part
 * alone.
 *
 * What lean.h says of workers on the host, without threads: the moves are put into the queue of
 * what travels as the program's steps are put into that of the kernels, and each queue waits for a
 * place in the other.  A bucket of parameters is fetched into its place while the steps of the one
 * before it compute, and what comes to a place is written there once its last gradients were
 * summed. */
#ifndef TTI_EXEC_DEVICE_LEAN_H
#define TTI_EXEC_DEVICE_LEAN_H

#include "exec/device/device_reduce.h"
#include "exec/program/instance.h"

typedef struct tti_device_lean tti_device_lean;

/* Of a worker with x->lean.  reduce NULL: devices do not reach each other; parameters come from the
 * host, which has those of all workers, and gradients are its own business (device_by_host.h).
 * Collective.  On success *out is
 * owned by the caller and borrows the rest. */
tutti_status tti_device_lean_create(tti_exec *x, tti_device_reduce *reduce, tti_device_lean **out);
void tti_device_lean_destroy(tti_device_lean *lean); /* takes NULL */

/* A step of the worker; beside: recorded, else every move is waited for.  And the moves of workers
 * with more shards than this one. */
tutti_status tti_device_lean_step(tti_device_lean *lean, bool beside);

/* A shard begins, the last one of the worker or not; then it comes to a step of the program.  Or
 * all shards at once do, where they are joined.  A failure comes out of finish, after the last
 * shard. */
void tti_device_lean_begin(tti_device_lean *lean, bool is_last);
void tti_device_lean_before(tti_device_lean *lean, int step);
tutti_status tti_device_lean_finish(tti_device_lean *lean);

/* Of a stage, whose parameters come from the host: the part of a program that begins with this step
 * does so for one shard. */
void tti_device_lean_begin_part(tti_device_lean *lean, bool eval, int first);

/* A batch of an evaluation, where parameters are in parts; a shard of it; and the moves of workers
 * with more of them. */
tutti_status tti_device_lean_eval_begin(tti_device_lean *lean);
tutti_status tti_device_lean_eval(tti_device_lean *lean, tti_instance *instance,
                                  const tti_run *run);
tutti_status tti_device_lean_eval_rest(tti_device_lean *lean);

/* Waits for what was put into queues. */
tutti_status tti_device_lean_rest(tti_device_lean *lean);

/* Averages of all parameters into x->lean->averages, where evaluation has whole ones; waits. */
tutti_status tti_device_lean_averages(tti_device_lean *lean);

#endif /* TTI_EXEC_DEVICE_LEAN_H */
