/* history.h - reads metrics.jsonl of a run for the curves of the report. */
#ifndef TTI_TRAIN_HISTORY_H
#define TTI_TRAIN_HISTORY_H

#include "base/arena.h"
#include "base/str.h"
#include "tutti/types.h"

typedef struct tti_step_point {
    double step, loss, score, lr, samples_per_s;
    double wait, comm, compute, update; /* fractions of the time */
    double time_s;
} tti_step_point;

/* Seconds that a worker spent since the previous point. */
typedef struct tti_time_point {
    double step;
    int rank;
    double data, compute, comm, update, spent; /* spent: total */
} tti_time_point;

typedef struct tti_eval_point {
    double step, loss, score;
    double r2; /* regression; NAN: undefined or not measured */
} tti_eval_point;

/* A warning, or the failure that ended the run. */
typedef struct tti_note {
    const char *text;
    bool failed;
} tti_note;

enum { TTI_HISTORY_NOTES = 100, TTI_HISTORY_STEPS = 1 << 13 };

/* Numbers that are missing in all records are 0. */
typedef struct tti_history {
    tti_step_point *steps; /* in order of steps: the first, every steps_each-th, the last */
    tti_eval_point *evals;
    tti_time_point *times; /* ranks 0, 1, ... of a step are neighbours */
    int n_steps, n_evals, n_times;
    const char *score;   /* key of the score: "accuracy", "rmse" or "nrmse"; NULL: none */
    int64_t steps_each;  /* 1: every step record */
    int64_t n_bad_lines; /* lines that are not records */
    tti_note notes[TTI_HISTORY_NOTES];
    int n_notes, n_notes_left_out;
    double planned_steps, workers, shards, params;
    double pipeline, tensor, zero; /* from the last start record, like workers */
    double bytes_params, bytes_states, bytes_grads, bytes_activations, peak_rss, peak_device;
    double samples_per_s, wall_s, last_step;
    bool ended, stopped;
    const char *backend, *version; /* "" if no record has them */
    tti_arena arena;               /* memory of the texts */
    int max_evals, max_times;      /* room in these arrays */
    bool no_memory;                /* out of memory for points */
} tti_history;

/* Reads run_dir/metrics.jsonl of any size in little memory; with more than TTI_HISTORY_STEPS steps,
 * some are skipped.  Invalid lines are counted and left out.  If a run was resumed from an earlier
 * step, later records replace those of the same step.  TUTTI_E_CONFIG if there is no run. *out must
 * be freed, on success only. */
tutti_status tti_history_read(const char *run_dir, tti_history *out);
void tti_history_free(tti_history *h);

#endif /* TTI_TRAIN_HISTORY_H */
