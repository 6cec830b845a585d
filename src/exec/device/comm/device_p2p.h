/* device_p2p.h - point-to-point messages between pipeline stages from device to device: activations
 * and their gradients, and gradients of tied parameters, those that several stages have.
 *
 * A stage has an inbox with memory for each slot of the mailbox that it reads (pipe.h).  If the
 * devices can access each other's memory, the sender writes to the inbox in a queue that overlaps
 * with its kernels, and the reader's kernels wait for it on the device. */
#ifndef TTI_EXEC_DEVICE_P2P_H
#define TTI_EXEC_DEVICE_P2P_H

#include "exec/worker/desc.h"

typedef struct tti_device_p2p tti_device_p2p;

/* Allocates the inbox and connects the devices if all workers of the job can connect. Collective
 * over all workers; x is a pipeline stage. *out is owned by the caller and borrows x; call
 * tti_device_p2p_destroy in any case. */
tutti_status tti_device_p2p_create(tti_exec *x, tti_device_p2p **out);
void tti_device_p2p_destroy(tti_device_p2p *p2p); /* accepts NULL; waits for all queues */

/* Bytes of the inbox; 0 for a worker without a pipeline. */
size_t tti_device_p2p_bytes(const tti_exec *x);

/* The device address of a slot that this stage reads. */
void *tti_device_p2p_address(const tti_device_p2p *p2p, int slot);

/* Switches to messages through the host. Call it on all workers before any message is sent. */
void tti_device_p2p_disconnect(tti_device_p2p *p2p);

/* The connected group of devices; NULL: messages go through the host, or p2p is NULL. */
void *tti_device_p2p_group(const tti_device_p2p *p2p);
/* Describes the connection, or why messages go through the host; "" if a direct one was not
 * requested. */
void tti_device_p2p_describe(const tti_device_p2p *p2p, tti_str *str);

/* ---- for connected devices ---- */

/* Sets how the following sums run. overlapped true: they are only enqueued, which requires that all
 * their kernels are loaded. False: each sum waits for all stages. */
void tti_device_p2p_begin(tti_device_p2p *p2p, bool overlapped);

/* Enqueues in TTI_QUEUE_PEER: sends a value of this stage to its reader. src must stay valid until
 * a later event of that queue (tti_device_p2p_record) has completed. */
tutti_status tti_device_p2p_send(tti_device_p2p *p2p, int slot, const void *src, size_t n_bytes);
tutti_status tti_device_p2p_record(tti_device_p2p *p2p, int *place);

/* Enqueue in the compute queue. Recv: later kernels wait for the value. Release: the sender may
 * reuse the slot after earlier kernels. */
tutti_status tti_device_p2p_recv(tti_device_p2p *p2p, int slot);
tutti_status tti_device_p2p_release(tti_device_p2p *p2p, int slot);

/* Enqueues the all-reduce of the gradients of tied parameters, in the order of stages. */
tutti_status tti_device_p2p_reduce_tied_grads(tti_device_p2p *p2p);

/* Sums n doubles on the device over all stages, in place, in the order of stages. n is at most the
 * number of sums, hashes and votes of a step. */
tutti_status tti_device_p2p_sum(tti_device_p2p *p2p, double *terms, size_t n);

/* Waits for all queues, or for an event. Fails if another stage is lost or late. */
tutti_status tti_device_p2p_sync(tti_device_p2p *p2p);
tutti_status tti_device_p2p_await(tti_device_p2p *p2p, int event);

/* Ends the waits on this stage's device. Call it after this worker has failed and notified the
 * others. Keeps the thread's error message. */
void tti_device_p2p_abort(tti_device_p2p *p2p, tutti_status status);

#endif /* TTI_EXEC_DEVICE_P2P_H */
