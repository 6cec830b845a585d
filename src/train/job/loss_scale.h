/* loss_scale.h - the factor that keeps small gradients away from zero in f16.
 *
 * Gradients are those of the loss times scale; the update divides by it.  This is exact, because
 * the dynamic scale is a power of two. scale and n_good are the whole state: they are saved with a
 * checkpoint and are the same on every worker, because they depend on one agreed flag per step. */
#ifndef TTI_TRAIN_LOSS_SCALE_H
#define TTI_TRAIN_LOSS_SCALE_H

#include <stdbool.h>

typedef struct tti_loss_scale {
    double scale; /* of the next step; a finite f32 */
    int n_good;   /* steps without overflow since the scale was changed */
    bool dynamic;
} tti_loss_scale;

/* fixed > 0: always that; 0: dynamic, from 65536 on. */
void tti_loss_scale_init(tti_loss_scale *s, double fixed);

/* After a step: overflow says that some gradient was not finite, so that its update was left out.
 * Dynamic: halved on overflow, doubled after 2000 good steps in a row. */
void tti_loss_scale_step(tti_loss_scale *s, bool overflow);

/* The same for a step with a non-finite value: true if the scale caused it, so that it is no
 * failure. */
bool tti_loss_scale_answers(tti_loss_scale *s, bool skipped);

/* True when an overflow cannot be the scale's fault: it is fixed, or not above 1. */
bool tti_loss_scale_is_blameless(const tti_loss_scale *s);

#endif /* TTI_TRAIN_LOSS_SCALE_H */
