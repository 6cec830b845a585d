/* lost_device.h - advice after a device failed during a run. */
#ifndef TTI_TRAIN_LOST_DEVICE_H
#define TTI_TRAIN_LOST_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

/* For TUTTI_E_DEVICE, adds to the text of the last failure which checkpoint is good and how to
 * continue; otherwise does nothing. exact: a resumed run gives the same bits, which fast mode may
 * not: checkpoints have no residuals of compressed gradients. saving: the step of a checkpoint that
 * another worker may still be writing; -1: none. */
void tti_lost_device_advise(const char *run_dir, const char *given_dir, bool exact, int64_t saving,
                            tutti_status status);

#endif /* TTI_TRAIN_LOST_DEVICE_H */
