/* numerics.h - translates precision, loss scale and recomputation of a job for the passes. */
#ifndef TTI_TRAIN_NUMERICS_H
#define TTI_TRAIN_NUMERICS_H

#include "passes/passes.h"
#include "train/job/job.h"
#include "train/job/loss_scale.h"

/* Sets compute_dtype, loss_scale, recompute and recompute_bytes of target. */
void tti_numerics_target(const tti_job_config *config, tti_target *target);

/* True if gradients are multiplied by a loss scale; and the initial loss scale. */
bool tti_numerics_is_scaled(const tti_job_config *config);
void tti_numerics_loss_scale(const tti_job_config *config, tti_loss_scale *scale);

/* Parses "none", "light", "block" or a positive number of bytes ("512MiB") into recompute and
 * recompute_bytes; false, with target unchanged, for any other text. */
bool tti_numerics_recompute(const char *text, tti_target *target);

#endif /* TTI_TRAIN_NUMERICS_H */
