/* averaging.h - when workers of local SGD average their parameters. */
#ifndef TTI_TRAIN_AVERAGING_H
#define TTI_TRAIN_AVERAGING_H

#include "train/setup/blueprint.h"

/* Whether parameters are averaged after so many steps: every parallel.average_every of them, and
 * where somebody looks at them, for a checkpoint, an evaluation or the end.  *state: the
 * optimizer's state too, so that all of what a checkpoint holds is the same on every worker.
 * The same answer on all of them; without local SGD false. */
bool tti_averaging_is_due(const tti_blueprint *b, int64_t n_steps, bool *state);

/* Bytes of a worker of that plan that are averaged each time: parameters, with parallel.average=all
 * state and averages of parameters too. */
size_t tti_averaging_bytes(const tti_job_config *config, const tti_plan *plan);

#endif /* TTI_TRAIN_AVERAGING_H */
