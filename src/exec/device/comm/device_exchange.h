/* device_exchange.h - the collectives of a tensor axis between workers on devices: directly between
 * devices, as part of the captured step, or through the host's memory and communicator. */
#ifndef TTI_EXEC_DEVICE_EXCHANGE_H
#define TTI_EXEC_DEVICE_EXCHANGE_H

#include "backend/backend.h"
#include "exec/program/exchange.h"
#include "exec/worker/desc.h"

/* Connects the devices of the axis if all workers of the job can, else allocates host memory for
 * the largest value of the programs' collectives; *out NULL: there are none.  Collective over all
 * workers; x->divided exists.  On success *out is owned by the caller, used by one thread, and
 * borrows x. */
tutti_status tti_device_exchange_create(tti_exec *x, tti_device_exchange **out);
void tti_device_exchange_destroy(tti_device_exchange *exchange); /* takes NULL */

/* Bytes of the device that it may take. */
size_t tti_device_exchange_bytes(const tti_setup *setup);

/* The group of devices that exchange by themselves; NULL: they do by way of the host, or there is
 * no exchange at all (NULL). */
void *tti_device_exchange_group(const tti_device_exchange *exchange);
/* Describes the method in words, or the reason for the host; "" if direct access was not requested.
 */
void tti_device_exchange_describe(const tti_device_exchange *exchange, tti_str *str);

/* Switches to the host, before any communication.  On all workers. */
tutti_status tti_device_exchange_give_up(tti_device_exchange *exchange, const char *why);

/* ---- between devices: all of it does nothing where the exchange is NULL or by way of the host
 * ----
 */

/* Before the following launches. beside: they are captured, or all their kernels have been loaded.
 * Otherwise each collective waits for all workers, because a kernel that waits for a peer must not
 * run while another one is being loaded. */
void tti_device_exchange_begin(tti_device_exchange *exchange, bool beside);

/* Later kernels wait for all collectives so far. */
tutti_status tti_device_exchange_wait(tti_device_exchange *exchange);

/* Memory for the activations of the one compute thread, which the other devices reach; NULL: the
 * compute thread takes its own.  The exchange's. */
void *tti_device_exchange_arena(const tti_device_exchange *exchange);

/* The sum over the axis of doubles of the device, in their place, added in the order of ranks. */
tutti_status tti_device_exchange_sum(tti_device_exchange *exchange, double *terms, size_t n);

/* Waits for a mark, or for the failure of a worker. */
tutti_status tti_device_exchange_await(tti_device_exchange *exchange, int mark);

#endif /* TTI_EXEC_DEVICE_EXCHANGE_H */
