/* train.h - runs a job to its end.
 *
 * One call trains with any number of workers: threads of this process (what DataParallel does) or
 * processes that it starts and watches (DDP).  In exact mode parameters, optimizer state and logged
 * losses are a function of seed, job, number of shards, data, build and processor architecture, and
 * not of the number of workers, their place, the all-reduce algorithm, or where the run was stopped
 * and resumed.
 *
 * Threads: one call at a time per process, from its main thread: SIGINT, SIGTERM and SIGHUP (as
 * SIGTERM) are taken over while it runs, so that a run stops at a step boundary with a checkpoint.
 */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include "tutti/job.h"

typedef enum tutti_event_kind {
    TUTTI_EVENT_START,      /* everything is ready; text: one line about job, workers and device */
    TUTTI_EVENT_STEP,       /* a step was done; at most a few per second                         */
    TUTTI_EVENT_EVAL,       /* loss and accuracy are of the test split                           */
    TUTTI_EVENT_CHECKPOINT, /* text: its folder                                             */
    TUTTI_EVENT_WARNING,    /* text: one line                                               */
    TUTTI_EVENT_END         /* the same figures as in the result                            */
} tutti_event_kind;

/* What is going on, for a progress line.  Fields that do not fit the kind are 0. */
typedef struct tutti_event {
    tutti_event_kind kind;
    int64_t step, n_steps; /* done, and to do in all          */
    int64_t epoch;         /* from 0                          */
    double loss, accuracy; /* of the last step; of the split  */
    bool is_regression;    /* instead of accuracy:            */
    int64_t n_targets;     /* 0: no regression                */
    double rmse; /* of one target in its unit; of several in standard deviations of each (nrmse) */
    double r2;   /* of the split, of one target; NAN: undefined, its values are all the same */
    double lr;
    double samples_per_s;          /* since the last step event       */
    double eta_s;                  /* until the end                   */
    double comm_share, wait_share; /* of the time: reducing; waiting for data */
    const char *text;              /* borrowed for the call; NULL: none */
    /* Of several workers that wait for each other: who came last to the exchanges of the steps of
     * about the last half second, how much of a step after the median of the others, and what kept
     * it: "data", "copy", "compute" or "other".  slowest_why NULL: nobody is 5 % of a step late, or
     * it is not known. */
    int slowest_rank;
    double slowest_late_share;
    const char *slowest_why; /* static */
} tutti_event;

/* How to run.  Zero is the default of every field. */
typedef struct tutti_train_desc {
    const char *resume; /* run folder to continue; NULL: a new run                              */
    /* The command that runs this very job as one worker, for parallel.place=processes;
     * "run.dir=..." is appended.  NULL: only threads are possible. */
    char *const *worker_argv;
    /* > 0: a trial.  It ends so long after its first step and is not evaluated, saved or reported
     * about; what is in the run folder is of no use. */
    int trial_ms;
    bool keeps_nothing; /* the end is neither saved nor evaluated: of 20 GB of state, a minute less
                         */
    void (*on_event)(void *user, const tutti_event *event); /* by the worker of rank 0 only */
    void *user;                                             /* borrowed for the call        */
} tutti_train_desc;

typedef struct tutti_train_result {
    char run_dir[512];
    int n_workers, n_shards;
    int64_t n_steps; /* done, over all resumed parts                                  */
    int64_t n_params;
    double loss, accuracy; /* of the test split                                             */
    bool is_regression;    /* then rmse and r2 as in tutti_event, no accuracy               */
    int64_t n_targets;     /* 0: no regression                                              */
    double rmse, r2;
    double samples_per_s;       /* trained samples over the time of training, without evaluation */
    double wall_s;              /* of this call                                                  */
    double first_step_s;        /* from the call to the end of the first step                    */
    uint64_t params_hash;       /* of the final parameters                                       */
    double step_flops;          /* operations of a step over all shards, by the ops' own counts  */
    uint64_t peak_device_bytes; /* rank 0's, at most, on its device; 0 on the host          */
    /* The same of the ranks that have most and least, where all are on devices and take steps
     * together; else 0. */
    uint64_t most_device_bytes, least_device_bytes;
    int stop_signal;       /* SIGINT or SIGTERM ended the run early, with a checkpoint; 0   */
    double staleness_mean; /* updates that gradients lacked; asynchronous runs */
    int64_t staleness_max; /* likewise, at most */
    int64_t n_dropped;     /* gradients that came too late, with backup workers */
    double bubble; /* share of the computing time that the stages of a pipeline waited for each
                      other, and what was expected by their operations; 0: there are none */
    double bubble_expected;
    double sent_bytes; /* by one worker to the others in this call, where less than whole
                          gradients travels each step, else 0 */
    int exit_code;     /* what a program should exit with                               */
} tutti_train_result;

TUTTI_EXTERN_C_BEGIN

/* Trains.  A run that was stopped by a signal is no failure: result->stop_signal says so.
 * Returns TUTTI_E_CONFIG (every problem of the job at once), TUTTI_E_DATA, TUTTI_E_IO,
 * TUTTI_E_CHECKPOINT, TUTTI_E_PEER, TUTTI_E_TIMEOUT, TUTTI_E_NUMERICS, TUTTI_E_NOMEM or
 * TUTTI_E_MISMATCH; checkpoints written before a failure stay valid.  *result is filled as far as
 * the run came. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_train(tutti_job *job, const tutti_train_desc *desc,
                                                   tutti_train_result *result);

typedef struct tutti_inspect_desc {
    const char *after_pass; /* the graph after that pass ("none": as the model builds it); NULL: the
                               steps, kernels and memory of the plan */
    const char *worker;     /* number of the worker whose part of the model is meant; NULL: all of
                               the model, and what each worker has of it */
} tutti_inspect_desc;

/* What the job would run, as text; the job stays as it is.  desc may be NULL.  *text is owned by
 * the caller and freed with free(); NULL on failure. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_inspect_job(tutti_job *job,
                                                         const tutti_inspect_desc *desc,
                                                         char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_TRAIN_H */
