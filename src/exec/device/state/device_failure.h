/* device_failure.h - the failure of a device, with its name and the steps in flight. */
#ifndef TTI_EXEC_DEVICE_FAILURE_H
#define TTI_EXEC_DEVICE_FAILURE_H

#include "backend/backend.h"

typedef struct tti_device_work {
    const char *name; /* of the device */
    int index;        /* of it */
    uint64_t done,
        newest; /* the last step of the run known to be complete, and the last one begun */
} tti_device_work;

/* The status of a call, with the work before the text of a TUTTI_E_DEVICE.  ops: of a device that
 * may be asked what another failure came from; NULL: it may not, since it waits for others. */
tutti_status tti_device_failure_context(const tti_device_work *work, const tti_device_ops *ops,
                                        tutti_status status);

#endif /* TTI_EXEC_DEVICE_FAILURE_H */
