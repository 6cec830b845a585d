/* device_tp.h - the collectives of a tensor axis on devices: directly between devices, as part of
 * the captured step, or through the host's memory and communicator. */
#ifndef TTI_EXEC_DEVICE_TP_H
#define TTI_EXEC_DEVICE_TP_H

#include "backend/backend.h"
#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

/* Connects the devices of the axis if all workers of the job can connect; otherwise allocates host
 * memory for the largest value of the programs' collectives.  *out NULL: the programs have no
 * collectives.  Collective over all workers; x->divided exists.  *out is owned by the caller, also
 * after a failure, is used by one thread, and borrows x. */
tutti_status tti_device_tp_create(tti_exec *x, tti_device_tp **out);
void tti_device_tp_destroy(tti_device_tp *tp); /* takes NULL */

/* Bytes of device memory that it may allocate. */
size_t tti_device_tp_bytes(const tti_setup *setup);

/* The connected group of devices; NULL: collectives go through the host, or tp is NULL. */
void *tti_device_tp_group(const tti_device_tp *tp);
/* Describes the connection, or why collectives go through the host; "" if a direct one was not
 * requested. */
void tti_device_tp_describe(const tti_device_tp *tp, tti_str *str);

/* Switches to collectives through the host, before the first of them.  On all workers. */
tutti_status tti_device_tp_give_up(tti_device_tp *tp, const char *why);

/* ---- between devices.  These functions do nothing if tp is NULL or goes through the host ---- */

/* Call before the launches that follow. overlapped: they are captured, or all their kernels have
 * been loaded.  Otherwise each collective waits for all workers, because a kernel that waits for a
 * peer must not run while another one is being loaded. */
void tti_device_tp_begin(tti_device_tp *tp, bool overlapped);

/* Makes later kernels wait for all collectives so far. */
tutti_status tti_device_tp_wait(tti_device_tp *tp);

/* The arena of the only compute thread, which other devices access; owned by tp.  NULL: the compute
 * thread allocates its own. */
void *tti_device_tp_arena(const tti_device_tp *tp);

/* Sums n doubles on the device over the axis, in place, in the order of ranks. */
tutti_status tti_device_tp_sum(tti_device_tp *tp, double *terms, size_t n);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_tp_await(tti_device_tp *tp, int event);

#endif /* TTI_EXEC_DEVICE_TP_H */
