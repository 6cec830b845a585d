/* averaging.h - decides when workers of local SGD average their parameters. */
#ifndef TTI_TRAIN_AVERAGING_H
#define TTI_TRAIN_AVERAGING_H

#include "train/setup/blueprint.h"

/* True if parameters are averaged after n_steps steps: every parallel.average_every steps, and
 * before a checkpoint, an evaluation or the end.  False without local SGD. *state: the optimizer
 * state is averaged too, so that a checkpoint has the same values on every worker.  Equal on all
 * workers. */
bool tti_averaging_is_due(const tti_blueprint *b, int64_t n_steps, bool *state);

/* Bytes that each averaging exchanges per worker: parameters, and with parallel.average=all also
 * optimizer state and averaged parameters (EMA). */
size_t tti_averaging_bytes(const tti_job_config *config, const tti_plan *plan);

#endif /* TTI_TRAIN_AVERAGING_H */
