/* mailbox.h - buffer slots for point-to-point messages: one rank writes a slot, another reads it in
 * place.
 *
 * Unlike send and recv, the ranks do not agree on each message: a slot is empty or full, the writer
 * waits for empty, the reader for full, and both may use other slots meanwhile.  On one host the
 * sender copies a message once, to the place where the receiver reads it; between hosts a proxy
 * thread moves it. */
#ifndef TTI_COMM_MAILBOX_H
#define TTI_COMM_MAILBOX_H

#include "tutti/comm.h"

typedef struct tti_mailbox tti_mailbox;

/* A slot: its reader, its capacity in bytes, and its writer. */
typedef struct tti_mailbox_slot {
    int to;
    size_t n_bytes;
    int from;
} tti_mailbox_slot;

/* Creates a mailbox; slots [n_slots] must be equal on every rank, n_ranks >= 2.  Collective. comm
 * is borrowed, owns the memory and must outlive the mailbox.  On success *out is owned by the
 * caller. */
TUTTI_NODISCARD tutti_status tti_mailbox_create(tutti_comm *comm, const tti_mailbox_slot *slots,
                                                int n_slots, tti_mailbox **out);
void tti_mailbox_destroy(tti_mailbox *box);

/* Sets the rank numbers that error messages use, [n_ranks]: for a subgroup, the ranks in the whole
 * group.  If out of memory, messages keep the numbers of comm. */
void tti_mailbox_set_global_ranks(tti_mailbox *box, const int *global_ranks);

/* Bytes of this rank's own slots, and of its copies of slots on other hosts. */
size_t tti_mailbox_bytes(const tti_mailbox *box);

/* Bytes of memory that a slot for n_bytes needs. */
size_t tti_mailbox_room(size_t n_bytes);

/* The memory of this rank's own slots, which a device may pin; fills *n_bytes. */
void *tti_mailbox_memory(const tti_mailbox *box, size_t *n_bytes);

/* Several threads may call the following functions concurrently, each for its own slots.  Waits
 * fail if the comm's group fails, with TUTTI_E_PEER if one of its ranks has left, or with
 * TUTTI_E_TIMEOUT. */

/* Waits until the slot is empty, then copies data, as many bytes as the slot has, into it. */
TUTTI_NODISCARD tutti_status tti_mailbox_put(tti_mailbox *box, int slot, const void *data);

/* True if a slot of this rank is full: then wait returns at once. */
bool tti_mailbox_is_full(const tti_mailbox *box, int slot);

/* Waits until a slot of this rank is full; *data is valid until it is freed. */
TUTTI_NODISCARD tutti_status tti_mailbox_wait(tti_mailbox *box, int slot, const void **data);
void tti_mailbox_free(tti_mailbox *box, int slot);

/* Ends the waits of all ranks with this failure; the message is tutti_last_error(). */
void tti_mailbox_fail(tti_mailbox *box, tutti_status status);

#endif /* TTI_COMM_MAILBOX_H */
