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

/* Collective over comm, n_ranks >= 2: the root gets channels[r] to each other rank r, the others
 * channels[root] to it; the rest of channels [n_ranks] is NULL. area_bytes [n_areas]: the same on
 * every rank; areas are zero at first.  Channels are owned by the caller; comm may break or be
 * destroyed before them.  On failure there are none. */
TUTTI_NODISCARD tutti_status tti_channels_open(tutti_comm *comm, int root, const size_t *area_bytes,
                                               int n_areas, tti_channel **channels);
void tti_channel_close(tti_channel *c); /* NULL is a no-op */

/* The other end hears that this one has gone, and waits of this end are over.  Any thread. */
void tti_channel_end(tti_channel *c);

/* Ends the waits of this end, as if the other one had closed; sending still works.  Any thread. */
void tti_channel_deafen(tti_channel *c);

/* 64-byte aligned. */
void *tti_channel_area(tti_channel *c, int area);

/* Sends bytes [1 .. TTI_CHANNEL_BYTES], and the areas whose bits are set.  TUTTI_E_PEER: the other
 * end has gone; TUTTI_E_TIMEOUT: it takes nothing, for timeout_ms of comm. */
TUTTI_NODISCARD tutti_status tti_channel_send(tti_channel *c, const void *bytes, size_t n_bytes,
                                              unsigned areas);

/* Waits at most timeout_ms, or TTI_NO_TIMEOUT, for a message of the other end.  *n_bytes: how many
 * bytes have room, then how many came.  may_bring: bits of the areas that it may have sent; of
 * others it is TUTTI_E_MISMATCH, as is one that has no room and all that is not a message. */
TUTTI_NODISCARD tutti_status tti_channel_recv(tti_channel *c, void *bytes, size_t *n_bytes,
                                              unsigned may_bring, int timeout_ms);

/* Waits until the other end has begun to send a message, or is gone: at most timeout_ms, and longer
 * while watch sees a rank in a long phase. */
TUTTI_NODISCARD tutti_status tti_channel_await(tti_channel *c, int timeout_ms,
                                               const tti_phase_watch *watch);

/* Channels over a connected socket, which they own, for tests: areas are sent. */
TUTTI_NODISCARD tutti_status tti_channel_over(int fd, int peer, int timeout_ms,
                                              const size_t *area_bytes, int n_areas,
                                              tti_channel **out);

#endif /* TTI_COMM_CHANNEL_H */
