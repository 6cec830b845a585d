/* losses.h - what the losses of tutti/losses.h say of the shapes of logits and targets. */
#ifndef TTI_OPS_LOSS_LOSSES_H
#define TTI_OPS_LOSS_LOSSES_H

#include "tutti/types.h"

/* Returns the axis of the classes in logits for targets [N,...]: the last one, or 1; -1: they do
 * not fit. */
int tti_loss_class_axis(const tutti_shape *logits, const tutti_shape *target);
/* Logits [N,...,C] of logits with the classes along axis. */
tutti_value *tti_classes_last(tutti_graph *g, tutti_value *x, int axis);

#endif /* TTI_OPS_LOSS_LOSSES_H */
