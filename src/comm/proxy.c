/* proxy.c - one thread with its own link.  With each rank of another host it has one message per
 * direction in flight.
 *
 * A message is a notice: the slot, and the new state "filled" or "emptied".  After "filled" the
 * bytes follow.  The receiver can always store them, because the sender's copy is filled only while
 * the slot is empty.  So the thread waits only for the network. */
#include "comm/proxy.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"

/* A change of a slot's state. */
typedef struct note {
    int32_t slot, is_full;
} note;

/* Each peer has three entries in the array of messages. */
enum { IN, OUT_NOTE, OUT_BODY, PER_PEER, TEXT_BYTES = 1024 };

typedef struct peer {
    int rank;
    tti_message *messages; /* [PER_PEER] */
    note in, out;
    bool in_body; /* IN is the body of the slot in.slot */
    bool sending;
    note *queue; /* [cap]: a ring of notices to send, under the lock */
    int cap, first, n;
} peer;

struct tti_proxy {
    const tti_transport *transport;
    void *state; /* state of a subgroup that contains all ranks */
    const tti_slot *slots;
    int n_slots, rank, timeout_ms;
    peer *peers; /* [n_peers]: ranks of other hosts with slots from or to this one */
    int n_peers;
    int *peer_of; /* [n_ranks], owned; -1: the rank is on this host, or shares no slot with this
                     rank */
    tti_message *messages; /* [n_peers][PER_PEER] */
    int wake_fd;           /* -1: none */
    pthread_t thread;
    bool is_running;
    _Atomic int delay_kind, delay_ms; /* delay of the ranks that the thread waits for */
    pthread_mutex_t lock;             /* guards the queues, stop and the failure */
    bool stop;
    int64_t stop_ns;
    tutti_status asked; /* failure that the thread must report to the other ranks */
    tutti_status failed;
    char text[TEXT_BYTES];
};

/* ---- slots ---- */

static _Atomic uint32_t *word_of(const tti_slot *s) {
    return (_Atomic uint32_t *)(void *)s->memory;
}

void tti_slot_set(const tti_slot *slot, uint32_t value) {
    atomic_store_explicit(word_of(slot), value, memory_order_release);
    syscall(SYS_futex, word_of(slot), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t tti_slot_get(const tti_slot *slot) {
    return atomic_load_explicit(word_of(slot), memory_order_acquire);
}

/* ---- failure ---- */

/* With the lock held: records the first failure. */
static void note_failure(tti_proxy *c, tutti_status status) {
    if (c->failed != TUTTI_OK) return;
    c->failed = status;
    snprintf(c->text, sizeof c->text, "%s", tutti_last_error());
}

tutti_status tti_proxy_check(tti_proxy *c) {
    pthread_mutex_lock(&c->lock);
    tutti_status st = c->failed;
    if (st != TUTTI_OK) (void)tti_fail(st, "%s", c->text);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static void wake(const tti_proxy *c) {
    uint64_t one = 1;
    while (write(c->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void tti_proxy_fail(tti_proxy *c, tutti_status status) {
    pthread_mutex_lock(&c->lock);
    note_failure(c, status);
    c->asked = status;
    pthread_mutex_unlock(&c->lock);
    wake(c);
}

/* ---- sending ---- */

static void enqueue(tti_proxy *c, int with, note what) {
    pthread_mutex_lock(&c->lock);
    peer *p = &c->peers[c->peer_of[with]];
    TTI_ASSERT(p->n < p->cap); /* a slot has at most one pending notice */
    p->queue[(p->first + p->n++) % p->cap] = what;
    pthread_mutex_unlock(&c->lock);
    wake(c);
}

void tti_proxy_send(tti_proxy *c, int slot) { enqueue(c, c->slots[slot].to, (note){slot, true}); }

void tti_proxy_post(tti_proxy *c, int slot) {
    enqueue(c, c->slots[slot].from, (note){slot, false});
}

/* The next message to a peer, if there is one. */
static void begin_out(tti_proxy *c, peer *p) {
    pthread_mutex_lock(&c->lock);
    p->sending = p->n > 0;
    if (p->sending) {
        p->out = p->queue[p->first];
        p->first = (p->first + 1) % p->cap;
        p->n--;
    }
    pthread_mutex_unlock(&c->lock);
    if (!p->sending) return;
    const tti_slot *slot = &c->slots[p->out.slot];
    size_t n_bytes = p->out.is_full ? slot->n_bytes : 0;
    p->messages[OUT_NOTE] =
        (tti_message){.peer = p->rank, .out = &p->out, .n_bytes = sizeof p->out};
    p->messages[OUT_BODY] =
        (tti_message){.peer = p->rank, .out = slot->memory + TTI_SLOT_LINE, .n_bytes = n_bytes};
}

/* ---- receiving ---- */

static void begin_in(peer *p, void *memory, size_t n_bytes, bool in_body) {
    p->in_body = in_body;
    p->messages[IN] = (tti_message){.peer = p->rank, .in = memory, .n_bytes = n_bytes};
}

/* A notice must concern a slot between the peer and this rank, in a state that the peer may change.
 */
static tutti_status check_note(const tti_proxy *c, const peer *p) {
    const tti_slot *slot =
        p->in.slot >= 0 && p->in.slot < c->n_slots ? &c->slots[p->in.slot] : NULL;
    if (slot &&
        (p->in.is_full ? slot->from == p->rank && slot->to == c->rank
                       : slot->to == p->rank && slot->from == c->rank) &&
        tti_slot_get(slot) == (p->in.is_full ? TTI_SLOT_EMPTY : TTI_SLOT_FULL))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "mailbox: rank %d reports to rank %d that slot %d is %s",
                    p->rank, c->rank, (int)p->in.slot, p->in.is_full ? "filled" : "emptied");
}

static tutti_status take_in(tti_proxy *c, peer *p) {
    if (!p->in_body) TTI_TRY(check_note(c, p));
    const tti_slot *slot = &c->slots[p->in.slot];
    if (!p->in_body && p->in.is_full && slot->n_bytes > 0) {
        begin_in(p, slot->memory + TTI_SLOT_LINE, slot->n_bytes, true);
        return TUTTI_OK;
    }
    tti_slot_set(slot, p->in.is_full ? TTI_SLOT_FULL : TTI_SLOT_EMPTY);
    begin_in(p, &p->in, sizeof p->in, false);
    return TUTTI_OK;
}

/* ---- the thread ---- */

static bool is_done(const tti_message *m) { return m->done == m->n_bytes; }

/* Handles completed messages. *sending: messages are still in flight or queued. */
static tutti_status turn(tti_proxy *c, bool *sending) {
    *sending = false;
    for (int i = 0; i < c->n_peers; i++) {
        peer *p = &c->peers[i];
        if (is_done(&p->messages[IN])) TTI_TRY(take_in(c, p));
        if (is_done(&p->messages[OUT_NOTE]) && is_done(&p->messages[OUT_BODY])) begin_out(c, p);
        *sending = *sending || p->sending;
    }
    return TUTTI_OK;
}

/* With the lock held: true if a queued notice has not been sent yet. */
static bool has_more(const tti_proxy *c) {
    for (int i = 0; i < c->n_peers; i++)
        if (c->peers[i].n > 0) return true;
    return false;
}

/* Sets *goes_on to false if the thread must end.  Returns a failure that a rank has reported. */
static tutti_status may_go_on(tti_proxy *c, bool sending, bool *goes_on) {
    uint64_t n;
    while (read(c->wake_fd, &n, sizeof n) < 0 && errno == EINTR) continue;
    pthread_mutex_lock(&c->lock);
    tutti_status st = c->asked;
    if (st != TUTTI_OK) (void)tti_fail(st, "%s", c->text);
    bool is_late = c->stop && tti_now_ns() - c->stop_ns > c->timeout_ms * TTI_NS_PER_MS;
    *goes_on = !c->stop || ((sending || has_more(c)) && !is_late);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static void note_delay(tti_proxy *c) {
    tti_delay delay = c->transport->delay(c->state);
    atomic_store(&c->delay_ms, delay.more_ms);
    atomic_store(&c->delay_kind, (int)delay.kind);
}

tti_delay tti_proxy_delay(tti_proxy *c) {
    return (tti_delay){(tti_delay_kind)atomic_load(&c->delay_kind), atomic_load(&c->delay_ms)};
}

static tutti_status carry(tti_proxy *c) {
    bool sending = false, goes_on = true;
    for (;;) {
        TTI_TRY(turn(c, &sending));
        (void)TTI_FAULT_AT("proxy.turn", c->rank, -1);
        TTI_TRY(may_go_on(c, sending, &goes_on));
        if (!goes_on) return TUTTI_OK;
        TTI_TRY(c->transport->stream(c->state, c->messages, c->n_peers * PER_PEER, c->wake_fd));
        note_delay(c);
    }
}

static void *proxy_main(void *arg) {
    tti_proxy *c = arg;
    tutti_status st = carry(c);
    if (st == TUTTI_OK) return NULL;
    pthread_mutex_lock(&c->lock);
    note_failure(c, st);
    pthread_mutex_unlock(&c->lock);
    c->transport->fail(c->state, st);
    return NULL;
}

/* ---- begin and end ---- */

static tutti_status make_peers(tti_proxy *c, const tutti_comm *comm) {
    c->peer_of = calloc((size_t)comm->n_ranks, sizeof *c->peer_of);
    if (!c->peer_of) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
    for (int i = 0; i < c->n_slots; i++) {
        int other = c->slots[i].from == c->rank ? c->slots[i].to : c->slots[i].from;
        if (c->slots[i].from == c->rank || c->slots[i].to == c->rank) c->peer_of[other] = 1;
    }
    for (int r = 0; r < comm->n_ranks; r++) {
        bool is_far = tti_comm_host_of(comm, r) != tti_comm_host_of(comm, comm->rank);
        c->peer_of[r] = is_far && c->peer_of[r] ? c->n_peers++ : -1;
    }
    c->peers = calloc((size_t)c->n_peers + 1, sizeof *c->peers);
    c->messages = calloc((size_t)c->n_peers * PER_PEER + 1, sizeof *c->messages);
    if (!c->peers || !c->messages) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
    for (int r = 0; r < comm->n_ranks; r++) {
        if (c->peer_of[r] < 0) continue;
        peer *p = &c->peers[c->peer_of[r]];
        for (int i = 0; i < c->n_slots; i++)
            p->cap += (c->slots[i].from == r && c->slots[i].to == c->rank) ||
                      (c->slots[i].to == r && c->slots[i].from == c->rank);
        p->rank = r;
        p->messages = c->messages + c->peer_of[r] * PER_PEER;
        p->queue = calloc((size_t)p->cap + 1, sizeof *p->queue);
        if (!p->queue) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
        begin_in(p, &p->in, sizeof p->in, false);
    }
    return TUTTI_OK;
}

static tutti_status start(tti_proxy *c) {
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0) return tti_fail(TUTTI_E_IO, "mailbox: eventfd: %s", strerror(errno));
    int error = tti_thread_start(&c->thread, NULL, proxy_main, c);
    c->is_running = error == 0;
    return error == 0
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "mailbox: cannot start a thread: %s", strerror(error));
}

static tutti_status build(tti_proxy *c, tutti_comm *comm) {
    int *all_ranks = calloc((size_t)comm->n_ranks, sizeof *all_ranks);
    if (!all_ranks) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
    for (int r = 0; r < comm->n_ranks; r++) all_ranks[r] = r;
    tutti_status st = make_peers(c, comm);
    if (st == TUTTI_OK)
        st = comm->transport->split(comm->state, all_ranks, comm->n_ranks, comm->rank,
                                    &c->transport, &c->state);
    free(all_ranks);
    TTI_TRY(st);
    TTI_ASSERT(c->transport->stream != NULL);
    return start(c);
}

tutti_status tti_proxy_create(tutti_comm *comm, const tti_slot *slots, int n_slots,
                              tti_proxy **out) {
    *out = NULL;
    tti_proxy *c = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
    c->slots = slots;
    c->n_slots = n_slots;
    c->rank = comm->rank;
    c->timeout_ms = comm->timeout_ms;
    c->wake_fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    tutti_status st = build(c, comm);
    if (st != TUTTI_OK) {
        tti_proxy_destroy(c);
        return st;
    }
    *out = c;
    return TUTTI_OK;
}

void tti_proxy_destroy(tti_proxy *c) {
    if (!c) return;
    if (c->is_running) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        c->stop_ns = tti_now_ns();
        pthread_mutex_unlock(&c->lock);
        wake(c);
        pthread_join(c->thread, NULL);
    }
    if (c->state) c->transport->leave(c->state);
    if (c->wake_fd >= 0) close(c->wake_fd);
    for (int i = 0; c->peers && i < c->n_peers; i++) free(c->peers[i].queue);
    pthread_mutex_destroy(&c->lock);
    free(c->peers);
    free(c->peer_of);
    free(c->messages);
    free(c);
}
