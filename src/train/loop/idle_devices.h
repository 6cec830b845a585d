/* idle_devices.h - after a loss, no worker frees device memory that a kernel of another may use. */
#ifndef TTI_TRAIN_IDLE_DEVICES_H
#define TTI_TRAIN_IDLE_DEVICES_H

#include <stdint.h>

#include "tutti/comm.h"

/* Called by a member of a broken group whose device is idle: returns when the devices of all other
 * members of this host that live are idle too, after at most 10 s. */
void tti_idle_devices_wait(tutti_comm *comm, int64_t step);

#endif /* TTI_TRAIN_IDLE_DEVICES_H */
