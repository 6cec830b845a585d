/* tree.c - agreement and barrier of a sparse group, along a tree of hosts.
 *
 * The ranks of a host agree in shared memory; then the host's first rank represents it.  The parent
 * of host h is host (h - 1) / TTI_FAN_OUT.  The calls of all ranks of a subtree go up as one
 * summary of fixed size, and the summary of all ranks comes down.  Payloads follow the summaries.
 * Each host stores them in two buffers, by parity of the agreement, so that a payload is valid
 * until the next agreement but one, as in shared memory. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

enum {
    PAYLOAD_BYTES = 4 << 20, /* limit for all ranks together, unless there are very many ranks */
    LEAST_INLINE_BYTES = 256
};

/* The calls of a set of ranks. */
typedef struct summary {
    tti_call first, odd;
    int32_t first_rank; /* the lowest one */
    int32_t odd_rank;   /* the lowest rank whose call differs from that of first_rank; -1: none */
    uint64_t near;      /* true if on every host all buffers are visible to the host's ranks */
    uint64_t n_bytes;   /* bytes of the payloads that follow */
} summary;

/* Precedes each payload: its rank and size. */
typedef struct label {
    int32_t rank;
    uint32_t n_bytes;
} label;

/* The payload of a rank, in memory of each host. */
typedef struct slot {
    uint64_t n_bytes;
    unsigned char bytes[];
} slot;

struct net_tree {
    size_t inline_bytes, slot_bytes;
    summary *verdicts;    /* [2], in shared memory of the host */
    unsigned char *slots; /* [2][n_ranks][slot_bytes], in shared memory of the host */
    /* Fields of the first rank of a host: */
    int above; /* the first rank of the parent host, -1: none */
    int below[TTI_FAN_OUT], n_below;
    unsigned char *packed; /* payloads with their labels */
    size_t cap;
};

static int parity(const net_state *s) { return (int)(s->n_agreed % 2); }

static slot *slot_of(const net_state *s, int rank) {
    size_t at = (size_t)parity(s) * (size_t)s->n_ranks + (size_t)rank;
    return (slot *)(void *)(s->tree->slots + at * s->tree->slot_bytes);
}

static bool is_leader(const net_state *s) { return s->index_of[s->rank] == 0; }

/* ---- begin and end ---- */

/* The parts of the ranks of a host are contiguous, so together they form one array. */
tutti_status tti_net_share(net_state *s, size_t n_bytes, void **out) {
    tti_agreement agreement;
    void *own;
    size_t part_bytes = (n_bytes / (size_t)s->n_local + 4096) & ~(size_t)4095;
    TTI_TRY(tti_transport_shm.alloc(s->local, part_bytes, &own));
    tti_offer offer = {.bufs = {own}, .n_bufs = 1, .buf_bytes = part_bytes};
    TTI_TRY(tti_transport_shm.agree(s->local, &offer, &agreement));
    *out = tti_transport_shm.view(s->local, 0, 0);
    return *out ? TUTTI_OK
                : tti_fail(TUTTI_E_INTERNAL, "comm_create: a host's ranks share no memory");
}

tutti_status tti_net_create_tree(net_state *s) {
    if (!s->is_sparse || s->n_hosts == 1) return TUTTI_OK;
    net_tree *t = s->tree = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    size_t n = (size_t)s->n_ranks, each = (PAYLOAD_BYTES / n) & ~(size_t)7;
    t->inline_bytes = TTI_MIN(TTI_MAX(each, (size_t)LEAST_INLINE_BYTES), (size_t)TTI_INLINE_BYTES);
    t->slot_bytes = sizeof(slot) + t->inline_bytes;
    void *memory;
    TTI_TRY(tti_net_share(s, 2 * sizeof *t->verdicts + 2 * n * t->slot_bytes, &memory));
    t->verdicts = memory;
    t->slots = (unsigned char *)memory + 2 * sizeof *t->verdicts;
    int host = s->host_of[s->rank];
    t->above = host > 0 ? s->first_of[(host - 1) / TTI_FAN_OUT] : -1;
    for (int h = host * TTI_FAN_OUT + 1; h <= host * TTI_FAN_OUT + TTI_FAN_OUT; h++)
        if (h < s->n_hosts) t->below[t->n_below++] = s->first_of[h];
    return TUTTI_OK;
}

void tti_net_destroy_tree(net_state *s) {
    if (!s->tree) return;
    free(s->tree->packed);
    free(s->tree);
    s->tree = NULL;
}

size_t tti_net_tree_inline_bytes(const net_state *s) { return s->tree->inline_bytes; }

const void *tti_net_tree_payload(const net_state *s, int rank) { return slot_of(s, rank)->bytes; }

/* ---- summaries ---- */

static void merge(summary *into, const summary *more) {
    summary a = *into, b = *more;
    if (b.first_rank < a.first_rank) {
        a = *more;
        b = *into;
    }
    bool differs = memcmp(&a.first, &b.first, sizeof a.first) != 0;
    int odd_rank = differs ? b.first_rank : b.odd_rank;
    if (odd_rank >= 0 && (a.odd_rank < 0 || odd_rank < a.odd_rank)) {
        a.odd_rank = odd_rank;
        a.odd = differs ? b.first : b.odd;
    }
    a.near = a.near && b.near;
    a.n_bytes = into->n_bytes + more->n_bytes;
    *into = a;
}

static summary summarize_host(const net_state *s, const tti_offer *mine,
                              const tti_agreement *local) {
    bool is_odd = local->odd_rank >= 0;
    return (summary){.first = is_odd ? local->first : mine->call,
                     .odd = is_odd ? local->odd : (tti_call){0},
                     .first_rank = s->rank_of[0],
                     .odd_rank = is_odd ? s->rank_of[local->odd_rank] : -1,
                     .near = local->direct};
}

/* Validates a received summary, because a sender that is not a rank of the job could send
 * anything. */
static tutti_status check_summary(const net_state *s, const summary *got, int peer) {
    size_t most = (size_t)s->n_ranks * (sizeof(label) + s->tree->inline_bytes);
    if (got->first_rank >= 0 && got->first_rank < s->n_ranks && got->odd_rank >= -1 &&
        got->odd_rank < s->n_ranks && got->n_bytes <= most)
        return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "comm: rank %d sends a damaged agreement",
                    s->global_ranks[peer]);
}

/* ---- payloads ---- */

static tutti_status widen(net_tree *t, size_t n_bytes) {
    if (n_bytes <= t->cap) return TUTTI_OK;
    unsigned char *packed = realloc(t->packed, n_bytes);
    if (!packed) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %zu bytes", n_bytes);
    t->packed = packed;
    t->cap = n_bytes;
    return TUTTI_OK;
}

/* Packs the payloads of this host's ranks. */
static tutti_status pack_host(net_state *s, uint64_t *n_bytes) {
    net_tree *t = s->tree;
    size_t n = 0;
    for (int i = 0; i < s->n_local; i++) {
        const slot *from = slot_of(s, s->rank_of[i]);
        if (from->n_bytes == 0) continue;
        label head = {s->rank_of[i], (uint32_t)from->n_bytes};
        TTI_TRY(widen(t, n + sizeof head + head.n_bytes));
        memcpy(t->packed + n, &head, sizeof head);
        memcpy(t->packed + n + sizeof head, from->bytes, head.n_bytes);
        n += sizeof head + head.n_bytes;
    }
    *n_bytes = n;
    return TUTTI_OK;
}

/* Stores the payloads of other hosts' ranks. */
static tutti_status unpack(net_state *s, size_t n_bytes) {
    const net_tree *t = s->tree;
    for (size_t at = 0; at < n_bytes;) {
        label head = {-1, 0};
        if (n_bytes - at >= sizeof head) memcpy(&head, t->packed + at, sizeof head);
        at += sizeof head;
        if (head.rank < 0 || head.rank >= s->n_ranks || head.n_bytes > t->inline_bytes ||
            at + head.n_bytes > n_bytes)
            return tti_fail(TUTTI_E_INTERNAL, "comm: damaged payloads of an agreement");
        if (s->index_of[head.rank] < 0)
            memcpy(slot_of(s, head.rank)->bytes, t->packed + at, head.n_bytes);
        at += head.n_bytes;
    }
    return TUTTI_OK;
}

/* ---- up and down ---- */

static tutti_status move_one(net_state *s, int peer, const void *out, void *in, size_t n_bytes) {
    tti_message message = {.peer = peer, .out = out, .in = in, .n_bytes = n_bytes};
    return tti_net_move(s, &message, 1);
}

/* Receives the summaries of the child hosts, then their payloads. */
static tutti_status gather_below(net_state *s, summary *all) {
    net_tree *t = s->tree;
    summary below[TTI_FAN_OUT];
    tti_message messages[TTI_FAN_OUT];
    for (int i = 0; i < t->n_below; i++)
        messages[i] =
            (tti_message){.peer = t->below[i], .in = &below[i], .n_bytes = sizeof below[i]};
    TTI_TRY(tti_net_move(s, messages, t->n_below));
    size_t n_bytes = all->n_bytes;
    for (int i = 0; i < t->n_below; i++) {
        TTI_TRY(check_summary(s, &below[i], t->below[i]));
        merge(all, &below[i]);
    }
    if (all->n_bytes == n_bytes) return TUTTI_OK;
    TTI_TRY(widen(t, all->n_bytes));
    for (int i = 0; i < t->n_below; i++) {
        messages[i] = (tti_message){
            .peer = t->below[i], .in = t->packed + n_bytes, .n_bytes = below[i].n_bytes};
        n_bytes += below[i].n_bytes;
    }
    return tti_net_move(s, messages, t->n_below);
}

static tutti_status ask_above(net_state *s, summary *all) {
    net_tree *t = s->tree;
    TTI_TRY(move_one(s, t->above, all, NULL, sizeof *all));
    if (all->n_bytes) TTI_TRY(move_one(s, t->above, t->packed, NULL, all->n_bytes));
    TTI_TRY(move_one(s, t->above, NULL, all, sizeof *all));
    TTI_TRY(check_summary(s, all, t->above));
    TTI_TRY(widen(t, all->n_bytes));
    return all->n_bytes ? move_one(s, t->above, NULL, t->packed, all->n_bytes) : TUTTI_OK;
}

/* Sends n_bytes at bytes to each child host. */
static tutti_status send_below(net_state *s, const void *bytes, size_t n_bytes) {
    const net_tree *t = s->tree;
    tti_message messages[TTI_FAN_OUT];
    for (int i = 0; i < t->n_below; i++)
        messages[i] = (tti_message){.peer = t->below[i], .out = bytes, .n_bytes = n_bytes};
    return tti_net_move(s, messages, t->n_below);
}

static tutti_status agree_with_hosts(net_state *s, const summary *of_host) {
    net_tree *t = s->tree;
    summary all = *of_host;
    TTI_TRY(pack_host(s, &all.n_bytes));
    TTI_TRY(gather_below(s, &all));
    if (t->above >= 0) TTI_TRY(ask_above(s, &all));
    TTI_TRY(send_below(s, &all, sizeof all));
    if (all.n_bytes) TTI_TRY(send_below(s, t->packed, all.n_bytes));
    t->verdicts[parity(s)] = all;
    return unpack(s, all.n_bytes);
}

static void show_payload(const net_state *s, const tti_offer *mine) {
    slot *own = slot_of(s, s->rank);
    TTI_ASSERT(mine->inline_bytes <= s->tree->inline_bytes);
    own->n_bytes = mine->inline_bytes;
    if (mine->inline_bytes) memcpy(own->bytes, mine->inline_data, mine->inline_bytes);
}

tutti_status tti_net_tree_agree(net_state *s, const tti_offer *mine, tti_agreement *out) {
    tti_offer plain = *mine;
    tti_agreement local;
    plain.inline_data = NULL;
    plain.inline_bytes = plain.n_sum = 0;
    s->n_agreed++;
    show_payload(s, mine);
    TTI_TRY(tti_transport_shm.agree(s->local, &plain, &local));
    if (is_leader(s)) {
        summary of_host = summarize_host(s, mine, &local);
        TTI_TRY(agree_with_hosts(s, &of_host));
    }
    TTI_TRY(tti_transport_shm.barrier(s->local)); /* now the verdict is complete */
    const summary *verdict = &s->tree->verdicts[parity(s)];
    *out = (tti_agreement){
        .odd_rank = verdict->odd_rank, .first = verdict->first, .odd = verdict->odd};
    s->near = verdict->near;
    return TUTTI_OK;
}

tutti_status tti_net_tree_barrier(net_state *s) {
    net_tree *t = s->tree;
    uint64_t mine = s->n_agreed, got[TTI_FAN_OUT];
    tti_message messages[TTI_FAN_OUT];
    TTI_TRY(tti_transport_shm.barrier(s->local));
    if (is_leader(s)) {
        for (int i = 0; i < t->n_below; i++)
            messages[i] = (tti_message){.peer = t->below[i], .in = &got[i], .n_bytes = sizeof mine};
        TTI_TRY(tti_net_move(s, messages, t->n_below));
        if (t->above >= 0) {
            TTI_TRY(move_one(s, t->above, &mine, NULL, sizeof mine));
            TTI_TRY(move_one(s, t->above, NULL, &got[0], sizeof mine));
        }
        TTI_TRY(send_below(s, &mine, sizeof mine));
    }
    return tti_transport_shm.barrier(s->local);
}
