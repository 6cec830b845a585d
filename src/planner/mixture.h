/* mixture.h - workers on devices and workers on the host that share a batch
 * (parallel.devices=0,cpu): replicas of unequal speed. Their gradients are reduced and their
 * parameters updated on the host. */
#ifndef TTI_PLANNER_MIXTURE_H
#define TTI_PLANNER_MIXTURE_H

#include "planner/predict.h"

typedef struct tti_mixture {
    tti_calibration devices, host; /* host also has the all-reduces between all workers */
} tti_mixture;

/* Checks that a mixed job can be planned for device. TUTTI_E_CONFIG: device is not "measured" (or
 * NULL), so the host next to it is unknown. */
tutti_status tti_mixture_check_device(const tti_job_config *config, const char *device);

/* Like tti_calibrate_machine, for both kinds of workers of b. */
tutti_status tti_mixture_calibrate(const tti_blueprint *b, double budget_s, double base_bytes,
                                   tti_mixture *out);

/* Like tti_calibrate_micro_group, for all workers of b at the same time. */
tutti_status tti_mixture_micro_group(const tti_blueprint *b, tti_mixture *m, double left_s,
                                     double *spent_s);

/* Like tti_predict. Shards are distributed as the job requests, or in proportion to the measured
 * speeds. */
tutti_status tti_mixture_predict(const tti_blueprint *b, const tti_scheme *layout,
                                 const tti_mixture *m, tti_prediction *out);

#endif /* TTI_PLANNER_MIXTURE_H */
