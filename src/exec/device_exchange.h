/* device_exchange.h - the exchanges of a tensor axis between workers on devices: by way of the
 * host's memory and communicator. */
#ifndef TTI_EXEC_DEVICE_EXCHANGE_H
#define TTI_EXEC_DEVICE_EXCHANGE_H

#include "backend/backend.h"
#include "exec/exec.h"

typedef struct tti_device_exchange tti_device_exchange;

/* Memory for the largest value that the programs of desc->plan exchange; *out NULL: they exchange
 * none.  On success *out is owned by the caller, used by one thread, and borrows the communicator
 * of desc->mesh. */
tutti_status tti_device_exchange_create(const tti_exec_desc *desc, tti_device_exchange **out);
void tti_device_exchange_destroy(tti_device_exchange *exchange); /* takes NULL */

/* The kernel of TTI_COLLECTIVE ops on a device.  Its state is the exchange, borrowed; NULL: it can
 * only be looked at.  The same bits as exec/collective.h, which adds.  Waits for the device, so no
 * step with one can be recorded. */
extern const tti_kernel tti_device_exchange_kernel;

#endif /* TTI_EXEC_DEVICE_EXCHANGE_H */
