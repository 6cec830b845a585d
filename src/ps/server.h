/* server.h - a parameter server: threads that store parameters and optimizer state for workers,
 * which are threads of the same process or processes of any host, or groups of these that divide a
 * model.
 *
 * Each of n_compute_threads server threads has a range of the update's blocks.  They serve one
 * request at a time, in order of arrival: a pull copies the parameters to a worker, a push applies
 * a whole gradient.  So a pull never sees part of an update, with any number of threads.  Three
 * modes:
 *
 *   synchronous   staleness 0.  A step is applied when every worker has pushed its partial sums,
 *                 which are added along the tree over all shards.  The bits are those of the
 *                 all-reduce, for any shard map (exec.h), which may change between steps.
 *   asynchronous  Each worker leases its own batches, and the gradient of every batch is an update.
 *                 The order of arrival is recorded and can be replayed.
 *   with backup   As synchronous, but a step is applied when all but n_backup workers have pushed.
 *                 A late worker continues with the next step.
 *
 * A worker that fails may leave if the others can continue without it: another one computes its
 * batch, and its thread only takes part in synchronizations.  Workers that divide a model leave
 * together.  A worker may be on a device: its gradients are copied to host memory
 * (device_host_steps.c).  Every call of a worker waits at most timeout_ms for another one.
 *
 * Synchronous workers are threads.  Others may be processes: the server is in that of worker 0, and
 * the others have a tti_server as a client (comm/channel.h), for which the same calls have the same
 * meaning.  A process that ends leaves like a worker that fails; that of the server ends the run.
 * Several processes may own the parameters, each a range: then the end of any of these ends the
 * run. */
#ifndef TTI_EXEC_SERVER_H
#define TTI_EXEC_SERVER_H

#include "comm/progress.h"
#include "exec/exec.h"
#include "exec/program/exec_program.h"
#include "ps/worker_set.h"

enum { TTI_UNBOUNDED = -1, TTI_STALENESS_BINS = 257 };

/* An update of an asynchronous run: the worker, its batch, and the version of its parameters. */
typedef struct tti_arrival {
    int64_t step;    /* number of updates up to and including this one */
    int64_t batch;   /* in the run, from 0 */
    int64_t version; /* updates that the parameters included; staleness: step - 1 - version */
    int32_t worker;
    int64_t n_rows;         /* of the batch */
    double lr, loss_scale;  /* loss_scale: factor of the gradient; 1: none */
    int64_t wait_ns;        /* time that the worker waited for the batch */
    tti_step_result result; /* params_hash: after the update; skipped: the update was skipped */
} tti_arrival;

typedef struct tti_server_desc {
    tti_exec_desc
        exec; /* of the update; n_compute_threads: server threads; settings of shards are ignored */
    int n_workers;
    int64_t staleness; /* while a worker computes, any other worker may begin so many steps; 0:
                          synchronous; TTI_UNBOUNDED */
    int n_ranges; /* for asynchronous worker processes: the first n_ranges processes own a range of
                     the keys each (server_range.c); 0, 1: the first owns all */
    int n_backup; /* with staleness 0: a step is applied without the gradients of so many workers */
    int timeout_ms;
    int answer_ms; /* timeout of an answer from another process; 0: follows from timeout_ms */
    tti_phase_watch watch;     /* of the workers: waits for a worker in a long phase last longer */
    const tti_arrival *replay; /* [n_replay], borrowed, in the order of steps; NULL: gradients are
                                  applied as they arrive */
    int64_t n_replay;
} tti_server_desc;

/* Starts the threads and initializes the parameters from the seed.  On success *out is owned by the
 * caller, who destroys it after the workers. */
tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out);
void tti_server_destroy(tti_server *server);

/* Sets desc.watch, before any worker waits.  server may be NULL. */
void tti_server_watch_phases(tti_server *server, const tti_phase_watch *watch);

/* Reports that a worker has failed.  Every wait ends with TUTTI_E_PEER and the text; if the failed
 * worker is a process, worker 0's wait ends with status. */
void tti_server_abort(tti_server *server, tutti_status status, const char *text);

/* The executor with the parameters, which may be read while no worker is in a step; NULL: one or
 * several other processes have them. */
tti_exec *tti_server_exec(tti_server *server);
/* True if workers do not wait for all others in each step. */
bool tti_server_is_async(const tti_server *server);

/* With backup workers a batch is divided between the workers: sets the shards of one of them and
 * returns true; else returns false and writes nothing. */
bool tti_server_shards(const tti_server *server, int worker, int n_shards, int *first, int *last);

/* ---- synchronous: the update of a step whose partial sums are in the buffers of x ---- */

/* See tti_server_calls.  Called by every worker of the step, all with the same shard map, which may
 * change between steps. */
tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result);
tutti_status tti_server_pull_step(tti_exec *x);

/* ---- asynchronous, and with backup workers ---- */

/* Makes batches first .. last-1 available and counts updates from first.  Every worker calls it
 * with the same numbers after all have finished the previous batches. */
tutti_status tti_server_open(tti_server *server, int64_t first, int64_t last);

/* Leases no more batches, except those that other workers need to finish. */
tutti_status tti_server_stop(tti_server *server);

typedef struct tti_lease {
    bool any; /* false: all batches are leased */
    int64_t batch, version;
    double loss_scale; /* loss scale of a replayed gradient; 0: use the worker's own */
} tti_lease;

/* Leases the next batch to the worker of x, which gets the current parameters.  With backup workers
 * it is the batch of the current step, of which the worker computes its shards. */
tutti_status tti_server_lease(tti_exec *x, tti_lease *lease);

/* A gradient: desc->step is the batch; desc->lr is not used. */
typedef struct tti_pushed_gradient {
    const tti_step_desc *desc;
    int64_t wait_ns; /* time waited for the batch */
    double (*lr)(void *user,
                 int64_t step); /* the learning rate after so many updates; for worker processes the
                                   server's function is used (tti_server_rate) */
    void *user;
} tti_pushed_gradient;

/* Computes and pushes the gradient of the leased batch.  Returns when it has been applied, with the
 * recorded arrival; or at once if it came too late: then out->step is 0. A non-finite loss or
 * gradient is a failure.  With exec.watch_gradients it is an update that leaves the parameters
 * unchanged (out->result.skipped); with backup workers, if any worker that pushed in time has
 * one. */
tutti_status tti_server_push_gradient(tti_exec *x, const tti_pushed_gradient *pushed,
                                      tti_arrival *out);

typedef struct tti_leave {
    int worker;
    int64_t step;  /* number of updates before it left */
    int64_t batch; /* a batch that another worker computes instead; -1: none */
    char why[512];
} tti_leave;

/* The worker of x cannot continue, for the reason why.  True: the others continue without it, and
 * it must call tti_server_watch instead of tti_server_lease and tti_server_push_gradient.  False:
 * it had no batch, was the last worker that is not needed, its batch has already made another
 * worker leave, or the run replays recorded arrivals. */
bool tti_server_leave(tti_exec *x, const char *why);

/* For a worker of a divided model, after any of its calls failed with st, for the reason why.
 * True: its replica leaves, because this worker failed by itself (out of memory, read error) or
 * because another worker of the replica is gone.  All workers of the replica get the same answer,
 * also from repeated calls; each then only frees its resources.  The first replica, whose workers
 * store the parameters, never leaves, and neither does a replica that the others need: then the run
 * ends. */
bool tti_server_leave_replica(tti_exec *x, tutti_status st, const char *why);
bool tti_server_has_left(const tti_exec *x);

/* Waits until updates were applied after *n_updates, and sets it to their number; or until no batch
 * is left: *over. */
tutti_status tti_server_watch(tti_exec *x, int64_t *n_updates, bool *over);

/* For batches that one worker each evaluates: this worker has every n_present-th batch from index
 * on; -1: none.  With backup workers all workers have their shards of each batch: 0 of 1. */
void tti_server_place(const tti_exec *x, int *index, int *n_present);

/* Returns the next worker that has left, each once; false: there is none. */
bool tti_server_next_leave(tti_server *server, tti_leave *out);

/* counts [n_workers]: gradients of each worker that came too late. */
void tti_server_dropped(tti_server *server, int64_t *counts);

/* Copies the current parameters to x, and the number of updates so far; also the averages, unless
 * they are read at the server. */
tutti_status tti_server_pull(tti_exec *x, int64_t *n_updates);

/* For a worker on a device: copies the server's current averages to where evaluation reads them,
 * while no worker is in a step. */
tutti_status tti_server_pull_averages(tti_exec *x);

/* Returns the next arrival, each once; false: there is none. */
bool tti_server_next(tti_server *server, tti_arrival *out);

/* Histogram of the staleness of applied gradients; the last bin counts all higher values. */
void tti_server_staleness(tti_server *server, int64_t bins[TTI_STALENESS_BINS]);

/* ---- worker processes, which are not synchronous ---- */

typedef struct tti_client tti_client;
typedef struct tti_listener tti_listener;

/* Connects worker processes with the server. comm has one rank per worker and is not used
 * afterwards.  Rank 0 passes its server; the others get their client, which the caller owns and
 * destroys after its executors.  Their desc sets n_workers, n_backup, staleness, timeout_ms, and
 * the plan and averages of exec, with the server's values.  Collective over comm. */
tutti_status tti_server_admit(tti_server *server, tutti_comm *comm);
tutti_status tti_server_connect(const tti_server_desc *desc, tutti_comm *comm, tti_server **out);

bool tti_server_has_processes(const tti_server *server);

/* For rank 0, before any push: sets the function that gives the learning rate after so many
 * updates.  Threads of the server call it. */
void tti_server_rate(tti_server *server, double (*lr)(void *user, int64_t step), void *user);

/* Creates a server or client for workers of a divided model.  The workers of a replica are one
 * worker of the server, with the number of the replica.  Collective over comm, whose ranks form the
 * mesh size. desc has n_workers, the number of replicas, and the plan of this position; rank 0
 * reads replay.  The worker of the first replica that has a part stores its parameters.  Replicas
 * leave as a whole.  All workers of a replica make all calls; reports go to rank 0. Owned by the
 * caller, who destroys it after the executors and before comm. */
tutti_status tti_server_create_divided(const tti_server_desc *desc, tutti_comm *comm,
                                       const tti_mesh_at *size, tti_server **out);

/* True if this worker sends the requests of its replica, which is so if each worker has a whole
 * model. */
bool tti_server_speaks(const tti_server *server);

/* True if several processes own ranges of the keys. */
bool tti_server_has_ranges(const tti_server *server);

/* With ranges: fetches state k of keys from its owners; data are valid until the next call and the
 * next gradient.  Call on worker 0, or on the workers of the first replica, while it computes
 * nothing. */
tutti_status tti_server_fetch(tti_exec *x, int k, tti_range keys, const float **data);

/* With ranges: stores the part of keys that the process of x owns, from data, which begins with
 * keys.first; k may be TTI_STATE_EMA or TTI_STATE_PARAMS. Call on every worker, while no worker has
 * a lease. */
void tti_server_store(tti_exec *x, int k, tti_range keys, const float *data);

/* The range of a process, and the bytes of gradients, parameters and averages sent so far between
 * it and workers of other processes. */
typedef struct tti_held {
    tti_range keys;
    int64_t n_bytes;
} tti_held;

/* On worker 0: the processes that own ranges, [*n], at least one; the caller frees *held. */
tutti_status tti_server_held(tti_server *server, tti_held **held, int *n);

typedef enum tti_combine_op { TTI_COMBINE_SUM, TTI_COMBINE_MAX, TTI_N_COMBINE_OPS } tti_combine_op;
enum { TTI_COMBINE_VALUES = 512 };

/* The workers that took part in a barrier; able: those that have not left. */
typedef struct tti_members {
    tti_worker_set all, able;
} tti_members;

/* A barrier of all live workers: values [n] become their sums (f64, added in the order of the
 * workers) or maxima (i64). n, at most TTI_COMBINE_VALUES and possibly 0, and op must be equal on
 * all workers. */
tutti_status tti_server_combine(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members);

#endif /* TTI_EXEC_SERVER_H */
