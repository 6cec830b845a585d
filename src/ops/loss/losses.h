/* losses.h - the rules of tutti/losses.h for the shapes of logits and targets. */
#ifndef TTI_OPS_LOSS_LOSSES_H
#define TTI_OPS_LOSS_LOSSES_H

#include <stdbool.h>

#include "tutti/graph.h"

/* The output of a metric of the model's own is f32 [2], sum and count, and is called this and the
 * metric's name. */
#define TTI_OWN_METRIC "metric.own."
enum { TTI_MAX_OWN_METRICS = 32 };

bool tti_is_own_metric(const char *output);
int tti_n_own_metrics(const tutti_graph *g);

/* Whether the output is a sum that each step reports: loss_sum, count, correct, or a metric of the
 * model's own. */
bool tti_is_step_sum(const char *output);

/* Returns the axis of the classes in logits for targets [N,...]: the last one, or 1; -1: they do
 * not fit. */
int tti_loss_class_axis(const tutti_shape *logits, const tutti_shape *target);
/* Logits [N,...,C] of logits with the classes along axis. */
tutti_value *tti_classes_last(tutti_graph *g, tutti_value *x, int axis);

#endif /* TTI_OPS_LOSS_LOSSES_H */
