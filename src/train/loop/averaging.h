/* averaging.h - when workers of local SGD average their parameters. */
#ifndef TTI_TRAIN_AVERAGING_H
#define TTI_TRAIN_AVERAGING_H

#include "train/setup/blueprint.h"

/* Whether parameters are averaged after so many steps: every parallel.average_every of them, and
 * before a checkpoint, an evaluation or the end. *state: the optimizer state too, so that
 * everything in a checkpoint is the same on every worker.  All workers get the same answer; without
 * local SGD false. */
bool tti_averaging_is_due(const tti_blueprint *b, int64_t n_steps, bool *state);

/* Bytes of a worker of that plan that are averaged each time: parameters, with parallel.average=all
 * state and averages of parameters too. */
size_t tti_averaging_bytes(const tti_job_config *config, const tti_plan *plan);

#endif /* TTI_TRAIN_AVERAGING_H */
