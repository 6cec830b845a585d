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
 * Each has its own plan for its backend.  The collectives of the host reduce gradients, bucket by
 * bucket: workers on devices copy theirs there (device_host_staged.h).  All of them update on the
 * host (offload.h), from the same sums, so parameters have the same bits. */

/* Checks that a worker with desc.mixed is possible.  Compares for these, and for undivided models
 * on devices, that the plans of all have the same layout and join the same values.
 * TUTTI_E_MISMATCH, on all ranks: they do not.  Collective. */
tutti_status tti_mixed_check(const tti_setup *setup);

/* ---- parameters and optimizer state that workers of one process share ----
 *
 * Each worker updates its part of them (tti_share), and a barrier follows before any worker reads
 * the result, where workers with separate copies would send parts.  Updates start only after all
 * shard gradients are reduced, so running shards read consistent parameters. */

struct tti_shared_params {
    const tti_backend *backend;
    size_t n_bytes; /* of each array */
    float *params;
    float *states[TTI_MAX_OUT]; /* [plan->n_states], zero to begin with */
    float *ema;                 /* NULL: none */
};

/* ---- the functions of a parameter server that a worker calls: all that exec/ knows of it ---- */

typedef struct tti_server_calls {
    /* The executor that keeps parameters and state; NULL: it is in another process, or in several.
     */
    tti_exec *(*state_owner)(tti_server *server);

    /* With backup workers a batch is divided between the workers: fills the shards of one of them,
     * and returns true; else returns false and writes nothing. */
    bool (*shards)(const tti_server *server, int worker, int n_shards, int *first, int *last);

    /* Several processes own the parameters.  Then state k of keys is fetched from its owners; data
     * are valid until the next call and the next gradient.  And a process stores its part of keys
     * from data, which begins with keys.first; k may be TTI_STATE_EMA, TTI_STATE_PARAMS. */
    bool (*has_ranges)(const tti_server *server);
    tutti_status (*fetch)(tti_exec *x, int k, tti_range keys, const float **data);
    void (*store)(tti_exec *x, int k, tti_range keys, const float *data);

    /* Pushes the gradient of a step, whose partial sums lie in the buffers of x (tti_exec_partial),
     * and waits for the server's update, which every worker of the step must push for.  Then pulls
     * the new parameters into those of x, with their hash in last_hash. */
    tutti_status (*push)(tti_exec *x, const tti_step_desc *desc, double inv_count,
                         tti_step_result *result);
    tutti_status (*pull)(tti_exec *x);

    /* For a worker on a device: copies the server's averages to where it evaluates with them, while
     * no worker is in a step. */
    tutti_status (*pull_averages)(tti_exec *x);
} tti_server_calls;

/* A server begins with a pointer to its table. */
static inline const tti_server_calls *tti_calls_of(const tti_server *server) {
    return *(const tti_server_calls *const *)(const void *)server;
}

/* The number of partial sums of a worker's gradient that a server adds: one, if each worker has a
 * part of the model.  And one of them, in host memory. */
int tti_exec_n_partials(const tti_setup *setup);
float *tti_exec_partial(const tti_exec *x, int i);

typedef struct tti_compute_thread {
    tti_instance *shard, *eval;
    void *arena;
    tutti_status status; /* of the last dispatch, with its text */
    char error[512];
} tti_compute_thread;

/* The steps of a program with TTI_SYNC. */
typedef struct tti_syncs {
    int *step; /* [n] */
    int n;
} tti_syncs;

/* The description of a worker, its shards and its threads.  They change only when the worker is
 * created and when shards are redistributed. */
struct tti_setup {
    tti_exec_desc desc;
    int rank, n_ranks, first_shard, last_shard; /* in desc.comm */
    tti_shard_map shard_map;                    /* desc.shard_map is not read after creation */
    tti_divided *divided;                       /* NULL: this worker has the whole model */
    int n_threads;                              /* that the worker may run at a time */
    int *cores; /* [n_threads]: of desc.cores, which it then is; NULL: none */
    /* Shards in flight: as many as compute threads, or, in a program with TTI_SYNC, every shard of
     * the worker, because all of them must reach the same point before any continues. */
    int n_in_flight;
    tti_syncs syncs, eval_syncs; /* of the shard program and of evaluation */
    tti_accumulation acc;
    int n_agreed;      /* buffers: the largest number over all workers; for devices in mixed runs
                          these are on the host (device_host_staged.h) */
    tti_share share;   /* blocks of the update that are this worker's */
    int n_pipe_groups; /* of a pipeline stage: micro-batch groups of the worker that has most */
    tti_inputs shard_inputs, eval_inputs;
    size_t arena_bytes;
};

/* The flat arrays of a worker, in the memory of its backend. */
struct tti_arrays {
    float *params;
    void *low_copies;           /* parameters in 16 bits, as plan->low_dtype says; NULL: none */
    float *states[TTI_MAX_OUT]; /* of its blocks */
    float *ema;                 /* of its blocks, averaged parameters, NULL: none */
    bool has_whole_ema; /* the buffer of the summed gradients holds all of them for evaluation */
    float **buffers;    /* [n_buffers]: flat gradients, shared with the peers where there are any */
    int n_buffers;      /* the same on all workers, >= acc.n_buffers; but see n_agreed */
    int n_own_buffers;  /* of them allocated by the backend (alone) and so released here */
    uint16_t
        *wire; /* [n_flat], shared with the peers: gradients as they travel; NULL: as they are */
};

/* The compute threads, and one instance of the programs per shard in flight. */
struct tti_thread_set {
    tti_compute_threads *pool;
    tti_compute_thread *thread; /* [n_in_flight] */
    tti_prepared *ready[2];     /* on a device, for the first one: shard, eval; NULL: none */
    tutti_comm **comms;         /* [n_comms]: of the tensor axis, one for each thread; NULL: none */
    int n_comms;
};

/* Rank 0 alone makes these of the sums of all shards where workers are so many that a vector of all
 * shards in each of them would be too much. */
typedef struct tti_step_totals {
    double sums[TTI_LOSS_SUMS + 2 * TTI_MAX_OWN_METRICS]; /* in the order of the shards */
    double n_votes;
    uint64_t hash;           /* of rank 0 */
    int bad_shard, odd_rank; /* the first with a loss that is not finite, with another hash; -1 */
    bool is_set;             /* since the sums were cleared */
} tti_step_totals;

/* The state of a worker in a step: number, sums, hashes and times. */
struct tti_tally {
    tti_step_desc begun; /* the step that tti_exec_end runs, on the host */
    bool has_begun;
    float loss_scale;
    /* Sums of shards; halves of hashes of all ranks; votes: [tti_n_shard_sums + 2 * n_ranks + 1].
     * Among many workers of one host (tti_step_totals) sums of own shards; votes. */
    double *sums;
    size_t n_sums;
    int first_shard, n_shards; /* those of sums */
    tti_step_totals *totals;   /* NULL: sums are those of all shards */
    uint64_t last_hash;
    bool has_hash, has_differed;
    uint64_t differed_in;   /* step, whose hashes differed */
    double sent_bytes;      /* in this step */
    int64_t gather_ns;      /* of the last update: waiting for the parts of others */
    atomic_llong waited_ns; /* as tti_exec_spent, as far as the host measures it */
    int64_t copied_ns;
};

/* Memory for values that all shards join. */
struct tti_joins {
    tti_join_size most; /* n_part and n_joined of the largest values */
    float *parts;       /* [V][most.n_part] */
    float *joined;      /* [most.n_joined]  */
};

/* The parts of a worker.  Only the files that create and destroy workers see tti_exec
 * (worker_state.h); the others ask for the part that they use. */
const tti_setup *tti_setup_of(const tti_exec *exec);
tti_arrays *tti_arrays_of(const tti_exec *exec);
const tti_sharded *tti_sharded_of(
    const tti_exec *exec); /* NULL: gradients and parameters are whole */
tti_thread_set *tti_threads_of(const tti_exec *exec);
tti_tally *tti_tally_of(const tti_exec *exec);
tti_joins *tti_joins_of(const tti_exec *exec);
tti_update *tti_update_of(const tti_exec *exec);
tti_pipe *tti_pipe_of(const tti_exec *exec);          /* NULL: the worker has all layers */
tti_compress *tti_compress_of(const tti_exec *exec);  /* NULL: gradients travel whole */
tti_profile *tti_profile_of(const tti_exec *exec);    /* NULL: nothing is timed */
tti_host *tti_host_of(const tti_exec *exec);          /* NULL: a device computes */
tti_exec_device *tti_device_of(const tti_exec *exec); /* NULL: the host computes */
tti_device_tp *tti_tp_of(const tti_exec *exec);       /* NULL: no tensor axis of devices */
tti_offload *tti_offload_of(const tti_exec *exec);    /* NULL: the device has state and averages */

/* A flat array of the worker in the memory of its backend: state k, TTI_STATE_PARAMS or
 * TTI_STATE_EMA; NULL: it has none.  Parameters in 16 bits; NULL: none.  And a buffer of gradients.
 */
float *tti_exec_array(const tti_exec *exec, int64_t k);
void *tti_exec_low_copies(const tti_exec *exec);
float *tti_exec_buffer(const tti_exec *exec, int buffer);

/* From now on grads is the first buffer of gradients, of a worker that computes none. */
void tti_exec_lend_grads(tti_exec *exec, float *grads);

/* The shard map of n_ranks workers, from desc. */
tutti_status tti_exec_shard_map(const tti_exec_desc *desc, int n_ranks, tti_shard_map *out);

/* Which worker updates which blocks: from desc.zero, n_owners and shares. */
tutti_status tti_exec_init_share(const tti_exec_desc *desc, int rank, int n_ranks,
                                 tti_share *share);

/* memory.c: TUTTI_E_NOMEM with the numbers where the plan cannot fit; micro-batch groups and
 * buffers are counted.  scratch: of kernels. */
tutti_status tti_exec_check_memory(const tti_exec *exec, size_t scratch);

/* Adds buffers along the tree for the elements first .. last-1, after the given micro-batch group.
 */
void tti_exec_merge(tti_exec *exec, const tti_micro_group *micro_group, size_t first, size_t last);

/* Runs a reduction of the step program; the worker's own partial sums are complete. */
tutti_status tti_exec_reduce(tti_exec *exec, const tti_instr *reduction);

/* Bytes that a worker sends in an all-reduce of so many, in the mean over the workers. */
double tti_exec_reduce_bytes(const tti_setup *setup, size_t n_bytes);

/* Counts the bytes of a sum along the tree: every partial sum goes to the owners of its partitions,
 * and the sums come back unless each worker needs only its own (is_partitioned). */
void tti_exec_count_partials(tti_exec *exec, size_t n_elems, bool is_partitioned);

/* Whether partial sums are rounded to bf16 as they are made: in exact mode with desc.wire bf16. */
bool tti_exec_rounds_partials(const tti_exec_desc *desc);

/* Bytes of an element of a gradient, or of a partial sum, as it travels. */
size_t tti_exec_wire_bytes(const tti_exec_desc *desc);

/* tti_accumulation_init for shards first .. last-1 of desc, of which width are computed at a time.
 */
tutti_status tti_exec_plan_merges(const tti_exec_desc *desc, int first, int last, int width,
                                  tti_accumulation *acc);

/* Sums a range of this worker's f32 partial sums, whose data begin with the range, along the tree
 * over all workers; they travel as tti_exec_rounds_partials says.  The sum replaces the first one:
 * scatter: only this worker's partition.  keeps: the other partial sums stay. */
tutti_status tti_exec_reduce_tree(tti_exec *exec, const tti_partial *partials, tti_range range,
                                  bool scatter, bool keeps);

/* Fast mode: sums a range of all workers, which sum begins with, by any other method.  wire: its
 * 16-bit values, in memory that the others read; NULL: not rounded.  scatter: as above. */
tutti_status tti_exec_reduce_sum(tti_exec *exec, tti_reduce_method method, float *sum,
                                 uint16_t *wire, tti_range range, bool scatter);

/* The summed gradients after the reduction, where they are whole. */
float *tti_exec_grads(tti_exec *exec);

/* The hash of whole parameters on the host, by the blocks of the update, as it hashes them. */
uint64_t tti_exec_flat_hash(const tti_exec *exec);

/* Fast mode: gradients are rounded on the host before they travel (desc.wire), in memory of their
 * own. */
bool tti_exec_has_wire(const tti_exec *exec);

/* The inputs of a program for one shard; its first n_sums sums to their place, unless another stage
 * makes them. */
void tti_exec_feed(tti_exec *exec, tti_instance *instance, const tti_inputs *inputs,
                   const tti_shard_data *data);
void tti_exec_keep_sums(tti_exec *exec, tti_instance *instance, int shard, int n_sums);
/* desc->outputs of shard number index of this worker. */
void tti_exec_copy_outputs(const tti_step_desc *desc, const tti_instance *instance, int index);

/* The step at work: its gradients have the factor desc->loss_scale (0: 1), and it has sent nothing
 * yet.  tti_exec_scale_loss: of a server, which has no step of its own. */
void tti_exec_begin_step(tti_exec *exec, const tti_step_desc *desc);
const tti_step_desc *tti_exec_begun(const tti_exec *exec);
void tti_exec_scale_loss(tti_exec *exec, double scale);
float tti_exec_loss_scale(const tti_exec *exec);
void tti_exec_count_sent(tti_exec *exec, double n_bytes);
double tti_exec_sent_bytes(const tti_exec *exec);

/* How many sums a shard reports, and all shards together; the first n_sums of a shard. */
int tti_n_sums(const tti_setup *setup);
size_t tti_n_shard_sums(const tti_setup *setup);

/* The sums of all shards [V][tti_n_sums], as they are, or set to 0; and the number of votes, of
 * this worker before tti_exec_reduce_sums and of all after it. */
double *tti_exec_sums(const tti_exec *exec);
double *tti_exec_clear_sums(tti_exec *exec);
void tti_exec_set_votes(tti_exec *exec, double n);

/* The hash of the worker's parameters, or of its blocks.  From the first report on the hashes of
 * all workers are compared. */
void tti_exec_set_hash(tti_exec *exec, uint64_t hash);
void tti_exec_report_hash(tti_exec *exec, tti_step_result *result);

/* For tti_exec_spent: the worker, or one of its compute threads while the others ran, has waited
 * for others, or communicated, for t_ns.  Any thread. */
void tti_exec_waited(tti_exec *exec, int64_t t_ns);
void tti_exec_copied(tti_exec *exec, int64_t t_ns); /* between host and device; main thread */
void tti_exec_compute_thread_waited(tti_exec *exec, int64_t t_ns);

/* Turns the first failure of the compute threads into this thread's error. */
tutti_status tti_exec_compute_thread_status(tti_exec *exec);

/* The number of this worker in faults. */
int tti_exec_number(const tti_setup *setup);

/* Runs fn on every compute thread of the worker, with its index. */
void tti_exec_run_threads(const tti_exec *exec, void (*fn)(int index, void *arg), void *arg);

/* The program of training, or of evaluation, bound for shard in_flight of those that are computed
 * at a time. */
tti_instance *tti_exec_instance(const tti_exec *exec, int in_flight, bool eval);

/* Keeps the first failure of a shard in flight, from its own thread, and returns it.  Aborts the
 * compute threads' collectives: the other compute threads of this worker and of its peers must not
 * wait there for a compute thread that computes no more. */
tutti_status tti_exec_compute_thread_failed(tti_exec *exec, int in_flight, tutti_status status);

/* The inputs of shard s of this step that do not depend on the worker. */
tti_run tti_exec_shard_run(const tti_setup *setup, const tti_step_desc *desc, int shard);

/* gradient_sums.c: which steps join values of all shards, and the memory for it; frees it. */
tutti_status tti_exec_init_sync(tti_setup *setup, tti_joins *joins);
void tti_exec_fini_sync(tti_setup *setup, tti_joins *joins);

/* gradient_sums.c: joins the values of a step between all shards of all workers. */
tutti_status tti_exec_join(tti_exec *exec, int step, bool eval);

/* Memory for the sums of a step, by the shard map; again after shards were redistributed. */
tutti_status tti_exec_alloc_sums(tti_exec *exec);

/* Reduces sums, hash and votes over the workers.  before: of an evaluation so far, to which
 * tti_exec_add_sums then adds; NULL: a step. */
tutti_status tti_exec_reduce_sums(tti_exec *exec, bool vote, const tti_step_result *before);
/* The sums over all shards, added to those of an evaluation; and those of a step, with its metrics.
 */
void tti_exec_add_sums(const tti_exec *exec, tti_step_result *result);
void tti_exec_set_sums(const tti_exec *exec, tti_step_result *result);

/* The summed gradient of a batch and its sums, of a worker that has all shards. */
tutti_status tti_exec_gradient(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* Whether the step at work is one of local SGD (desc.local, several workers, not before
 * local_after). */
bool tti_local_is_on(const tti_exec *x);

/* Real samples of this worker's shards. */
int64_t tti_local_rows(const tti_setup *setup, const tti_step_desc *desc);

/* Gradients of this worker are compressed from now on.  Collective. */
tutti_status tti_exec_create_compress(tti_exec *exec);

/* Publishes the activity of this worker, for workers that wait for it. */
void tti_exec_note(const tti_setup *setup, const tti_step_desc *desc, const char *phase);

/* Sets the destination of a shard's gradients. */
void tti_exec_point_at_buffer(const tti_exec *exec, tti_instance *instance, int buffer);

/* step_sums.c: the first shard whose loss is not finite, -1: none; its message, and that of a
 * gradient, first_in and param being "" if unknown. */
int tti_exec_first_bad_shard(const tti_exec *exec);
tutti_status tti_exec_bad_loss(const tti_exec *exec, uint64_t step, int shard,
                               const char *first_in);
tutti_status tti_exec_bad_gradient(uint64_t step, const char *param);

/* step_sums.c: the same, looking for the layer and the parameter.  Collective over all workers. */
tutti_status tti_exec_report_bad_loss(tti_exec *exec, const tti_step_desc *desc, int shard);
tutti_status tti_exec_report_bad_gradient(tti_exec *exec, uint64_t step);

/* step_sums.c: "conv2d 'conv1'" */
enum { TTI_LAYER_TEXT = 128 };
void tti_exec_print_layer(const tti_node *node, char layer[TTI_LAYER_TEXT]);

/* step_sums.c: computes a shard of this worker again: the first node whose output is not finite,
 * "": none.  Collective over the workers of this replica if the model is divided. */
void tti_exec_find_bad_layer(tti_exec *exec, const tti_step_desc *desc, int shard,
                             char layer[TTI_LAYER_TEXT]);

/* consistency.c: where st is that hashes differed, the parameter that does, by a full read.
 * Collective over the workers that saw it. */
tutti_status tti_exec_name_difference(tti_exec *x, tutti_status st);

/* checkpoint.c: who has the optimizer's state and the averages.  Averages, whole, to where
 * evaluation reads them.  tti_exec_serve and its end within the data group. */
const tti_exec *tti_exec_state_owner(const tti_exec *exec);
tutti_status tti_exec_gather_averages(tti_exec *exec);
/* step_sums.c: compares the hashes that all ranks sent with the sums of this step. */
tutti_status tti_exec_compare_hashes(tti_exec *exec, uint64_t step);
/* Whether they differed since the last call, and in which step. */
bool tti_exec_hashes_differed(tti_exec *exec, uint64_t *step);

/* step_sums.c: the sum over the workers, of hashes of their own blocks. */
tutti_status tti_exec_sum_hashes(const tti_setup *setup, uint64_t own, uint64_t *sum);

/* zero.c: clips, optimizes and hashes the worker's blocks; last_hash is then that of these blocks.
 * inv_count: 1 / number of counted samples. */
tutti_status tti_exec_update(tti_exec *exec, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result);

/* zero.c: parameters from the workers that updated them; then last_hash is that of all. */
tutti_status tti_exec_gather_params(tti_exec *exec);
void tti_exec_hash_gathered(tti_exec *exec);

/* zero.c: both, of a worker without a step program: a server, or the host of a device. */
tutti_status tti_exec_apply(tti_exec *exec, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result);

#endif /* TTI_EXEC_WORKER_H */
