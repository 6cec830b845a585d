/* lost_device.h - advice after a device failed during a run. */
#ifndef TTI_TRAIN_LOST_DEVICE_H
#define TTI_TRAIN_LOST_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

/* For TUTTI_E_DEVICE, appends the newest valid checkpoint and how to continue to the text of the
 * last failure; does nothing for other statuses. exact: the text promises the same bits for a
 * resumed run.  Fast mode cannot, because checkpoints do not contain the residuals of compressed
 * gradients. saving: the step of a checkpoint that another worker may still be writing; -1:
 * none. */
void tti_lost_device_advise(const char *run_dir, const char *given_dir, bool exact, int64_t saving,
                            tutti_status status);

#endif /* TTI_TRAIN_LOST_DEVICE_H */
