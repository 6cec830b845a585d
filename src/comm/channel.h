/* channel.h - messages between one rank and each other rank, independent of the collectives of a
 * group.
 *
 * A communicator breaks for all of its ranks when one rank leaves; closing a channel affects only
 * its two ends.  A message has a few bytes and may carry areas: arrays that exist on both ends.  On
 * one host an area is shared memory, and nothing is copied; between hosts its bytes follow the
 * message.  Only one end accesses an area at a time: a rank that has sent an area does not access
 * it until the other end has answered.
 *
 * The root rank listens only while channels are opened: on a Unix socket for ranks of its host,
 * which must belong to the same user, and on a TCP port for the other ranks, which must prove that
 * they know a secret.  The secret is new for each start. ¶ A channel has one sending and one
 * receiving thread at most, unless a function says "Any thread". */
#ifndef TTI_COMM_CHANNEL_H
#define TTI_COMM_CHANNEL_H

#include "comm/progress.h"

typedef struct tti_channel tti_channel;

enum { TTI_CHANNEL_BYTES = 8192, TTI_CHANNEL_AREAS = 4, TTI_NO_TIMEOUT = -1 };

/* Opens channels over comm, n_ranks >= 2.  The root gets channels[r] to each other rank r; every
 * other rank gets channels[root].  Other entries of channels [n_ranks] are NULL. area_bytes
 * [n_areas] must be equal on every rank; areas are zeroed.  The caller owns the channels; comm may
 * break or be destroyed before them.  On failure no channel stays open.  Collective. */
TUTTI_NODISCARD tutti_status tti_channels_open(tutti_comm *comm, int root, const size_t *area_bytes,
                                               int n_areas, tti_channel **channels);
void tti_channel_close(tti_channel *c); /* NULL is a no-op */

/* Notifies the other end that this one is closed, and ends waits of this end.  Any thread. */
void tti_channel_end(tti_channel *c);

/* Ends the waits of this end as if the other end had closed; sending still works.  Any thread. */
void tti_channel_stop_receiving(tti_channel *c);

/* The memory of an area, 64-byte aligned, owned by the channel. */
void *tti_channel_area(tti_channel *c, int area);

/* Sends bytes [1 .. TTI_CHANNEL_BYTES], and the areas whose bits are set.  TUTTI_E_PEER: the other
 * end is closed.  TUTTI_E_TIMEOUT: the other end received nothing for the timeout_ms of comm. */
TUTTI_NODISCARD tutti_status tti_channel_send(tti_channel *c, const void *bytes, size_t n_bytes,
                                              unsigned areas);

/* Waits at most timeout_ms, or TTI_NO_TIMEOUT, for a message. *n_bytes: on entry the size of the
 * buffer, on return that of the message. may_bring: bits of the areas that the message may
 * include.  TUTTI_E_MISMATCH: the message includes other areas, is longer than the buffer, or is
 * malformed. */
TUTTI_NODISCARD tutti_status tti_channel_recv(tti_channel *c, void *bytes, size_t *n_bytes,
                                              unsigned may_bring, int timeout_ms);

/* Waits until a message begins to arrive or the other end closes.  The limit is timeout_ms, or
 * longer while watch reports a rank in a long phase.  TUTTI_E_TIMEOUT: neither happened in time. */
TUTTI_NODISCARD tutti_status tti_channel_await(tti_channel *c, int timeout_ms,
                                               const tti_phase_watch *watch);

/* For tests: a channel over a connected socket, which the channel owns; areas are sent through
 * it. */
TUTTI_NODISCARD tutti_status tti_channel_over(int fd, int peer, int timeout_ms,
                                              const size_t *area_bytes, int n_areas,
                                              tti_channel **out);

#endif /* TTI_COMM_CHANNEL_H */
