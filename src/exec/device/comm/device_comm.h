/* device_comm.h - communication between the devices of workers. Other folders include only this
 * header. */
#ifndef TTI_EXEC_DEVICE_COMM_H
#define TTI_EXEC_DEVICE_COMM_H

#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_host_staged.h"
#include "exec/device/comm/device_p2p.h"
#include "exec/device/comm/device_reduce.h"
#include "exec/device/comm/device_tp.h"

#endif /* TTI_EXEC_DEVICE_COMM_H */
