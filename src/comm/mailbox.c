/* mailbox.c - a state word in front of each slot, on which both sides wait.
 *
 * All slots of a rank are in one allocation of symmetric memory, so their addresses can be
 * computed.  The word is a futex shared by processes.  A waiter sleeps in slices and checks the
 * group's failure and its deadline between them, so every wait ends.  A sender to a slot on another
 * host has a copy of the slot and its word, which the proxy thread keeps up to date (proxy.h). */
#include "comm/mailbox.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "comm/call.h"
#include "comm/proxy.h"

enum { SPINS = 400, SLICE_NS = 50000000, LINE = TTI_SLOT_LINE };

struct tti_mailbox {
    tutti_comm *comm;
    tti_slot *slots;
    int n_slots;
    void *own;               /* owned by the communicator */
    size_t own_bytes, n_own; /* own_bytes includes the copies; n_own: number of slots in own */
    char *copies;            /* copies of slots on other hosts that this rank fills */
    tti_proxy *proxy;        /* NULL: all ranks are on one host */
    int *global_ranks;       /* [n_ranks]: number of rank i in messages; NULL: i */
};

size_t tti_mailbox_room(size_t n_bytes) {
    return LINE + ((n_bytes + LINE - 1) & ~(size_t)(LINE - 1));
}

/* Computes the bytes that each rank needs, and the offsets of its slots. */
static tutti_status lay_out(tti_mailbox *box, const tti_mailbox_slot *slots, size_t *offset,
                            size_t *most) {
    size_t *used = calloc((size_t)box->comm->n_ranks, sizeof *used);
    if (!used) return tti_fail(TUTTI_E_NOMEM, "mailbox: %d ranks", box->comm->n_ranks);
    tutti_status st = TUTTI_OK;
    *most = 0;
    for (int i = 0; i < box->n_slots; i++) {
        TTI_ASSERT(slots[i].to >= 0 && slots[i].to < box->comm->n_ranks);
        TTI_ASSERT(slots[i].from >= 0 && slots[i].from < box->comm->n_ranks);
        box->slots[i] =
            (tti_slot){.n_bytes = slots[i].n_bytes, .from = slots[i].from, .to = slots[i].to};
        offset[i] = used[slots[i].to];
        if (slots[i].n_bytes > PTRDIFF_MAX / 4 ||
            __builtin_add_overflow(offset[i], tti_mailbox_room(slots[i].n_bytes),
                                   &used[slots[i].to])) {
            st = tti_fail(TUTTI_E_INVALID, "mailbox: %zu bytes are too many", slots[i].n_bytes);
            break;
        }
        *most = TTI_MAX(*most, used[slots[i].to]);
    }
    box->own_bytes = used[box->comm->rank];
    free(used);
    return st;
}

static bool is_far(const tti_mailbox *box, int rank) {
    return tti_comm_host_of(box->comm, rank) != tti_comm_host_of(box->comm, box->comm->rank);
}

/* Allocates empty copies of the slots on other hosts that this rank fills. */
static tutti_status make_copies(tti_mailbox *box) {
    size_t n_bytes = 0;
    for (int i = 0; i < box->n_slots; i++)
        if (box->slots[i].from == box->comm->rank && is_far(box, box->slots[i].to))
            n_bytes += tti_mailbox_room(box->slots[i].n_bytes);
    if (n_bytes == 0) return TUTTI_OK;
    box->own_bytes += n_bytes;
    char *at = box->copies = aligned_alloc(LINE, n_bytes);
    if (!at) return tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory for %zu bytes", n_bytes);
    memset(at, 0, n_bytes);
    for (int i = 0; i < box->n_slots; i++) {
        if (box->slots[i].from != box->comm->rank || !is_far(box, box->slots[i].to)) continue;
        box->slots[i].memory = at;
        at += tti_mailbox_room(box->slots[i].n_bytes);
    }
    return TUTTI_OK;
}

/* Publishes the address of this rank's memory to the other ranks of its host. */
static tutti_status find_memory(tti_mailbox *box, void *own, size_t n_bytes, const size_t *offset) {
    tutti_comm *comm = box->comm;
    bool direct = false;
    tti_offer offer = {.call = {.kind = TTI_CALL_MAILBOX, .n_elems = n_bytes},
                       .bufs = {own},
                       .n_bufs = 1,
                       .buf_bytes = n_bytes};
    TTI_TRY(tti_call_end(comm, tti_call_begin(comm, &offer, &direct)));
    if (!direct && (comm->n_hosts == 1 || !comm->transport->near(comm->state)))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "mailbox: ranks of a host do not see each other's memory");
    for (int i = 0; i < box->n_slots; i++) {
        int to = box->slots[i].to;
        if (is_far(box, to)) continue;
        char *base = to == comm->rank ? own : comm->transport->view(comm->state, to, 0);
        box->slots[i].memory = base + offset[i];
    }
    return TUTTI_OK;
}

static tutti_status build(tti_mailbox *box, const tti_mailbox_slot *slots, size_t *offset) {
    size_t most;
    void *own = NULL;
    TTI_TRY(lay_out(box, slots, offset, &most));
    TTI_TRY(tutti_comm_alloc(box->comm, most, &own));
    box->own = own;
    box->n_own = most;
    TTI_TRY(find_memory(box, own, most, offset));
    TTI_TRY(make_copies(box));
    TTI_TRY(tutti_comm_barrier(box->comm));
    if (box->comm->n_hosts == 1) return TUTTI_OK;
    tutti_status st = tti_proxy_create(box->comm, box->slots, box->n_slots, &box->proxy);
    return tti_call_end(box->comm, st);
}

tutti_status tti_mailbox_create(tutti_comm *comm, const tti_mailbox_slot *slots, int n_slots,
                                tti_mailbox **out) {
    *out = NULL;
    TTI_TRY(tti_check_comm("mailbox", comm));
    tti_mailbox *box = calloc(1, sizeof *box);
    size_t *offset = calloc((size_t)n_slots + 1, sizeof *offset);
    if (box) *box = (tti_mailbox){.comm = comm, .n_slots = n_slots};
    if (box) box->slots = calloc((size_t)n_slots + 1, sizeof *box->slots);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "mailbox: out of memory");
    if (box && offset && box->slots) st = build(box, slots, offset);
    free(offset);
    if (st != TUTTI_OK) {
        tti_mailbox_destroy(box);
        return st;
    }
    *out = box;
    return TUTTI_OK;
}

void tti_mailbox_destroy(tti_mailbox *box) {
    if (!box) return;
    tti_proxy_destroy(box->proxy);
    free(box->copies);
    free(box->global_ranks);
    free(box->slots);
    free(box);
}

void tti_mailbox_set_global_ranks(tti_mailbox *box, const int *global_ranks) {
    size_t n_bytes = (size_t)box->comm->n_ranks * sizeof *global_ranks;
    if (!box->global_ranks) box->global_ranks = malloc(n_bytes);
    if (box->global_ranks) memcpy(box->global_ranks, global_ranks, n_bytes);
}

static int global_rank_of(const tti_mailbox *box, int rank) {
    return box->global_ranks ? box->global_ranks[rank] : rank;
}

size_t tti_mailbox_bytes(const tti_mailbox *box) { return box->own_bytes; }

void *tti_mailbox_memory(const tti_mailbox *box, size_t *n_bytes) {
    *n_bytes = box->n_own;
    return box->own;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Checks for failures.  Over several hosts the proxy thread receives failures on its own link,
 * because comm's link belongs to the thread that uses comm. */
static tutti_status check(const tti_mailbox *box) {
    if (box->proxy) return tti_proxy_check(box->proxy);
    return box->comm->transport->check(box->comm->state);
}

static tti_delay delay_of(const tti_mailbox *box) {
    if (box->proxy) return tti_proxy_delay(box->proxy);
    return box->comm->transport->delay(box->comm->state);
}

static tutti_status fail_timeout(const tti_mailbox *box, int index, bool fills,
                                 const tti_wait_clock *clock) {
    const tti_slot *slot = &box->slots[index];
    char waited[TTI_WAIT_TEXT_BYTES];
    tti_str what = {0};
    int peer = fills ? slot->from : slot->to,
        culprit = tti_comm_find_culprit(box->comm, peer, &what);
    tutti_status st = tti_fail(
        TUTTI_E_TIMEOUT, "mailbox: rank %d waited %s for rank %d to %s slot %d%s",
        global_rank_of(box, box->comm->rank), tti_wait_clock_text(clock, waited),
        global_rank_of(box, peer), fills ? "fill" : "empty", index, tti_wait_clock_reason(clock));
    if (what.n_bytes > 0)
        st = tti_fail(st, "%s; rank %d %s", tutti_last_error(), culprit, tti_str_text(&what));
    tti_str_free(&what);
    return st;
}

static tutti_status sleep_until(const tti_mailbox *box, int index, uint32_t wanted) {
    const tti_slot *slot = &box->slots[index];
    const tutti_comm *comm = box->comm;
    tti_wait_clock clock = tti_wait_clock_begin(comm->timeout_ms, comm->phase_timeout_ms);
    while (tti_slot_get(slot) != wanted) {
        struct timespec slice = {.tv_nsec = SLICE_NS};
        (void)TTI_FAULT_AT("mailbox.wait", box->comm->rank, -1);
        tutti_status st = check(box);
        /* If the state is as wanted, the slot is usable although the rank that set it has left. */
        if (st != TUTTI_OK && tti_slot_get(slot) != wanted) return st;
        syscall(SYS_futex, slot->memory, FUTEX_WAIT,
                wanted == TTI_SLOT_FULL ? TTI_SLOT_EMPTY : TTI_SLOT_FULL, &slice, NULL, 0);
        if (tti_wait_clock_look(&clock, delay_of(box)) && tti_slot_get(slot) != wanted)
            return fail_timeout(box, index, wanted == TTI_SLOT_FULL, &clock);
    }
    return TUTTI_OK;
}

/* Waits until the word has the wanted value. */
static tutti_status wait_for(const tti_mailbox *box, int index, uint32_t wanted) {
    const tutti_comm *comm = box->comm;
    for (int i = 0; i < SPINS; i++) {
        if (tti_slot_get(&box->slots[index]) == wanted) return TUTTI_OK;
        relax();
    }
    comm->transport->note_wait(comm->state, true);
    tutti_status st = sleep_until(box, index, wanted);
    comm->transport->note_wait(comm->state, false);
    return st;
}

tutti_status tti_mailbox_put(tti_mailbox *box, int index, const void *data) {
    const tti_slot *slot = &box->slots[index];
    TTI_ASSERT(slot->from == box->comm->rank);
    TTI_TRY(wait_for(box, index, TTI_SLOT_EMPTY));
    memcpy(slot->memory + LINE, data, slot->n_bytes);
    tti_slot_set(slot, TTI_SLOT_FULL);
    if (is_far(box, slot->to)) tti_proxy_send(box->proxy, index);
    return TUTTI_OK;
}

bool tti_mailbox_is_full(const tti_mailbox *box, int index) {
    return tti_slot_get(&box->slots[index]) == TTI_SLOT_FULL;
}

tutti_status tti_mailbox_wait(tti_mailbox *box, int index, const void **data) {
    TTI_ASSERT(box->slots[index].to == box->comm->rank);
    TTI_TRY(wait_for(box, index, TTI_SLOT_FULL));
    *data = box->slots[index].memory + LINE;
    return TUTTI_OK;
}

void tti_mailbox_free(tti_mailbox *box, int index) {
    tti_slot_set(&box->slots[index], TTI_SLOT_EMPTY);
    if (is_far(box, box->slots[index].from)) tti_proxy_post(box->proxy, index);
}

void tti_mailbox_fail(tti_mailbox *box, tutti_status status) {
    if (box->proxy)
        tti_proxy_fail(box->proxy, status);
    else
        box->comm->transport->fail(box->comm->state, status);
}
