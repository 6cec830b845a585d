/* loss_scale.c - dynamic loss scaling as in PyTorch's GradScaler: the scale rises slowly and falls
 * fast. */
#include "train/job/loss_scale.h"

#include <math.h>

enum { GROWTH_INTERVAL = 2000 };

void tti_loss_scale_init(tti_loss_scale *s, double fixed) {
    *s = (tti_loss_scale){.scale = fixed > 0 ? fixed : 65536, .dynamic = !(fixed > 0)};
}

void tti_loss_scale_step(tti_loss_scale *s, bool overflow) {
    if (!s->dynamic) return;
    if (overflow) {
        s->scale /= 2;
        s->n_good = 0;
    } else if (++s->n_good == GROWTH_INTERVAL) {
        if (isfinite((float)(2 * s->scale))) s->scale *= 2;
        s->n_good = 0;
    }
}

bool tti_loss_scale_handles(tti_loss_scale *s, bool skipped) {
    bool overflow = skipped && !tti_loss_scale_is_blameless(s);
    if (overflow || !skipped) tti_loss_scale_step(s, overflow);
    return overflow;
}

bool tti_loss_scale_is_blameless(const tti_loss_scale *s) { return !s->dynamic || s->scale <= 1; }
