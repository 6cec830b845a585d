/* lost_device.h - what to do about a device that failed in the middle of a run. */
#ifndef TTI_TRAIN_LOST_DEVICE_H
#define TTI_TRAIN_LOST_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

/* Of a TUTTI_E_DEVICE: which checkpoint is good and how to go on is added to the text of the last
 * failure.  Of anything else: nothing.  exact: going on comes to the same bits, which fast mode may
 * miss: checkpoints have no residuals of compressed gradients.  saving: the step of a checkpoint
 * that another worker may still be writing; -1: none. */
void tti_lost_device_advise(const char *run_dir, bool exact, int64_t saving, tutti_status status);

#endif /* TTI_TRAIN_LOST_DEVICE_H */
