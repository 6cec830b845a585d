/* predict.h - predicts the time of a step and the memory of a worker for a layout that has not run.
 * Times are in seconds, memory and traffic in bytes. */
#ifndef TTI_PLANNER_PREDICT_H
#define TTI_PLANNER_PREDICT_H

#include "planner/calibrate.h"

typedef struct tti_prediction {
    tti_scheme layout;
    double step_s; /* sum of the times below */
    double compute_s, add_s, reduce_s, update_s, load_s;
    double model_parallel_s; /* tensor-parallel collectives, and messages between stages */
    double bubble_s;     /* time that stages wait before their first or after their last shard */
    double bubble;       /* fraction of the time of all stages that they wait, without messages */
    double worker_bytes; /* parameters, state, gradients and activations of one worker; on a device
                            also inputs, messages and scratch */
    double first_bytes;  /* memory of the first worker, which a run reports; other workers may use
                            more */
    double host_bytes;   /* host memory of a process with all workers as threads */
    double sent_bytes;   /* bytes that one worker sends to others in a step */
    bool is_measured;    /* the shard program was measured; else its time is scaled from another
                            program */
} tti_prediction;

/* Predicts layout. like: the blueprint of a job with this layout, of which only the ZeRO stage may
 * differ. Nothing is measured. */
tutti_status tti_predict(const tti_blueprint *like, const tti_scheme *layout,
                         const tti_calibration *c, tti_prediction *out);

/* The layout of a resolved job. */
tti_scheme tti_scheme_of(const tti_job_config *config);

#endif /* TTI_PLANNER_PREDICT_H */
