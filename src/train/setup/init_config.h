/* init_config.h - model settings in the folder of model.init: config.json and shapes. */
#ifndef TTI_TRAIN_INIT_CONFIG_H
#define TTI_TRAIN_INIT_CONFIG_H

#include "ckpt/weights.h"
#include "train/job/job.h"

/* Sets the keys model.* that the job does not set from the folder of model.init, so that the model
 * computes the same as transformers with the same files.  No-op without model.init.  Every key of
 * config.json is honored, has no influence, or is refused.
 *
 * TUTTI_E_CONFIG: the file and the job contradict each other, or the file needs something that
 * Tutti does not compute; the text names the file, the key, its value and the supported values.
 * TUTTI_E_CHECKPOINT: a file is missing, damaged or unreadable. */
TUTTI_NODISCARD tutti_status tti_init_config_apply(tutti_job *job);

#endif /* TTI_TRAIN_INIT_CONFIG_H */
