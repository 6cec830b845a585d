/* server.h - a parameter server: threads that store parameters and optimizer state for workers,
 * which are threads of the same process or processes of any host, or groups of these that divide a
 * model.
 *
 * Each of n_compute_threads server threads has a range of the update's blocks.  They serve one
 * request at a time, in order of arrival: a pull copies the parameters to a worker, a push applies
 * a whole gradient; so a pull always sees all of an update or nothing of it, with any number of
 * threads.  Three modes:
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

/* An update of an asynchronous run: whose gradient, of which batch, of which parameters. */
typedef struct tti_arrival {
    int64_t step;    /* updates with it: 1, 2, ...                                        */
    int64_t batch;   /* of the run, from 0                                                */
    int64_t version; /* updates that were in the parameters; staleness: step - 1 - version */
    int32_t worker;
    int64_t n_rows;         /* of the batch */
    double lr, loss_scale;  /* loss_scale: of the gradient, 1: none */
    int64_t wait_ns;        /* that the worker waited for the batch */
    tti_step_result result; /* params_hash: after the update; skipped: which was left out */
} tti_arrival;

typedef struct tti_server_desc {
    tti_exec_desc exec; /* of the update; n_compute_threads: server threads; what concerns shards is
                           not used */
    int n_workers;
    int64_t staleness; /* while a worker computes, another may begin so many steps; 0: synchronous;
                          TTI_UNBOUNDED */
    int n_ranges; /* of workers that are processes, not synchronous: the first so many hold a range
                     of the keys each (server_range.c); 0, 1: the first holds all */
    int n_backup; /* with staleness 0: workers whose gradients a step does without */
    int timeout_ms;
    int answer_ms; /* how long an answer of another process may take; 0: as timeout_ms lets it */
    tti_phase_watch watch; /* of the workers: one that is in a long phase is waited for longer */
    const tti_arrival
        *replay; /* [n_replay], borrowed, step by step; NULL: in the order of arrival */
    int64_t n_replay;
} tti_server_desc;

/* Starts the threads and initializes the parameters from the seed.  On success *out is owned by the
 * caller, who destroys it after the workers. */
tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out);
void tti_server_destroy(tti_server *server);

/* Sets desc.watch, before any worker waits.  server may be NULL. */
void tti_server_watch_phases(tti_server *server, const tti_phase_watch *watch);

/* Reports that a worker has failed: every wait ends with TUTTI_E_PEER and the text; that of worker
 * 0 also with the status, if the failed worker is a process. */
void tti_server_abort(tti_server *server, tutti_status status, const char *text);

/* The executor with the parameters, to be read while no worker is in a step; NULL: it is in another
 * process, or in several. */
tti_exec *tti_server_exec(tti_server *server);
/* Workers do not wait for all others in each step. */
bool tti_server_is_async(const tti_server *server);

/* With backup workers a batch is divided between the workers: fills the shards of one of them, and
 * returns true; else returns false and writes nothing. */
bool tti_server_shards(const tti_server *server, int worker, int n_shards, int *first, int *last);

/* ---- synchronous: the update of a step whose partials lie in the buffers of x ---- */

/* See tti_server_calls.  Called by every worker of the step, all with one shard map, which
 * may be another one than in the step before. */
tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result);
tutti_status tti_server_pull_step(tti_exec *x);

/* ---- asynchronous, and with backup workers ---- */

/* Makes batches first .. last-1 available, and counts updates from first.  Called by every worker
 * with the same numbers, when all have finished the previous batches. */
tutti_status tti_server_open(tti_server *server, int64_t first, int64_t last);

/* No more batches are leased, except those that other workers need to finish. */
tutti_status tti_server_stop(tti_server *server);

typedef struct tti_lease {
    bool any; /* false: all batches are leased */
    int64_t batch, version;
    double loss_scale; /* of a recorded gradient, 0: the worker's own */
} tti_lease;

/* The next batch for the worker of x, which gets the current parameters.  With backup workers it is
 * the batch of the current step, of which the worker computes its shards. */
tutti_status tti_server_lease(tti_exec *x, tti_lease *lease);

/* Its gradient: desc->step is the batch, desc->lr unused. */
typedef struct tti_pushed_gradient {
    const tti_step_desc *desc;
    int64_t wait_ns; /* for the batch */
    double (*lr)(void *user,
                 int64_t step); /* the learning rate of the update after so many; for a worker that
                       is a process the server's is used (tti_server_rate) */
    void *user;
} tti_pushed_gradient;

/* Computes the gradient of the leased batch, and returns when it is applied, with the recorded
 * arrival; or at once if it came too late: then out->step is 0.  With exec.watch_gradients a
 * non-finite loss or gradient is an update that leaves the parameters unchanged
 * (out->result.skipped), otherwise a failure; with backup workers, if any worker that came in time
 * has one. */
tutti_status tti_server_push_gradient(tti_exec *x, const tti_pushed_gradient *pushed,
                                      tti_arrival *out);

typedef struct tti_leave {
    int worker;
    int64_t step;  /* updates until then */
    int64_t batch; /* that another worker computes instead, -1: none */
    char why[512];
} tti_leave;

/* The worker of x cannot go on, for the reason why.  True: the others go on without it, and it is
 * to call tti_server_watch instead of tti_server_lease and tti_server_push_gradient.  False: it has
 * no batch, was the last but those that are needed, its batch has made another leave before, or the
 * run repeats recorded arrivals. */
bool tti_server_leave(tti_exec *x, const char *why);

/* For a worker of a divided model, after a failure st of any of its calls, with the reason why:
 * true if its replica leaves because of it, that is, if this worker failed by itself (no memory, an
 * error of reading) or another one of the replica has gone.  The other workers of the replica get
 * the same answer; each then only frees its resources.  The first replica, whose workers store the
 * parameters, never leaves, nor does one that the others need: that ends the run.  Repeated calls
 * give the same answer. */
bool tti_server_leave_replica(tti_exec *x, tutti_status st, const char *why);
bool tti_server_has_left(const tti_exec *x);

/* Waits until something has been applied since *n_updates, which becomes the number of updates,
 * or no batch is left: *over. */
tutti_status tti_server_watch(tti_exec *x, int64_t *n_updates, bool *over);

/* For batches that are each evaluated by one worker, this one has every n_present-th from index on;
 * -1: none.  With backup workers all have their shards of each: 0 of 1. */
void tti_server_place(const tti_exec *x, int *index, int *n_present);

/* The next worker that has left and was not returned before; false: there is none. */
bool tti_server_next_leave(tti_server *server, tti_leave *out);

/* Gradients of each worker that came too late, [n_workers]. */
void tti_server_dropped(tti_server *server, int64_t *counts);

/* Copies the current parameters to x; with the number of updates so far.  Averages too, unless they
 * are read at the server. */
tutti_status tti_server_pull(tti_exec *x, int64_t *n_updates);

/* For a worker on a device: copies the server's current averages to where it evaluates with them,
 * while no worker is in a step. */
tutti_status tti_server_pull_averages(tti_exec *x);

/* The next arrival that was not returned before; false: there is none. */
bool tti_server_next(tti_server *server, tti_arrival *out);

/* How many gradients so far lacked 0, 1, ... updates when they were applied; more: in the last. */
void tti_server_staleness(tti_server *server, int64_t bins[TTI_STALENESS_BINS]);

/* ---- workers that are processes: not synchronous ones ---- */

typedef struct tti_client tti_client;
typedef struct tti_listener tti_listener;

/* Collective over comm, which has a rank for each worker and is not used afterwards: rank 0
 * connects the workers of the other ranks to its server; they get their client, which is owned by
 * the caller and destroyed after its executors.  Their desc sets n_workers, n_backup, staleness,
 * timeout_ms and the plan and averages of exec, as the server's does. */
tutti_status tti_server_admit(tti_server *server, tutti_comm *comm);
tutti_status tti_server_connect(const tti_server_desc *desc, tutti_comm *comm, tti_server **out);

bool tti_server_has_processes(const tti_server *server);

/* For rank 0, before any push: the learning rate of the update after so many, for the other
 * workers.  Called by threads of the server. */
void tti_server_rate(tti_server *server, double (*lr)(void *user, int64_t step), void *user);

/* The workers of a replica are one worker of the server, by the number of the replica.  Collective
 * over comm, whose ranks form the mesh size: desc has n_workers, the number of replicas, and the
 * plan of this position; rank 0 reads replay.  The worker of the first replica that has a part
 * stores its parameters.  Replicas leave as a whole.  All workers of a replica make all calls;
 * reports go to rank 0.  Owned by the caller, who destroys it after the executors and before comm.
 */
tutti_status tti_server_create_divided(const tti_server_desc *desc, tutti_comm *comm,
                                       const tti_mesh_at *size, tti_server **out);

/* Whether this worker is the one that sends the requests of its replica; true if each worker has a
 * whole model. */
bool tti_server_speaks(const tti_server *server);

/* The keys are held by several processes. */
bool tti_server_has_ranges(const tti_server *server);

/* With ranges: state k of keys, from its owners; data are valid until the next call and the next
 * gradient.  On worker 0, or on workers of the first replica, while it computes nothing. */
tutti_status tti_server_fetch(tti_exec *x, int k, tti_range keys, const float **data);

/* With ranges: copies from data, which begins with keys.first, the part of keys that the process of
 * x owns; k may be TTI_STATE_EMA, TTI_STATE_PARAMS. On every worker, while no worker leases
 * batches. */
void tti_server_store(tti_exec *x, int k, tti_range keys, const float *data);

/* The range of a process, and bytes so far of gradients, parameters and averages between it and
 * workers of other processes. */
typedef struct tti_held {
    tti_range keys;
    int64_t n_bytes;
} tti_held;

/* On worker 0: the processes that own ranges, [*n], one or more; *held is freed by the caller. */
tutti_status tti_server_held(tti_server *server, tti_held **held, int *n);

typedef enum tti_combine_op { TTI_COMBINE_SUM, TTI_COMBINE_MAX, TTI_N_COMBINE_OPS } tti_combine_op;
enum { TTI_COMBINE_VALUES = 512 };

/* The workers that took part in a synchronization; able: those that have not left. */
typedef struct tti_members {
    tti_worker_set all, able;
} tti_members;

/* Comes together with all workers that are there: values [n] become their sums (of f64, in the
 * order of the workers) or maxima (of i64).  n, which may be 0, at most TTI_COMBINE_VALUES, and op
 * are the same for all. */
tutti_status tti_server_combine(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members);

#endif /* TTI_EXEC_SERVER_H */
