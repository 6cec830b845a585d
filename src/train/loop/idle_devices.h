/* idle_devices.h - after the loss of a worker, keeps device memory allocated while kernels of other
 * workers may use it. */
#ifndef TTI_TRAIN_IDLE_DEVICES_H
#define TTI_TRAIN_IDLE_DEVICES_H

#include <stdint.h>

#include "tutti/comm.h"

/* Called by a member of a broken group whose device is idle.  Waits, for at most 10 s, until the
 * devices of all other living members on this host are idle too. */
void tti_idle_devices_wait(tutti_comm *comm, int64_t step);

#endif /* TTI_TRAIN_IDLE_DEVICES_H */
