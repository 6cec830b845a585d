/* device_p2p.h - messages between pipeline stages from device to device: values of shards, and
 * gradients of parameters that several stages have.
 *
 * A stage has an inbox with memory for each slot of the mailbox that it reads (pipe.h).  If
 * the devices see each other's memory, the sender writes there in a queue concurrent with its
 * kernels, and the reader's kernels wait for it on the device. */
#ifndef TTI_EXEC_DEVICE_P2P_H
#define TTI_EXEC_DEVICE_P2P_H

#include "exec/worker/desc.h"

typedef struct tti_device_p2p tti_device_p2p;

/* Allocates the inbox and, if all workers of the job can, connects the devices.  Collective
 * over all workers; x is a pipeline stage.  *out is owned by the caller and borrows x; call
 * tti_device_p2p_destroy in any case. */
tutti_status tti_device_p2p_create(tti_exec *x, tti_device_p2p **out);
void tti_device_p2p_destroy(tti_device_p2p *p2p); /* takes NULL; waits */

/* Bytes of the inbox; 0 for a worker that has all layers. */
size_t tti_device_p2p_bytes(const tti_exec *x);

/* The device address of a slot that this stage reads. */
void *tti_device_p2p_address(const tti_device_p2p *p2p, int slot);

/* Switches to the host, before any message.  On all workers. */
void tti_device_p2p_disconnect(tti_device_p2p *p2p);

/* The connected group of devices; NULL: messages go through the host, or p2p is NULL. */
void *tti_device_p2p_group(const tti_device_p2p *p2p);
/* Describes the method in words, or the reason against it; "" if it was not requested. */
void tti_device_p2p_describe(const tti_device_p2p *p2p, tti_str *str);

/* ---- for connected devices ---- */

/* Before the following sums. overlapped: they stay in the queues, all their kernels have been
 * loaded. Otherwise each sum waits for all stages. */
void tti_device_p2p_begin(tti_device_p2p *p2p, bool overlapped);

/* In TTI_QUEUE_PEER: sends a value of this stage to its reader. src must stay valid until an event
 * later in that queue has been awaited: note, below. */
tutti_status tti_device_p2p_send(tti_device_p2p *p2p, int slot, const void *src, size_t n_bytes);
tutti_status tti_device_p2p_record(tti_device_p2p *p2p, int *place);

/* In the compute queue: later kernels wait for the value; and the sender may send the next one. */
tutti_status tti_device_p2p_recv(tti_device_p2p *p2p, int slot);
tutti_status tti_device_p2p_release(tti_device_p2p *p2p, int slot);

/* Enqueues: sums the gradients of parameters that several stages share, in the order of stages. */
tutti_status tti_device_p2p_sum_tied(tti_device_p2p *p2p);

/* The sum over all stages of doubles on the device, in place, in the order of stages: n is at most
 * the number of all sums, hashes and votes of a step. */
tutti_status tti_device_p2p_sum(tti_device_p2p *p2p, double *terms, size_t n);

/* Waits for all that is in the queues, or for an event; ends when another stage is lost or late. */
tutti_status tti_device_p2p_sync(tti_device_p2p *p2p);
tutti_status tti_device_p2p_await(tti_device_p2p *p2p, int event);

/* This stage has failed and the others have been notified: ends the waits on its device.  Keeps the
 * thread's error. */
void tti_device_p2p_give_up(tti_device_p2p *p2p, tutti_status status);

#endif /* TTI_EXEC_DEVICE_P2P_H */
