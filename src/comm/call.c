/* call.c - the common steps of every communicator call, and the text of calls.
 *
 * The agreement gives every rank's call to every rank, and all ranks compare the calls in the same
 * way.  So all ranks get the same result and message without further communication. */
#include "comm/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/progress.h"

static const char *const kind_texts[TTI_N_CALLS] = {
    "nothing",    "comm_alloc", "barrier",    "all_reduce",    "reduce_scatter",
    "all_gather", "broadcast",  "all_to_all", "reduce_shards", "gather_partitions",
    "send",       "recv",       "comm_split", "mailbox",       "conclude",
};
static const char *const op_texts[TUTTI_N_REDUCE_OPS] = {"sum", "min", "max"};
static const char *const alg_texts[TUTTI_N_ALGS] = {"auto", "ring", "tree", "direct"};

/* Prints the part of a call's text after "n_elems=N, dtype". */
static void call_rest(const tti_call *call, char *buf, size_t n_bytes) {
    const char *op = (unsigned)call->op < TUTTI_N_REDUCE_OPS ? op_texts[call->op] : "?";
    const char *alg = (unsigned)call->alg < TUTTI_N_ALGS ? alg_texts[call->alg] : "?";
    int n;
    buf[0] = '\0';
    switch (call->kind) {
        case TTI_CALL_ALL_REDUCE:
            snprintf(buf, n_bytes, ", %s, %s", op, alg);
            break;
        case TTI_CALL_REDUCE_SCATTER:
            snprintf(buf, n_bytes, ", %s", op);
            break;
        case TTI_CALL_BROADCAST:
            snprintf(buf, n_bytes, ", root=%d", call->peer);
            break;
        case TTI_CALL_REDUCE_SHARDS:
            n = snprintf(buf, n_bytes, ", shards=%d, %s", call->peer, alg);
            if (call->shard_map)
                snprintf(buf + n, n_bytes - (size_t)n, ", shard_map=%08x",
                         (unsigned)call->shard_map);
            break;
        case TTI_CALL_GATHER_PARTITIONS:
            snprintf(buf, n_bytes, ", partitions=%08x", (unsigned)call->op);
            break;
        case TTI_CALL_SEND:
        case TTI_CALL_RECV:
            snprintf(buf, n_bytes, ", peer=%d", call->peer);
            break;
        default:
            break;
    }
}

const char *tti_call_text(const tti_call *call, char *buf, size_t n_bytes) {
    char rest[64];
    const char *kind = (unsigned)call->kind < TTI_N_CALLS ? kind_texts[call->kind] : "?";
    call_rest(call, rest, sizeof rest);
    if (call->kind == TTI_CALL_NONE || call->kind == TTI_CALL_BARRIER ||
        call->kind == TTI_CALL_SPLIT)
        snprintf(buf, n_bytes, "%s()", kind);
    else if (call->kind == TTI_CALL_ALLOC || call->kind == TTI_CALL_CONCLUDE)
        snprintf(buf, n_bytes, "%s(n_bytes=%" PRIu64 ")", kind, call->n_elems);
    else
        snprintf(buf, n_bytes, "%s(n_elems=%" PRIu64 ", %s%s)", kind, call->n_elems,
                 tutti_dtype_text((tutti_dtype)call->dtype), rest);
    return buf;
}

tutti_status tti_check_comm(const char *who, const tutti_comm *comm) {
    if (!comm) return tti_fail(TUTTI_E_INVALID, "%s: comm is NULL", who);
    if (comm->broken)
        return tti_fail(comm->broken, "%s: an earlier call failed: %s", who, comm->broken_text);
    return TUTTI_OK;
}

tutti_status tti_check_elems(const char *who, size_t n_elems, int n_parts, tutti_dtype dtype) {
    size_t n_bytes = tutti_dtype_bytes(dtype);
    if (n_bytes == 0) return tti_fail(TUTTI_E_INVALID, "%s: no dtype %d", who, (int)dtype);
    if (__builtin_mul_overflow(n_bytes, n_elems, &n_bytes) ||
        __builtin_mul_overflow(n_bytes, (size_t)n_parts, &n_bytes) || n_bytes > PTRDIFF_MAX)
        return tti_fail(TUTTI_E_INVALID, "%s: %zu elements of %s have no size", who, n_elems,
                        tutti_dtype_text(dtype));
    return TUTTI_OK;
}

tutti_status tti_check_buffers(const char *who, const void *src, size_t src_bytes, const void *dst,
                               size_t dst_bytes) {
    uintptr_t s = (uintptr_t)src, d = (uintptr_t)dst;
    if (src_bytes == 0 && dst_bytes == 0) return TUTTI_OK;
    if (!src || !dst) return tti_fail(TUTTI_E_INVALID, "%s: %s is NULL", who, src ? "dst" : "src");
    if (s != d && s < d + dst_bytes && d < s + src_bytes)
        return tti_fail(TUTTI_E_INVALID, "%s: src and dst overlap but are not equal", who);
    return TUTTI_OK;
}

tutti_status tti_call_mismatch(int rank, const tti_call *call, int other, const tti_call *theirs) {
    char a[128], b[128];
    return tti_fail(TUTTI_E_MISMATCH, "rank %d called %s where rank %d called %s", rank,
                    tti_call_text(call, a, sizeof a), other, tti_call_text(theirs, b, sizeof b));
}

bool tti_comm_is_large(const tutti_comm *comm) {
    return comm->transport->sums && comm->transport->sums(comm->state);
}

int tti_comm_host_of(const tutti_comm *comm, int rank) {
    return comm->host_of ? comm->host_of[rank] : 0;
}

int tti_comm_global_rank(const tutti_comm *comm, int rank) {
    return comm->global_ranks ? comm->global_ranks[rank] : rank;
}

bool tti_comm_is_sparse(const tutti_comm *comm) {
    return comm->transport->is_sparse && comm->transport->is_sparse(comm->state);
}

size_t tti_comm_inline_bytes(const tutti_comm *comm) {
    return comm->transport->inline_bytes ? comm->transport->inline_bytes(comm->state)
                                         : (size_t)TTI_INLINE_BYTES;
}

/* Counts the bytes of an agreement: a record with its payload to each rank.  In a sparse group only
 * the payload is counted, once, because only the first ranks of hosts send records. */
static void count_agreement(tutti_comm *comm, size_t n_inline) {
    if (tti_comm_is_sparse(comm)) {
        comm->moved.inside += n_inline;
        return;
    }
    if (comm->n_hosts == 1) {
        comm->moved.inside += (size_t)(comm->n_ranks - 1) * (sizeof(tti_call) + n_inline);
        return;
    }
    for (int r = 0; r < comm->n_ranks; r++) {
        if (tti_comm_host_of(comm, r) != tti_comm_host_of(comm, comm->rank))
            comm->moved.between +=
                TTI_MAX((size_t)TTI_CALL_BYTES, sizeof(tti_call) + 2 * sizeof(uint32_t) + n_inline);
        else if (r != comm->rank)
            comm->moved.inside += sizeof(tti_call) + n_inline;
    }
}

tutti_status tti_call_begin(tutti_comm *comm, const tti_offer *offer, bool *direct) {
    tti_agreement agreement;
    count_agreement(comm, offer->inline_bytes);
    comm->transport->note_call(comm->state, &offer->call);
    tti_flight_in_call(comm->flight, true);
    TTI_TRY(comm->transport->agree(comm->state, offer, &agreement));
    if (direct) *direct = agreement.direct;
    if (agreement.odd_rank < 0) return TUTTI_OK;
    return tti_call_mismatch(agreement.odd_rank, &agreement.odd, 0, &agreement.first);
}

tutti_status tti_call_end(tutti_comm *comm, tutti_status status) {
    tti_flight_in_call(comm->flight, false);
    if (status == TUTTI_OK) {
        comm->transport->note_call(comm->state, NULL);
        return TUTTI_OK;
    }
    comm->broken = status;
    snprintf(comm->broken_text, sizeof comm->broken_text, "%s", tutti_last_error());
    comm->transport->fail(comm->state, status);
    return status;
}

void tti_comm_record(tutti_comm *comm, tti_flight *flight) {
    if (comm) comm->flight = flight;
}

void tti_comm_note(tutti_comm *comm, uint64_t step, const char *phase) {
    if (comm) comm->transport->note_step(comm->state, step, phase);
}

void tti_comm_declare(tutti_comm *comm, const char *activity) {
    if (comm) comm->transport->declare(comm->state, activity);
}

int tti_comm_find_culprit(tutti_comm *comm, int blame, tti_str *what) {
    return comm->transport->find_culprit(comm->state, blame, what);
}

bool tti_comm_find_busy(tutti_comm *comm, tti_str *what) {
    return comm->transport->find_busy(comm->state, what);
}

bool tti_comm_get_progress_here(const tutti_comm *comm, int index, tti_progress *out) {
    const tutti_comm_group *group = comm->transport->host_group(comm->state);
    if (tti_comm_group_progress(group, index, out) == TUTTI_OK) return true;
    tti_clear_error();
    return false;
}

tutti_status tti_comm_check(tutti_comm *comm) {
    TTI_TRY(tti_check_comm("comm_check", comm));
    return comm->transport->check(comm->state);
}

tutti_status tti_comm_check_reported(tutti_comm *comm) {
    return comm->transport->check_reported(comm->state);
}

void tti_comm_describe_late(tutti_comm *comm, tti_str *out) {
    tti_str who = {0};
    if (!comm->broken && comm->transport->describe_late)
        comm->transport->describe_late(comm->state, &who);
    if (tti_str_text(&who)[0]) tti_str_add(out, tti_str_text(&who) + strlen(", "));
    tti_str_free(&who);
}

void tti_comm_get_place(const tutti_comm *comm, tti_comm_place *out) {
    *out = (tti_comm_place){.transport = comm->transport->name,
                            .n_hosts = comm->n_hosts,
                            .host = tti_comm_host_of(comm, comm->rank)};
    if (comm->n_hosts == 1) {
        out->local_rank = comm->rank;
        out->local_n_ranks = comm->n_ranks;
    }
    for (int r = 0; comm->n_hosts > 1 && r < comm->n_ranks; r++) {
        if (tti_comm_host_of(comm, r) != tti_comm_host_of(comm, comm->rank)) continue;
        out->local_rank += r < comm->rank;
        out->local_n_ranks++;
    }
}

void tti_comm_get_hosts(const tutti_comm *comm, int *host_of) {
    for (int r = 0; r < comm->n_ranks; r++) host_of[r] = tti_comm_host_of(comm, r);
}

void tti_comm_abort(tutti_comm *comm, const char *text) {
    char kept[8192];
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    (void)tti_fail(TUTTI_E_PEER, "rank %d failed: %s", tti_comm_global_rank(comm, comm->rank),
                   text);
    comm->transport->fail(comm->state, TUTTI_E_PEER);
    (void)tti_fail(TUTTI_E_PEER, "%s", kept);
}

void tti_comm_break(tutti_comm *comm) {
    if (comm->transport->break_off) comm->transport->break_off(comm->state);
}

tti_comm_bytes tti_comm_get_bytes(const tutti_comm *comm) { return comm->moved; }

void tti_count_inside(tutti_comm *comm, size_t n_bytes) { comm->moved.inside += n_bytes; }

int tutti_comm_rank(const tutti_comm *comm) { return comm->rank; }
int tutti_comm_n_ranks(const tutti_comm *comm) { return comm->n_ranks; }

void *tti_comm_view(const tutti_comm *comm, int rank, int buf) {
    return comm->transport->view(comm->state, rank, buf);
}

const void *tti_comm_payload(const tutti_comm *comm, int rank) {
    return comm->transport->payload(comm->state, rank);
}

const void *tti_comm_agreed_sum(const tutti_comm *comm) {
    return comm->transport->sum(comm->state);
}

tti_commons *tti_comm_commons(tutti_comm *comm) {
    const tti_transport *t = comm->transport;
    return t->commons ? t->commons(comm->state) : &comm->commons;
}

tutti_status tti_comm_barrier(tutti_comm *comm) { return comm->transport->barrier(comm->state); }

void tti_comm_note_call(tutti_comm *comm, const tti_call *call) {
    comm->transport->note_call(comm->state, call);
}

tti_message *tti_comm_messages(tutti_comm *comm, int n) {
    return tti_message_list_room(&comm->messages, n);
}

tutti_status tti_comm_send_recv(tutti_comm *comm, tti_message *messages, int n) {
    for (int i = 0; i < n && comm->n_hosts == 1; i++)
        if (messages[i].out) comm->moved.inside += messages[i].n_bytes;
    for (int i = 0; i < n && comm->n_hosts > 1; i++) {
        bool is_far =
            tti_comm_host_of(comm, messages[i].peer) != tti_comm_host_of(comm, comm->rank);
        if (messages[i].out && is_far) comm->moved.between += messages[i].n_bytes;
        if (messages[i].out && !is_far) comm->moved.inside += messages[i].n_bytes;
    }
    return comm->transport->send_recv(comm->state, messages, n);
}

int tti_comm_timeout_ms(const tutti_comm *comm) { return comm->timeout_ms; }

void tti_comm_set_timeout(tutti_comm *comm, int timeout_ms) {
    comm->timeout_ms = timeout_ms;
    if (comm->state) comm->transport->set_timeout(comm->state, timeout_ms);
}
