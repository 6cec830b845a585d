/* send_recv.c - messages between ranks through channels of two slots.
 *
 * A short message, or one from memory that the peer cannot see, is copied through the bounce slots
 * in chunks, with copying in and out overlapped.  Otherwise the sender publishes the address of the
 * message, the receiver copies it once, and the sender waits for that.
 *
 * In a large group several receivers share a channel of a sender.  The channel belongs to one
 * receiver until that receiver has taken everything. `posted` holds the receiver's number and the
 * count in one word, so a receiver that reads its own number, and data left, owns the channel.  A
 * sender waits for a channel of another receiver as for a full one. */
#include <string.h>

#include "comm/shm/shm.h"

static shm_channel *channel_of(const shm_state *s, int from, int to) {
    return &shm_rank_of(s->header, from)->channels[tti_shm_channel_of(s->header, from, to)];
}

enum { OWNER_SHIFT = 48 };

static uint64_t count_of(uint64_t posted) { return posted & ((UINT64_C(1) << OWNER_SHIFT) - 1); }

static uint64_t posted_word(int owner, uint64_t count) {
    return (uint64_t)owner << OWNER_SHIFT | count;
}

/* The number of slots with data for `to` in a channel.  Any rank may call this; `taken` may be
 * newer than `posted`. */
static uint64_t n_waiting(const shm_channel *c, int to) {
    uint64_t posted = atomic_load(&c->posted), taken = atomic_load(&c->taken);
    bool is_own = posted >> OWNER_SHIFT == (uint64_t)to;
    return is_own && count_of(posted) > taken ? count_of(posted) - taken : 0;
}

/* The number of free slots in the sender's channel to `to`. */
static uint64_t n_free(const shm_channel *c, int to) {
    uint64_t posted = atomic_load_explicit(&c->posted, memory_order_relaxed);
    uint64_t waiting = count_of(posted) - atomic_load(&c->taken);
    if (waiting > 0 && posted >> OWNER_SHIFT != (uint64_t)to) return 0;
    return SHM_N_SLOTS - waiting;
}

/* Posts as much of m as the free slots hold; true if anything was posted. */
static bool push(shm_state *s, tti_message *m) {
    shm_channel *c = channel_of(s, s->rank, m->peer);
    uint64_t posted = count_of(atomic_load_explicit(&c->posted, memory_order_relaxed));
    uint64_t address =
        m->n_bytes > s->header->slot_bytes ? tti_shm_address(s, m->out, m->n_bytes) : 0;
    bool any = false;
    while (m->done < m->n_bytes && n_free(c, m->peer) > 0) {
        shm_slot *slot = &c->slots[posted % SHM_N_SLOTS];
        size_t n = m->n_bytes - m->done;
        if (!address) {
            n = TTI_MIN(n, (size_t)s->header->slot_bytes);
            memcpy(tti_shm_bounce(s->header, s->rank,
                                  tti_shm_channel_of(s->header, s->rank, m->peer), posted),
                   (const char *)m->out + m->done, n);
        }
        *slot = (shm_slot){address, n, m->n_bytes};
        atomic_store(&c->posted, posted_word(m->peer, ++posted));
        m->done += n;
        any = true;
        tti_shm_ring(s->header, s->rank, m->peer);
    }
    return any;
}

/* Receives the available bytes of m. */
static tutti_status pull(shm_state *s, tti_message *m, bool *any) {
    shm_channel *c = channel_of(s, m->peer, s->rank);
    while (m->done < m->n_bytes && n_waiting(c, s->rank) > 0) {
        uint64_t taken = atomic_load_explicit(&c->taken, memory_order_relaxed);
        const shm_slot slot = c->slots[taken % SHM_N_SLOTS];
        const void *from = tti_shm_bounce(s->header, m->peer,
                                          tti_shm_channel_of(s->header, m->peer, s->rank), taken);
        if (slot.address) from = tti_shm_locate(s, m->peer, slot.address, slot.n_bytes);
        if (slot.n_total != m->n_bytes || slot.n_bytes > m->n_bytes - m->done || !from)
            return tti_fail(TUTTI_E_INTERNAL,
                            "comm: rank %d sent %llu bytes where rank %d expects %zu",
                            tti_shm_global_rank(s, m->peer), (unsigned long long)slot.n_total,
                            tti_shm_global_rank(s, s->rank), m->n_bytes);
        memcpy((char *)m->in + m->done, from, slot.n_bytes);
        atomic_store(&c->taken, taken + 1);
        m->done += slot.n_bytes;
        *any = true;
        tti_shm_ring(s->header, s->rank, m->peer);
    }
    return TUTTI_OK;
}

/* True if the peer has taken everything that this rank posted for it. */
static bool is_drained(const shm_state *s, int peer) {
    return n_waiting(channel_of(s, s->rank, peer), peer) == 0;
}

typedef struct batch {
    tti_message *messages;
    int n;
} batch;

/* Moves as much as possible without waiting.  Messages of one direction and peer are processed in
 * order. */
static tutti_status move_some(shm_state *s, const batch *b, bool *any, int *blame) {
    size_t n_words = ((size_t)s->n_ranks + 63) / 64;
    uint64_t few[2] = {0}, *busy_out = s->busy ? s->busy : few, *busy_in = busy_out + n_words;
    if (s->busy) memset(s->busy, 0, 2 * n_words * sizeof *s->busy);
    *blame = -1;
    for (int i = 0; i < b->n; i++) {
        tti_message *m = &b->messages[i];
        uint64_t bit = UINT64_C(1) << m->peer % 64;
        uint64_t *busy = (m->out ? busy_out : busy_in) + m->peer / 64;
        if (m->done == m->n_bytes || (*busy & bit)) continue;
        if (m->out)
            *any |= push(s, m);
        else
            TTI_TRY(pull(s, m, any));
        if (m->done == m->n_bytes) continue;
        *busy |= bit;
        if (*blame < 0) *blame = m->peer;
    }
    return TUTTI_OK;
}

/* True if a message can make progress. */
static bool can_move(const shm_state *s, const void *arg) {
    const batch *b = arg;
    for (int i = 0; i < b->n; i++) {
        const tti_message *m = &b->messages[i];
        if (m->done == m->n_bytes) continue;
        if (m->out ? n_free(channel_of(s, s->rank, m->peer), m->peer) > 0
                   : n_waiting(channel_of(s, m->peer, s->rank), s->rank) > 0)
            return true;
    }
    return false;
}

static bool peer_has_taken(const shm_state *s, const void *arg) {
    return is_drained(s, *(const int *)arg);
}

/* Waits until peers have copied the messages that were posted by address: then the caller may reuse
 * their memory. */
static tutti_status drain(shm_state *s, const batch *b) {
    for (int i = 0; i < b->n; i++) {
        const tti_message *m = &b->messages[i];
        if (!m->out || m->n_bytes <= s->header->slot_bytes || is_drained(s, m->peer)) continue;
        shm_wait wait = {peer_has_taken, &m->peer, m->peer, m->peer};
        TTI_TRY(tti_shm_wait_for(s, &wait));
    }
    return TUTTI_OK;
}

tutti_status tti_shm_send_recv(void *state, tti_message *messages, int n_messages) {
    shm_state *s = state;
    batch b = {messages, n_messages};
    for (;;) {
        bool any = false;
        int blame;
        TTI_TRY(move_some(s, &b, &any, &blame));
        if (blame < 0) return drain(s, &b);
        shm_wait wait = {can_move, &b, SHM_ANY_RANK, blame};
        if (!any) TTI_TRY(tti_shm_wait_for(s, &wait));
    }
}
