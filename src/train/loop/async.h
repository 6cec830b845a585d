/* async.h - the loop of a worker of an asynchronous parameter server.
 *
 * A step is an update: the gradient of one whole batch, made by one worker.  Free workers take
 * batches in the order of the run, so a slow worker makes fewer.  Checkpoints and evaluations
 * divide the run into stretches: at their ends all workers synchronize and have the same
 * parameters, after as many updates as batches.
 *
 * With backup workers a step is as in synchronous runs, a batch divided between all workers, but
 * only the first gradients are used; the loop of a worker is the same. */
#ifndef TTI_TRAIN_ASYNC_H
#define TTI_TRAIN_ASYNC_H

#include <stdio.h>

#include "train/job/loss_scale.h"
#include "train/loop/phases.h"
#include "train/report/reporter.h"
#include "train/setup/feeding.h"

/* The server of a job, for the workers of this process.  TUTTI_E_CONFIG: parallel.replay cannot be
 * repeated.  Destroyed before the plan. */
typedef struct tti_job_server {
    tti_server *server;  /* NULL: the job has none */
    tti_arrival *replay; /* owned */
} tti_job_server;
tutti_status tti_job_server_create(const tti_blueprint *b, tti_job_server *out);

/* Whether workers connect to a server in the first ones: if they are asynchronous, and are
 * processes or divide the model.  In other jobs the server is a thread next to them, or they divide
 * its work (desc.n_owners of the executor). */
bool tti_job_server_is_joined(const tti_blueprint *b, bool by_processes);

/* Collective over comm (NULL: one process alone), of such workers: as above in rank 0, its side of
 * it in the others.  comm must outlive the server, which sees in it what the workers are
 * doing. */
tutti_status tti_job_server_join(const tti_blueprint *b, tutti_comm *comm, tti_job_server *out);
void tti_job_server_destroy(tti_job_server *s);

/* The first step after `step` before which all workers come together: the end of a stretch. */
int64_t tti_async_next_stop(const tti_blueprint *b, int64_t step);

typedef struct tti_async_desc {
    const tti_blueprint *b;
    tti_exec *exec;
    tutti_comm *comm;       /* NULL: the only worker, or workers are processes */
    tti_loader *loader;     /* of the worker's shards, without threads */
    tti_phases *phases;     /* of the worker, for its waits for data */
    tti_shard_data *shards; /* as many, for the use of this */
    tti_reporter *reporter;
    tti_times *times;
    FILE *arrivals;        /* rank 0's; NULL: on the others, and with backup workers */
    tti_loss_scale *scale; /* this worker's own between two stops, where all take the lowest;
                              NULL: gradients are as they are */
    int64_t *n_skipped;    /* rank 0's: updates left out under train.on_nan=skip; and of those */
    int64_t *n_left_out;   /* with what loss scales have left out, all */
    bool (*wants_stop)(void *user);
    double (*lr)(void *user, int64_t step); /* of the update after so many */
    void *user;
} tti_async_desc;

/* Trains from *step to the next stop, or until a worker requests the end; *step is then the common
 * step, *stopped whether the end was requested.  Collective. */
tutti_status tti_async_run(const tti_async_desc *desc, int64_t *step, bool *stopped);

/* After a failure st of a worker whose copy of the model several have between them, while others
 * train on: true if its copy leaves, and this worker has nothing more to do
 * (tti_server_leave_copy). The text of the failure stays. */
bool tti_async_leaves(tti_exec *exec, tutti_status st);

/* Returns when all workers that are there have called it. */
tutti_status tti_async_meet(tti_exec *exec, tutti_comm *comm);

/* The batches of an evaluation that a worker has: each n_present-th from index on; -1: none.  With
 * backup workers it has its shards of all batches. */
typedef struct tti_async_seat {
    int index, n_present;
    uint64_t able; /* for workers as processes: bits of the workers that take part; else 0 */
} tti_async_seat;
tutti_status tti_async_place(tti_exec *exec, tti_async_seat *out);

/* Sums over some batches of evaluation data, each computed by one worker, added for all workers in
 * the order of the batches. sums [n_batches], of which this worker has filled its own. exec NULL:
 * workers are threads. members: bits of the workers whose sums arrived, all if workers are threads.
 */
tutti_status tti_async_add_sums(tti_exec *exec, tutti_comm *comm, tti_step_result *sums,
                                int64_t n_batches, tti_step_result *total, uint64_t *members);

#endif /* TTI_TRAIN_ASYNC_H */
