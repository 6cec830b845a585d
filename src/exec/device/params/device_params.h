/* device_params.h - the parameters of a worker on a device: their update, their partitions, and the
 * optimizer state on the host; what other folders may include. */
#ifndef TTI_EXEC_DEVICE_PARAMS_H
#define TTI_EXEC_DEVICE_PARAMS_H

#include "exec/device/params/device_parts.h"
#include "exec/device/params/device_sharded.h"
#include "exec/device/params/device_update.h"
#include "exec/device/params/offload.h"

#endif /* TTI_EXEC_DEVICE_PARAMS_H */
