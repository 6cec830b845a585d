/* reporter.h - the output of a run: metrics.jsonl, TensorBoard's file and events, by the worker of
 * rank 0 alone.
 *
 * On other ranks every call does nothing, so the loop need not check. */
#ifndef TTI_TRAIN_REPORTER_H
#define TTI_TRAIN_REPORTER_H

#include "data/loader/loader.h"
#include "ps/server.h"
#include "train/infer/value_errors.h"
#include "train/report/metrics.h"
#include "train/report/slowest.h"
#include "train/report/tfevents.h"
#include "train/report/times.h"
#include "train/setup/blueprint.h"
#include "train/setup/throughput.h"
#include "tutti/train.h"

typedef struct tti_reporter {
    bool active;
    const tutti_train_desc *train;
    const tti_blueprint *b;
    const char *run_dir;
    tti_metrics metrics;
    tti_tfevents tfevents;
    int64_t call_ns;       /* when tutti_train was called                        */
    int64_t mark_ns;       /* end of the last step, evaluation or checkpoint     */
    int64_t train_ns;      /* spent in steps so far                              */
    int64_t n_samples;     /* trained so far in this call                        */
    int64_t first_step_ns; /* from the call to the end of the first step         */
    int64_t window_ns, window_samples, window_wait_ns, window_comm_ns; /* since the last record */
    int64_t window_compute_ns, window_update_ns;
    int64_t n_lost; /* records that could not be written */
    bool is_due;    /* a record is due, when the sums of a step are those of all workers */
    int64_t window_steps;
    double window_sent, sent_bytes; /* by this worker, since the last record; in this call */
    double eval_loss, eval_accuracy, eval_nrmse;
    tutti_value_result eval_mean, eval_each[TTI_EVALUATED_TARGETS]; /* of a regression */
    int64_t evaluated_step; /* whose evaluation TensorBoard has from an earlier part; -1: none */
    bool is_resident;       /* the samples stay on the device: set before the start is reported */
    int n_launched;         /* likewise: steps over them by one launch */
    double stale_mean;      /* of an asynchronous run, as last reported */
    int64_t stale_max;
    double expected_bubble;         /* likewise: of the stages of a pipeline; 0: there are none */
    const double *stages_busy;      /* likewise: shares of the last step; NULL: there are none */
    double window_bubble, bubble;   /* ns waited since the last record; in this call */
    int64_t compute_ns;             /* of steps in this call */
    int64_t n_dropped;              /* gradients dropped because they were late, as last reported */
    const tti_shard_map *shard_map; /* likewise: the shard map; NULL: equal runs */
    const tti_throughputs *throughputs; /* likewise, and where it comes from; n 0: from the job */
    const tti_slowest_told *slowest;    /* likewise: as it was found last; NULL: nothing is */
    int32_t place[TTI_MAX_WORKERS]; /* likewise: the place of each worker, if some are on devices
                                       (devices.h) */
    bool by_launcher; /* likewise: workers are processes, whatever parallel.place says */
    const char *way;  /* likewise: how devices add between workers; NULL, "": none do */
} tti_reporter;

/* An inactive reporter, good for every other call. */
void tti_reporter_init(tti_reporter *r, int64_t call_ns);

tutti_status tti_reporter_open(tti_reporter *r, const tutti_train_desc *train,
                               const tti_blueprint *b, const char *run_dir, bool active);
void tti_reporter_close(tti_reporter *r);

/* The run continues after `step`: what earlier parts of it reported of later steps is discarded, in
 * metrics.jsonl and in TensorBoard.  Call it before tti_reporter_start. */
tutti_status tti_reporter_rewind(tti_reporter *r, int64_t step);

/* Everything is ready; step: done by earlier parts of the run. */
tutti_status tti_reporter_start(tti_reporter *r, tti_exec_memory memory, int64_t step);

/* A step was done; records are written every run.log_every steps or about twice a second. */
tutti_status tti_reporter_step(tti_reporter *r, int64_t step, double lr,
                               const tti_step_result *result, const tti_batch *batch);

/* The test split was evaluated. */
tutti_status tti_reporter_eval(tti_reporter *r, int64_t step, const tti_eval_sums *result);

/* The times that were gathered after a step, of all workers. */
tutti_status tti_reporter_times(tti_reporter *r, int64_t step, const tti_times *times);

/* Reports a new shard map after a step, from shard map and throughputs. */
tutti_status tti_reporter_shares(tti_reporter *r, int64_t step);

/* How many gradients so far lacked 0, 1, ... updates when they were applied, and how many of these
 * updates were left out in this call. */
tutti_status tti_reporter_staleness(tti_reporter *r, int64_t step,
                                    const int64_t bins[TTI_STALENESS_BINS], int64_t n_left_out);

/* The processes that hold parameters, the first n, and what went between them and the others. */
tutti_status tti_reporter_range_servers(tti_reporter *r, int64_t step, const tti_held *held, int n);

/* How many gradients of each worker came too late so far, [n_workers]. */
tutti_status tti_reporter_dropped(tti_reporter *r, int64_t step, const int64_t *counts);

/* A worker has left, and the others go on. */
tutti_status tti_reporter_left(tti_reporter *r, const tti_leave *left);

/* Time that is not training, such as a checkpoint. */
void tti_reporter_pause(tti_reporter *r, int64_t t_ns);

/* Handles the result of writing a record during a run.  A full disk costs records, not the
 * training: TUTTI_E_IO is reported once and counted, the number of missing records is reported at
 * the end, and TUTTI_OK is returned; any other status is returned unchanged. */
tutti_status tti_reporter_go_on(tti_reporter *r, tutti_status st);

/* TUTTI_E_CHECKPOINT if the run folder is not there any more: nothing would remain of the run. */
tutti_status tti_reporter_check_folder(const tti_reporter *r);

tutti_status tti_reporter_checkpoint(tti_reporter *r, int64_t step);
tutti_status tti_reporter_warn(tti_reporter *r, const char *text);
/* A step was left out under train.on_nan=skip, after *n others: warned of the first and then each
 * time that their number has doubled. */
tutti_status tti_reporter_skip(tti_reporter *r, int64_t *n, const char *text);
tutti_status tti_reporter_end(tti_reporter *r, int64_t step, uint64_t params_hash, int stop_signal,
                              tutti_train_result *result);

/* Notes the failure that ends the run; the error text of the thread stays. */
void tti_reporter_failed(tti_reporter *r, int64_t step, tutti_status status);

#endif /* TTI_TRAIN_REPORTER_H */
