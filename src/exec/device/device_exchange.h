/* device_exchange.h - the exchanges of a tensor axis between workers on devices: between the
 * devices themselves, as a part of the recorded step, or by way of the host's memory and
 * communicator. */
#ifndef TTI_EXEC_DEVICE_EXCHANGE_H
#define TTI_EXEC_DEVICE_EXCHANGE_H

#include "backend/backend.h"
#include "exec/exec.h"
#include "passes/norm_exchange.h"

typedef struct tti_device_exchange tti_device_exchange;

/* Meets the devices of the axis where all workers of the job can, else takes memory of the host for
 * the largest value that the programs exchange; *out NULL: they exchange none.  Collective over all
 * workers; x->divided is there.  On success *out is owned by the caller, used by one thread, and
 * borrows x. */
tutti_status tti_device_exchange_create(tti_exec *x, tti_device_exchange **out);
void tti_device_exchange_destroy(tti_device_exchange *exchange); /* takes NULL */

/* Bytes of the device that it may take. */
size_t tti_device_exchange_bytes(const tti_exec *x);

/* The group of devices that exchange by themselves; NULL: they do by way of the host, or there is
 * no exchange at all (NULL). */
void *tti_device_exchange_group(const tti_device_exchange *exchange);
/* How, in words; or why it is by way of the host, "" where nobody asked. */
void tti_device_exchange_describe(const tti_device_exchange *exchange, tti_str *str);

/* Takes the way by the host after all, before anything was exchanged.  On all workers. */
tutti_status tti_device_exchange_give_up(tti_device_exchange *exchange, const char *why);

/* The kernel of TTI_COLLECTIVE ops on a device.  Its state is the exchange, borrowed; NULL: it can
 * only be looked at.  The same bits as exec/program/collective.h, which adds by way of the host. By
 * that way it waits for the device, so no step with one can be recorded; else what computes next
 * does not wait for it, but for tti_device_exchange_wait. */
extern const tti_kernel tti_device_exchange_kernel;

/* ---- between devices: all of it does nothing where the exchange is NULL or by way of the host
 * ----
 */

/* What is put from here on: beside: is recorded, or everything in it has been loaded.  Else each
 * exchange waits for all, since a kernel that waits for a peer must not meet one that is still
 * being loaded. */
void tti_device_exchange_begin(tti_device_exchange *exchange, bool beside);

/* Nothing computes beside the next exchange. */
void tti_device_exchange_alone(tti_device_exchange *exchange);

/* What computes from here on comes after all exchanges so far. */
tutti_status tti_device_exchange_wait(tti_device_exchange *exchange);

/* Memory for the activations of the one lane, which the other devices reach; NULL: the lane takes
 * its own.  The exchange's. */
void *tti_device_exchange_arena(const tti_device_exchange *exchange);

/* Whether the steps of a norm between exchanges can be made at once, and that: with what computes
 * behind it waiting for it, or, beside, for all of it but the rows of the other worker, which come
 * until tti_device_exchange_wait. */
bool tti_device_exchange_joins(const tti_device_exchange *exchange, const tti_program *program,
                               const tti_norm_exchange *joint);
tutti_status tti_device_exchange_norm(tti_device_exchange *exchange, tti_device_norm *norm,
                                      bool beside);

/* The step of the program whose product brings the norm at step s the terms that it wants, by
 * tti_device_exchange_push; -1: there is none.  Where norms are joined. */
int tti_device_exchange_product(const tti_device_exchange *exchange, const tti_program *program,
                                int s, const tti_norm_exchange *joint);
/* Where the terms that others bring lie in the arena. */
size_t tti_device_exchange_inbox(const tti_device_exchange *exchange);
tutti_status tti_device_exchange_push(tti_device_exchange *exchange, const tti_device_push *push);

/* Whether the step behind a norm, which reads what it gives, may begin before all of that has come,
 * and that: behind a norm that was made beside, and pulled.  Whoever writes over what that gives
 * waits: the own rows may still be on their way to the other. */
bool tti_device_exchange_may_pull(const tti_device_exchange *exchange, const tti_node *product,
                                  const tti_norm_exchange *joint);
tutti_status tti_device_exchange_pull(tti_device_exchange *exchange, const tti_device_push *pull);

/* The sum over the axis of doubles of the device, in their place, added in the order of ranks. */
tutti_status tti_device_exchange_sum(tti_device_exchange *exchange, double *terms, size_t n);

/* Waits for a mark, or for the failure of a worker. */
tutti_status tti_device_exchange_await(tti_device_exchange *exchange, int mark);

#endif /* TTI_EXEC_DEVICE_EXCHANGE_H */
