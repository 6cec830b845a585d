/* step_metrics.h - values of the model's own metrics in a training step. */
#ifndef TTI_TRAIN_STEP_METRICS_H
#define TTI_TRAIN_STEP_METRICS_H

#include "exec/exec.h"
#include "tutti/job.h"

typedef struct tti_step_metrics {
    tutti_metric_result list[TTI_MAX_OWN_METRICS];
    int n;
} tti_step_metrics;

/* Lists the metrics of a plan of the whole model, with borrowed names and values NAN. */
void tti_step_metrics_init(tti_step_metrics *m, const tti_plan *plan);

/* Sets the values to sum / count, or NAN if the count is 0. */
void tti_step_metrics_set(tti_step_metrics *m, const tti_step_result *result);

#endif /* TTI_TRAIN_STEP_METRICS_H */
