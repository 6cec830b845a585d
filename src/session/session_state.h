/* session_state.h - a session and its workers, for the files of this room.
 *
 * The caller's thread checks arguments and hands one function at a time to all workers
 * (session_threads.c), which are threads that live as long as the session.  A worker is as in
 * training: an executor, a mesh, a communicator.  Workers read `call` and write their own fields
 * only. */
#ifndef TTI_SESSION_SESSION_STATE_H
#define TTI_SESSION_SESSION_STATE_H

#include <pthread.h>

#include "data/fields.h"
#include "data/loader/loader.h"
#include "exec/exec.h"
#include "ps/server.h"
#include "train/infer/metric_set.h"
#include "train/job/loss_scale.h"
#include "train/loop/async.h"
#include "train/loop/phases.h"
#include "train/loop/snapshot.h"
#include "train/loop/worker_loop.h"
#include "train/report/step_metrics.h"
#include "train/setup/blueprint.h"
#include "train/setup/feeding.h"
#include "tutti/session.h"

enum { TTI_SESSION_ERROR = 4096, TTI_MAX_OUTPUTS = 32 };

/* An output of the evaluation program, and of the training program if the caller computes the loss.
 */
typedef struct tti_session_output {
    tutti_field field; /* name, and type of one row */
    const char *value; /* the name in the programs: "output.NAME" in a model with several */
    size_t row_bytes;
    size_t first;  /* its first byte in the outputs of a worker with one shard */
    bool is_value; /* f32 [n_targets], standardized: to be converted to the targets' units */
    size_t seed;   /* offset of "seed.NAME" in the samples of a shard; 0: none */
} tti_session_output;

typedef struct tti_session_worker {
    tutti_session *session;
    int rank, local_rank;
    const tti_blueprint *b;
    pthread_t thread;
    tutti_comm *comm; /* all workers; NULL: alone */
    tti_mesh mesh;
    tti_server *server; /* borrowed; NULL: none */
    tti_exec *exec;
    tti_worker_loop_desc loop; /* of phases */
    tti_phases phases;
    tti_loader *loader;     /* of the job's training data; NULL: not read yet */
    int64_t loader_step;    /* the next step that the loader makes */
    tti_shard_data *shards; /* [n_shards] of this worker */
    int n_shards;
    int64_t shard_rows;                       /* rows of a shard */
    uint8_t *samples, *targets;               /* fed rows: [n_shards] shards */
    size_t samples_bytes, targets_bytes;      /* of a shard, multiples of 64 */
    uint8_t *outputs;                         /* [n_shards] of each output, one after the other */
    uint8_t *device_samples, *device_outputs; /* the same in its device's memory; NULL: not used */
    tti_step_result result;
    tutti_status status; /* of the last function, with its text */
    char error[TTI_SESSION_ERROR];
} tti_session_worker;

/* The checked inputs of a caller, one for each input of the session. */
typedef struct tti_feed {
    const tutti_tensor *tensor[TTI_MAX_FIELDS]; /* [n_inputs]; NULL: left out */
    int64_t n_rows;                             /* of this process */
    int64_t n_rows_global;
    bool stored;                    /* input 0 is u8 pixels as stored */
    bool on_device[TTI_MAX_FIELDS]; /* rows are copied from device to device */
    bool any_on_device;
} tti_feed;

typedef tutti_status (*tti_session_fn)(tti_session_worker *worker, void *arg);

/* A step whose result the caller reads later (tutti_session_step_async). */
typedef struct tti_ticket {
    int64_t step; /* updates after it */
    int64_t n_rows;
    double lr, grad_scale;
    tutti_status status;
    char *error; /* owned; NULL: it succeeded, or has not ended */
    tti_step_result result;
} tti_ticket;

/* Tickets are numbered from 1; ticket k is of[k % TUTTI_SESSION_N_RESULTS]. */
typedef struct tti_tickets {
    tti_ticket *of; /* [TUTTI_SESSION_N_RESULTS]; NULL: none was made */
    int64_t n_begun, n_ended;
    int64_t n_failed; /* the first ticket whose failure no call has returned yet; 0: none */
} tti_tickets;

/* Threads that wait for functions. */
typedef struct tti_session_threads {
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;
    tti_session_fn fn; /* NULL: end */
    void *arg;
    bool tries;   /* of tti_session_try */
    int64_t turn; /* of the function */
    int n_left, n_started;
} tti_session_threads;

struct tutti_session {
    pthread_mutex_t
        mutex; /* calls wait for each other; a thread that calls from a callback fails */
    bool is_open;
    pid_t owner;         /* the process whose threads the workers are */
    tutti_status failed; /* of a worker: all later calls fail with the text */
    char failure[TTI_SESSION_ERROR];
    tutti_session_info info;
    tutti_job *job; /* resolved copy */
    tti_data_spec *spec;
    const tti_blueprint *b;
    tti_job_server server; /* of worker threads */
    tti_shared_params *shared_params;
    tutti_comm *comm; /* of desc, borrowed */
    tutti_comm_group *group;
    int core_rank, core_n_ranks, n_devices; /* with comm: of this process */
    tti_session_threads threads;
    tti_session_worker *workers; /* [n_workers of this process] */
    int n_workers;
    bool has_data; /* of the job */
    int n_inputs;
    tutti_field inputs[TTI_MAX_FIELDS];
    bool is_needed[TTI_MAX_FIELDS]; /* for the outputs, in evaluation */
    int n_outputs;
    tti_session_output *outputs; /* [n_outputs], at most TTI_MAX_OUTPUTS */
    size_t outputs_bytes;        /* of a shard, all of them */
    size_t count_seed;           /* offset of "seed.count" */
    tutti_parameter *parameters; /* [n_parameters] */
    tti_arena arena;             /* of names */
    const struct tti_optimizer *optimizer;
    tutti_host_loss_fn loss;
    void *loss_user;
    int64_t step;
    tti_run_state run; /* loss scale, plateau */
    bool is_scaled;
    bool has_views;            /* the caller may change parameters between calls */
    bool has_gradients;        /* computed, not applied yet */
    bool has_flat;             /* the call before was tutti_session_flat */
    bool gives_flat;           /* this call is */
    int64_t gradient_rows;     /* of their batch */
    tti_step_metrics own;      /* of the last step */
    tti_metric_set *evaluated; /* of the last evaluation; NULL: it has none */
    double grad_scale;         /* of them */
    tti_tickets tickets;
};

/* ---- session_tickets.c: public calls ---- */

/* Begins a public call: TUTTI_E_INVALID for NULL, a closed session, or a call from a callback; the
 * failure of a worker; the failure of an asynchronous step, once.  No step is in flight then.
 * Every TUTTI_OK is followed by tti_session_leave, which returns st. */
tutti_status tti_session_enter(tutti_session *session, const char *who);
/* The same without a wait for steps in flight, whose failure it does not return. */
tutti_status tti_session_enter_async(tutti_session *session, const char *who);
tutti_status tti_session_leave(tutti_session *session, tutti_status st);

/* After a fork: the threads of the workers are not in this process. */
bool tti_session_is_inherited(const tutti_session *session);

/* Where a worker computes: its backend, and the number of its device or TTI_ON_HOST; and the first
 * worker there, NULL: none. */
const tti_backend *tti_worker_backend(const tti_session_worker *worker);
int tti_worker_device(const tti_session_worker *worker);
tti_session_worker *tti_session_worker_on(const tutti_session *session, int device);

/* Parameters that the caller may have changed in place are those of all workers from now on. */
tutti_status tti_session_accept_views(tutti_session *session);

/* The devices on which its workers compute; NULL: the host. */
const tti_device_ops *tti_session_device_ops(const tutti_session *session);

/* Waits for the steps in flight.  The failure of an asynchronous step that no call has returned. */
tutti_status tti_session_settle(tutti_session *session, const char *who);
void tti_tickets_release(tti_tickets *tickets);

/* ---- session_threads.c ---- */

/* Starts a thread for each worker; stop ends them. */
tutti_status tti_session_threads_start(tutti_session *session);
void tti_session_threads_stop(tutti_session *session);

/* Calls fn(worker, arg) on every worker's thread.  Fails with the status and text of the worker
 * that is the cause.  A failure of run, except TUTTI_E_NUMERICS, ends the session and the waits of
 * other workers; one of try does not: all workers find it alike, or none waits for another. */
tutti_status tti_session_run(tutti_session *session, tti_session_fn fn, void *arg);
tutti_status tti_session_try(tutti_session *session, tti_session_fn fn, void *arg);

/* ---- session_worker.c: functions of the threads ---- */

tutti_status tti_session_worker_open(tti_session_worker *worker, void *arg);
tutti_status tti_session_worker_close(tti_session_worker *worker, void *arg);

/* ---- session_arrays.c ---- */

/* The type of the tensor that reads an array; as tutti_session_read where there is none. */
tutti_status tti_session_array_type(tutti_session *session, tutti_array_kind kind, const char *name,
                                    tutti_type *out);

/* ---- feed.c ---- */

/* Checks the caller's tensors against the inputs of the session. labels: all inputs must be there;
 * else those that the outputs need. */
tutti_status tti_feed_check(tutti_session *session, const tutti_tensor *inputs, int n_inputs,
                            bool labels, tti_feed *out);

/* Inputs of the caller, those in device memory whose values are read or converted copied to the
 * host. */
typedef struct tti_staged {
    tutti_tensor tensors[TTI_MAX_FIELDS];
    const void *from[TTI_MAX_FIELDS];
    void *memory[TTI_MAX_FIELDS];
    int n;
    bool any; /* one was copied */
} tti_staged;

/* Copies them if all workers compute on devices; else tti_feed_check refuses what lies there.
 * Always followed by unstage. */
tutti_status tti_feed_stage(tutti_session *session, const tutti_tensor *inputs, int n_inputs,
                            tti_staged *out);
const tutti_tensor *tti_feed_staged(const tti_staged *staged, const tutti_tensor *inputs);
void tti_feed_unstage(tti_staged *staged);

/* Copies the rows of this worker into its shards.  seeds [n_outputs] of tensors d loss / d output
 * with as many rows, or NULL: zeros; count: of the caller's loss. */
tutti_status tti_feed_put(tti_session_worker *worker, const tti_feed *feed);
void tti_feed_put_seeds(tti_session_worker *worker, const tti_feed *feed, const tutti_tensor *seeds,
                        double count);

/* The rows of this worker in the batch: first .. last-1 of those of the process. */
void tti_feed_rows(const tti_session_worker *worker, const tti_feed *feed, int64_t *first,
                   int64_t *last);

/* ---- device_tensors.c: tensors of the caller in device memory ---- */

/* Checks a tensor of the caller: pointer, dtype, shape, and where it lies.  what: "input". */
tutti_status tti_tensor_check(const tutti_session *session, const char *what,
                              const tutti_tensor *tensor);
/* Its dtype and shape alone, whose bytes then fit a size_t. */
tutti_status tti_tensor_check_type(const char *what, const tutti_tensor *tensor);

/* Samples are named fields. */
bool tti_feed_has_fields(const tutti_session *session);

/* Whether input i is copied from the tensor's device to those of the workers: its values need
 * neither a check nor a conversion. */
bool tti_feed_is_direct(const tutti_session *session, int i, const tutti_tensor *tensor);

/* After tti_feed_put on the host: the samples of this worker's shards to its device. */
tutti_status tti_feed_to_device(tti_session_worker *worker, const tti_feed *feed);

/* Memory of the worker's device for outputs, as worker->outputs; made on first use. */
tutti_status tti_outputs_on_device(tti_session_worker *worker);

/* Between any two memories, in the queue of the worker's device, or waits for all of it. */
tutti_status tti_worker_copy(const tti_session_worker *worker, void *to, const void *from,
                             size_t n_bytes);
tutti_status tti_worker_sync(const tti_session_worker *worker);

void tti_device_tensors_release(tti_session_worker *worker);

#endif /* TTI_SESSION_SESSION_STATE_H */
