/* transport.c - the transport over hosts: agreement, barrier, messages, memory of the host.
 *
 * In an agreement the ranks of each host first agree in shared memory; then each rank sends its
 * record to every rank of the other hosts.  There are two records per rank, by parity of the
 * agreement, so that a payload is valid until the next agreement but one, as in shared memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/net/net.h"

static net_record *record_of(const net_state *s, int rank) {
    return &s->records[(s->n_agreed % 2) * (size_t)s->n_ranks + (size_t)rank];
}

static bool is_remote(const net_state *s, int rank) { return s->index_of[rank] < 0; }

/* Exchanges records with each rank of another host; each sender decides how many bytes it sends. */
static tutti_status swap_records(net_state *s, size_t from, bool rest) {
    tti_message *messages = tti_message_list_room(&s->messages, 2 * s->n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    net_record *mine = &s->mine[s->n_agreed % 2];
    int n = 0;
    for (int i = 1; i < s->n_ranks; i++) {
        int peer = (s->rank + i) % s->n_ranks;
        net_record *theirs = record_of(s, peer);
        if (!is_remote(s, peer)) continue;
        size_t out = rest ? mine->inline_bytes : 0, in = rest ? theirs->inline_bytes : 0;
        out = rest ? (out > NET_HEAD_BYTES ? out - NET_HEAD_BYTES : 0) : NET_RECORD_BYTES;
        in = rest ? (in > NET_HEAD_BYTES ? in - NET_HEAD_BYTES : 0) : NET_RECORD_BYTES;
        messages[n++] = (tti_message){.peer = peer, .out = (char *)mine + from, .n_bytes = out};
        messages[n++] = (tti_message){.peer = peer, .in = (char *)theirs + from, .n_bytes = in};
    }
    return tti_net_move(s, messages, n);
}

/* Validates received records. *rest: some payload is longer than the part that is sent with the
 * record. */
static tutti_status check_records(const net_state *s, bool *rest) {
    *rest = s->mine[s->n_agreed % 2].inline_bytes > NET_HEAD_BYTES;
    for (int r = 0; r < s->n_ranks; r++) {
        if (!is_remote(s, r)) continue;
        const net_record *theirs = record_of(s, r);
        if (theirs->inline_bytes > TTI_INLINE_BYTES)
            return tti_fail(TUTTI_E_INTERNAL, "comm: rank %d offers a payload of %u bytes", r,
                            theirs->inline_bytes);
        *rest = *rest || theirs->inline_bytes > NET_HEAD_BYTES;
    }
    return TUTTI_OK;
}

/* The call of a rank. local: the agreement of this host.  The calls of this host's ranks after the
 * odd one are unknown, but the comparison, in the order of ranks, ends before them. */
static const tti_call *call_of(const net_state *s, const tti_agreement *local, int rank) {
    if (is_remote(s, rank)) return &record_of(s, rank)->call;
    return s->index_of[rank] == local->odd_rank ? &local->odd : &local->first;
}

static void compare_calls(const net_state *s, const tti_agreement *local, tti_agreement *out) {
    out->odd_rank = -1;
    out->first = *call_of(s, local, 0);
    for (int r = 1; r < s->n_ranks && out->odd_rank < 0; r++) {
        const tti_call *call = call_of(s, local, r);
        if (memcmp(call, &out->first, sizeof *call) == 0) continue;
        out->odd_rank = r;
        out->odd = *call;
    }
}

static tutti_status net_agree(void *state, const tti_offer *mine, tti_agreement *out) {
    net_state *s = state;
    tti_agreement local;
    bool rest;
    TTI_TRY(tti_net_check_lost(s));
    if (s->tree) return tti_net_tree_agree(s, mine, out);
    TTI_TRY(tti_transport_shm.agree(s->local, mine, &local));
    if (local.odd_rank < 0) local.first = mine->call;
    s->near = local.direct;
    s->n_agreed++;
    if (s->n_hosts > 1) {
        net_record *record = &s->mine[s->n_agreed % 2];
        record->call = mine->call;
        record->inline_bytes = (uint32_t)mine->inline_bytes;
        record->near = s->near;
        if (mine->inline_bytes) memcpy(record->payload, mine->inline_data, mine->inline_bytes);
        TTI_TRY(swap_records(s, 0, false));
        TTI_TRY(check_records(s, &rest));
        if (rest) TTI_TRY(swap_records(s, NET_RECORD_BYTES, true));
    }
    compare_calls(s, &local, out);
    for (int r = 0; r < s->n_ranks; r++)
        if (is_remote(s, r) && !record_of(s, r)->near) s->near = false;
    out->direct = s->near && s->n_hosts == 1;
    return TUTTI_OK;
}

static const void *net_payload(void *state, int rank) {
    const net_state *s = state;
    if (s->tree) return tti_net_tree_payload(s, rank);
    if (is_remote(s, rank)) return record_of(s, rank)->payload;
    return tti_transport_shm.payload(s->local, s->index_of[rank]);
}

static void *net_view(void *state, int rank, int buf) {
    const net_state *s = state;
    return tti_transport_shm.view(s->local, s->index_of[rank], buf);
}

/* After the barrier of its host, each rank represents all ranks of its host. */
static tutti_status net_barrier(void *state) {
    net_state *s = state;
    uint64_t mine = s->n_agreed, theirs[TTI_FULL_RANKS];
    if (s->tree) return tti_net_tree_barrier(s);
    TTI_TRY(tti_transport_shm.barrier(s->local));
    if (s->n_hosts == 1) return TUTTI_OK;
    tti_message *messages = tti_message_list_room(&s->messages, 2 * s->n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 1; i < s->n_ranks; i++) {
        int peer = (s->rank + i) % s->n_ranks;
        if (!is_remote(s, peer)) continue;
        messages[n++] = (tti_message){.peer = peer, .out = &mine, .n_bytes = sizeof mine};
        messages[n++] = (tti_message){.peer = peer, .in = &theirs[peer], .n_bytes = sizeof mine};
    }
    return tti_net_move(s, messages, n);
}

/* The link moves its messages while messages inside the host are copied. */
static tutti_status net_send_recv(void *state, tti_message *messages, int n_messages) {
    net_state *s = state;
    tti_message *sorted = tti_message_list_room(&s->messages, n_messages);
    if (n_messages > 0 && !sorted) return TUTTI_E_NOMEM;
    int n_local = 0, n_remote = 0;
    for (int i = 0; i < n_messages; i++) {
        const tti_message *m = &messages[i];
        tti_message *to = is_remote(s, m->peer) ? &sorted[n_messages - ++n_remote] : NULL;
        if (!to) to = &sorted[n_local++];
        *to = *m;
        if (!is_remote(s, m->peer)) to->peer = s->index_of[m->peer];
    }
    tti_message *remote = sorted + n_local; /* these are in reverse order: reverse them */
    for (int a = 0, b = n_remote - 1; a < b; a++, b--) {
        tti_message swap = remote[a];
        remote[a] = remote[b];
        remote[b] = swap;
    }
    tutti_status st = n_remote ? s->link->post(s->wire, remote, n_remote) : TUTTI_OK;
    if (st == TUTTI_OK && n_local) st = tti_transport_shm.send_recv(s->local, sorted, n_local);
    if (n_remote == 0) return st;
    return st == TUTTI_OK ? tti_net_wait(s) : tti_net_cancel(s, st);
}

static tutti_status net_alloc(void *state, size_t n_bytes, void **out) {
    net_state *s = state;
    return tti_transport_shm.alloc(s->local, n_bytes, out);
}

static tutti_status net_check(void *state) {
    net_state *s = state;
    TTI_TRY(tti_net_check_lost(s));
    TTI_TRY(tti_transport_shm.check(s->local));
    return s->n_hosts > 1 ? s->link->check(s->wire, true) : TUTTI_OK;
}

static tutti_status net_check_reported(void *state) {
    net_state *s = state;
    TTI_TRY(tti_shm_reported(s->local));
    return s->n_hosts > 1 ? s->link->check_reported(s->wire) : TUTTI_OK;
}

static void net_describe_late(void *state, tti_str *out) {
    net_state *s = state;
    int64_t *silent_ns = calloc((size_t)s->n_ranks, sizeof *silent_ns);
    int ms = s->timeout_ms / 2;
    tti_shm_report_stopped(s->local, tti_net_host_name(s->host_names, &s->peers[s->rank]), out);
    if (!silent_ns) return;
    if (s->n_hosts > 1 && s->link->get_silence)
        s->link->get_silence(s->wire, ms * TTI_NS_PER_MS, silent_ns);
    for (int r = 0; r < s->n_ranks; r++)
        if (silent_ns[r] > 0 && s->host_of[r] != s->host_of[s->rank])
            tti_str_printf(out, ", rank %d (pid %d on %s), which has sent nothing for %lld ms",
                           s->global_ranks[r], s->peers[r].pid,
                           tti_net_host_name(s->host_names, &s->peers[r]),
                           (long long)(silent_ns[r] / TTI_NS_PER_MS));
    free(silent_ns);
}

static void net_note_call(void *state, const tti_call *call) {
    net_state *s = state;
    if (call) s->call = *call;
    tti_transport_shm.note_call(s->local, call);
}

static void net_note_step(void *state, uint64_t step, const char *phase) {
    tti_transport_shm.note_step(((net_state *)state)->local, step, phase);
}

/* Ranks of this host see the phase at once, ranks of other hosts with the next heartbeat. */
static void net_declare(void *state, const char *activity) {
    tti_transport_shm.declare(((net_state *)state)->local, activity);
}

static void net_note_wait(void *state, bool waits) {
    tti_transport_shm.note_wait(((net_state *)state)->local, waits);
}

static int net_hosts(void *state, int *host_of) {
    const net_state *s = state;
    memcpy(host_of, s->host_of, (size_t)s->n_ranks * sizeof *host_of);
    return s->n_hosts;
}

static bool net_is_sparse(void *state) { return ((const net_state *)state)->tree != NULL; }

static size_t net_inline_bytes(void *state) {
    const net_state *s = state;
    return s->tree ? tti_net_tree_inline_bytes(s) : TTI_INLINE_BYTES;
}

static bool net_near(void *state) { return ((const net_state *)state)->near; }

static tutti_status net_near_barrier(void *state) {
    return tti_transport_shm.barrier(((net_state *)state)->local);
}

static const tutti_comm_group *net_host_group(void *state) {
    return tti_transport_shm.host_group(((net_state *)state)->local);
}

static const char *asked_for(const tutti_comm_desc *desc) {
    return desc->transport ? NULL : "it was not asked for";
}

static const char *tcp_refusal(const tutti_comm_desc *desc) {
    const char *why = asked_for(desc);
    if (!why && !desc->address) why = "no address was given (HOST:PORT)";
    if (!why && (!desc->token || !*desc->token) && strncmp(desc->address, "unix:", 5) != 0)
        why = "no token was given: callers must know a secret";
    return why;
}

static void net_set_timeout(void *state, int timeout_ms) {
    net_state *s = state;
    s->timeout_ms = timeout_ms;
    tti_net_pace_heartbeat(s);
    if (s->local) tti_transport_shm.set_timeout(s->local, timeout_ms);
}

#define NET_TRANSPORT(NAME, DOC, REFUSAL)                                                         \
    {                                                                                             \
        .name = NAME, .doc = DOC, .refusal = REFUSAL, .join = tti_net_join,                       \
        .leave = tti_net_leave, .alloc = net_alloc, .agree = net_agree, .barrier = net_barrier,   \
        .send_recv = net_send_recv, .view = net_view, .payload = net_payload,                     \
        .fail = tti_net_fail, .break_off = tti_net_break, .check = net_check,                     \
        .check_reported = net_check_reported, .describe_late = net_describe_late,                 \
        .delay = tti_net_delay, .set_timeout = net_set_timeout, .note_call = net_note_call,       \
        .note_step = net_note_step, .declare = net_declare, .note_wait = net_note_wait,           \
        .find_culprit = tti_net_find_culprit, .find_busy = tti_net_find_busy, .hosts = net_hosts, \
        .near = net_near, .is_sparse = net_is_sparse, .inline_bytes = net_inline_bytes,           \
        .near_barrier = net_near_barrier, .host_group = net_host_group, .split = tti_net_split,   \
        .stream = tti_net_stream                                                                  \
    }

const tti_transport tti_transport_tcp = NET_TRANSPORT(
    "tcp", "processes of several hosts, through sockets; shared memory inside a host", tcp_refusal);
const tti_transport tti_transport_openmpi = NET_TRANSPORT(
    "mpi-openmpi", "the same through Open MPI (module tutti-mpi-openmpi.so)", asked_for);
const tti_transport tti_transport_mpich =
    NET_TRANSPORT("mpi-mpich", "the same through MPICH (module tutti-mpi-mpich.so)", asked_for);

const tti_transport *tti_net_transport(const net_state *s) {
    const tti_transport *all[] = {&tti_transport_tcp, &tti_transport_openmpi, &tti_transport_mpich};
    for (size_t i = 1; i < TTI_COUNT(all); i++)
        if (strcmp(all[i]->name, s->link->name) == 0) return all[i];
    return all[0];
}
