/* exec.h - one worker: a plan bound to compute threads, memory and a communicator.
 *
 * The same code runs every worker, whether it is a thread or a process, alone or one of many. A
 * step computes shards in parallel on the compute threads, and adds gradients along the fixed tree,
 * first inside the worker, then between workers. One small all-reduce adds sums and counts, and
 * every worker runs the update. In exact mode everything that is logged or stored is bit-identical
 * on all workers. One thread calls the functions of a worker, unless stated otherwise. */
#ifndef TTI_EXEC_EXEC_H
#define TTI_EXEC_EXEC_H

#include "base/files/read_ahead.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Creates a worker and initializes the parameters from the seed. Collective. On success the caller
 * owns *out. */
tutti_status tti_exec_create(const tti_exec_desc *desc, tti_exec **out);
void tti_exec_destroy(tti_exec *exec);

/* Return desc.server and desc.server_worker. */
tti_server *tti_exec_server(const tti_exec *exec);
int tti_exec_server_worker(const tti_exec *exec);

/* The shards of this worker: first .. last-1 of the batch's shards. */
int tti_exec_first_shard(const tti_exec *exec);
int tti_exec_last_shard(const tti_exec *exec);
/* The worker's cores, to one of which its calling thread is bound; n 0: not bound. */
void tti_exec_cores(const tti_exec *exec, tti_cores *out);

/* True if shards may be redistributed between two steps: on the host, or with desc.mixed, if
 * gradients and parameters are unsharded and there are no residuals. Equal on all workers. */
bool tti_exec_can_rebalance(const tti_exec *exec);

/* Redistributes the shards to the ranks of the same communicator. Parameters and state do not
 * change. Reallocates memory for computation; memory that peers read can only grow. Collective.
 * After a failure only tti_exec_destroy is allowed. */
tutti_status tti_exec_rebalance(tti_exec *exec, const tti_shard_map *shard_map);

/* If the arrays below are copies of device memory: pull updates them, and push copies them to the
 * device.  On the host both do nothing, except that with desc.shared_params push waits for all
 * workers.
 */
tutti_status tti_exec_pull(tti_exec *exec);
tutti_status tti_exec_pull_params(tti_exec *exec); /* only the parameters */
tutti_status tti_exec_push(tti_exec *exec);

/* Threads for reading files with tti_exec_store_part, on the worker's cores.  Their memory is
 * pinned if parts are copied to a device. */
void tti_exec_readers(const tti_exec *exec, tti_readers *out);

/* Pins host memory of batches, so that copies to a device overlap with computation.  Unpin it
 * before freeing it.  Optional: everything works without it. */
void tti_exec_pin(tti_exec *exec, void *memory, size_t n_bytes);
void tti_exec_unpin(tti_exec *exec, void *memory);

/* Waits for the device's copy queue, but not for steps in flight.  Does nothing on the host. */
tutti_status tti_exec_wait_for_copies(tti_exec *exec);

/* The flat arrays of parameters and state (plan->n_flat elements each), borrowed. Read them after
 * tti_exec_pull, and call tti_exec_push after writing. NULL: with desc.zero and several workers
 * there are no whole arrays of state, with 3 none of parameters either. With desc.server the state
 * is the server's, and only its worker 0 writes it. */
float *tti_exec_params(tti_exec *exec);
float *tti_exec_state(tti_exec *exec, int k);
float *tti_exec_ema(tti_exec *exec); /* NULL: there are no averages */

bool tti_exec_has_ema(const tti_exec *exec);

/* The functions of the device whose memory has the whole arrays of parameters and state; NULL: they
 * are on the host or partitioned. If not NULL, array k (TTI_STATE_PARAMS, TTI_STATE_EMA or a
 * state), n_flat elements, can be copied to other memory of the device and back; both calls wait.
 * Call tti_exec_push after the last array that is copied back. */
const tti_device_ops *tti_exec_state_device(const tti_exec *exec);
TUTTI_NODISCARD tutti_status tti_exec_copy_out(tti_exec *exec, int k, float *to);
TUTTI_NODISCARD tutti_status tti_exec_copy_in(tti_exec *exec, int k, const float *from);

/* Broadcasts array k of rank source to all workers, between devices, and waits. *done is false on
 * all workers if the devices are not connected. Requires desc.elastic. Collective. */
TUTTI_NODISCARD tutti_status tti_exec_broadcast_array(tti_exec *exec, int k, int source,
                                                      bool *done);

/* Copies this worker's elements of array k to their positions in whole [n_flat]. Call between two
 * steps, on a device after tti_exec_pull. */
void tti_exec_copy_own(tti_exec *exec, int k, float *whole);

/* The ranges of the flat arrays of plan that rank owns, in ascending order, if n_ranks workers
 * divide the arrays as this executor's workers do.  plan: of this worker, or of another part of the
 * same model.  On success *ranges is freed by the caller. */
tutti_status tti_exec_find_partition(const tti_exec *exec, const tti_plan *plan, int rank,
                                     int n_ranks, tti_range **ranges, int *n);

/* Gathers elements from first on of array k, within one slot of the plan, from their owners. Call
 * after tti_exec_pull. Rank 0 calls fetch any number of times, then ends tti_exec_serve, which
 * answers on the other ranks. *data is borrowed until the next call. Overwrites the gradients of
 * the last step. */
tutti_status tti_exec_fetch(tti_exec *exec, int k, size_t first, size_t n_elems,
                            const float **data);

/* The same for a parameter of the whole model, of which plan may have a tensor shard or nothing:
 * param is its node in a plan of the whole; k may also be TTI_STATE_PARAMS. */
tutti_status tti_exec_fetch_whole(tti_exec *exec, int k, const tti_node *param, const float **data);
tutti_status tti_exec_serve(tti_exec *exec);
tutti_status tti_exec_serve_end(tti_exec *exec);

/* The opposite, on every worker: stores the part of data that this worker owns. Call before
 * tti_exec_push. With shared parameters (desc.shared_params) only the call of rank 0 has an
 * effect. */
void tti_exec_store(tti_exec *exec, int k, size_t first, size_t n_elems, const float *data);
tutti_status tti_exec_store_whole(tti_exec *exec, int k, const tti_node *param, const float *data);

/* Copies the samples to the device, before the first step.  Training steps then pass only sample
 * indices. ahead: the value that tti_exec_depth then returns, 1 .. TTI_MAX_AHEAD; below 1: the best
 * value.  *resident false: there is no device, the samples take more than a quarter of its free
 * memory, or the graph reads other inputs.
 *
 * lasting, if not NULL, owns the copies, which outlive exec. Later executors on the same device
 * reuse them; then samples may be NULL. They are freed if another worker lacks memory for its own
 * copies. */
tutti_status tti_exec_keep(tti_exec *exec, const tti_resident_samples *samples,
                           tti_lasting_samples *lasting, int ahead, bool *resident);

/* True if steps may pass samples as bytes with tables, because a device converts bytes to
 * floats. */
bool tti_exec_takes_bytes(const tti_exec *exec);

/* pull: call before tti_exec_fetch_whole; for writing call pull, store_whole and push.  They
 * transfer one array of a parameter of the whole model.  If a device has the whole array, nothing
 * else is copied. */
tutti_status tti_exec_pull_array(tti_exec *exec, int k, const tti_node *param);
tutti_status tti_exec_write_array(tti_exec *exec, int k, const tti_node *param, const float *data);
/* True if a device has all parameters whole: then many calls of tti_exec_write_array or
 * tti_exec_store_part are cheap. */
bool tti_exec_writes_to_device(const tti_exec *exec);
/* Stores elements first .. first + n_elems - 1 of an array of a parameter: on the device if
 * tti_exec_writes_to_device, else as tti_exec_store does, in whole update blocks of the parameter.
 * tti_exec_takes_parts false: this worker needs whole arrays. */
bool tti_exec_takes_parts(const tti_exec *exec);
tutti_status tti_exec_store_part(tti_exec *exec, int k, const tti_node *param, size_t first,
                                 size_t n_elems, const float *data);
/* Copies the array to memory of any device.  *done false: this worker's device does not have the
 * whole array. */
tutti_status tti_exec_copy_array(tti_exec *exec, int k, const tti_node *param, void *to,
                                 bool *done);

/* One step of training.  A non-finite loss or gradient leaves the parameters unchanged and gives
 * TUTTI_E_NUMERICS with the step and the first layer.  Parameters that differ between workers give
 * TUTTI_E_MISMATCH with tensor, rank and step.  Collective. */
tutti_status tti_exec_step(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* The same in two halves, so that a device can begin a step before the previous one has reported:
 * up to tti_exec_depth steps are in flight.  Data of desc must stay valid until the end of that
 * step, except for indices. */
tutti_status tti_exec_begin(tti_exec *exec, const tti_step_desc *desc);
tutti_status tti_exec_end(tti_exec *exec, tti_step_result *result);
/* With desc.elastic, after a call failed with TUTTI_E_PEER: waits until the device is idle. If the
 * device completed the begun step, ends it: *ended is true, and result and status are those of
 * tti_exec_end. Otherwise the step changed nothing or, if workers have partitions of parameters and
 * state, these are invalid. Afterwards only calls that read the state, and tti_exec_destroy, are
 * allowed. */
tutti_status tti_exec_salvage(tti_exec *exec, tti_step_result *result, bool *ended);

/* Maximum number of steps in flight: 1 on the host, 2 on a single device, or more with resident
 * samples. */
int tti_exec_depth(const tti_exec *exec);
/* The number of steps per launch: 1, or half of tti_exec_depth if steps over resident samples are
 * small. */
int tti_exec_steps_per_launch(const tti_exec *exec);

/* Describes how devices reduce between workers; "" if they do not. Borrowed from exec. */
const char *tti_exec_transport(const tti_exec *exec);

/* The two halves of a step for a worker without a parameter server or local SGD. The first ends
 * before the update and may be repeated.  Afterwards tti_exec_fetch returns the gradients, if all
 * workers have called tti_exec_whole_gradients.  Call between two steps; both halves wait for the
 * device.  Collective. */
tutti_status tti_exec_compute_gradients(tti_exec *exec, const tti_step_desc *desc,
                                        tti_step_result *result);
/* keeps_params: see tti_step_desc. result: of the whole step. */
tutti_status tti_exec_apply_gradients(tti_exec *exec, double lr, bool keeps_params,
                                      tti_step_result *result);

/* ---- verification: computes a shard twice and compares; on the host, for undivided models ---- */

/* Makes tti_exec_compute_gradients hash the outputs of every layer of this shard, if it belongs to
 * this worker; shard -1: stops hashing. */
tutti_status tti_exec_watch_shard(tti_exec *exec, int shard);
/* The number of layers of the shard program, each with one hash. */
int tti_exec_n_layers(const tti_exec *exec);
const uint64_t *tti_exec_layer_hashes(const tti_exec *exec);
/* Computes a shard (of any worker) of the step again, with the current parameters, and hashes its
 * layers [n_layers].  Call between the two halves of a step; gradients and sums are kept. */
tutti_status tti_exec_recompute(tti_exec *exec, const tti_step_desc *desc, int shard,
                                const tti_shard_data *data, uint64_t *hashes);
/* Writes the name of a layer, "conv2d 'conv1'", to out [n_bytes]. */
void tti_exec_layer_name(const tti_exec *exec, int layer, char *out, size_t n_bytes);

/* The summed gradients as one flat array in host memory, between the two halves; NULL if no worker
 * has memory for them (desc.zero 2 and 3).  Collective. */
tutti_status tti_exec_whole_gradients(tti_exec *exec, float **grads);

/* Broadcasts the flat parameters of rank 0 of desc.comm (tti_exec_params, after
 * tti_exec_pull_params) to all workers.  Collective. */
tutti_status tti_exec_broadcast_params(tti_exec *exec);

/* Evaluates one batch and adds its sums to loss_sum, count and correct of *result. Collective. */
tutti_status tti_exec_eval(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* Profiles the n_steps steps that are begun and ended between the two calls, as in training. At
 * least one step must have ended before. Profiling adds no waits. Devices replay separate captured
 * graphs with timestamps; on the host the first compute thread is timed. Collective. */
tutti_status tti_exec_profile_begin(tti_exec *exec, int n_steps);
tutti_status tti_exec_profile_end(tti_exec *exec, tti_timeline *out);

/* Adds another span of the worker's thread, such as waiting for samples. */
void tti_exec_profile_wait(tti_exec *exec, tti_span_id id, int64_t start_ns, int64_t end_ns);

/* The hash of this worker's parameters as they are in memory now (own_hash of the last step).
 * Fails only if a device fails. */
tutti_status tti_exec_params_hash(tti_exec *exec, uint64_t *hash);

/* The hash of the whole model's parameters, as in params_hash.  Collective if the model is
 * divided. */
tutti_status tti_exec_whole_hash(tti_exec *exec, uint64_t *hash);

/* Reads all parameters and compares them between workers.  Collective. */
tutti_status tti_exec_check_params(tti_exec *exec, uint64_t step);

/* The expected value of tti_step_result.bubble, from the costs of the stages; 0: no stages. */
double tti_exec_expected_bubble(const tti_exec *exec);
/* The fraction of the last step in which each stage computed, [stages], valid as long as the
 * worker; NULL: no stages. */
const double *tti_exec_stages_busy(const tti_exec *exec);

/* Returns how time was spent so far. TUTTI_E_DEVICE or another error: the device has failed. */
tutti_status tti_exec_get_spent(tti_exec *exec, tti_exec_spent *spent);

tti_exec_memory tti_exec_memory_use(const tti_exec *exec);

/* Computes the memory of a worker that is not created: `rank` of n_ranks. Reads plan, backend,
 * n_shards, n_compute_threads, shard_map, zero, ema, fast and wire of desc. */
tutti_status tti_exec_memory_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                  tti_exec_memory *out);

/* Bytes of scratch memory of that worker's kernels on the host, over all compute threads.  Prepares
 * the kernels, which takes as long as the first part of tti_exec_create. */
tutti_status tti_exec_scratch_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                   size_t *n_bytes);

/* Describes a worker that does not exist yet. */
typedef struct tti_list_desc {
    const tti_exec_desc *exec; /* as for tti_exec_memory_plan, and the job's settings of steps */
    int rank, n_ranks;         /* on the data axis */
    bool is_divided;           /* other workers have other parts of the model */
    bool has_server, is_async; /* a parameter server runs the updates; one per gradient */
} tti_list_desc;

/* Creates the worker's step programs, one for each form of step: the lists that it would execute on
 * the host. On success the caller owns *out, which borrows the plan but not desc.
 *  */
typedef struct tti_step_lists tti_step_lists;
tutti_status tti_step_lists_create(const tti_list_desc *desc, tti_step_lists **out);
void tti_step_lists_destroy(tti_step_lists *lists); /* accepts NULL */

/* Borrowed; NULL: the worker runs no steps of this form. */
const tti_step_program *tti_step_lists_program(const tti_step_lists *lists, tti_step_form form);

/* Prints all lists, each with a heading. */
void tti_step_lists_print(const tti_step_lists *lists, tti_str *out);

/* The number of threads that compute n_local shards at the same time: at most
 * desc->n_compute_threads, but 1 if shards share a device or the communicator of a tensor axis. */
int tti_exec_n_compute_threads(const tti_exec_desc *desc, int n_local);

#endif /* TTI_EXEC_EXEC_H */
