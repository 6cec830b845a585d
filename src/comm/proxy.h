/* proxy.h - a proxy thread that sends and receives the messages of a mailbox between hosts.
 *
 * A slot is in the memory of its reader, as on one host; a sender on another host has a copy of
 * it.  The proxy thread of the sender sends the contents of the copy.  The proxy thread of the
 * reader writes them into the slot, marks it full, and notifies the sender when the slot is
 * empty again. */
#ifndef TTI_COMM_PROXY_H
#define TTI_COMM_PROXY_H

#include <stdatomic.h>

#include "comm/algorithm.h"

enum { TTI_SLOT_LINE = 64, TTI_SLOT_EMPTY = 0, TTI_SLOT_FULL = 1 };

/* A slot in memory: a state word, used as a futex, followed one cache line later by the bytes. */
typedef struct tti_slot {
    char *memory; /* NULL: this rank does not use the slot */
    size_t n_bytes;
    int from, to;
} tti_slot;

/* Marks a slot as empty or full, and wakes the thread that waits for it. */
void tti_slot_set(const tti_slot *slot, uint32_t value);
uint32_t tti_slot_get(const tti_slot *slot);

typedef struct tti_proxy tti_proxy;

/* Starts the proxy thread.  Collective over comm, whose ranks are on several hosts.  The slots must
 * be the same on every rank except for their memory. comm and slots are borrowed.  On success *out
 * is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_proxy_create(tutti_comm *comm, const tti_slot *slots, int n_slots,
                                              tti_proxy **out);

/* Sends all pending messages, unless the group has failed, then ends the thread.  NULL is a
 * no-op. */
void tti_proxy_destroy(tti_proxy *proxy);

/* For a slot between this rank and a rank of another host. tti_proxy_send queues the contents of
 * this rank's full copy; tti_proxy_post queues the notice to the sender that the slot is empty.
 * Any thread. */
void tti_proxy_send(tti_proxy *proxy, int slot);
void tti_proxy_post(tti_proxy *proxy, int slot);

/* Returns TUTTI_OK, or the first failure.  Any thread. */
TUTTI_NODISCARD tutti_status tti_proxy_check(tti_proxy *proxy);

/* Returns the reason why messages of other hosts may be late.  Any thread. */
tti_delay tti_proxy_delay(tti_proxy *proxy);

/* Ends the waits of all ranks with this failure, whose text is tutti_last_error().  Any thread. */
void tti_proxy_fail(tti_proxy *proxy, tutti_status status);

#endif /* TTI_COMM_PROXY_H */
