/* step_metrics.c - converts the sums that a step reports to named metrics.
 *
 * In a pipeline only the last stage has the outputs, so the names are those of the undivided model.
 */
#include "train/report/step_metrics.h"

#include <math.h>

void tti_step_metrics_init(tti_step_metrics *m, const tti_plan *plan) {
    *m = (tti_step_metrics){.n = plan->n_metrics};
    for (int i = 0; i < m->n; i++)
        m->list[i] = (tutti_metric_result){.name = tti_plan_metric_name(plan, i), .value = NAN};
}

void tti_step_metrics_set(tti_step_metrics *m, const tti_step_result *result) {
    for (int i = 0; i < m->n; i++) {
        const double *of = &result->metrics.of[2 * i];
        m->list[i].value = of[1] > 0 ? of[0] / of[1] : NAN;
    }
}
