/* async.h - the loop of a worker of an asynchronous parameter server.
 *
 * A step is one update with the gradient of one whole batch, computed by one worker.  Workers take
 * the next batch of the run when they are free, so a slow worker computes fewer.  Checkpoints and
 * evaluations divide the run into stretches: at the end of a stretch all workers synchronize and
 * have the same parameters.
 *
 * With backup workers a step divides the batch over all workers, as in synchronous runs, but uses
 * only the first gradients to arrive.  The loop of a worker is the same. */
#ifndef TTI_TRAIN_ASYNC_H
#define TTI_TRAIN_ASYNC_H

#include <stdio.h>

#include "train/job/loss_scale.h"
#include "train/loop/phases.h"
#include "train/report/reporter.h"
#include "train/setup/feeding.h"

/* The parameter server of a job, for the workers of this process.  Destroy it before the plan.
 * TUTTI_E_CONFIG: parallel.replay cannot be repeated.
 */
typedef struct tti_job_server {
    tti_server *server;  /* NULL: the job has no server thread */
    tti_arrival *replay; /* owned */
} tti_job_server;
tutti_status tti_job_server_create(const tti_blueprint *b, tti_job_server *out);

/* True if the first workers are servers to which the others connect: workers are asynchronous, and
 * are processes or divide the model.  In other jobs the server is a thread of the workers' process,
 * or the workers divide its work (desc.n_owners of the executor). */
bool tti_job_server_is_joined(const tti_blueprint *b, bool by_processes);

/* Collective over comm (NULL: a single process): creates the server in rank 0 and its client in the
 * others. comm must outlive the server, which reads the workers' progress from it. */
tutti_status tti_job_server_join(const tti_blueprint *b, tutti_comm *comm, tti_job_server *out);
void tti_job_server_destroy(tti_job_server *s);

/* Returns the end of the stretch that begins after `step`: the next step at which all workers
 * synchronize. */
int64_t tti_async_next_stop(const tti_blueprint *b, int64_t step);

typedef struct tti_async_desc {
    const tti_blueprint *b;
    tti_exec *exec;
    tutti_comm *comm;       /* NULL: the only worker, or workers are processes */
    tti_loader *loader;     /* loads the worker's shards, without threads */
    tti_phases *phases;     /* declares the worker's waits for data */
    tti_shard_data *shards; /* [as many as the loader's shards], scratch */
    tti_reporter *reporter;
    tti_times *times;
    FILE *arrivals;        /* rank 0 only; NULL on other ranks and with backup workers */
    tti_loss_scale *scale; /* this worker's own; at each stop all workers take the lowest; NULL: no
                              loss scale */
    int64_t *n_skipped;    /* rank 0: updates skipped under train.on_nan=skip */
    int64_t *n_left_out;   /* rank 0: all skipped updates, including those caused by loss scales */
    bool (*wants_stop)(void *user);
    double (*lr)(void *user,
                 int64_t step); /* learning rate of the update that follows `step` updates */
    void *user;
} tti_async_desc;

/* Trains from *step to the next stop, or until a worker requests the end.  Sets *step to the common
 * step and *stopped if the end was requested.  Collective. */
tutti_status tti_async_run(const tti_async_desc *desc, int64_t *step, bool *stopped);

/* Called after failure st of a worker of a divided replica.  Returns true if this replica leaves
 * and the other replicas continue (tti_server_leave_replica); then this worker is done.  Keeps the
 * error text. */
bool tti_async_leaves(tti_exec *exec, tutti_status st);

/* Waits until all remaining workers have called it. */
tutti_status tti_async_connect(tti_exec *exec, tutti_comm *comm);

/* The batches that a worker evaluates: every n_present-th batch, starting at index; -1: none.  With
 * backup workers, its shards of all batches. */
typedef struct tti_async_assignment {
    int index, n_present;
    bool has_processes; /* workers are processes; `live` has those that take part */
    tti_worker_set live;
} tti_async_assignment;
tutti_status tti_async_place(tti_exec *exec, tti_async_assignment *out);

/* Adds the sums of evaluation batches in the order of the batches, and returns the total to all
 * workers. sums [n_batches]: this worker has filled the entries of its own batches. exec NULL:
 * workers are threads. members: bits of the workers whose sums arrived; all if workers are threads.
 * Collective. */
tutti_status tti_async_add_sums(tti_exec *exec, tutti_comm *comm, tti_step_result *sums,
                                int64_t n_batches, tti_step_result *total, tti_worker_set *members);

#endif /* TTI_TRAIN_ASYNC_H */
