/* history.h - reads metrics.jsonl of a run, from which curves are drawn. */
#ifndef TTI_TRAIN_HISTORY_H
#define TTI_TRAIN_HISTORY_H

#include "base/arena.h"
#include "base/str.h"
#include "tutti/types.h"

typedef struct tti_step_point {
    double step, loss, score, lr, samples_per_s;
    double wait, comm, compute, update; /* shares of the time */
    double time_s;
} tti_step_point;

/* Seconds that a worker spent since the point before. */
typedef struct tti_time_point {
    double step;
    int rank;
    double data, compute, comm, update, spent; /* spent: all of it */
} tti_time_point;

typedef struct tti_eval_point {
    double step, loss, score;
    double r2; /* of a regression; NAN: undefined, or not measured */
} tti_eval_point;

/* A warning, or the failure that ended the run. */
typedef struct tti_note {
    const char *text;
    bool failed;
} tti_note;

enum { TTI_HISTORY_NOTES = 100, TTI_HISTORY_STEPS = 1 << 13 };

/* Numbers that were never said are 0. */
typedef struct tti_history {
    tti_step_point *steps; /* in order of their steps: the first one, one in steps_each, the last */
    tti_eval_point *evals;
    tti_time_point *times; /* ranks 0, 1, ... of a step next to each other */
    int n_steps, n_evals, n_times;
    const char
        *score; /* the key of every score: "accuracy", or of a regression "rmse" or "nrmse" */
    int64_t steps_each;  /* 1: of every record of a step */
    int64_t n_bad_lines; /* that are no records */
    tti_note notes[TTI_HISTORY_NOTES];
    int n_notes, n_notes_left_out;
    double planned_steps, workers, shards, params;
    double pipeline, tensor, zero; /* of the last start, as workers */
    double bytes_params, bytes_states, bytes_grads, bytes_activations, peak_rss, peak_device;
    double samples_per_s, wall_s, last_step;
    bool ended, stopped;
    const char *backend, *version; /* "" before they were said */
    tti_arena arena;               /* of the texts */
    int max_evals, max_times;      /* room for them */
    bool no_memory;                /* they could not be kept */
} tti_history;

/* Reads run_dir/metrics.jsonl, whatever its size, in little memory: of more than TTI_HISTORY_STEPS
 * steps some are skipped.  Invalid lines are counted and left out.  If a run was resumed from an
 * earlier step, the later records of that step count.  TUTTI_E_CONFIG if there is no run. *out must
 * be freed, on success only. */
tutti_status tti_history_read(const char *run_dir, tti_history *out);
void tti_history_free(tti_history *h);

#endif /* TTI_TRAIN_HISTORY_H */
