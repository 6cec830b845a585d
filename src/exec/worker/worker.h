/* worker.h - one worker's state, shared by the files of exec/. */
#ifndef TTI_EXEC_WORKER_H
#define TTI_EXEC_WORKER_H

#include <stdatomic.h>

#include "exec/program/exec_program.h"
#include "exec/update/flat_update.h"
#include "exec/worker/compress.h"
#include "exec/worker/desc.h"
#include "exec/worker/divided.h"
#include "exec/worker/pipe.h"
#include "exec/worker/profile.h"
#include "exec/worker/zero.h"

/* ---- workers on devices and on the host in one run (desc.mixed) ----
 *
 * Each worker has its own plan for its backend. The collectives of the host reduce gradients bucket
 * by bucket; workers on devices copy their gradients to the host (device_host_staged.h). All
 * workers update on the host (offload.h) from the same sums, so parameters have the same bits. */

/* Checks that a worker with desc.mixed is possible.  For such workers, and for undivided models on
 * devices, compares that all plans have the same layout and join the same values.
 * TUTTI_E_MISMATCH, on all ranks: they differ.  Collective. */
tutti_status tti_mixed_check(const tti_setup *setup);

/* ---- parameters and optimizer state that workers of one process share ----
 *
 * Each worker updates its partition (tti_share).  A barrier before any worker reads the result
 * replaces the all-gather of workers with separate copies.  Updates start only after all shard
 * gradients are reduced, so running shards read consistent parameters. */

struct tti_shared_params {
    const tti_backend *backend;
    size_t n_bytes; /* of each array */
    float *params;
    float *states[TTI_MAX_OUT]; /* [plan->n_states], initially zero */
    float *ema;                 /* NULL: none */
};

/* ---- the functions of a parameter server that workers call; exec/ uses nothing else of it ---- */

typedef struct tti_server_calls {
    /* The executor that stores parameters and state, borrowed; NULL: other processes store them. */
    tti_exec *(*state_owner)(tti_server *server);

    /* With backup workers a batch is divided between the workers: sets the worker's shards and
     * returns true. Otherwise returns false and writes nothing. */
    bool (*shards)(const tti_server *server, int worker, int n_shards, int *first, int *last);

    /* For a server of several processes. fetch: gets state k of keys from its owners; *data is
     * borrowed until the next call or the next gradient. store: stores this process's part of keys;
     * data begins with element keys.first, and k may be TTI_STATE_EMA or TTI_STATE_PARAMS. */
    bool (*has_ranges)(const tti_server *server);
    tutti_status (*fetch)(tti_exec *x, int k, tti_range keys, const float **data);
    void (*store)(tti_exec *x, int k, tti_range keys, const float *data);

    /* push: sends the gradient of a step, whose partial sums are in the buffers of x
     * (tti_exec_partial), and waits for the server's update, which needs a push of every worker in
     * the step. pull: copies the new parameters to x, and their hash to last_hash. */
    tutti_status (*push)(tti_exec *x, const tti_step_desc *desc, double inv_count,
                         tti_step_result *result);
    tutti_status (*pull)(tti_exec *x);

    /* For a worker on a device: copies the server's averages to the memory that evaluation reads.
     * Call while no worker is in a step. */
    tutti_status (*pull_averages)(tti_exec *x);
} tti_server_calls;

/* A server begins with a pointer to its table. */
static inline const tti_server_calls *tti_calls_of(const tti_server *server) {
    return *(const tti_server_calls *const *)(const void *)server;
}

/* The number of partial sums of a worker's gradient that a server adds (one, if each worker has a
 * part of the model), and one of them, in host memory. */
int tti_exec_n_partials(const tti_setup *setup);
float *tti_exec_partial(const tti_exec *x, int i);

typedef struct tti_compute_thread {
    tti_instance *shard, *eval;
    void *arena;
    tutti_status status; /* of the last dispatch, with its message */
    char error[512];
} tti_compute_thread;

/* The steps of a program with TTI_SYNC. */
typedef struct tti_syncs {
    int *step; /* [n] */
    int n;
} tti_syncs;

/* The description of a worker, its shards and its threads.  It changes only when the worker is
 * created and when shards are rebalanced. */
struct tti_setup {
    tti_exec_desc desc;
    int rank, n_ranks, first_shard, last_shard; /* in desc.comm */
    tti_shard_map shard_map;                    /* desc.shard_map is only valid during creation */
    tti_divided *divided;                       /* NULL: this worker has the whole model */
    int n_threads;                              /* threads that the worker may run at a time */
    int *cores;                                 /* [n_threads]: a copy of desc.cores, or NULL */
    /* Shards in flight: as many as compute threads; in a program with TTI_SYNC all shards of the
     * worker, because all of them must reach the same point before any continues. */
    int n_in_flight;
    tti_syncs syncs, eval_syncs; /* of the shard program and of evaluation */
    tti_accumulation acc;
    int n_agreed; /* the largest number of buffers over all workers; for devices in mixed runs these
                     are on the host (device_host_staged.h) */
    tti_share share;   /* blocks of the update that belong to this worker */
    int n_pipe_groups; /* of a pipeline stage: the largest number of micro-batch groups of a worker
                        */
    tti_inputs shard_inputs, eval_inputs;
    size_t arena_bytes;
};

/* The flat arrays of a worker, in the memory of its backend. */
struct tti_arrays {
    float *params;
    void *low_copies;           /* 16-bit copies of parameters in plan->low_dtype; NULL: none */
    float *states[TTI_MAX_OUT]; /* of this worker's blocks */
    float *ema;                 /* averaged parameters of this worker's blocks; NULL: none */
    bool has_whole_ema; /* the buffer of the summed gradients holds all averages, for evaluation */
    float **buffers;    /* [n_buffers]: flat gradients, shared with peers if there are any */
    int n_buffers;      /* equal on all workers, >= acc.n_buffers; but see n_agreed */
    int n_own_buffers;  /* buffers that the backend allocated and that are released here */
    uint16_t
        *wire; /* [n_flat], shared with peers: gradients in the wire dtype; NULL: not rounded */
};

/* The compute threads, and one instance of the programs per shard in flight. */
struct tti_thread_set {
    tti_compute_threads *pool;
    tti_compute_thread *thread; /* [n_in_flight] */
    tti_prepared *ready[2];     /* on a device, for the first thread: shard, eval; NULL: none */
    tutti_comm **comms;         /* [n_comms]: of the tensor axis, one per thread; NULL: none */
    int n_comms;
};

/* Totals of the step that rank 0 computes alone if there are so many workers that each would
 * otherwise need a large vector of all shards. */
typedef struct tti_step_totals {
    double sums[TTI_LOSS_SUMS + 2 * TTI_MAX_OWN_METRICS]; /* added in the order of the shards */
    double n_votes;
    uint64_t hash;           /* of rank 0 */
    int bad_shard, odd_rank; /* first shard with a loss that is not finite; first rank with another
                                hash; -1: none */
    bool is_set;             /* set after the sums were last cleared */
} tti_step_totals;

/* The state of a worker in a step: number, sums, hashes and times. */
struct tti_tally {
    tti_step_desc begun; /* on the host: the step that tti_exec_end runs */
    bool has_begun;
    float loss_scale;
    /* Sums of shards; halves of the hashes of all ranks; votes: [tti_n_shard_sums + 2 * n_ranks +
     * 1].  With tti_step_totals: sums of own shards; votes. */
    double *sums;
    size_t n_sums;
    int first_shard, n_shards; /* the shards that sums has */
    tti_step_totals *totals;   /* NULL: sums has all shards */
    uint64_t last_hash;
    bool has_hash, has_differed;
    uint64_t differed_in;   /* the step whose hashes differed */
    double sent_bytes;      /* in this step */
    int64_t gather_ns;      /* in the last update: waiting for parameters of other workers */
    atomic_llong waited_ns; /* see tti_exec_spent, as far as the host measures it */
    int64_t copied_ns;
};

/* Memory for values that all shards join. */
struct tti_joins {
    tti_join_size most; /* n_part and n_joined of the largest values */
    float *parts;       /* [V][most.n_part] */
    float *joined;      /* [most.n_joined]  */
};

/* The parts of a worker.  Only the files that create and destroy workers include tti_exec
 * (worker_state.h); the others get the part that they use from these functions. */
const tti_setup *tti_setup_of(const tti_exec *exec);
tti_arrays *tti_arrays_of(const tti_exec *exec);
const tti_sharded *tti_sharded_of(
    const tti_exec *exec); /* NULL: gradients and parameters are unsharded */
tti_thread_set *tti_threads_of(const tti_exec *exec);
tti_tally *tti_tally_of(const tti_exec *exec);
tti_joins *tti_joins_of(const tti_exec *exec);
tti_update *tti_update_of(const tti_exec *exec);
tti_pipe *tti_pipe_of(const tti_exec *exec);          /* NULL: the worker has all layers */
tti_compress *tti_compress_of(const tti_exec *exec);  /* NULL: gradients are not compressed */
tti_profile *tti_profile_of(const tti_exec *exec);    /* NULL: no profile */
tti_host *tti_host_of(const tti_exec *exec);          /* NULL: a device computes */
tti_exec_device *tti_device_of(const tti_exec *exec); /* NULL: the host computes */
tti_device_tp *tti_tp_of(const tti_exec *exec);       /* NULL: no tensor axis of devices */
tti_offload *tti_offload_of(const tti_exec *exec);    /* NULL: the device has state and averages */

/* A flat array of the worker in its backend's memory: state k, TTI_STATE_PARAMS or TTI_STATE_EMA;
 * NULL: it has none.  The 16-bit copies of parameters; NULL: none.  A buffer of gradients. */
float *tti_exec_array(const tti_exec *exec, int64_t k);
void *tti_exec_low_copies(const tti_exec *exec);
float *tti_exec_buffer(const tti_exec *exec, int buffer);

/* Makes grads (borrowed) the first gradient buffer of a worker that computes no gradients. */
void tti_exec_lend_grads(tti_exec *exec, float *grads);

/* The shard map of n_ranks workers from desc. */
tutti_status tti_exec_shard_map(const tti_exec_desc *desc, int n_ranks, tti_shard_map *out);

/* Finds the blocks that each worker updates, from desc.zero, n_owners and shares. */
tutti_status tti_exec_init_share(const tti_exec_desc *desc, int rank, int n_ranks,
                                 tti_share *share);

/* memory.c: fails with TUTTI_E_NOMEM and the sizes if the plan does not fit.  Micro-batch groups
 * and buffers must have been counted. scratch: bytes of the kernels. */
tutti_status tti_exec_check_memory(const tti_exec *exec, size_t scratch);

/* Adds buffers along the tree, for elements first .. last-1, after the given micro-batch group. */
void tti_exec_merge(tti_exec *exec, const tti_micro_group *micro_group, size_t first, size_t last);

/* Runs a reduction of the step program.  The worker's own partial sums must be complete. */
tutti_status tti_exec_reduce(tti_exec *exec, const tti_instr *reduction);

/* Bytes that a worker sends in an all-reduce of n_bytes, as the mean over the workers. */
double tti_exec_reduce_bytes(const tti_setup *setup, size_t n_bytes);

/* Counts the bytes of a sum along the tree: every partial sum is sent to the owners of its
 * partitions, and the sums are sent back unless each worker needs only its own (is_partitioned). */
void tti_exec_count_partials(tti_exec *exec, size_t n_elems, bool is_partitioned);

/* True if partial sums are rounded to bf16 when they are computed: in exact mode with desc.wire
 * bf16. */
bool tti_exec_rounds_partials(const tti_exec_desc *desc);

/* Bytes of an element of a gradient or partial sum that is sent. */
size_t tti_exec_wire_bytes(const tti_exec_desc *desc);

/* tti_accumulation_init for shards first .. last-1 of desc, width of them in parallel. */
tutti_status tti_exec_plan_merges(const tti_exec_desc *desc, int first, int last, int width,
                                  tti_accumulation *acc);

/* Sums a range of this worker's f32 partial sums, whose data begin with the range, along the tree
 * over all workers, rounded as tti_exec_rounds_partials says.  The sum replaces the first partial
 * sum. scatter: only this worker's partition. keeps: the other partial sums are not overwritten. */
tutti_status tti_exec_reduce_tree(tti_exec *exec, const tti_partial *partials, tti_range range,
                                  bool scatter, bool keeps);

/* Fast mode: sums a range over all workers by a method other than the tree; sum begins with the
 * range. wire: its 16-bit values, in memory that other workers read; NULL: not rounded. scatter: as
 * above. */
tutti_status tti_exec_reduce_sum(tti_exec *exec, tti_reduce_method method, float *sum,
                                 uint16_t *wire, tti_range range, bool scatter);

/* The summed gradients after the reduction, if they are whole. */
float *tti_exec_grads(tti_exec *exec);

/* The hash of whole parameters on the host, computed block by block like the update's. */
uint64_t tti_exec_flat_hash(const tti_exec *exec);

/* True in fast mode if gradients are rounded on the host before they are sent (desc.wire), in
 * separate memory. */
bool tti_exec_has_wire(const tti_exec *exec);

/* feed: sets the inputs of a program for one shard. keep_sums: stores its first n_sums sums, unless
 * another stage computes them. */
void tti_exec_feed(tti_exec *exec, tti_instance *instance, const tti_inputs *inputs,
                   const tti_shard_data *data);
/* True if the samples are floats and one of them is not finite. Samples with several fields are not
 * examined. */
bool tti_exec_has_bad_samples(const tti_setup *setup, const tti_shard_data *data);
void tti_exec_keep_sums(tti_exec *exec, tti_instance *instance, int shard, int n_sums);
/* Copies desc->outputs of this worker's shard number index. */
void tti_exec_copy_outputs(const tti_step_desc *desc, const tti_instance *instance, int index);

/* Begins a step: its gradients have the factor desc->loss_scale (0: 1), and it has not sent any
 * bytes. tti_exec_scale_loss: for a server, which has no step of its own. */
void tti_exec_begin_step(tti_exec *exec, const tti_step_desc *desc);
const tti_step_desc *tti_exec_begun(const tti_exec *exec);
void tti_exec_scale_loss(tti_exec *exec, double scale);
float tti_exec_loss_scale(const tti_exec *exec);
void tti_exec_count_sent(tti_exec *exec, double n_bytes);
double tti_exec_sent_bytes(const tti_exec *exec);

/* The number of sums that a shard reports, and that all shards report together. */
int tti_n_sums(const tti_setup *setup);
size_t tti_n_shard_sums(const tti_setup *setup);

/* The sums of all shards [V][tti_n_sums]: as they are, or cleared.  The number of votes: of this
 * worker before tti_exec_reduce_sums, of all workers after it. */
double *tti_exec_sums(const tti_exec *exec);
double *tti_exec_clear_sums(tti_exec *exec);
void tti_exec_set_votes(tti_exec *exec, double n);

/* Sets the hash of the worker's parameters, or of its blocks.  From the first report on the hashes
 * of all workers are compared. */
void tti_exec_set_hash(tti_exec *exec, uint64_t hash);
void tti_exec_report_hash(tti_exec *exec, tti_step_result *result);

/* Adds t_ns to tti_exec_spent: the worker, or one of its compute threads while others ran, has
 * waited for other workers or communicated. Any thread may call it. */
void tti_exec_waited(tti_exec *exec, int64_t t_ns);
void tti_exec_copied(tti_exec *exec,
                     int64_t t_ns); /* copies between host and device; main thread only */
void tti_exec_compute_thread_waited(tti_exec *exec, int64_t t_ns);

/* Turns the first failure of the compute threads into this thread's error. */
tutti_status tti_exec_compute_thread_status(tti_exec *exec);

/* The number of this worker for fault points. */
int tti_exec_number(const tti_setup *setup);

/* Runs fn on every compute thread of the worker, with its index. */
void tti_exec_run_threads(const tti_exec *exec, void (*fn)(int index, void *arg), void *arg);

/* The training or evaluation program that is bound for shard in_flight of those computed in
 * parallel. */
tti_instance *tti_exec_instance(const tti_exec *exec, int in_flight, bool eval);

/* Stores the first failure of a shard in flight and returns it; called on the shard's thread.
 * Aborts the compute threads' collectives, because the other compute threads of this worker and of
 * its peers must not wait there for the failed one. */
tutti_status tti_exec_compute_thread_failed(tti_exec *exec, int in_flight, tutti_status status);

/* The inputs of shard s of this step that do not depend on the worker. */
tti_run tti_exec_shard_run(const tti_setup *setup, const tti_step_desc *desc, int shard);

/* gradient_sums.c: finds the steps that join values of all shards and allocates memory for them;
 * frees it. */
tutti_status tti_exec_init_sync(tti_setup *setup, tti_joins *joins);
void tti_exec_fini_sync(tti_setup *setup, tti_joins *joins);

/* gradient_sums.c: joins the values of a step between all shards of all workers. */
tutti_status tti_exec_join(tti_exec *exec, int step, bool eval);

/* Allocates the sums of a step by the shard map.  Call it again after rebalancing. */
tutti_status tti_exec_alloc_sums(tti_exec *exec);

/* Reduces sums, hash and votes over the workers. before: the result of an evaluation so far, to
 * which tti_exec_add_sums then adds; NULL: for a step. */
tutti_status tti_exec_reduce_sums(tti_exec *exec, bool vote, const tti_step_result *before);
/* Adds the sums over all shards to the result of an evaluation; sets those of a step, with its
 * metrics. */
void tti_exec_add_sums(const tti_exec *exec, tti_step_result *result);
void tti_exec_set_sums(const tti_exec *exec, tti_step_result *result);

/* Computes the summed gradient of a batch and its sums, on a worker that has all shards. */
tutti_status tti_exec_gradient(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* True if the current step is one of local SGD (desc.local, several workers, not before
 * local_after). */
bool tti_local_is_on(const tti_exec *x);

/* Number of real samples in this worker's shards. */
int64_t tti_local_rows(const tti_setup *setup, const tti_step_desc *desc);

/* Enables compression of this worker's gradients.  Collective. */
tutti_status tti_exec_create_compress(tti_exec *exec);

/* Publishes what this worker is doing, for the messages of workers that wait for it. */
void tti_exec_note(const tti_setup *setup, const tti_step_desc *desc, const char *phase);

/* Sets the gradient buffer of an instance. */
void tti_exec_point_at_buffer(const tti_exec *exec, tti_instance *instance, int buffer);

/* step_sums.c: the first shard whose loss is not finite, -1: none; the messages for a loss and for
 * a gradient. first_in and param are "" if unknown. */
int tti_exec_first_bad_shard(const tti_exec *exec);
tutti_status tti_exec_bad_loss(const tti_exec *exec, uint64_t step, int shard,
                               const char *first_in);
tutti_status tti_exec_bad_gradient(uint64_t step, const char *param);

/* step_sums.c: the same messages, after a search for the layer and the parameter.  Collective over
 * all workers. */
tutti_status tti_exec_report_bad_loss(tti_exec *exec, const tti_step_desc *desc, int shard);
tutti_status tti_exec_report_bad_gradient(tti_exec *exec, uint64_t step);

/* step_sums.c: "conv2d 'conv1'" */
enum { TTI_LAYER_TEXT = 128 };
void tti_exec_print_layer(const tti_node *node, char layer[TTI_LAYER_TEXT]);

/* step_sums.c: computes a shard of this worker again and finds the first node whose output is not
 * finite; "": none.  Collective over the workers of this replica if the model is divided. */
void tti_exec_find_bad_layer(tti_exec *exec, const tti_step_desc *desc, int shard,
                             char layer[TTI_LAYER_TEXT]);

/* consistency.c: if st says that hashes differed, finds the parameter by a full read.  Collective
 * over the workers that detected the mismatch. */
tutti_status tti_exec_name_difference(tti_exec *x, tutti_status st);

/* checkpoint.c: the executor with the optimizer state and the averages.  The second function
 * gathers the whole averages to where evaluation reads them. */
const tti_exec *tti_exec_state_owner(const tti_exec *exec);
tutti_status tti_exec_gather_averages(tti_exec *exec);
/* step_sums.c: compares the hashes that all ranks sent with the sums of this step. */
tutti_status tti_exec_compare_hashes(tti_exec *exec, uint64_t step);
/* True if hashes have differed since the last call; *step is the step. */
bool tti_exec_hashes_differed(tti_exec *exec, uint64_t *step);

/* step_sums.c: the sum over the workers of the hashes of their own blocks. */
tutti_status tti_exec_sum_hashes(const tti_setup *setup, uint64_t own, uint64_t *sum);

/* zero.c: clips, optimizes and hashes the worker's blocks; last_hash becomes the hash of these
 * blocks. inv_count: 1 / number of counted samples. */
tutti_status tti_exec_update(tti_exec *exec, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result);

/* zero.c: gathers parameters from the workers that updated them; last_hash becomes the hash of
 * all. */
tutti_status tti_exec_gather_params(tti_exec *exec);
void tti_exec_hash_gathered(tti_exec *exec);

/* zero.c: both of these, for a worker without a step program: a server, or the host executor of a
 * device. */
tutti_status tti_exec_apply(tti_exec *exec, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result);

#endif /* TTI_EXEC_WORKER_H */
