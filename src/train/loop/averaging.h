/* averaging.h - decides when workers of local SGD average their parameters. */
#ifndef TTI_TRAIN_AVERAGING_H
#define TTI_TRAIN_AVERAGING_H

#include "train/setup/blueprint.h"

/* Whether parameters are averaged after so many steps: every parallel.average_every steps, and
 * before a checkpoint, an evaluation or the end.  *state: also the optimizer state, so that a
 * checkpoint has the same values on every worker.  All workers get the same answer; false without
 * local SGD. */
bool tti_averaging_is_due(const tti_blueprint *b, int64_t n_steps, bool *state);

/* Bytes of one worker that each averaging exchanges: parameters, and with parallel.average=all also
 * optimizer state and averaged parameters. */
size_t tti_averaging_bytes(const tti_job_config *config, const tti_plan *plan);

#endif /* TTI_TRAIN_AVERAGING_H */
