/* device_params.h - the parameters of a worker on a device: their update, their partitions, and the
 * optimizer state on the host.  Other folders include only this header. */
#ifndef TTI_EXEC_DEVICE_PARAMS_H
#define TTI_EXEC_DEVICE_PARAMS_H

#include "exec/device/comm/device_comm.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* ---- the update ---- */

typedef struct tti_device_update tti_device_update;

/* The device addresses of a step's numbers, and the connections to other workers. */
typedef struct tti_device_update_desc {
    const tti_step_args *args;
    const double *sums;
    double *reported; /* the step's sums, followed by the reported values */
    tti_step_report *report;
    tti_device_reduce *reduce; /* NULL: reductions use host_staged, or the worker is alone */
    tti_device_host_staged *host_staged; /* NULL: reductions use reduce, or the worker is alone */
    tti_device_axis *axis; /* of a divided model, in addition to reduce; NULL: through the host, or
                              not divided */
} tti_device_update_desc;

/* On success *out is owned by the caller and borrows x and the members of desc. */
tutti_status tti_device_update_create(tti_exec *x, const tti_device_update_desc *desc,
                                      tti_device_update **out);
void tti_device_update_destroy(tti_device_update *update); /* takes NULL */

/* Enqueues the update.  Then gathers the parameters of other workers (through the host), or the
 * hashes of the updated blocks. */
tutti_status tti_device_update_run(tti_device_update *update);

/* True if the update of the current step also sums the gradients of all workers. */
bool tti_device_update_sums(const tti_device_update *update);

/* Call when the parameters of n blocks (plan->updates) from first on have arrived: adds them to the
 * hash in the report and writes their 16-bit copies. */
tutti_status tti_device_update_complete(tti_device_update *update, int first, int n);
/* Enqueues a kernel that writes the 16-bit copies of the parameters. */
tutti_status tti_device_update_low_copies(tti_device_update *update);

/* Hashes the parameters on the device and waits for the result. */
tutti_status tti_device_update_hash(tti_device_update *update, uint64_t *hash);

/* ---- parameters that other workers read in 16 bits ----
 *
 * Parameters that a step reads only as 16-bit copies (plan->slots, has_low_copy) are fetched in 16
 * bits: half the bytes.  Their 32-bit values are then out of date on workers that do not own them,
 * until an evaluation or a checkpoint between two steps settles all parameters. */

typedef struct tti_low_gather tti_low_gather;

/* *out NULL: no parameter can be fetched in 16 bits, or the devices do not support it.  Waits.
 * *out is owned by the caller and borrows x and reduce. */
tutti_status tti_low_gather_create(tti_exec *x, tti_device_reduce *reduce, tti_low_gather **out);
void tti_low_gather_destroy(tti_low_gather *gather); /* takes NULL */

/* The fraction of parameters that are sent in 16 bits. */
double tti_low_gather_share(const tti_low_gather *gather);

/* True if the slot is sent in 16 bits; gather may be NULL. */
bool tti_low_gather_has(const tti_low_gather *gather, int slot);

/* Fetches a bucket, as tti_device_reduce_fetch. */
tutti_status tti_low_gather_fetch(tti_low_gather *gather, int bucket, bool overlapped);

/* ---- parameters that other workers on devices update: fetched during the next step ----
 *
 * A step begins by fetching bucket after bucket in a separate queue, in the order in which the
 * shard program reads them.  A step of the program waits for the buckets that it reads.  When all
 * have arrived, the hash of the previous step is completed, so a wrong copy is detected one step
 * later, as usual.  Code that reads parameters between steps must settle them first. */

typedef struct tti_device_param_gather tti_device_param_gather;

/* On success *out is owned by the caller and borrows the other arguments. update may be created
 * later. */
tutti_status tti_device_param_gather_create(tti_exec *x, tti_device_reduce *reduce,
                                            tti_device_update *const *update,
                                            tti_device_param_gather **out);
void tti_device_param_gather_destroy(tti_device_param_gather *gather); /* takes NULL */

/* True if captured steps fetch the slot in 16 bits; gather may be NULL. */
bool tti_device_param_gather_sends_low(const tti_device_param_gather *gather, int slot);

/* Call for every step of the worker. overlapped: the step is captured; else all buckets are fetched
 * now, in 32 bits, and all workers wait for them. */
tutti_status tti_device_param_gather_begin(tti_device_param_gather *gather, bool overlapped);

/* True while the first shard must report its steps. */
bool tti_device_param_gather_is_due(const tti_device_param_gather *gather);

/* Call when the first shard reaches a step of the shard program. finish returns a failure. */
void tti_device_param_gather_before(tti_device_param_gather *gather, int step);

/* Fetches everything that no step of the program has needed.  Call before the sums of the step are
 * reported. */
tutti_status tti_device_param_gather_finish(tti_device_param_gather *gather);

/* Makes all parameters whole.  All workers call it, with no step in flight.  Waits. */
tutti_status tti_device_param_gather_settle(tti_device_param_gather *gather);

/* Record that parameters were written: by all workers, whole and equal; or by a step, captured or
 * not. */
void tti_device_param_gather_written(tti_device_param_gather *gather, bool whole);

/* ---- ZeRO-2 and ZeRO-3 on a device: sharded gradients, and sharded parameters too ----
 *
 * Does what zero.h does on the host, without threads: fetches and sums are launched in the
 * communication queue while the program's steps are launched in the compute queue, and the queues
 * wait for each other's events.  A bucket of parameters is fetched into its slot while the steps of
 * the previous bucket compute, and a slot of gradients is reused once its last gradients were
 * summed. */

typedef struct tti_device_sharded tti_device_sharded;

/* For a worker with x->sharded. reduce NULL: the devices do not reach each other; the host has the
 * parameters of all workers, and device_host_staged.h reduces gradients.  Collective.  On success
 * *out is owned by the caller and borrows the other arguments. */
tutti_status tti_device_sharded_create(tti_exec *x, tti_device_reduce *reduce,
                                       tti_device_sharded **out);
void tti_device_sharded_destroy(tti_device_sharded *sharded); /* takes NULL */

/* Call for every step of the worker. overlapped: the step is captured; else every fetch and sum is
 * awaited.  Also runs the fetches of workers that have more shards than this one. */
tutti_status tti_device_sharded_step(tti_device_sharded *sharded, bool overlapped);

/* begin: a shard begins; it may be the last one of the worker. before: the shard reaches a step of
 * the program.  If all shards are joined, one call serves all of them. finish, after the last
 * shard, returns a failure. */
void tti_device_sharded_begin(tti_device_sharded *sharded, bool is_last);
void tti_device_sharded_before(tti_device_sharded *sharded, int step);
tutti_status tti_device_sharded_finish(tti_device_sharded *sharded);

/* For a pipeline stage whose parameters come from the host: a shard begins the segment of a program
 * that starts with this step. */
void tti_device_sharded_begin_segment(tti_device_sharded *sharded, bool eval, int first);

/* A batch of an evaluation with sharded parameters; one of its shards; the fetches of workers with
 * more shards. */
tutti_status tti_device_sharded_eval_begin(tti_device_sharded *sharded);
tutti_status tti_device_sharded_eval(tti_device_sharded *sharded, tti_instance *instance,
                                     const tti_run *run);
tutti_status tti_device_sharded_eval_rest(tti_device_sharded *sharded);

/* Waits for all queues. */
tutti_status tti_device_sharded_rest(tti_device_sharded *sharded);

/* Gathers the averages of all parameters into x->sharded->averages, if evaluation reads them whole.
 * Waits. */
tutti_status tti_device_sharded_averages(tti_device_sharded *sharded);

/* ---- offload: the host has the optimizer state and runs the update ----
 *
 * ZeRO-Offload, Ren et al. 2021.  Summed gradients are copied to the host bucket by bucket during
 * the backward pass; the update is that of a worker on CPUs (flat_update.c), with its bits;
 * parameters are copied back bucket by bucket while the next ones are updated.
 *
 * A single worker with several buckets "streams": it updates a bucket as soon as it has arrived,
 * during the backward pass.  It does so if its device has update.is_overlapped and the optimizer
 * needs no value of all gradients together, such as their norm for clipping.  Its steps are not
 * captured, since a captured graph records no events for the host. */

typedef struct tti_offload tti_offload;

/* Returns the description of the host executor that owns the parameters and state of x. */
tti_exec_desc tti_offload_desc(const tti_setup *setup);

/* x->device is open. host: the host executor.  Collective.  On success *out is owned by the caller
 * and borrows both. */
tutti_status tti_offload_create(tti_exec *x, tti_exec *host, tti_offload **out);
/* Call before the device is closed and before host is destroyed, with an idle device. Accepts
 * NULL. */
void tti_offload_destroy(tti_offload *offload);

/* The host executor, whose params, states and averages are always the newest.  NULL: offload is
 * NULL. */
tti_exec *tti_offload_host(const tti_offload *offload);

/* The device's report of a step: report has the hash of the parameters; sums [n_sums] the sums of
 * the shards. */
typedef struct tti_offload_report {
    tti_step_report *report;
    const double *sums;
    int n_sums;
} tti_offload_report;

/* Provides memory for the summed gradients.  If host_staged is not NULL it has that memory already;
 * NULL: devices add, or the worker is alone.  Collective. */
tutti_status tti_offload_attach(tti_offload *offload, tti_device_host_staged *host_staged,
                                const tti_offload_report *report);

/* The step after which each bucket is due, for a streaming worker; NULL: the worker does not
 * stream. */
bool tti_offload_streams(const tti_offload *offload);

/* Call when a new step is launched: no bucket has been copied yet. */
void tti_offload_begin(tti_offload *offload);

/* Call when the launched kernels include the sums of the first n_buckets buckets: copies the
 * buckets that were not copied before, in the copy queue. */
tutti_status tti_offload_bring(tti_offload *offload, int n_buckets, tti_queue queue);

/* For a streaming worker, when a shard has reached a step of its program: true if the shard's sums
 * must be added now, so that the host has all sums before the first bucket. (Joins inside a step
 * stop a shard half way, while the last shard continues.) */
bool tti_offload_wants_sums(const tti_offload *offload, int step);

/* For a single worker, when its last shard has reached a step of its program: adds its shards and
 * copies the completed buckets. */
tutti_status tti_offload_after(tti_offload *offload, int step);

/* For a streaming worker: updates the step in flight bucket by bucket as they arrive, unless its
 * sums are not finite.  Call tti_offload_update when the step is complete. */
tutti_status tti_offload_stream(tti_offload *offload, const tti_step_desc *desc);

/* Time (tti_now_ns) when the last bucket of the step had arrived. */
int64_t tti_offload_came_ns(const tti_offload *offload);

/* Runs the update, when sums (in x->sums and in result) and gradients are complete.  Later kernels
 * wait for the parameters.  TUTTI_E_NUMERICS as in tti_exec_step. */
tutti_status tti_offload_update(tti_offload *offload, const tti_step_desc *desc,
                                tti_step_result *result);

/* Copies the host's parameters to the device; copies the averages, whole, to the device's buffer of
 * the summed gradients, where they stay until the next step.  Both wait; the second is
 * collective. */
tutti_status tti_offload_put_params(tti_offload *offload);
tutti_status tti_offload_put_averages(tti_offload *offload);

#endif /* TTI_EXEC_DEVICE_PARAMS_H */
