/* move.c - the calls that only move bytes: all_gather, broadcast, all_to_all, send, recv.
 *
 * Small payloads are part of the agreement itself.  If peers' memory is visible, each rank reads
 * the data that it needs, and a barrier ends the call.  Otherwise the transport sends messages. */
#include <stdlib.h>
#include <string.h>

#include "comm/call.h"

/* A call that moves n_bytes per rank (or per pair of ranks). */
typedef struct move {
    tutti_comm *comm;
    char *src, *dst;
    size_t n_bytes;
    bool direct;
} move;

/* Sends to and receives from all peers in one call, with at most two messages per peer. */
static tutti_status send_recv_all(const move *m, size_t out_stride) {
    tutti_comm *comm = m->comm;
    int n_ranks = tutti_comm_n_ranks(comm);
    tti_message *messages = tti_comm_messages(comm, 2 * n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 1; i < n_ranks; i++) {
        int peer = (tutti_comm_rank(comm) + i) % n_ranks;
        messages[n++] = (tti_message){
            .peer = peer, .out = m->src + (size_t)peer * out_stride, .n_bytes = m->n_bytes};
        messages[n++] = (tti_message){
            .peer = peer, .in = m->dst + (size_t)peer * m->n_bytes, .n_bytes = m->n_bytes};
    }
    return tti_comm_send_recv(comm, messages, n);
}

/* Sets the buffers that all_gather and broadcast offer: the source, and the stage if they can run
 * in two levels. */
static void offer_with_stage(const move *m, tti_offer *offer, void *src) {
    offer->bufs[offer->n_bufs++] = src;
    offer->buf_bytes = m->n_bytes;
    tti_offer_stage(m->comm, offer);
}

static tutti_status gather_in_levels(const move *m) {
    size_t n = (size_t)tutti_comm_n_ranks(m->comm);
    size_t *bounds = calloc(2 * n + 1, sizeof *bounds), *from = bounds + n + 1;
    if (!bounds) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for bounds of %zu ranks", n);
    for (size_t r = 0; r <= n; r++) bounds[r] = r * m->n_bytes;
    const tti_partitions_desc partitions = {.src = m->src,
                                            .dst = m->dst,
                                            .bounds = bounds,
                                            .n_groups = 1,
                                            .from = from,
                                            .dtype = TUTTI_U8};
    tutti_status st = tti_hosts_gather(m->comm, &partitions);
    free(bounds);
    return st;
}

/* Broadcasts as a gather in which only the root has a partition. */
static tutti_status broadcast_in_levels(const move *m, int root) {
    size_t n = (size_t)tutti_comm_n_ranks(m->comm), *bounds = calloc(n + 1, sizeof *bounds);
    if (!bounds) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for bounds of %zu ranks", n);
    for (int r = root + 1; r <= tutti_comm_n_ranks(m->comm); r++) bounds[r] = m->n_bytes;
    const tti_partitions_desc partitions = {
        .src = m->dst, .dst = m->dst, .bounds = bounds, .n_groups = 1, .dtype = TUTTI_U8};
    tutti_status st = tti_hosts_gather(m->comm, &partitions);
    free(bounds);
    return st;
}

/* Gathers in a ring, where each rank has two partners.  In each round it forwards the data that it
 * received in the previous round. */
static tutti_status gather_in_ring(const move *m) {
    tutti_comm *comm = m->comm;
    int n = tutti_comm_n_ranks(comm), rank = tutti_comm_rank(comm);
    for (int i = 0; i < n - 1; i++) {
        size_t out = (size_t)((rank - i + n) % n), in = (size_t)((rank - i - 1 + n) % n);
        tti_message messages[2] = {
            {.peer = (rank + 1) % n, .out = m->dst + out * m->n_bytes, .n_bytes = m->n_bytes},
            {.peer = (rank - 1 + n) % n, .in = m->dst + in * m->n_bytes, .n_bytes = m->n_bytes}};
        TTI_TRY(tti_comm_send_recv(comm, messages, 2));
    }
    return TUTTI_OK;
}

static tutti_status gather_unseen(const move *m) {
    if (tti_hosts_near(m->comm)) return gather_in_levels(m);
    return tti_comm_is_sparse(m->comm) ? gather_in_ring(m) : send_recv_all(m, 0);
}

static tutti_status all_gather(move *m, tti_offer *offer) {
    tutti_comm *comm = m->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    bool is_inline = m->n_bytes <= tti_comm_inline_bytes(comm);
    if (is_inline) {
        offer->inline_data = m->src;
        offer->inline_bytes = m->n_bytes;
    } else {
        offer_with_stage(m, offer, m->src);
    }
    TTI_TRY(tti_call_begin(comm, offer, &m->direct));
    if (m->n_bytes == 0) return TUTTI_OK;
    char *own = m->dst + (size_t)rank * m->n_bytes;
    if (own != m->src) memcpy(own, m->src, m->n_bytes); /* if own is src, peers may be reading it */
    if (!is_inline && !m->direct) return gather_unseen(m);
    if (!is_inline) tti_count_inside(comm, m->n_bytes * (size_t)(n_ranks - 1));
    for (int i = 1; i < n_ranks; i++) {
        int p = (rank + i) % n_ranks;
        memcpy(m->dst + (size_t)p * m->n_bytes,
               is_inline ? tti_comm_payload(comm, p) : tti_comm_view(comm, p, 0), m->n_bytes);
    }
    return is_inline ? TUTTI_OK : tti_comm_barrier(comm);
}

tutti_status tutti_comm_all_gather(tutti_comm *comm, const void *src, void *dst, size_t n_elems,
                                   tutti_dtype dtype) {
    TTI_TRY(tti_check_comm("all_gather", comm));
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    TTI_TRY(tti_check_elems("all_gather", n_elems, n_ranks, dtype));
    move m = {.comm = comm,
              .src = (char *)(uintptr_t)src,
              .dst = dst,
              .n_bytes = n_elems * tutti_dtype_bytes(dtype)};
    if (m.src != m.dst + (size_t)rank * m.n_bytes || !dst)
        TTI_TRY(tti_check_buffers("all_gather", src, m.n_bytes, dst, m.n_bytes * (size_t)n_ranks));
    if (src == dst && rank != 0 && m.n_bytes)
        return tti_fail(TUTTI_E_INVALID, "all_gather: src in place is dst + rank*n_elems, not dst");
    if (m.n_bytes > tti_comm_inline_bytes(comm)) TTI_TRY(tti_comm_stage(comm));
    tti_offer offer = {.call = {.kind = TTI_CALL_ALL_GATHER, .dtype = dtype, .n_elems = n_elems}};
    return tti_call_end(comm, all_gather(&m, &offer));
}

tutti_status tti_comm_gather_words(tutti_comm *comm, uint64_t mine, uint64_t **all) {
    size_t n = (size_t)tutti_comm_n_ranks(comm);
    *all = calloc(n, sizeof **all);
    if (!*all) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for numbers of %zu ranks", n);
    tutti_status st = tutti_comm_all_gather(comm, &mine, *all, 1, TUTTI_I64);
    if (st == TUTTI_OK) return TUTTI_OK;
    free(*all);
    *all = NULL;
    return st;
}

/* Fallback if memory is not visible: the root sends to each rank. */
static tutti_status broadcast_by_messages(const move *m, int root) {
    tutti_comm *comm = m->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    tti_message *messages = tti_comm_messages(comm, n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    if (rank != root)
        messages[n++] = (tti_message){.peer = root, .in = m->dst, .n_bytes = m->n_bytes};
    for (int p = 0; rank == root && p < n_ranks; p++)
        if (p != root)
            messages[n++] = (tti_message){.peer = p, .out = m->dst, .n_bytes = m->n_bytes};
    return tti_comm_send_recv(comm, messages, n);
}

/* Broadcasts along a binomial tree below the root, so that each rank has few partners. */
static tutti_status broadcast_in_tree(const move *m, int root) {
    tutti_comm *comm = m->comm;
    int n = tutti_comm_n_ranks(comm), at = (tutti_comm_rank(comm) - root + n) % n, bit = 1;
    while (bit < n && !(at & bit)) bit *= 2;
    if (at > 0) {
        tti_message in = {.peer = (at - bit + root) % n, .in = m->dst, .n_bytes = m->n_bytes};
        TTI_TRY(tti_comm_send_recv(comm, &in, 1));
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (at + bit >= n) continue;
        tti_message out = {.peer = (at + bit + root) % n, .out = m->dst, .n_bytes = m->n_bytes};
        TTI_TRY(tti_comm_send_recv(comm, &out, 1));
    }
    return TUTTI_OK;
}

static tutti_status broadcast_unseen(const move *m, int root) {
    if (tti_hosts_near(m->comm)) return broadcast_in_levels(m, root);
    return tti_comm_is_sparse(m->comm) ? broadcast_in_tree(m, root)
                                       : broadcast_by_messages(m, root);
}

static tutti_status broadcast(move *m, tti_offer *offer, int root) {
    tutti_comm *comm = m->comm;
    int rank = tutti_comm_rank(comm);
    bool is_inline = m->n_bytes <= tti_comm_inline_bytes(comm);
    if (is_inline && rank == root) {
        offer->inline_data = m->dst;
        offer->inline_bytes = m->n_bytes;
    } else if (!is_inline) {
        offer_with_stage(m, offer, m->dst);
    }
    TTI_TRY(tti_call_begin(comm, offer, &m->direct));
    if (m->n_bytes == 0) return TUTTI_OK;
    if (!is_inline && !m->direct) return broadcast_unseen(m, root);
    if (rank != root && !is_inline) tti_count_inside(comm, m->n_bytes);
    if (rank != root)
        memcpy(m->dst, is_inline ? tti_comm_payload(comm, root) : tti_comm_view(comm, root, 0),
               m->n_bytes);
    return is_inline ? TUTTI_OK : tti_comm_barrier(comm);
}

tutti_status tutti_comm_broadcast(tutti_comm *comm, void *buf, size_t n_elems, tutti_dtype dtype,
                                  int root) {
    TTI_TRY(tti_check_comm("broadcast", comm));
    int n_ranks = tutti_comm_n_ranks(comm);
    TTI_TRY(tti_check_elems("broadcast", n_elems, 1, dtype));
    if (root < 0 || root >= n_ranks)
        return tti_fail(TUTTI_E_INVALID, "broadcast: root must be in 0 .. %d, got %d", n_ranks - 1,
                        root);
    if (!buf && n_elems) return tti_fail(TUTTI_E_INVALID, "broadcast: buf is NULL");
    move m = {.comm = comm, .dst = buf, .n_bytes = n_elems * tutti_dtype_bytes(dtype)};
    if (m.n_bytes > tti_comm_inline_bytes(comm)) TTI_TRY(tti_comm_stage(comm));
    tti_offer offer = {
        .call = {.kind = TTI_CALL_BROADCAST, .dtype = dtype, .peer = root, .n_elems = n_elems}};
    return tti_call_end(comm, broadcast(&m, &offer, root));
}

static tutti_status all_to_all(move *m, tti_offer *offer) {
    tutti_comm *comm = m->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    offer->bufs[offer->n_bufs++] = m->src;
    offer->buf_bytes = m->n_bytes * (size_t)n_ranks;
    TTI_TRY(tti_call_begin(comm, offer, &m->direct));
    if (m->n_bytes == 0) return TUTTI_OK;
    size_t mine = (size_t)rank * m->n_bytes;
    memcpy(m->dst + mine, m->src + mine, m->n_bytes);
    if (!m->direct) return send_recv_all(m, m->n_bytes);
    tti_count_inside(comm, m->n_bytes * (size_t)(n_ranks - 1));
    for (int i = 1; i < n_ranks; i++) {
        int p = (rank + i) % n_ranks;
        memcpy(m->dst + (size_t)p * m->n_bytes, (const char *)tti_comm_view(comm, p, 0) + mine,
               m->n_bytes);
    }
    return tti_comm_barrier(comm);
}

tutti_status tutti_comm_all_to_all(tutti_comm *comm, const void *src, void *dst, size_t n_elems,
                                   tutti_dtype dtype) {
    TTI_TRY(tti_check_comm("all_to_all", comm));
    int n_ranks = tutti_comm_n_ranks(comm);
    TTI_TRY(tti_check_elems("all_to_all", n_elems, n_ranks, dtype));
    move m = {.comm = comm,
              .src = (char *)(uintptr_t)src,
              .dst = dst,
              .n_bytes = n_elems * tutti_dtype_bytes(dtype)};
    size_t all = m.n_bytes * (size_t)n_ranks;
    TTI_TRY(tti_check_buffers("all_to_all", src, all, dst, all));
    if (src == dst && all)
        return tti_fail(TUTTI_E_INVALID, "all_to_all: src and dst must not be the same place");
    tti_offer offer = {.call = {.kind = TTI_CALL_ALL_TO_ALL, .dtype = dtype, .n_elems = n_elems}};
    return tti_call_end(comm, all_to_all(&m, &offer));
}

/* Both sides first exchange their calls, so that both detect a mismatch. */
static tutti_status point_to_point(tutti_comm *comm, const tti_call *call, tti_message *body) {
    int rank = tutti_comm_rank(comm);
    tti_call theirs, want = *call;
    char out[TTI_CALL_BYTES] = {0}, in[TTI_CALL_BYTES];
    tti_message calls[2] = {{.peer = call->peer, .out = out, .n_bytes = sizeof out},
                            {.peer = call->peer, .in = in, .n_bytes = sizeof in}};
    memcpy(out, call, sizeof *call);
    tti_comm_note_call(comm, call);
    TTI_TRY(tti_comm_send_recv(comm, calls, 2));
    memcpy(&theirs, in, sizeof theirs);
    want.kind = call->kind == TTI_CALL_SEND ? TTI_CALL_RECV : TTI_CALL_SEND;
    want.peer = rank;
    if (memcmp(&want, &theirs, sizeof want) != 0) {
        if (rank > call->peer) return tti_call_mismatch(rank, call, call->peer, &theirs);
        return tti_call_mismatch(call->peer, &theirs, rank, call);
    }
    return tti_comm_send_recv(comm, body, 1);
}

static tutti_status check_peer(const char *who, const tutti_comm *comm, int peer) {
    int n_ranks = tutti_comm_n_ranks(comm);
    if (peer < 0 || peer >= n_ranks || peer == tutti_comm_rank(comm))
        return tti_fail(TUTTI_E_INVALID, "%s: peer must be another rank in 0 .. %d, got %d", who,
                        n_ranks - 1, peer);
    return TUTTI_OK;
}

tutti_status tutti_comm_send(tutti_comm *comm, const void *src, size_t n_elems, tutti_dtype dtype,
                             int peer) {
    TTI_TRY(tti_check_comm("send", comm));
    TTI_TRY(tti_check_elems("send", n_elems, 1, dtype));
    TTI_TRY(check_peer("send", comm, peer));
    if (!src && n_elems) return tti_fail(TUTTI_E_INVALID, "send: src is NULL");
    tti_call call = {.kind = TTI_CALL_SEND, .dtype = dtype, .peer = peer, .n_elems = n_elems};
    tti_message body = {.peer = peer, .out = src, .n_bytes = n_elems * tutti_dtype_bytes(dtype)};
    return tti_call_end(comm, point_to_point(comm, &call, &body));
}

tutti_status tutti_comm_recv(tutti_comm *comm, void *dst, size_t n_elems, tutti_dtype dtype,
                             int peer) {
    TTI_TRY(tti_check_comm("recv", comm));
    TTI_TRY(tti_check_elems("recv", n_elems, 1, dtype));
    TTI_TRY(check_peer("recv", comm, peer));
    if (!dst && n_elems) return tti_fail(TUTTI_E_INVALID, "recv: dst is NULL");
    tti_call call = {.kind = TTI_CALL_RECV, .dtype = dtype, .peer = peer, .n_elems = n_elems};
    tti_message body = {.peer = peer, .in = dst, .n_bytes = n_elems * tutti_dtype_bytes(dtype)};
    return tti_call_end(comm, point_to_point(comm, &call, &body));
}
