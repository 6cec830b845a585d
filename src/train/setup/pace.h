/* pace.h - the speed of each worker, and the resulting runs of shards. */
#ifndef TTI_TRAIN_PACE_H
#define TTI_TRAIN_PACE_H

#include "comm/deal.h"
#include "train/setup/worker_exec.h"

typedef struct tti_paces {
    int n;                      /* 0: nothing was measured */
    tti_pace of[TTI_MAX_RANKS]; /* [n], the same on every worker */
    tti_deal deal;              /* that follows from them */
    char text[TTI_TEXT_MAX];    /* text for the user */
} tti_paces;

/* Every worker runs the job's own shard program on a few shards, all at the same time, and all
 * receive the times.  Uses separate parameters that are freed afterwards, so the run is not
 * affected.  If a worker cannot be measured the runs are equal and text says why.  Collective over
 * worker->comm, with at least two ranks. */
tutti_status tti_pace_measure(const tti_blueprint *blueprint, const tti_worker_desc *worker,
                              tti_paces *out);

/* Updates the speeds from the seconds that each worker computed in n_steps steps: true if other
 * runs would now shorten a step by a quarter; then *now is as tti_pace_measure would fill it. */
bool tti_pace_drifted(const tti_paces *before, const double *compute_s, int64_t n_steps,
                      tti_paces *now);

/* The runs for paces [n]: equal ones unless others end a step a tenth sooner; and in words. */
void tti_pace_deal(const tti_pace *paces, int n, int n_shards, tti_deal *deal, tti_str *text);

#endif /* TTI_TRAIN_PACE_H */
