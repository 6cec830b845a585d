/* device_exchange.h - the collectives of a tensor axis between workers on devices: directly between
 * devices, as part of the captured step, or through the host's memory and communicator. */
#ifndef TTI_EXEC_DEVICE_EXCHANGE_H
#define TTI_EXEC_DEVICE_EXCHANGE_H

#include "backend/backend.h"
#include "exec/exec.h"
#include "passes/norm_exchange.h"

typedef struct tti_device_exchange tti_device_exchange;

/* Connects the devices of the axis if all workers of the job can, else allocates host memory for
 * the largest value of the programs' collectives; *out NULL: there are none.  Collective over all
 * workers; x->divided exists.  On success *out is owned by the caller, used by one thread, and
 * borrows x. */
tutti_status tti_device_exchange_create(tti_exec *x, tti_device_exchange **out);
void tti_device_exchange_destroy(tti_device_exchange *exchange); /* takes NULL */

/* Bytes of the device that it may take. */
size_t tti_device_exchange_bytes(const tti_exec *x);

/* The group of devices that exchange by themselves; NULL: they do by way of the host, or there is
 * no exchange at all (NULL). */
void *tti_device_exchange_group(const tti_device_exchange *exchange);
/* Describes the method in words, or the reason for the host; "" if direct access was not requested.
 */
void tti_device_exchange_describe(const tti_device_exchange *exchange, tti_str *str);

/* Switches to the host, before any communication.  On all workers. */
tutti_status tti_device_exchange_give_up(tti_device_exchange *exchange, const char *why);

/* The kernel of TTI_COLLECTIVE ops on a device.  Its state is the exchange, borrowed; NULL: it can
 * only be inspected.  The same bits as exec/program/collective.h, which runs on the host.  Through
 * the host it waits for the device, so no step with one can be captured; otherwise later kernels do
 * not wait for it, but for tti_device_exchange_wait. */
extern const tti_kernel tti_device_exchange_kernel;

/* ---- between devices: all of it does nothing where the exchange is NULL or by way of the host
 * ----
 */

/* Before the following launches. beside: they are captured, or all their kernels have been loaded.
 * Otherwise each collective waits for all workers, because a kernel that waits for a peer must not
 * run while another one is being loaded. */
void tti_device_exchange_begin(tti_device_exchange *exchange, bool beside);

/* The next collective does not overlap with kernels. */
void tti_device_exchange_alone(tti_device_exchange *exchange);

/* Later kernels wait for all collectives so far. */
tutti_status tti_device_exchange_wait(tti_device_exchange *exchange);

/* Memory for the activations of the one lane, which the other devices reach; NULL: the lane takes
 * its own.  The exchange's. */
void *tti_device_exchange_arena(const tti_device_exchange *exchange);

/* Whether the steps of a norm between collectives can run as one; and runs them: later kernels wait
 * for it, or, with beside, for everything but the rows of the other worker, which arrive before
 * tti_device_exchange_wait. */
bool tti_device_exchange_joins(const tti_device_exchange *exchange, const tti_program *program,
                               const tti_norm_exchange *joint);
tutti_status tti_device_exchange_norm(tti_device_exchange *exchange, tti_device_norm *norm,
                                      bool beside);

/* The step of the program whose product sends the terms of the norm at step s, by
 * tti_device_exchange_push; -1: there is none.  If norms are joined. */
int tti_device_exchange_product(const tti_device_exchange *exchange, const tti_program *program,
                                int s, const tti_norm_exchange *joint);
/* The offset in the arena of terms sent by others. */
size_t tti_device_exchange_inbox(const tti_device_exchange *exchange);
tutti_status tti_device_exchange_push(tti_device_exchange *exchange, const tti_device_push *push);

/* Whether the step after a norm, which reads its result, may begin before all of it has arrived;
 * and marks it: after a norm that ran with beside, and was pulled.  Steps that overwrite the norm's
 * result must wait: the own rows may still be being sent. */
bool tti_device_exchange_may_pull(const tti_device_exchange *exchange, const tti_node *product,
                                  const tti_norm_exchange *joint);
tutti_status tti_device_exchange_pull(tti_device_exchange *exchange, const tti_device_push *pull);

/* The sum over the axis of doubles of the device, in their place, added in the order of ranks. */
tutti_status tti_device_exchange_sum(tti_device_exchange *exchange, double *terms, size_t n);

/* Waits for a mark, or for the failure of a worker. */
tutti_status tti_device_exchange_await(tti_device_exchange *exchange, int mark);

#endif /* TTI_EXEC_DEVICE_EXCHANGE_H */
