/* numerics.c - converts precision, loss scale and recomputation of a job to settings of the
 * passes. */
#include "train/job/numerics.h"

#include <string.h>

#include "base/dtype.h"
#include "base/number.h"

static tutti_dtype dtype_of(const tti_job_config *c) {
    tutti_dtype dtype = TUTTI_F32;
    (void)tti_dtype_find(c->train.precision, strlen(c->train.precision), &dtype);
    return dtype;
}

bool tti_numerics_is_scaled(const tti_job_config *c) {
    if (c->train.loss_scale > 0) return dtype_of(c) != TUTTI_F32;
    return dtype_of(c) == TUTTI_F16; /* bf16 has the range of f32 */
}

bool tti_numerics_recompute(const char *text, tti_target *target) {
    int64_t n_bytes = 0;
    tti_recompute recompute = TTI_RECOMPUTE_BUDGET;
    if (strcmp(text, "none") == 0)
        recompute = TTI_RECOMPUTE_NONE;
    else if (strcmp(text, "light") == 0)
        recompute = TTI_RECOMPUTE_LIGHT;
    else if (strcmp(text, "block") == 0)
        recompute = TTI_RECOMPUTE_BLOCK;
    else if (tti_parse_bytes(text, &n_bytes) != TTI_NUMBER_OK || n_bytes < 1)
        return false;
    target->recompute = recompute;
    target->recompute_bytes = (size_t)n_bytes;
    return true;
}

void tti_numerics_target(const tti_job_config *config, tti_target *target) {
    target->compute_dtype = dtype_of(config);
    target->tf32 = strcmp(config->train.precision, "tf32") == 0;
    target->low_precision_residual = config->train.low_precision_residual;
    target->loss_scale = tti_numerics_is_scaled(config);
    TTI_ASSERT(
        tti_numerics_recompute(config->train.recompute, target)); /* checked in job_conflicts.c */
}

void tti_numerics_loss_scale(const tti_job_config *config, tti_loss_scale *scale) {
    bool dynamic = config->train.loss_scale < 0;
    tti_loss_scale_init(scale, !tti_numerics_is_scaled(config) ? 1
                               : dynamic                       ? 0
                                                               : config->train.loss_scale);
}
