/* device_params.h - the parameters of a worker on a device: their update, their partitions, and the
 * optimizer state on the host; what other folders may include. */
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
    double *reported; /* the same, and the following reported values */
    tti_step_report *report;
    tti_device_reduce *reduce;           /* NULL: host_staged, or alone */
    tti_device_host_staged *host_staged; /* NULL: reduce, or alone */
    tti_device_axis
        *axis; /* of a divided model, in addition to reduce; NULL: through the host, or undivided */
} tti_device_update_desc;

/* On success *out is owned by the caller and borrows x and the members of desc. */
tutti_status tti_device_update_create(tti_exec *x, const tti_device_update_desc *desc,
                                      tti_device_update **out);
void tti_device_update_destroy(tti_device_update *update); /* takes NULL */

/* Enqueues the update, then gathers the parameters of other workers (through the host) or the
 * hashes of the updated blocks. */
tutti_status tti_device_update_run(tti_device_update *update);

/* True if the update of the current step also sums the gradients of all workers. */
bool tti_device_update_sums(const tti_device_update *update);

/* Call when the parameters of n blocks (plan->updates) from first on have arrived: adds them to
 * the hash in the report and writes their 16-bit copies. */
tutti_status tti_device_update_complete(tti_device_update *update, int first, int n);
/* The same, where parameters that are sent in 16 bits have arrived so: adds their hash. */
tutti_status tti_device_update_complete_low(tti_device_update *update, int first, int n);
/* Enqueues: writes the 16-bit copies of the parameters. */
tutti_status tti_device_update_low_copies(tti_device_update *update);

/* Hashes the parameters on the device; waits. */
tutti_status tti_device_update_hash(tti_device_update *update, uint64_t *hash);

/* ---- parameters of which other workers need 16 bits ----
 *
 * What a step reads only as its 16-bit copy (plan->slots, has_low_copy) is fetched so during the
 * step: half the bytes.  The values in 32 bits of other workers then stay old until someone reads
 * them between steps, such as an evaluation or a checkpoint, which settles all parameters. */

typedef struct tti_low_gather tti_low_gather;

/* *out NULL: there is nothing to fetch in 16 bits, or the devices cannot.  Waits; *out is owned by
 * the caller, and borrows x and reduce. */
tutti_status tti_low_gather_create(tti_exec *x, tti_device_reduce *reduce, tti_low_gather **out);
void tti_low_gather_destroy(tti_low_gather *gather); /* takes NULL */

/* The share of parameters that are sent in 16 bits. */
double tti_low_gather_share(const tti_low_gather *gather);

/* Whether a slot is; gather may be NULL. */
bool tti_low_gather_has(const tti_low_gather *gather, int slot);

/* Fetches a bucket, as tti_device_reduce_fetch. */
tutti_status tti_low_gather_fetch(tti_low_gather *gather, int bucket, bool overlapped);

/* ---- parameters that other workers on devices update: fetched during the next step ----
 *
 * The step begins by fetching bucket after bucket in a separate queue, in the order in which the
 * shard program reads them, and a step of the program waits for those that it reads.  When all have
 * arrived, the hash of the previous step is completed, so a wrong copy is detected one step later,
 * as usual.  Code that reads parameters between steps must settle them first. */

typedef struct tti_device_param_gather tti_device_param_gather;

/* On success *out is owned by the caller and borrows the rest; update may be made later. */
tutti_status tti_device_param_gather_create(tti_exec *x, tti_device_reduce *reduce,
                                            tti_device_update *const *update,
                                            tti_device_param_gather **out);
void tti_device_param_gather_destroy(tti_device_param_gather *gather); /* takes NULL */

/* Whether a slot is fetched in 16 bits in captured steps; gather may be NULL. */
bool tti_device_param_gather_sends_low(const tti_device_param_gather *gather, int slot);

/* A step of the worker, launched in queues. overlapped: captured; else all are fetched now, in 32
 * bits, and all workers wait for them. */
tutti_status tti_device_param_gather_begin(tti_device_param_gather *gather, bool overlapped);

/* True while the first shard must report its steps. */
bool tti_device_param_gather_is_due(const tti_device_param_gather *gather);

/* The first shard reaches a step of the shard program.  A failure is returned by finish. */
void tti_device_param_gather_before(tti_device_param_gather *gather, int step);

/* Fetches everything that no step of the program has needed.  Call before the sums of the step are
 * reported. */
tutti_status tti_device_param_gather_finish(tti_device_param_gather *gather);

/* Parameters are whole after it; all workers do it, with all steps done.  Waits. */
tutti_status tti_device_param_gather_settle(tti_device_param_gather *gather);

/* Parameters are written: whole, the same by all workers, or by a step, recorded or not. */
void tti_device_param_gather_written(tti_device_param_gather *gather, bool whole);

/* ---- ZeRO-2 and ZeRO-3 on a device: sharded gradients, and sharded parameters too ----
 *
 * As zero.h on the host, without threads: the moves are launched in the communication queue
 * while the program's steps are launched in the compute queue, and the queues wait for each other's
 * events.  A bucket of parameters is fetched into its slot while the steps of the previous bucket
 * compute, and a slot of gradients is reused once its last gradients were summed. */

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
void tti_device_sharded_begin_segment(tti_device_sharded *sharded, bool eval, int first);

/* A batch of an evaluation, where parameters are partitioned; a shard of it; and the moves of
 * workers with more of them. */
tutti_status tti_device_sharded_eval_begin(tti_device_sharded *sharded);
tutti_status tti_device_sharded_eval(tti_device_sharded *sharded, tti_instance *instance,
                                     const tti_run *run);
tutti_status tti_device_sharded_eval_rest(tti_device_sharded *sharded);

/* Waits for everything in the queues. */
tutti_status tti_device_sharded_rest(tti_device_sharded *sharded);

/* Averages of all parameters into x->sharded->averages, where evaluation has whole ones; waits. */
tutti_status tti_device_sharded_averages(tti_device_sharded *sharded);

/* ---- offload: the optimizer state is in the memory of the host, which makes the update ----
 *
 * ZeRO-Offload, Ren et al. 2021.  Summed gradients are copied to the host bucket by bucket during
 * the backward pass; the update is that of a worker on CPUs (flat_update.c), with its bits;
 * parameters are copied back bucket by bucket while the next ones are updated.
 *
 * A single worker with several buckets, whose optimizer needs nothing of all gradients together,
 * such as their norm for clipping, updates a bucket as soon as it has arrived, during the backward
 * pass, if its kind of device has update.is_overlapped: it "streams".  Its steps are not captured,
 * since a captured graph records no events for the host. */

typedef struct tti_offload tti_offload;

/* Returns the description of the host executor that owns the parameters and state of x. */
tti_exec_desc tti_offload_desc(const tti_setup *setup);

/* x->device is open; host is that executor.  Collective.  On success *out is owned by the caller
 * and borrows both. */
tutti_status tti_offload_create(tti_exec *x, tti_exec *host, tti_offload **out);
/* Before the device is closed, at rest, and before host is destroyed; takes NULL. */
void tti_offload_destroy(tti_offload *offload);

/* That executor: params, states and averages are its own, at all times.
 * NULL: offload is NULL. */
tti_exec *tti_offload_host(const tti_offload *offload);

/* The device's report of a step: the hash of the parameters in report, the sums of the shards in
 * sums [n_sums]. */
typedef struct tti_offload_report {
    tti_step_report *report;
    const double *sums;
    int n_sums;
} tti_offload_report;

/* Memory for the summed gradients; host_staged has them already (NULL: devices add, or the worker
 * is alone).  Collective. */
tutti_status tti_offload_attach(tti_offload *offload, tti_device_host_staged *host_staged,
                                const tti_offload_report *report);

/* Whether buckets are updated as they come; NULL: no. */
bool tti_offload_streams(const tti_offload *offload);

/* A new step is launched: no bucket has been copied. */
void tti_offload_begin(tti_offload *offload);

/* After the launches so far the device has the sums of the first n_buckets buckets: copies those
 * that were not copied before, in the copy queue. */
tutti_status tti_offload_bring(tti_offload *offload, int n_buckets, tti_queue queue);

/* For a streaming worker, when a shard has reached a step of its program: whether to add the
 * shard's sums now, so that the host has all of them before the first bucket. (Joins inside a step
 * stop a shard half way, while the last one continues.) */
bool tti_offload_wants_sums(const tti_offload *offload, int step);

/* For a single worker, when its last shard has reached a step of its program: adds its shards, and
 * copies the completed buckets. */
tutti_status tti_offload_after(tti_offload *offload, int step);

/* For a streaming worker: updates the step in flight, bucket by bucket as they arrive, unless its
 * sums are not finite. tti_offload_update follows when the step is complete. */
tutti_status tti_offload_stream(tti_offload *offload, const tti_step_desc *desc);

/* When the last bucket of the step had come, by tti_now_ns. */
int64_t tti_offload_came_ns(const tti_offload *offload);

/* The update, once sums (in x->sums, and in result) and gradients are here; what computes next
 * waits for the parameters.  TUTTI_E_NUMERICS as tti_exec_step. */
tutti_status tti_offload_update(tti_offload *offload, const tti_step_desc *desc,
                                tti_step_result *result);

/* Parameters to the device as they are on the host; and averages, whole, into the buffer of the
 * summed gradients there, until the next step.  Both wait; the second one is collective. */
tutti_status tti_offload_put_params(tti_offload *offload);
tutti_status tti_offload_put_averages(tti_offload *offload);

#endif /* TTI_EXEC_DEVICE_PARAMS_H */
