/* mailbox.h - buffer slots for point-to-point messages: one rank writes, another reads in place.
 *
 * Nothing is agreed on at each message, as in send and recv: a slot is empty or full, who puts
 * waits for empty, who reads for full, and both go on beside each other with other slots.  On a
 * host a message is copied once, by its sender, to where the receiver reads it; between hosts a
 * thread beside those that compute brings it there. */
#ifndef TTI_COMM_MAILBOX_H
#define TTI_COMM_MAILBOX_H

#include "tutti/comm.h"

typedef struct tti_mailbox tti_mailbox;

/* A slot: who reads it, how many bytes it has room for, and who fills it. */
typedef struct tti_mail_slot {
    int to;
    size_t n_bytes;
    int from;
} tti_mail_slot;

/* Collective, with the same slots [n_slots] on every rank, n_ranks >= 2.  comm is borrowed and must
 * outlive the mailbox; its memory goes with comm.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_mailbox_create(tutti_comm *comm, const tti_mail_slot *slots,
                                                int n_slots, tti_mailbox **out);
void tti_mailbox_destroy(tti_mailbox *box);

/* What texts call the ranks of comm, [n_ranks]: those of a part, by their ranks in the whole. */
void tti_mailbox_show_as(tti_mailbox *box, const int *shown);

/* Bytes of this rank's own slots, and of copies of those of other hosts. */
size_t tti_mailbox_bytes(const tti_mailbox *box);

/* What a slot for n_bytes takes of it. */
size_t tti_mailbox_room(size_t n_bytes);

/* Where this rank's own slots lie: what reads them may pin it; *n_bytes is filled. */
void *tti_mailbox_memory(const tti_mailbox *box, size_t *n_bytes);

/* The calls below may be made by several threads at once, each with slots of its own.  They end
 * with the failure of the group of comm, when a rank of it has left, or after its timeout with
 * TUTTI_E_TIMEOUT. */

/* Waits until the slot is empty and fills it: n_bytes as it was made. */
TUTTI_NODISCARD tutti_status tti_mailbox_put(tti_mailbox *box, int slot, const void *data);

/* Whether a slot, one of this rank's, is full: then wait returns at once. */
bool tti_mailbox_is_full(const tti_mailbox *box, int slot);

/* Waits until the slot, one of this rank's, is full; *data stays until it is freed. */
TUTTI_NODISCARD tutti_status tti_mailbox_wait(tti_mailbox *box, int slot, const void **data);
void tti_mailbox_free(tti_mailbox *box, int slot);

/* Ends the waits of all ranks with this failure, whose text is tutti_last_error(). */
void tti_mailbox_fail(tti_mailbox *box, tutti_status status);

#endif /* TTI_COMM_MAILBOX_H */
