/* async.h - the loop of a worker of an asynchronous parameter server.
 *
 * A step is an update: the gradient of one whole batch, made by one worker.  Batches are taken in
 * the order of the run by whoever is free, so a slow worker makes fewer.  The run is cut into
 * stretches by whatever looks at the parameters, checkpoints and evaluations: there all workers
 * come together and have the same parameters, after as many updates as batches.
 *
 * With backup workers a step is as in synchronous runs, a batch divided between all workers, but
 * made of the gradients that come first; the loop of a worker is the same. */
#ifndef TTI_TRAIN_ASYNC_H
#define TTI_TRAIN_ASYNC_H

#include <stdio.h>

#include "train/job/loss_scale.h"
#include "train/report/reporter.h"
#include "train/setup/feeding.h"

/* The server of a job, for the workers of this process.  TUTTI_E_CONFIG: parallel.replay cannot be
 * repeated.  Destroyed before the plan. */
typedef struct tti_job_server {
    tti_server *server;  /* NULL: the job has none */
    tti_arrival *replay; /* owned */
} tti_job_server;
tutti_status tti_job_server_create(const tti_blueprint *b, tti_job_server *out);

/* Whether its workers come to the server in the first ones: where they do not wait for each other,
 * and are processes or divide the model.  Workers of other jobs with a server have it beside them,
 * or divide its work between them (desc.n_owners of the executor). */
bool tti_job_server_is_joined(const tti_blueprint *b, bool by_processes);

/* Collective over comm (NULL: one process alone), of such workers: as above in rank 0, its side of
 * it in the others.  Unless they divide the model, comm is not needed afterwards. */
tutti_status tti_job_server_join(const tti_blueprint *b, tutti_comm *comm, tti_job_server *out);
void tti_job_server_destroy(tti_job_server *s);

/* The first step after `step` before which all workers come together: the end of a stretch. */
int64_t tti_async_next_stop(const tti_blueprint *b, int64_t step);

typedef struct tti_async_desc {
    const tti_blueprint *b;
    tti_exec *exec;
    tutti_comm *comm;       /* NULL: the only worker, or workers are processes */
    tti_loader *loader;     /* of the worker's shards, without threads */
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

/* Trains from *step on to the next stop, or until somebody wants to end; *step is then how far all
 * came, *stopped whether it was that.  Collective. */
tutti_status tti_async_run(const tti_async_desc *desc, int64_t *step, bool *stopped);

/* After a failure st of a worker whose copy of the model several have between them, while others
 * train on: true if its copy leaves, and this worker has nothing more to do
 * (tti_server_leave_copy). The text of the failure stays. */
bool tti_async_leaves(tti_exec *exec, tutti_status st);

/* Returns when all workers that are there have called it. */
tutti_status tti_async_meet(tti_exec *exec, tutti_comm *comm);

/* Which batches of an evaluation a worker has: each n_present-th from index on; -1: none.  With
 * backup workers it has all of them, but its shards alone. */
typedef struct tti_async_seat {
    int index, n_present;
    uint64_t able; /* where workers are processes: who has a part, by bits; else 0 */
} tti_async_seat;
tutti_status tti_async_place(tti_exec *exec, tti_async_seat *out);

/* exec NULL: workers are threads.  Sums over some batches of evaluation data, made by one worker
 * each, added up for all in the order of the batches.  sums [n_batches], of which this one has
 * filled its own.  members: bits of the workers whose sums came, all where workers are threads. */
tutti_status tti_async_add_sums(tti_exec *exec, tutti_comm *comm, tti_step_result *sums,
                                int64_t n_batches, tti_step_result *total, uint64_t *members);

#endif /* TTI_TRAIN_ASYNC_H */
