/* courier.h - a proxy thread that sends and receives the messages of a mailbox between hosts.
 *
 * A slot lies with its reader, as on one host; a sender of another host has a copy of it.  The
 * courier of the sender sends what was put into the copy, the courier of the reader writes it into
 * the slot and says so, and brings back word when the slot is empty again. */
#ifndef TTI_COMM_COURIER_H
#define TTI_COMM_COURIER_H

#include <stdatomic.h>

#include "comm/algorithm.h"

enum { TTI_SLOT_LINE = 64, TTI_SLOT_EMPTY = 0, TTI_SLOT_FULL = 1 };

/* A word of state, a futex, and a line behind it the bytes. */
typedef struct tti_slot {
    char *memory; /* NULL: of no use to this rank */
    size_t n_bytes;
    int from, to;
} tti_slot;

/* Says of a slot that it is empty or full, and wakes who waits for that. */
void tti_slot_set(const tti_slot *slot, uint32_t value);
uint32_t tti_slot_get(const tti_slot *slot);

typedef struct tti_courier tti_courier;

/* Collective over comm, which lies on several hosts, with the same slots on every rank but for
 * their memory; both are borrowed.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_courier_create(tutti_comm *comm, const tti_slot *slots,
                                                int n_slots, tti_courier **out);

/* Sends first what was given to it, unless the group has failed.  Takes NULL. */
void tti_courier_destroy(tti_courier *courier);

/* Of a slot between this rank and one of another host: its copy is full, so send it; it is empty,
 * so tell its sender.  By any thread. */
void tti_courier_send(tti_courier *courier, int slot);
void tti_courier_tell(tti_courier *courier, int slot);

/* TUTTI_OK, or the first failure.  By any thread. */
TUTTI_NODISCARD tutti_status tti_courier_check(tti_courier *courier);

/* Why messages of other hosts may come late.  By any thread. */
tti_delay tti_courier_delay(tti_courier *courier);

/* Ends the waits of all ranks with this failure, whose text is tutti_last_error().  By any thread.
 */
void tti_courier_fail(tti_courier *courier, tutti_status status);

#endif /* TTI_COMM_COURIER_H */
