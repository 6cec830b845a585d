/* server.h - a parameter server: threads that store parameters and optimizer state for workers. A
 * worker is a thread of the same process, a process on any host, or a group of these that divides a
 * model.
 *
 * Each of the n_compute_threads server threads updates its own range of the parameters. Requests
 * are served one at a time, in order of arrival: a pull copies the parameters to a worker, a push
 * applies a whole gradient. So a pull never reads a partly applied update, whatever the number of
 * threads. There are three modes:
 *
 *   synchronous   staleness 0.  A step is applied when every worker has pushed its partial sums,
 *                 which are added along the tree over all shards.  The bits are those of the
 *                 all-reduce, for any shard map (exec.h), which may change between steps.
 *   asynchronous  Each worker leases its own batches, and the gradient of every batch is an update.
 *                 The order of arrival is recorded and can be replayed.
 *   with backup   As synchronous, but a step is applied when all but n_backup workers have pushed.
 *                 A late worker continues with the next step.
 *
 * A failed worker may leave if the others can continue without it: another worker computes its
 * batch, and its thread only takes part in barriers. Workers that divide a model leave together. A
 * worker may be on a device: its gradients are copied to host memory (device_host_steps.c). No call
 * of a worker waits longer than timeout_ms for another worker.
 *
 * Synchronous workers are threads. In the other modes workers may be processes: the server runs in
 * the process of worker 0. Every other process has a tti_server that is a client (comm/channel.h)
 * and supports the same calls. A worker process that ends counts as a failed worker; if the
 * server's process ends, the run ends. Several processes may each own a range of the parameters:
 * then the run ends if any of them ends. */
#ifndef TTI_EXEC_SERVER_H
#define TTI_EXEC_SERVER_H

#include "comm/progress.h"
#include "exec/exec.h"
#include "exec/program/exec_program.h"
#include "ps/worker_set.h"

enum { TTI_UNBOUNDED = -1, TTI_STALENESS_BINS = 257 };

/* An update of an asynchronous run: which worker computed it, from which batch, and with which
 * version of the parameters. */
typedef struct tti_arrival {
    int64_t step;    /* number of updates up to and including this one */
    int64_t batch;   /* in the run, from 0 */
    int64_t version; /* number of updates in the parameters that the worker used; the staleness is
                        step - 1 - version */
    int32_t worker;
    int64_t n_rows;         /* samples of the batch */
    double lr, loss_scale;  /* loss_scale: factor by which the gradient was scaled, 1 if none */
    int64_t wait_ns;        /* time that the worker waited for the batch */
    tti_step_result result; /* params_hash: after the update; skipped: the update was skipped */
} tti_arrival;

typedef struct tti_server_desc {
    tti_exec_desc exec; /* settings of the update; n_compute_threads is the number of server
                           threads; settings of shards are ignored */
    int n_workers;
    int64_t staleness; /* number of steps that any other worker may begin while a worker computes;
                          0: synchronous; TTI_UNBOUNDED: no limit */
    int n_ranges; /* for asynchronous worker processes: each of the first n_ranges processes owns a
                     range of the keys (server_range.c); 0 or 1: the first process owns all keys */
    int n_backup; /* with staleness 0: number of workers whose gradients a step does not wait for */
    int timeout_ms;
    int answer_timeout_ms; /* timeout of an answer from another process; 0: derived from timeout_ms
                            */
    tti_phase_watch watch; /* long phases of the workers, during which waits for them last longer */
    const tti_arrival *replay; /* [n_replay], borrowed, in the order of steps; NULL: gradients are
                                  applied as they arrive */
    int64_t n_replay;
} tti_server_desc;

/* Starts the threads and initializes the parameters from the seed.  On success *out is owned by the
 * caller, who destroys it after the workers. */
tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out);
void tti_server_destroy(tti_server *server);

/* Sets desc.watch. Call it before any worker waits. server may be NULL. */
void tti_server_watch_phases(tti_server *server, const tti_phase_watch *watch);

/* Reports that a worker has failed. Every wait then fails with TUTTI_E_PEER and the text; if the
 * failed worker is a process, the wait of worker 0 fails with status. */
void tti_server_abort(tti_server *server, tutti_status status, const char *text);

/* The executor that stores the parameters, borrowed. Read it only while no worker is in a step.
 * NULL: other processes store the parameters. */
tti_exec *tti_server_exec(tti_server *server);
/* True if workers do not wait for all others in each step. */
bool tti_server_is_async(const tti_server *server);

/* With backup workers a batch is divided between the workers: sets the worker's shards to *first ..
 * *last - 1 and returns true. Otherwise returns false and writes nothing. */
bool tti_server_shards(const tti_server *server, int worker, int n_shards, int *first, int *last);

/* ---- synchronous: updates the parameters from the partial sums in the buffers of x ---- */

/* See tti_server_calls.  Called by every worker of the step, all with the same shard map, which may
 * change between steps. */
tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result);
tutti_status tti_server_pull_step(tti_exec *x);

/* ---- asynchronous, and with backup workers ---- */

/* Makes batches first .. last-1 available and counts updates from first.  Every worker calls it
 * with the same numbers after all have finished the previous batches. */
tutti_status tti_server_open(tti_server *server, int64_t first, int64_t last);

/* Stops leasing batches, except those that other workers need to finish. */
tutti_status tti_server_stop(tti_server *server);

typedef struct tti_lease {
    bool any; /* false: all batches are leased */
    int64_t batch, version;
    double loss_scale; /* loss scale of a replayed gradient; 0: use the worker's own */
} tti_lease;

/* Leases the next batch to the worker of x and copies the current parameters to x. With backup
 * workers it is the batch of the current step, of which the worker computes its own shards. */
tutti_status tti_server_lease(tti_exec *x, tti_lease *lease);

/* A gradient: desc->step is the batch; desc->lr is not used. */
typedef struct tti_pushed_gradient {
    const tti_step_desc *desc;
    int64_t wait_ns; /* time that the worker waited for the batch */
    double (*lr)(void *user,
                 int64_t step); /* returns the learning rate after `step` updates; worker processes
                                   use the server's function instead (tti_server_rate) */
    void *user;
} tti_pushed_gradient;

/* Computes and pushes the gradient of the leased batch. Returns the recorded arrival after the
 * gradient is applied. If the gradient is too late, returns at once with out->step 0. A non-finite
 * loss or gradient is a failure; with exec.watch_gradients the update leaves the parameters
 * unchanged instead (out->result.skipped). With backup workers this applies if any worker that
 * pushed in time has a non-finite value. */
tutti_status tti_server_push_gradient(tti_exec *x, const tti_pushed_gradient *pushed,
                                      tti_arrival *out);

typedef struct tti_leave {
    int worker;
    int64_t step;  /* number of updates before it left */
    int64_t batch; /* a batch that another worker computes instead; -1: none */
    char why[512];
} tti_leave;

/* Removes the worker of x, which cannot continue for the reason why. True: the others continue
 * without it, and from now on it calls tti_server_watch instead of tti_server_lease and
 * tti_server_push_gradient. False: the run ends, because the worker had no batch, the others cannot
 * continue without it, its batch has already made another worker leave, or the run replays recorded
 * arrivals. */
bool tti_server_leave(tti_exec *x, const char *why);

/* For a worker of a divided model, after any of its calls failed with st for the reason why. True:
 * its replica leaves, because this worker failed itself (out of memory, read error) or another
 * worker of the replica is lost. All workers of the replica get the same answer, even if they call
 * it again; each then only frees its resources. False: the run ends. The first replica, whose
 * workers store the parameters, never leaves, nor does a replica that the others need. */
bool tti_server_leave_replica(tti_exec *x, tutti_status st, const char *why);
bool tti_server_has_left(const tti_exec *x);

/* Waits until more than *n_updates updates are applied, and sets *n_updates to the new number; or
 * until no batch is left, and sets *over. */
tutti_status tti_server_watch(tti_exec *x, int64_t *n_updates, bool *over);

/* Assigns the batches of an evaluation in which each batch has one worker: this worker evaluates
 * every n_present-th batch, beginning with batch *index; *index -1: none. With backup workers every
 * worker evaluates its shards of each batch: *index 0, *n_present 1. */
void tti_server_eval_batches(const tti_exec *x, int *index, int *n_present);

/* Writes the next worker that has left to *out, each worker once; false: there is none. */
bool tti_server_next_leave(tti_server *server, tti_leave *out);

/* Sets counts [n_workers] to the number of gradients of each worker that were too late. */
void tti_server_dropped(tti_server *server, int64_t *counts);

/* Copies the current parameters to x and sets *n_updates to the number of updates so far. Also
 * copies the averages, unless they are read from the server. */
tutti_status tti_server_pull(tti_exec *x, int64_t *n_updates);

/* For a worker on a device: copies the server's current averages to the memory that evaluation
 * reads. Call it while no worker is in a step. */
tutti_status tti_server_pull_averages(tti_exec *x);

/* Writes the next arrival to *out, each arrival once; false: there is none. */
bool tti_server_next(tti_server *server, tti_arrival *out);

/* Sets bins to the histogram of the staleness of applied gradients; the last bin also counts all
 * higher values. */
void tti_server_staleness(tti_server *server, int64_t bins[TTI_STALENESS_BINS]);

/* ---- worker processes, in asynchronous modes and with backup workers ---- */

typedef struct tti_client tti_client;
typedef struct tti_listener tti_listener;

/* Connects worker processes with the server. Collective over comm, which has one rank per worker
 * and is not used afterwards. Rank 0 calls admit with its server. The other ranks call connect,
 * which creates a client; the caller owns *out and destroys it after its executors. In a client's
 * desc n_workers, n_backup, staleness, timeout_ms and, in exec, the plan and averages must equal
 * the server's. */
tutti_status tti_server_admit(tti_server *server, tutti_comm *comm);
tutti_status tti_server_connect(const tti_server_desc *desc, tutti_comm *comm, tti_server **out);

bool tti_server_has_processes(const tti_server *server);

/* For rank 0, before any push: sets the function that returns the learning rate after `step`
 * updates. Threads of the server call it, one at a time. */
void tti_server_rate(tti_server *server, double (*lr)(void *user, int64_t step), void *user);

/* Creates a server or client for workers of a divided model. Collective over comm, whose ranks form
 * a mesh of the given size. To the server a replica is one worker, with the number of the replica.
 * In desc n_workers is the number of replicas, and the plan is that of this rank's part of the
 * model; only rank 0 reads replay. The first replica's workers store the parameters, each those of
 * its own part. Replicas leave as a whole. All workers of a replica make all calls; reports go to
 * rank 0. The caller owns *out and destroys it after the executors and before comm. */
tutti_status tti_server_create_divided(const tti_server_desc *desc, tutti_comm *comm,
                                       const tti_mesh_at *size, tti_server **out);

/* True if this worker sends the requests of its replica. Always true if each worker has a whole
 * model. */
bool tti_server_sends_requests(const tti_server *server);

/* True if several processes own ranges of the keys. */
bool tti_server_has_ranges(const tti_server *server);

/* With ranges: fetches state k of keys from its owners. *data [keys] is borrowed and valid until
 * the next call or the next gradient. Call on worker 0, or on the workers of the first replica,
 * while x computes nothing. */
tutti_status tti_server_fetch(tti_exec *x, int k, tti_range keys, const float **data);

/* With ranges: stores the part of keys that the process of x owns. data [keys] begins with element
 * keys.first; k may be TTI_STATE_EMA or TTI_STATE_PARAMS. Call on every worker, while no worker has
 * a lease. */
void tti_server_store(tti_exec *x, int k, tti_range keys, const float *data);

/* The range that a process owns, and the bytes of gradients, parameters and averages sent so far
 * between this process and workers of other processes. */
typedef struct tti_range_traffic {
    tti_range keys;
    int64_t n_bytes;
} tti_range_traffic;

/* On worker 0: lists the ranges of all processes that own one, in *traffic [*n], *n >= 1. The
 * caller frees *traffic. */
tutti_status tti_server_range_traffic(tti_server *server, tti_range_traffic **traffic, int *n);

typedef enum tti_combine_op { TTI_COMBINE_SUM, TTI_COMBINE_MAX, TTI_N_COMBINE_OPS } tti_combine_op;
enum { TTI_COMBINE_VALUES = 512 };

/* The workers that took part in a barrier; live: those of them that have not left. */
typedef struct tti_members {
    tti_worker_set all, live;
} tti_members;

/* A barrier of all live workers that also combines values [n]: each becomes its sum over the
 * workers (f64, added in the order of the workers) or its maximum (i64). n (0 ..
 * TTI_COMBINE_VALUES) and op must be equal on all workers. */
tutti_status tti_server_combine(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members);

#endif /* TTI_EXEC_SERVER_H */
