/* mailbox.c - a word of state in front of each slot, on which both sides sleep.
 *
 * All lies in one piece of symmetric memory per rank, so a slot is found by counting.  The word is
 * a futex that processes share; a waiter looks at the group's failure and its deadline between
 * slices of sleep, so no wait is for ever. */
#include "comm/mailbox.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/call.h"

enum { SPINS = 400, SLICE_NS = 50000000, LINE = 64, EMPTY = 0, FULL = 1 };

typedef struct slot {
    char *memory; /* the word, a line behind it the bytes */
    size_t n_bytes;
    int to;
} slot;

struct tti_mailbox {
    tutti_comm *comm;
    slot *slots;
    int n_slots;
    size_t own_bytes;
};

static size_t room_of(size_t n_bytes) {
    return LINE + ((n_bytes + LINE - 1) & ~(size_t)(LINE - 1));
}

static _Atomic uint32_t *word_of(const slot *s) { return (_Atomic uint32_t *)(void *)s->memory; }

/* Bytes that each rank needs, and where its slots lie in them. */
static tutti_status lay_out(tti_mailbox *box, const tti_mail_slot *slots, size_t *offset,
                            size_t *most) {
    size_t used[TTI_MAX_RANKS] = {0};
    *most = 0;
    for (int i = 0; i < box->n_slots; i++) {
        TTI_ASSERT(slots[i].to >= 0 && slots[i].to < box->comm->n_ranks);
        box->slots[i] = (slot){.n_bytes = slots[i].n_bytes, .to = slots[i].to};
        offset[i] = used[slots[i].to];
        if (slots[i].n_bytes > PTRDIFF_MAX / 4 ||
            __builtin_add_overflow(offset[i], room_of(slots[i].n_bytes), &used[slots[i].to]))
            return tti_fail(TUTTI_E_INVALID, "mailbox: %zu bytes are too many", slots[i].n_bytes);
        *most = TTI_MAX(*most, used[slots[i].to]);
    }
    box->own_bytes = used[box->comm->rank];
    return TUTTI_OK;
}

/* Each rank shows the others where its memory lies. */
static tutti_status find_memory(tti_mailbox *box, void *own, size_t n_bytes, const size_t *offset) {
    tutti_comm *comm = box->comm;
    bool direct = false;
    tti_offer offer = {.call = {.kind = TTI_CALL_MAILBOX, .n_elems = n_bytes},
                       .bufs = {own},
                       .n_bufs = 1,
                       .buf_bytes = n_bytes};
    TTI_TRY(tti_call_end(comm, tti_call_begin(comm, &offer, &direct)));
    if (!direct)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "mailbox: ranks of different hosts do not see each other's memory");
    for (int i = 0; i < box->n_slots; i++) {
        int to = box->slots[i].to;
        char *base = to == comm->rank ? own : comm->transport->view(comm->state, to, 0);
        box->slots[i].memory = base + offset[i];
    }
    return TUTTI_OK;
}

static tutti_status build(tti_mailbox *box, const tti_mail_slot *slots, size_t *offset) {
    size_t most;
    void *own = NULL;
    TTI_TRY(lay_out(box, slots, offset, &most));
    TTI_TRY(tutti_comm_alloc(box->comm, most, &own));
    TTI_TRY(find_memory(box, own, most, offset));
    return tutti_comm_barrier(box->comm);
}

tutti_status tti_mailbox_create(tutti_comm *comm, const tti_mail_slot *slots, int n_slots,
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
    free(box->slots);
    free(box);
}

size_t tti_mailbox_bytes(const tti_mailbox *box) { return box->own_bytes; }

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until the word is as wanted. */
static tutti_status wait_for(const tti_mailbox *box, int index, uint32_t wanted) {
    _Atomic uint32_t *word = word_of(&box->slots[index]);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) == wanted) return TUTTI_OK;
        relax();
    }
    int64_t start = tti_now_ns();
    while (atomic_load_explicit(word, memory_order_acquire) != wanted) {
        struct timespec slice = {.tv_nsec = SLICE_NS};
        TTI_TRY(box->comm->transport->check(box->comm->state));
        syscall(SYS_futex, word, FUTEX_WAIT, wanted == FULL ? EMPTY : FULL, &slice, NULL, 0);
        if (tti_now_ns() - start > box->comm->timeout_ms * TTI_NS_PER_MS &&
            atomic_load_explicit(word, memory_order_acquire) != wanted)
            return tti_fail(TUTTI_E_TIMEOUT,
                            "mailbox: rank %d waited %d ms for %s slot %d of rank %d to be %s",
                            box->comm->rank, box->comm->timeout_ms,
                            box->slots[index].to == box->comm->rank ? "its" : "the", index,
                            box->slots[index].to, wanted == FULL ? "filled" : "emptied");
    }
    return TUTTI_OK;
}

static void set_word(const tti_mailbox *box, int index, uint32_t value) {
    _Atomic uint32_t *word = word_of(&box->slots[index]);
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

tutti_status tti_mailbox_put(tti_mailbox *box, int index, const void *data) {
    TTI_TRY(wait_for(box, index, EMPTY));
    memcpy(box->slots[index].memory + LINE, data, box->slots[index].n_bytes);
    set_word(box, index, FULL);
    return TUTTI_OK;
}

tutti_status tti_mailbox_wait(tti_mailbox *box, int index, const void **data) {
    TTI_ASSERT(box->slots[index].to == box->comm->rank);
    TTI_TRY(wait_for(box, index, FULL));
    *data = box->slots[index].memory + LINE;
    return TUTTI_OK;
}

void tti_mailbox_free(tti_mailbox *box, int index) { set_word(box, index, EMPTY); }

void tti_mailbox_fail(tti_mailbox *box, tutti_status status) {
    box->comm->transport->fail(box->comm->state, status);
}
