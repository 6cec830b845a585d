/* channel.h - messages between one rank and each other rank, independent of the collectives of a
 * group.
 *
 * A communicator breaks for all of its ranks when one leaves; a channel ends alone.  A message has
 * a few bytes and may carry areas: arrays that both ends have.  On one host an area is shared
 * memory, and nothing is copied; between hosts its bytes follow the message.  Both ends take turns:
 * a rank that has sent an area does not access it until the other end has answered.
 *
 * The root rank listens only while channels are opened: on a Unix socket of this user for ranks of
 * its host, for others at a port, where callers must prove a secret of this start. */
#ifndef TTI_COMM_CHANNEL_H
#define TTI_COMM_CHANNEL_H

#include "comm/progress.h"

typedef struct tti_channel tti_channel;

enum { TTI_CHANNEL_BYTES = 8192, TTI_CHANNEL_AREAS = 4, TTI_NO_TIMEOUT = -1 };

/* Opens channels over comm, n_ranks >= 2: the root gets channels[r] to each other rank r, the
 * others channels[root] to the root; other entries of channels [n_ranks] are NULL. area_bytes
 * [n_areas] must be equal on every rank; areas are zeroed.  Channels are owned by the caller; comm
 * may break or be destroyed before them.  On failure there are none.  Collective. */
TUTTI_NODISCARD tutti_status tti_channels_open(tutti_comm *comm, int root, const size_t *area_bytes,
                                               int n_areas, tti_channel **channels);
void tti_channel_close(tti_channel *c); /* NULL is a no-op */

/* Notifies the other end that this one is closed, and ends waits of this end.  Any thread. */
void tti_channel_end(tti_channel *c);

/* Ends the waits of this end as if the other end had closed; sending still works.  Any thread. */
void tti_channel_deafen(tti_channel *c);

/* 64-byte aligned. */
void *tti_channel_area(tti_channel *c, int area);

/* Sends bytes [1 .. TTI_CHANNEL_BYTES], and the areas whose bits are set.  TUTTI_E_PEER: the other
 * end is closed; TUTTI_E_TIMEOUT: it has received nothing for timeout_ms of comm. */
TUTTI_NODISCARD tutti_status tti_channel_send(tti_channel *c, const void *bytes, size_t n_bytes,
                                              unsigned areas);

/* Waits at most timeout_ms, or TTI_NO_TIMEOUT, for a message.  *n_bytes: size of the buffer, then
 * of the message. may_bring: bits of the areas that the message may include.  TUTTI_E_MISMATCH: it
 * has other areas, is longer than the buffer, or is not a message. */
TUTTI_NODISCARD tutti_status tti_channel_recv(tti_channel *c, void *bytes, size_t *n_bytes,
                                              unsigned may_bring, int timeout_ms);

/* Waits until the other end has begun to send a message or is gone: at most timeout_ms, or longer
 * while watch reports a rank in a long phase. */
TUTTI_NODISCARD tutti_status tti_channel_await(tti_channel *c, int timeout_ms,
                                               const tti_phase_watch *watch);

/* For tests: channels over a connected socket, which they own; areas are sent. */
TUTTI_NODISCARD tutti_status tti_channel_over(int fd, int peer, int timeout_ms,
                                              const size_t *area_bytes, int n_areas,
                                              tti_channel **out);

#endif /* TTI_COMM_CHANNEL_H */
