/* device_sharded.h - ZeRO-2 and ZeRO-3 on a device: sharded gradients, and sharded parameters too.
 *
 * As sharded.h on the host, without threads: the moves are launched in the communication queue
 * while the program's steps are launched in the compute queue, and the queues wait for each other's
 * events.  A bucket of parameters is fetched into its slot while the steps of the previous bucket
 * compute, and a slot of gradients is reused once its last gradients were summed. */
#ifndef TTI_EXEC_DEVICE_SHARDED_H
#define TTI_EXEC_DEVICE_SHARDED_H

#include "exec/device/comm/device_comm.h"
#include "exec/program/exec_program.h"

typedef struct tti_device_sharded tti_device_sharded;

/* For a worker with x->sharded. reduce NULL: devices do not reach each other; the host has the
 * parameters of all workers, and device_host_staged.h handles gradients.  Collective.  On success
 * *out is owned by the caller and borrows the rest. */
tutti_status tti_device_sharded_create(tti_exec *x, tti_device_reduce *reduce,
                                       tti_device_sharded **out);
void tti_device_sharded_destroy(tti_device_sharded *sharded); /* takes NULL */

/* A step of the worker; overlapped: captured, else every move is awaited.  Also runs the moves of
 * workers with more shards than this one. */
tutti_status tti_device_sharded_step(tti_device_sharded *sharded, bool overlapped);

/* A shard begins, the last one of the worker or not; then it reaches a step of the program.  If all
 * shards are joined, they do so together.  A failure is returned by finish, after the last shard.
 */
void tti_device_sharded_begin(tti_device_sharded *sharded, bool is_last);
void tti_device_sharded_before(tti_device_sharded *sharded, int step);
tutti_status tti_device_sharded_finish(tti_device_sharded *sharded);

/* For a pipeline stage with parameters from the host: one shard begins the part of a program that
 * starts with this step. */
void tti_device_sharded_begin_part(tti_device_sharded *sharded, bool eval, int first);

/* A batch of an evaluation, where parameters are in parts; a shard of it; and the moves of workers
 * with more of them. */
tutti_status tti_device_sharded_eval_begin(tti_device_sharded *sharded);
tutti_status tti_device_sharded_eval(tti_device_sharded *sharded, tti_instance *instance,
                                     const tti_run *run);
tutti_status tti_device_sharded_eval_rest(tti_device_sharded *sharded);

/* Waits for everything in the queues. */
tutti_status tti_device_sharded_rest(tti_device_sharded *sharded);

/* Averages of all parameters into x->sharded->averages, where evaluation has whole ones; waits. */
tutti_status tti_device_sharded_averages(tti_device_sharded *sharded);

#endif /* TTI_EXEC_DEVICE_SHARDED_H */
