/* device_tp.h - the collectives of a tensor axis between workers on devices: directly between
 * devices, as part of the captured step, or through the host's memory and communicator. */
#ifndef TTI_EXEC_DEVICE_TP_H
#define TTI_EXEC_DEVICE_TP_H

#include "backend/backend.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Connects the devices of the axis if all workers of the job can, else allocates host memory for
 * the largest value of the programs' collectives; *out NULL: there are none.  Collective over all
 * workers; x->divided exists.  On success *out is owned by the caller, used by one thread, and
 * borrows x. */
tutti_status tti_device_tp_create(tti_exec *x, tti_device_tp **out);
void tti_device_tp_destroy(tti_device_tp *tp); /* takes NULL */

/* Bytes of the device that it may take. */
size_t tti_device_tp_bytes(const tti_setup *setup);

/* The group of devices that exchange by themselves; NULL: they do through the host, or there is
 * no exchange at all (NULL). */
void *tti_device_tp_group(const tti_device_tp *tp);
/* Describes the method in words, or the reason for the host; "" if direct access was not requested.
 */
void tti_device_tp_describe(const tti_device_tp *tp, tti_str *str);

/* Switches to the host, before any communication.  On all workers. */
tutti_status tti_device_tp_give_up(tti_device_tp *tp, const char *why);

/* ---- between devices: all of it does nothing where the exchange is NULL or through the host
 * ----
 */

/* Before the following launches. overlapped: they are captured, or all their kernels have been loaded.
 * Otherwise each collective waits for all workers, because a kernel that waits for a peer must not
 * run while another one is being loaded. */
void tti_device_tp_begin(tti_device_tp *tp, bool overlapped);

/* Later kernels wait for all collectives so far. */
tutti_status tti_device_tp_wait(tti_device_tp *tp);

/* Memory for the activations of the one compute thread, which the other devices reach; NULL: the
 * compute thread takes its own.  The exchange's. */
void *tti_device_tp_arena(const tti_device_tp *tp);

/* The sum over the axis of doubles of the device, in their place, added in the order of ranks. */
tutti_status tti_device_tp_sum(tti_device_tp *tp, double *terms, size_t n);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_tp_await(tti_device_tp *tp, int event);

#endif /* TTI_EXEC_DEVICE_TP_H */
