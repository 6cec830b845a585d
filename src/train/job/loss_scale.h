/* loss_scale.h - the factor that keeps small gradients from underflowing in f16.
 *
 * The loss is multiplied by scale before the backward pass; the update divides gradients by it.
 * This is exact, because the dynamic scale is a power of two. scale and n_good are the whole state:
 * they are saved with a checkpoint and are the same on every worker, because they depend on one
 * agreed flag per step. */
#ifndef TTI_TRAIN_LOSS_SCALE_H
#define TTI_TRAIN_LOSS_SCALE_H

#include <stdbool.h>

typedef struct tti_loss_scale {
    double scale; /* scale of the next step; a finite f32 */
    int n_good;   /* steps without overflow since the scale was changed */
    bool dynamic;
} tti_loss_scale;

/* Initializes s. fixed > 0: a constant scale; 0: dynamic, starting at 65536. */
void tti_loss_scale_init(tti_loss_scale *s, double fixed);

/* Adjusts a dynamic scale after a step: halves it on overflow (a gradient was not finite and the
 * update was skipped), doubles it after 2000 good steps in a row. */
void tti_loss_scale_step(tti_loss_scale *s, bool overflow);

/* Adjusts the scale after a step with a non-finite value.  True if the scale may have caused it, so
 * that it is not a failure. */
bool tti_loss_scale_handles(tti_loss_scale *s, bool skipped);

/* True if the scale cannot have caused an overflow: it is fixed, or at most 1. */
bool tti_loss_scale_is_blameless(const tti_loss_scale *s);

#endif /* TTI_TRAIN_LOSS_SCALE_H */
