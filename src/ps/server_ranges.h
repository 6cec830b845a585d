/* server_ranges.h - the first process of a server that spans several, which directs the range
 * servers.
 *
 * Worker r's process owns range r of the parameters, their state and averages, r < n_ranges.  The
 * first one, which has the queue (server.c), orders all actions: its thread sends each request to
 * the others before it executes its own part.  So all ranges see the same requests in the same
 * order, an update is made in all of them or in none, and parameters are never a mixture of two
 * versions.  Gradients and parameters are sent directly between a worker and the range servers,
 * concurrently; the order to apply a gradient is given when every range server has its part.
 *
 *   server_ranges.c  in the first process: orders, sums over blocks of all ranges, fetched state
 *   server_range.c  in the others: a thread that executes orders, and one for each other worker
 *   server_keys.c    in all: a worker's gradients to the range servers, parameters from them
 * The first process has its range in the queue's own memory (server_listener.c, server_client.c).
 */
#ifndef TTI_EXEC_SERVER_RANGES_H
#define TTI_EXEC_SERVER_RANGES_H

#include "comm/channel.h"
#include "ps/server_state.h"
#include "ps/server_wire.h"

/* ---- server_ranges.c: of the server's thread, without the mutex; without ranges all are OK ----
 */

/* channels [n]; takes ownership of all but the first. n is n_ranges of desc, or the number of parts
 * of a divided model (server_group.h).  NULL: out of memory. */
tti_ranges *tti_ranges_create(const tti_server_desc *desc, int n, tti_channel *const *channels);
void tti_ranges_close(tti_ranges *ranges); /* range servers end with it; takes NULL */

/* The parameters as they are now go to worker r->worker. */
tutti_status tti_ranges_copy(tti_ranges *ranges, const tti_request *r);

/* Begins the update of r from the gradients in bits. end waits until all range servers have made
 * it, whether or not this range's own part succeeded, and makes *hash that of all: the sum over the
 * ranges. */
tutti_status tti_ranges_update(tti_ranges *ranges, const tti_request *r, uint64_t workers);
tutti_status tti_ranges_end_update(tti_ranges *ranges, uint64_t *hash);

/* Does what join of tti_exec_desc must do. */
tutti_status tti_ranges_join(tti_ranges *ranges, double *values, size_t n_each);

/* State k of keys, in other ranges than 0, to `to`, which begins with keys.first. */
tutti_status tti_ranges_fetch(tti_ranges *ranges, int k, tti_range keys, float *to);

/* Bytes that went between range servers 1 .. n_ranges-1 and workers of other processes: bytes
 * [n_ranges]. */
tutti_status tti_ranges_traffic(tti_ranges *ranges, int64_t *bytes);

/* A range server does not answer: nothing more can be done. */
bool tti_ranges_is_lost(const tti_ranges *ranges);

/* ---- server_range.c ---- */

/* Serves a part or a range of the server of desc.  kind: of its workers, as from tti_server_kind;
 * control: from the first process; channels [n_workers]: from the workers of other processes, NULL
 * for rank itself.  Takes ownership of them, also on failure. */
tutti_status tti_range_server_create(const tti_server_desc *desc, const char *kind, int rank,
                                     tti_channel *control, tti_channel *const *channels,
                                     tti_range_server **out);

/* Waits until the first process ends it or itself, at most timeout_ms or TTI_NO_TIMEOUT; takes
 * NULL.
 */
void tti_range_server_close(tti_range_server *range_server, int timeout_ms);

/* The worker of this process: memory for its gradient [range]; and the parameters of that version,
 * when they are there, with averages (NULL: none). */
float *tti_range_server_grads(tti_range_server *range_server);
void tti_range_server_push(tti_range_server *range_server);
tutti_status tti_range_server_pull(tti_range_server *range_server, int64_t version,
                                   const float **params, const float **ema);

/* While there is no order: stores elements first .. of state k that belong to its range. */
void tti_range_server_store(tti_range_server *range_server, int k, tti_range keys,
                            const float *data);

/* Likewise: copies state k of keys, which must all belong to its range, to `to`, which begins with
 * keys.first. */
void tti_range_server_fetch(tti_range_server *range_server, int k, tti_range keys, float *to);

/* The elements of keys that are x's, from data, which begins with keys.first. */
void tti_exec_store_range(tti_exec *x, int k, tti_range keys, const float *data);

/* ---- server_keys.c: of the worker's thread; without keys all are OK ---- */

/* channels [n_ranges]: to each range server, NULL to the first and to one in this process.  They
 * become the keys'.  NULL: out of memory. */
tti_keys *tti_keys_create(const tti_server_desc *desc, tti_channel *const *channels);

/* For a part of a divided model, whose one owner is the worker `part` of the first replica; channel
 * NULL: it is this process. */
tti_keys *tti_keys_create_for_part(const tti_server_desc *desc, int part, tti_channel *channel);
void tti_keys_close(tti_keys *keys); /* takes NULL */

/* The sum of n_pieces [n_flat] to the range servers: of other ranges than 0, or of the part. */
tutti_status tti_keys_push(tti_server *s, tti_exec *x, float *const *pieces, int n_pieces);

/* Their parameters of that version, and averages, to memory of the host [n_flat]; ema NULL: not
 * wanted. */
tutti_status tti_keys_pull(tti_server *s, tti_exec *x, int64_t version, float *params, float *ema);

#endif /* TTI_EXEC_SERVER_RANGES_H */
