/* trial.h - trains a job briefly to measure its speed, and discards the result. */
#ifndef TTI_TRAIN_TRIAL_H
#define TTI_TRAIN_TRIAL_H

#include "tutti/job.h"

typedef struct tti_trial {
    int n_workers;     /* threads of this process; parallel.place is ignored */
    double per_s;      /* samples trained per second, over all workers               */
    double wait_share; /* fraction of time that the first worker waited for its next batch */
} tti_trial;

/* Trains for ms milliseconds after the first step, which is not measured, in a temporary folder
 * under $TMPDIR or /tmp that is removed again.  Does not change job.  Returns the status of
 * tutti_train. */
tutti_status tti_trial_run(const tutti_job *job, int ms, tti_trial *out);

#endif /* TTI_TRAIN_TRIAL_H */
