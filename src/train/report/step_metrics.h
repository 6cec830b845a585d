/* step_metrics.h - figures of the metrics of a model's own in a step of training. */
#ifndef TTI_TRAIN_STEP_METRICS_H
#define TTI_TRAIN_STEP_METRICS_H

#include "exec/exec.h"
#include "tutti/job.h"

typedef struct tti_step_metrics {
    tutti_metric_result list[TTI_MAX_OWN_METRICS];
    int n;
} tti_step_metrics;

/* The metrics of a plan of the whole model, whose names are borrowed; their values are NAN. */
void tti_step_metrics_init(tti_step_metrics *m, const tti_plan *plan);

/* Sets the values: sum / count, NAN where nothing was counted. */
void tti_step_metrics_set(tti_step_metrics *m, const tti_step_result *result);

#endif /* TTI_TRAIN_STEP_METRICS_H */
