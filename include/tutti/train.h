/* train.h - trains a job.
 *
 * One call trains with any number of workers: threads of this process (like DataParallel) or
 * processes that it starts and watches (like DDP).  In exact mode parameters, optimizer state and
 * logged losses depend only on seed, job, number of shards, data, build and processor architecture,
 * not on the number of workers, threads or processes, the all-reduce algorithm, or where the run
 * was stopped and resumed.
 *
 * Threads: one call at a time per process, from its main thread.  While it runs it handles SIGINT,
 * SIGTERM and SIGHUP (as SIGTERM): the run stops at a step boundary with a checkpoint. */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H

#include "tutti/job.h"

typedef enum tutti_event_kind {
    TUTTI_EVENT_START, /* before the first step; text: one line about job, workers and device */
    TUTTI_EVENT_STEP,  /* after a step; at most a few per second                            */
    TUTTI_EVENT_EVAL,  /* after an evaluation; loss and accuracy of the test split */
    TUTTI_EVENT_CHECKPOINT, /* text: its folder                                             */
    TUTTI_EVENT_WARNING,    /* text: one line                                               */
    TUTTI_EVENT_END         /* the same figures as in the result                            */
} tutti_event_kind;

/* Progress of a run.  Fields that do not apply to the kind are 0. */
typedef struct tutti_event {
    tutti_event_kind kind;
    int64_t step, n_steps; /* finished, and in total          */
    int64_t epoch;         /* from 0                          */
    double loss, accuracy; /* of the last step or of the split */
                           /* accuracy NAN: the loss counts no correct predictions */
    bool is_regression;    /* instead of accuracy:            */
    int64_t n_targets;     /* 0: no regression                */
    double nrmse; /* root of the mean squared error, in standard deviations of each target */
    /* In the unit of the target; with several targets, the means over the targets.  A step sets
     * only rmse, and only with one target.  An evaluation sets all three for up to 16 targets; with
     * more they are NAN. r2 is NAN if all test values of a target are equal. */
    double rmse, mae, r2;
    /* A step has the model's own metrics (model.metrics, tutti_add_metric); an evaluation also has
     * those of train.metrics. */
    int64_t n_metrics;
    const tutti_metric_result *metrics; /* [n_metrics]; borrowed for the call */
    double lr;
    double samples_per_s;          /* since the last step event       */
    double eta_s;                  /* estimated seconds until the end */
    double comm_share, wait_share; /* fraction of time: communication; waiting for data */
    const char *text;              /* borrowed for the call; NULL: none */
    /* The slowest of several synchronous workers over about the last half second: its rank, how
     * much later than the median of the others it was as a fraction of a step, and the cause:
     * "data", "copy", "compute" or "other".  slowest_why is NULL if unknown, or if no worker is
     * late by 5 % of a step. */
    int slowest_rank;
    double slowest_late_share;
    const char *slowest_why; /* static */
} tutti_event;

/* The state of a run for a callback of tutti_train_desc. */
typedef struct tutti_train_progress {
    int64_t step, n_steps; /* finished, and in total */
    int64_t epoch;         /* of the step, from 0; steps_per_epoch steps each */
    int64_t steps_per_epoch;
    double loss;       /* mean of the last step */
    double accuracy;   /* of the last step; NAN: the loss counts no correct predictions */
    double lr;         /* of the last step */
    int64_t n_metrics; /* of the model's own, of the last step (model.metrics, tutti_add_metric) */
    const tutti_metric_result *metrics; /* [n_metrics]; borrowed for the call */
    bool has_eval;                      /* the test split was evaluated after this step: */
    double eval_loss, eval_accuracy;    /* NAN as above */
} tutti_train_progress;

/* Requests of a callback; zero: none. */
typedef struct tutti_train_control {
    bool stop;   /* end the run here, with a checkpoint and an evaluation, as if it were finished */
    bool save;   /* save a checkpoint */
    bool set_lr; /* use lr for all later steps, in place of the schedule; not kept in checkpoints */
    double lr;   /* 0 .. 1000 */
} tutti_train_control;

typedef void (*tutti_train_fn)(void *user, const tutti_train_progress *progress,
                               tutti_train_control *control);

/* Options of tutti_train.  Zero is the default of every field. */
typedef struct tutti_train_desc {
    const char *resume; /* run folder to continue; NULL: a new run                              */
    /* The command that runs this very job as one worker, for parallel.place=processes;
     * "run.dir=..." is appended.  NULL: only threads are possible. */
    char *const *worker_argv;
    /* > 0: a trial that ends this long after its first step.  It is not evaluated, saved or
     * reported; the contents of its run folder are not usable. */
    int trial_ms;
    bool keeps_nothing; /* do not save or evaluate at the end, to save time with large states */
    void (*on_event)(void *user, const tutti_event *event); /* called on rank 0 only */
    void *user;                                             /* borrowed for the call        */
    /* Called by rank 0 after every step; and after the last step of each epoch, when the evaluation
     * and the checkpoint that were due are done.  All workers wait for them, and a device begins no
     * step before the last one has ended.  Worker processes that tutti_train starts call those that
     * worker_argv sets.  TUTTI_E_UNSUPPORTED: asynchronous parameter servers. */
    tutti_train_fn on_step, on_epoch;
    /* The same for rare requests, at no cost for the steps between them: a thread of the program
     * writes another value than 0 to *request (an atomic store), and on_request is called within a
     * few steps; besides, after each evaluation and checkpoint.  The program writes 0 again in it.
     */
    const int *request;
    tutti_train_fn on_request;
    /* Workers as threads: one of them failed, and another has not ended parallel.timeout_ms later,
     * such as one whose disk does not answer.  tutti_train cannot return before that thread ends; a
     * program may report the failure here and end itself.  Called at most once, on a thread of
     * Tutti.  NULL: tutti_train waits. */
    void (*on_stuck)(void *user, tutti_status status, const char *text);
} tutti_train_desc;

typedef struct tutti_train_result {
    /* As given: a relative path is that from the current folder at the time of the call.  The run
     * continues to write there if the program changes its current folder. */
    char run_dir[512];
    int n_workers, n_shards;
    int64_t n_steps; /* finished, including those before a resume                     */
    int64_t n_params;
    double loss, accuracy; /* of the test split                                             */
    bool is_regression;    /* nrmse .. r2 are set as in tutti_event, instead of accuracy */
    int64_t n_targets;     /* 0: no regression                                              */
    double nrmse, rmse, mae, r2;
    double samples_per_s;       /* trained samples / time of training without evaluation */
    double wall_s;              /* of this call                                                  */
    double first_step_s;        /* from the call to the end of the first step                    */
    uint64_t params_hash;       /* of the final parameters                                       */
    double step_flops;          /* operations of a step over all shards, as the ops declare them */
    uint64_t peak_host_bytes;   /* peak of this process in host memory; 0 if unknown           */
    uint64_t peak_device_bytes; /* peak of rank 0 on its device; 0 on the host              */
    /* Peaks of the ranks with the largest and the smallest peak, if all are on devices and
     * synchronous; else 0. */
    uint64_t most_device_bytes, least_device_bytes;
    bool stopped_early;    /* a callback ended the run */
    int stop_signal;       /* the signal that stopped the run, with a checkpoint; 0: none   */
    double staleness_mean; /* asynchronous runs: staleness of gradients, in updates */
    int64_t staleness_max;
    int64_t n_dropped; /* late gradients dropped, with backup workers */
    double bubble; /* pipelines: measured fraction of time that stages wait for each other; 0: no
                      pipeline */
    double bubble_expected; /* the same, predicted from the costs of the operations */
    double sent_bytes; /* bytes that one worker sent in this call, with compression or local SGD;
                          else 0 */
    int exit_code;     /* the exit code that a program should use                       */
    /* The slowest of several synchronous workers over this call, as in tutti_event.  slowest_why is
     * NULL if unknown, or if no worker is late by 1 % of a step. */
    int slowest_rank;
    double slowest_late_share;
    const char *slowest_why; /* static */
} tutti_train_result;

TUTTI_EXTERN_C_BEGIN

/* Trains the job.  A stop by a signal is not a failure; see result->stop_signal.
 * Returns TUTTI_E_CONFIG (every problem of the job at once), TUTTI_E_DATA, TUTTI_E_IO,
 * TUTTI_E_CHECKPOINT, TUTTI_E_PEER, TUTTI_E_TIMEOUT, TUTTI_E_NUMERICS, TUTTI_E_NOMEM or
 * TUTTI_E_MISMATCH.  Checkpoints written before a failure stay valid.  After a failure *result
 * holds the values known so far.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_train(tutti_job *job, const tutti_train_desc *desc,
                                                   tutti_train_result *result);

typedef struct tutti_inspect_desc {
    const char *after_pass; /* print the graph after this pass ("none": as the model built it);
                               NULL: print steps, kernels and memory of the plan */
    const char *worker; /* print the part of this worker; NULL: the whole model and the part of each
                           worker */
} tutti_inspect_desc;

/* Prints what the job would run; does not change the job.  desc may be NULL.  Free *text with
 * free(); NULL on failure. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_inspect_job(tutti_job *job,
                                                         const tutti_inspect_desc *desc,
                                                         char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_TRAIN_H */
