/* reporter.h - writes the output of a run on rank 0: metrics.jsonl, the TensorBoard file and
 * events.  On other ranks every call does nothing, so callers need not check.
 */
#ifndef TTI_TRAIN_REPORTER_H
#define TTI_TRAIN_REPORTER_H

#include "data/loader/loader.h"
#include "ps/server.h"
#include "train/infer/value_errors.h"
#include "train/report/metrics.h"
#include "train/report/slowest.h"
#include "train/report/step_metrics.h"
#include "train/report/tfevents.h"
#include "train/report/times.h"
#include "train/setup/blueprint.h"
#include "train/setup/throughput.h"
#include "tutti/train.h"

typedef struct tti_reporter {
    bool active;
    const tutti_train_desc *train;
    const tti_blueprint *b;
    const char *run_dir;   /* full path */
    const char *given_dir; /* the same folder as the caller gave it, for messages */
    tti_step_metrics own;  /* metrics of the model in the last reported step */
    tti_metrics metrics;
    tti_tfevents tfevents;
    int64_t call_ns;       /* time of the call of tutti_train */
    int64_t mark_ns;       /* end of the last step, evaluation or checkpoint     */
    int64_t train_ns;      /* time spent in steps so far */
    int64_t n_samples;     /* samples trained so far in this call */
    int64_t first_step_ns; /* time from the call to the end of the first step */
    int64_t window_ns, window_samples, window_wait_ns, window_comm_ns; /* since the last record */
    int64_t window_compute_ns, window_update_ns;
    int64_t n_lost; /* records that could not be written */
    bool is_due;    /* a record is due as soon as a step has the sums of all workers */
    int64_t window_steps;
    double window_sent,
        sent_bytes; /* bytes sent by this worker: since the last record; in this call */
    double eval_loss, eval_accuracy, eval_nrmse;
    tutti_value_result eval_mean, eval_each[TTI_EVALUATED_TARGETS]; /* errors of a regression */
    int64_t evaluated_step; /* step whose evaluation an earlier part of the run wrote to
                               TensorBoard; -1: none */
    bool is_resident;       /* the samples stay on the device: set before the start is reported */
    int n_launched;         /* steps per launch; set before the start is reported */
    double stale_mean;      /* last reported value of an asynchronous run */
    int64_t stale_max;
    double expected_bubble; /* expected bubble of a pipeline, set before the start is reported; 0:
                               no pipeline */
    const double
        *stages_busy; /* fraction of the last step that each stage computed; NULL: no pipeline */
    double window_bubble, bubble; /* ns waited since the last record; in this call */
    int64_t compute_ns;           /* compute time of steps in this call */
    int64_t n_dropped; /* last reported number of gradients that were dropped because they arrived
                          late */
    const tti_shard_map
        *shard_map; /* the shard map, set before the start is reported; NULL: equal runs */
    const tti_throughputs
        *throughputs; /* measured throughputs behind the shard map; n 0: the map is from the job */
    const tti_slowest_finding
        *slowest; /* the last finding about the slowest worker; NULL: not measured */
    const tti_slowest_finding
        *slowest_overall; /* finding about the whole run; NULL: not measured */
    int32_t *place;       /* [n_workers] owned: place of each worker in a mixed run (devices.h) */
    bool by_launcher;     /* started by another launcher: workers are processes */
    const char *sums;     /* the kind of gradient reduction, as text; NULL, "": not reported */
} tti_reporter;

/* Initializes an inactive reporter, which every call accepts. */
void tti_reporter_init(tti_reporter *r, int64_t call_ns);

tutti_status tti_reporter_open(tti_reporter *r, const tutti_train_desc *train,
                               const tti_blueprint *b, const char *run_dir, const char *given_dir,
                               bool active);
void tti_reporter_close(tti_reporter *r);

/* Discards the records and TensorBoard values of steps after `step`, which a resumed run repeats.
 * Call it before tti_reporter_start. */
tutti_status tti_reporter_rewind(tti_reporter *r, int64_t step);

/* Reports the start, when everything is ready. step: steps done by earlier parts of the run. */
tutti_status tti_reporter_start(tti_reporter *r, tti_exec_memory memory, int64_t step);

/* Warns if a resumed run has all its steps already. */
tutti_status tti_reporter_nothing_to_train(tti_reporter *r, int64_t step);

/* Counts a finished step; records are written every run.log_every steps or about twice a second. */
tutti_status tti_reporter_step(tti_reporter *r, int64_t step, double lr,
                               const tti_step_result *result, const tti_batch *batch);

/* Reports an evaluation of the test split. */
tutti_status tti_reporter_eval(tti_reporter *r, int64_t step, const tti_eval_sums *result);

/* Reports the times of all workers that were gathered after a step. */
tutti_status tti_reporter_times(tti_reporter *r, int64_t step, const tti_times *times);

/* Reports a new shard map after a step, from the fields shard_map and throughputs. */
tutti_status tti_reporter_shares(tti_reporter *r, int64_t step);

/* Reports the number of gradients so far with a staleness of 0, 1, ... updates, and the number of
 * updates that were skipped in this call. */
tutti_status tti_reporter_staleness(tti_reporter *r, int64_t step,
                                    const int64_t bins[TTI_STALENESS_BINS], int64_t n_left_out);

/* Reports the traffic of the first n processes, which are the servers. */
tutti_status tti_reporter_range_servers(tti_reporter *r, int64_t step,
                                        const tti_range_traffic *held, int n);

/* Reports the number of late gradients of each worker so far, counts [n_workers]. */
tutti_status tti_reporter_dropped(tti_reporter *r, int64_t step, const int64_t *counts);

/* Reports that a worker has left and the others continue. */
tutti_status tti_reporter_left(tti_reporter *r, const tti_leave *left);

/* Excludes time that is not training, such as saving a checkpoint. */
void tti_reporter_pause(tti_reporter *r, int64_t t_ns);

/* tti_reporter_emit calls the caller's on_event. tti_reporter_event returns an event after a step
 * with the other fields empty. */
void tti_reporter_emit(const tti_reporter *r, const tutti_event *event);
tutti_event tti_reporter_event(const tti_reporter *r, tutti_event_kind kind, int64_t step);

/* Handles the result of writing a record during a run.  A full disk costs records, not the
 * training: TUTTI_E_IO is reported once and counted, the number of missing records is reported at
 * the end, and TUTTI_OK is returned; any other status is returned unchanged. */
tutti_status tti_reporter_go_on(tti_reporter *r, tutti_status st);

/* Returns TUTTI_E_CHECKPOINT if the run folder no longer exists, because the run could not be
 * saved. */
tutti_status tti_reporter_check_folder(const tti_reporter *r);

tutti_status tti_reporter_checkpoint(tti_reporter *r, int64_t step);
tutti_status tti_reporter_warn(tti_reporter *r, const char *text);
/* Counts an update skipped under train.on_nan=skip in *n.  Warns about the first one, and each time
 * the number has doubled. */
tutti_status tti_reporter_skip(tti_reporter *r, int64_t *n, const char *text);
tutti_status tti_reporter_end(tti_reporter *r, int64_t step, uint64_t params_hash, int stop_signal,
                              tutti_train_result *result);

/* Records the failure that ends the run; keeps the error text of the thread. */
void tti_reporter_failed(tti_reporter *r, int64_t step, tutti_status status);

#endif /* TTI_TRAIN_REPORTER_H */
