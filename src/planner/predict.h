/* predict.h - predicts the time of a step and the memory of a worker for a layout that has not run.
 */
#ifndef TTI_PLANNER_PREDICT_H
#define TTI_PLANNER_PREDICT_H

#include "planner/calibrate.h"

typedef struct tti_prediction {
    tti_scheme layout;
    double step_s; /* the sum of the others */
    double compute_s, add_s, reduce_s, update_s, load_s;
    double model_parallel_s; /* TP collectives inside shards, and messages between stages */
    double bubble_s; /* of a pipeline: stages that wait for their first or after their last shard */
    double bubble;   /* the same as a share of the time of all stages, were messages for nothing */
    double worker_bytes; /* parameters, state, gradients, activations of one worker; of a device
                            inputs, messages and scratch of kernels too */
    double
        first_bytes; /* memory of the first worker, which a run reports; the others may have more */
    double host_bytes; /* of all workers as threads of one process, and the process itself */
    double sent_bytes; /* by a worker, each step, between workers */
    bool is_measured;  /* the shard program ran; else its costs were scaled */
} tti_prediction;

/* like: of a job with the layout, but perhaps for the ZeRO stage.  Reads nothing but the
 * calibration. */
tutti_status tti_predict(const tti_blueprint *like, const tti_scheme *layout,
                         const tti_calibration *c, tti_prediction *out);

/* The layout of a job after this program has resolved it. */
tti_scheme tti_scheme_of(const tti_job_config *config);

#endif /* TTI_PLANNER_PREDICT_H */
