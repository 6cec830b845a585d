/* flight.c - the layout of the memory and its two sides.
 *
 * Every word that both sides use is atomic.  A record is written before its number, so a reader
 * that finds the number finds the record; one that is overwritten meanwhile has another number
 * afterwards, and is dropped. */
#include "base/flight.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum {
    VERSION = 2,
    MAX_RANKS = 4096,
    HEADER_BYTES = 4096,
    NO_LAYER = -1,
    SIGNAL_STACK_BYTES = 64 << 10
};
static const uint64_t magic = UINT64_C(0x54474c4649545554);

typedef struct record {
    _Atomic uint64_t seq; /* 0: being written */
    _Atomic int64_t start_ns, end_ns;
    _Atomic uint64_t n_bytes, step;
    _Atomic uint64_t name[TTI_FLIGHT_NAME / 8];
    _Atomic int32_t layer;
    _Atomic uint8_t thread, waits;
    _Atomic uint16_t n_peers;
} record;

typedef struct thread_state {
    _Alignas(64) _Atomic uint64_t open; /* number of its operation; 0: none */
    _Atomic int32_t tid;
} thread_state;

/* One stack at a time: the reader clears n_frames, names the thread and sends it the signal. */
typedef struct stack_place {
    _Atomic int32_t serves; /* the process has the handler */
    _Atomic int32_t tid, n_frames;
    _Atomic uint64_t pc[TTI_FLIGHT_FRAMES];
} stack_place;

struct tti_flight {
    _Atomic int32_t pid;
    _Atomic int32_t n_layers;
    _Atomic int64_t phase_ns; /* 0: no phase is declared */
    _Atomic uint64_t phase[TTI_FLIGHT_LAYER_NAME / 8];
    _Atomic uint64_t steps, n_phases;
    _Atomic int64_t step_ns[TTI_FLIGHT_STEPS];
    stack_place stack;
    _Alignas(64) _Atomic uint64_t n_ops, n_ended;
    _Atomic int32_t n_calls; /* that wait for other ranks now */
    thread_state threads[TTI_FLIGHT_THREADS];
    _Alignas(64) record ring[TTI_FLIGHT_RECORDS];
    char layers[TTI_FLIGHT_LAYERS]
               [TTI_FLIGHT_LAYER_NAME]; /* sparse: untouched pages cost nothing */
};

typedef struct header {
    uint64_t magic;
    uint32_t version, n_ranks;
    uint64_t rank_bytes;
    _Atomic int32_t least, most, wanted, members, n_here, n_per_replica; /* workers */
} header;

struct tti_flight_memory {
    int fd;
    size_t n_bytes;
    header *header;
};

static size_t rank_bytes(void) { return (sizeof(tti_flight) + 4095) / 4096 * 4096; }

static size_t total_bytes(int n_ranks) { return HEADER_BYTES + (size_t)n_ranks * rank_bytes(); }

/* ---- memory ---- */

static tutti_status map(int fd, size_t n_bytes, tti_flight_memory **out) {
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM, "flight recorder: cannot map %zu bytes: %s", n_bytes,
                        strerror(errno));
    tti_flight_memory *m = malloc(sizeof *m);
    if (!m) {
        munmap(at, n_bytes);
        return tti_fail(TUTTI_E_NOMEM, "flight recorder: out of memory");
    }
    *m = (tti_flight_memory){.fd = fd, .n_bytes = n_bytes, .header = at};
    *out = m;
    return TUTTI_OK;
}

/* A descriptor that others can map; -1: this process may make none that is as large. */
static int shared_memory(size_t n_bytes) {
    int fd = memfd_create("tutti-flight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)n_bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    close(fd);
    return -1;
}

tutti_status tti_flight_create(int n_ranks, tti_flight_memory **out) {
    *out = NULL;
    TTI_ASSERT(n_ranks >= 1 && n_ranks <= MAX_RANKS);
    int fd = shared_memory(total_bytes(n_ranks));
    tutti_status st = map(fd, total_bytes(n_ranks), out);
    if (st != TUTTI_OK) {
        if (fd >= 0) close(fd);
        return st;
    }
    header *h = (*out)->header;
    h->version = VERSION;
    h->n_ranks = (uint32_t)n_ranks;
    h->rank_bytes = rank_bytes();
    h->magic = magic;
    return TUTTI_OK;
}

static bool is_ours(const header *h, size_t n_bytes) {
    return h->magic == magic && h->version == VERSION && h->n_ranks >= 1 &&
           h->n_ranks <= MAX_RANKS && h->rank_bytes == rank_bytes() &&
           total_bytes((int)h->n_ranks) == n_bytes;
}

tutti_status tti_flight_open(int fd, tti_flight_memory **out) {
    struct stat info;
    *out = NULL;
    int seals = fcntl(fd, F_GET_SEALS);
    bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK);
    if (!sealed || fstat(fd, &info) != 0 || info.st_size < HEADER_BYTES)
        return tti_fail(TUTTI_E_INVALID, "flight recorder: descriptor %d is not one", fd);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return tti_fail(TUTTI_E_IO, "flight recorder: %s", strerror(errno));
    tutti_status st = map(own, (size_t)info.st_size, out);
    if (st != TUTTI_OK) {
        close(own);
        return st;
    }
    if (is_ours((*out)->header, (*out)->n_bytes)) return TUTTI_OK;
    tti_flight_close(*out);
    *out = NULL;
    return tti_fail(TUTTI_E_INVALID, "flight recorder: descriptor %d has another version", fd);
}

void tti_flight_close(tti_flight_memory *m) {
    if (!m) return;
    munmap(m->header, m->n_bytes);
    if (m->fd >= 0) close(m->fd);
    free(m);
}

int tti_flight_fd(const tti_flight_memory *m) { return m->fd; }

int tti_flight_n_ranks(const tti_flight_memory *m) { return (int)m->header->n_ranks; }

tti_flight *tti_flight_of(tti_flight_memory *m, int rank) {
    if (!m || rank < 0 || rank >= (int)m->header->n_ranks) return NULL;
    return (tti_flight *)((uintptr_t)m->header + HEADER_BYTES + (size_t)rank * rank_bytes());
}

void tti_flight_set_range(tti_flight_memory *m, int least, int most, int n_per_replica) {
    n_per_replica = TTI_MAX(n_per_replica, 1);
    atomic_store(&m->header->n_per_replica, n_per_replica);
    atomic_store(&m->header->least, least);
    atomic_store(&m->header->most, most);
}

void tti_flight_set_members(tti_flight_memory *m, int n_here, int n_members) {
    atomic_store(&m->header->members, 0);
    atomic_store(&m->header->n_here, n_here);
    atomic_store(&m->header->members, n_members);
}

void tti_flight_want(tti_flight_memory *m, int n_workers) {
    atomic_store(&m->header->wanted, n_workers);
}

int tti_flight_take_wanted(tti_flight_memory *m) { return atomic_exchange(&m->header->wanted, 0); }

tti_flight_workers tti_flight_get_workers(const tti_flight_memory *m) {
    return (tti_flight_workers){
        atomic_load(&m->header->least),  atomic_load(&m->header->most),
        atomic_load(&m->header->wanted), atomic_load(&m->header->members),
        atomic_load(&m->header->n_here), atomic_load(&m->header->n_per_replica)};
}

/* The rank that writes the stacks of this process. */
#define STACK_SIGNAL (SIGRTMIN + 9)
static _Atomic(tti_flight *) stack_owner;

/* ---- the writing side ---- */

static void put_text(_Atomic uint64_t *to, size_t n_words, const char *text) {
    uint64_t words[TTI_FLIGHT_LAYER_NAME / 8] = {0};
    strncpy((char *)words, text, n_words * 8 - 1);
    for (size_t i = 0; i < n_words; i++)
        atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
}

static void get_text(const _Atomic uint64_t *from, size_t n_words, char *out) {
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy(out + 8 * i, &word, 8);
    }
    out[8 * n_words - 1] = '\0';
}

/* The stack for the signal of each thread that has one; NULL of others. */
static pthread_key_t signal_stack;
static pthread_once_t signal_stack_once = PTHREAD_ONCE_INIT;
static bool has_signal_stacks;

/* At the end of its thread. */
static void free_signal_stack(void *stack) {
    const stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    munmap(stack, SIGNAL_STACK_BYTES);
}

static void make_signal_stacks(void) {
    has_signal_stacks = pthread_key_create(&signal_stack, free_signal_stack) == 0;
}

/* Gives this thread a stack for the signal, since a kernel of oneDNN may have moved the stack
 * pointer into a heap block, which a signal frame there would damage.  It is mapped: the C library
 * would clear one in thread-local storage at the start of every thread, whether it is used or not.
 */
static bool take_signal_stack(void) {
    pthread_once(&signal_stack_once, make_signal_stacks);
    if (!has_signal_stacks) return false;
    void *at =
        mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    const stack_t stack = {.ss_sp = at, .ss_size = SIGNAL_STACK_BYTES};
    if (sigaltstack(&stack, NULL) == 0 && pthread_setspecific(signal_stack, at) == 0) return true;
    free_signal_stack(at);
    return false;
}

/* The number of this thread, which from then on has a stack for the signal. */
static int own_tid(void) {
    static _Thread_local int tid;
    if (tid == 0) {
        stack_t there; /* a sanitizer's or the caller's, which expects to find it again */
        bool is_free = sigaltstack(NULL, &there) == 0 && (there.ss_flags & SS_DISABLE);
        if (!is_free || take_signal_stack()) tid = (int)syscall(SYS_gettid);
        sigset_t asks; /* helper threads block all signals */
        sigemptyset(&asks);
        sigaddset(&asks, STACK_SIGNAL);
        pthread_sigmask(SIG_UNBLOCK, &asks, NULL);
    }
    return tid;
}

void tti_flight_enter(tti_flight *f, const char *phase) {
    if (!f) return;
    for (int i = 0; i < TTI_FLIGHT_THREADS; i++) {
        atomic_store(&f->threads[i].open, 0);
        atomic_store(&f->threads[i].tid, 0);
    }
    atomic_store(&f->threads[TTI_THREAD_MAIN].tid, own_tid());
    for (int i = 0; i < TTI_FLIGHT_STEPS; i++) atomic_store(&f->step_ns[i], 0);
    atomic_store(&f->n_layers, 0);
    atomic_store(&f->n_calls, 0);
    atomic_store(&f->stack.serves, 0);
    tti_flight_phase(f, phase); /* no reader finds the process without its phase */
    atomic_store(&f->pid, (int32_t)getpid());
}

void tti_flight_leave(tti_flight *f) {
    tti_flight *owner = f;
    if (!f) return;
    atomic_compare_exchange_strong(&stack_owner, &owner, NULL);
    atomic_store(&f->stack.serves, 0);
    atomic_store(&f->pid, 0);
}

void tti_flight_forget(tti_flight *f) {
    if (!f) return;
    atomic_store(&f->stack.serves, 0);
    atomic_store(&f->pid, 0);
    atomic_store(&f->steps, 0); /* another process may get this rank */
}

/* The last byte of a layer's name says whether the layer waits for other ranks. */
enum { LAYER_TEXT = TTI_FLIGHT_LAYER_NAME - 1 };

void tti_flight_name_layer(tti_flight *f, int i, const char *op, const char *name,
                           bool waits_for_peers) {
    if (!f || i < 0 || i >= TTI_FLIGHT_LAYERS) return;
    if (name[0])
        snprintf(f->layers[i], LAYER_TEXT, "%s (%s)", name, op);
    else
        snprintf(f->layers[i], LAYER_TEXT, "%s", op);
    f->layers[i][LAYER_TEXT] = waits_for_peers;
    if (i >= atomic_load(&f->n_layers)) atomic_store(&f->n_layers, i + 1);
}

static void store(_Atomic int64_t *to, int64_t x) {
    atomic_store_explicit(to, x, memory_order_relaxed);
}

static int bounded(int thread) {
    return thread < TTI_FLIGHT_THREADS ? thread : TTI_FLIGHT_THREADS - 1;
}

enum { WAITS_FOR_PEERS = 1, WAITS_FOR_LOADS = 2, MAY_WAIT = 4 };

void tti_flight_begin(tti_flight *f, int thread, const tti_flight_op *op) {
    if (!f) return;
    thread = bounded(thread);
    uint64_t seq = atomic_fetch_add_explicit(&f->n_ops, 1, memory_order_relaxed) + 1;
    record *r = &f->ring[seq % TTI_FLIGHT_RECORDS];
    atomic_store_explicit(&r->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    store(&r->start_ns, tti_now_ns());
    store(&r->end_ns, 0);
    atomic_store_explicit(&r->n_bytes, op->n_bytes, memory_order_relaxed);
    atomic_store_explicit(&r->step, op->step, memory_order_relaxed);
    put_text(r->name, TTI_FLIGHT_NAME / 8, op->name);
    atomic_store_explicit(&r->layer, NO_LAYER, memory_order_relaxed);
    atomic_store_explicit(&r->thread, (uint8_t)thread, memory_order_relaxed);
    int waits = (op->waits_for_peers ? WAITS_FOR_PEERS : 0) |
                (op->waits_for_loads ? WAITS_FOR_LOADS : 0) | (op->may_wait ? MAY_WAIT : 0);
    atomic_store_explicit(&r->waits, (uint8_t)waits, memory_order_relaxed);
    atomic_store_explicit(&r->n_peers, (uint16_t)op->n_peers, memory_order_relaxed);
    atomic_store_explicit(&r->seq, seq, memory_order_release);
    atomic_store_explicit(&f->threads[thread].tid, own_tid(), memory_order_relaxed);
    atomic_store_explicit(&f->threads[thread].open, seq, memory_order_release);
}

/* The record of the thread's open operation; NULL: none, or the ring has passed it. */
static record *open_record(tti_flight *f, int thread) {
    uint64_t seq = atomic_load_explicit(&f->threads[bounded(thread)].open, memory_order_acquire);
    record *r = &f->ring[seq % TTI_FLIGHT_RECORDS];
    return seq && atomic_load_explicit(&r->seq, memory_order_acquire) == seq ? r : NULL;
}

void tti_flight_end(tti_flight *f, int thread) {
    if (!f) return;
    record *r = open_record(f, thread);
    if (r) store(&r->end_ns, tti_now_ns());
    atomic_store_explicit(&f->threads[bounded(thread)].open, 0, memory_order_release);
    atomic_fetch_add_explicit(&f->n_ended, 1, memory_order_relaxed);
}

_Atomic int32_t *tti_flight_layer_place(tti_flight *f, int thread) {
    record *r = f ? open_record(f, thread) : NULL;
    return r ? &r->layer : NULL;
}

void tti_flight_in_call(tti_flight *f, bool begins) {
    if (f) atomic_fetch_add_explicit(&f->n_calls, begins ? 1 : -1, memory_order_relaxed);
}

void tti_flight_phase(tti_flight *f, const char *phase) {
    if (!f) return;
    if (phase) put_text(f->phase, TTI_COUNT(f->phase), phase);
    atomic_store(&f->phase_ns, phase ? tti_now_ns() : 0);
    atomic_fetch_add(&f->n_phases, 1);
}

void tti_flight_commit(tti_flight *f, uint64_t steps, int64_t t_ns) {
    if (!f) return;
    store(&f->step_ns[steps % TTI_FLIGHT_STEPS], t_ns);
    atomic_store_explicit(&f->steps, steps, memory_order_release);
}

/* ---- the reading side ---- */

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median_step_ns(const tti_flight *f) {
    int64_t t[TTI_FLIGHT_STEPS];
    int n = 0;
    for (int i = 0; i < TTI_FLIGHT_STEPS; i++) {
        int64_t ns = atomic_load_explicit(&f->step_ns[i], memory_order_relaxed);
        if (ns > 0) t[n++] = ns;
    }
    if (n == 0) return 0;
    qsort(t, (size_t)n, sizeof t[0], by_size);
    return t[n / 2];
}

static bool read_record(const tti_flight *f, uint64_t seq, tti_flight_view *out) {
    const record *r = &f->ring[seq % TTI_FLIGHT_RECORDS];
    if (seq == 0 || atomic_load_explicit(&r->seq, memory_order_acquire) != seq) return false;
    int waits = atomic_load(&r->waits);
    if ((waits & MAY_WAIT) && atomic_load(&f->n_calls) > 0) waits |= WAITS_FOR_PEERS;
    *out = (tti_flight_view){.seq = seq,
                             .step = atomic_load(&r->step),
                             .n_bytes = atomic_load(&r->n_bytes),
                             .thread = atomic_load(&r->thread),
                             .n_peers = atomic_load(&r->n_peers),
                             .waits_for_peers = waits & WAITS_FOR_PEERS,
                             .waits_for_loads = waits & WAITS_FOR_LOADS,
                             .start_ns = atomic_load(&r->start_ns),
                             .end_ns = atomic_load(&r->end_ns)};
    get_text(r->name, TTI_COUNT(r->name), out->name);
    int layer = atomic_load(&r->layer);
    if (layer >= 0 && layer < TTI_FLIGHT_LAYERS && layer < atomic_load(&f->n_layers)) {
        snprintf(out->layer, sizeof out->layer, "%.*s", LAYER_TEXT - 1, f->layers[layer]);
        out->waits_for_peers |= f->layers[layer][LAYER_TEXT] != 0;
    }
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&r->seq, memory_order_relaxed) == seq;
}

static uint64_t mix(uint64_t hash, uint64_t x) {
    return (hash ^ x) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static uint64_t progress_of(const tti_flight *f) {
    uint64_t hash = mix(atomic_load(&f->n_ops), atomic_load(&f->n_ended));
    hash = mix(mix(hash, atomic_load(&f->n_phases)), atomic_load(&f->steps));
    for (int i = 0; i < TTI_FLIGHT_THREADS; i++) {
        uint64_t seq = atomic_load(&f->threads[i].open);
        if (seq == 0) continue;
        hash = mix(hash, (uint64_t)atomic_load(&f->ring[seq % TTI_FLIGHT_RECORDS].layer));
    }
    return hash;
}

void tti_flight_read(const tti_flight *f, tti_flight_state *out) {
    tti_flight_view last;
    *out = (tti_flight_state){.pid = atomic_load(&f->pid),
                              .phase_ns = atomic_load(&f->phase_ns),
                              .steps = atomic_load(&f->steps),
                              .median_ns = median_step_ns(f),
                              .progress = progress_of(f),
                              .n_calls = atomic_load(&f->n_calls)};
    if (out->phase_ns) get_text(f->phase, TTI_COUNT(f->phase), out->phase);
    if (tti_flight_last(f, &last, 1) == 1) out->last_ns = TTI_MAX(last.start_ns, last.end_ns);
}

bool tti_flight_open_op(const tti_flight *f, int thread, tti_flight_view *out, int *tid) {
    *tid = atomic_load(&f->threads[thread].tid);
    return read_record(f, atomic_load(&f->threads[thread].open), out);
}

int tti_flight_last(const tti_flight *f, tti_flight_view *out, int n) {
    uint64_t last = atomic_load(&f->n_ops);
    uint64_t most = TTI_MIN((uint64_t)TTI_MIN(n, TTI_FLIGHT_RECORDS), last);
    int n_read = 0;
    for (uint64_t seq = last - most + 1; seq <= last; seq++)
        if (read_record(f, seq, &out[n_read])) n_read++;
    return n_read;
}

/* ---- stacks ---- */

/* backtrace() allocates only when it loads its unwinder, which tti_flight_serve_stacks has done. */
static void write_stack(int sig) {
    int saved = errno;
    tti_flight *f = atomic_load(&stack_owner);
    void *pc[TTI_FLIGHT_FRAMES];
    (void)sig;
    if (f && atomic_load(&f->stack.tid) == (int32_t)syscall(SYS_gettid)) {
        int n = backtrace(pc, TTI_FLIGHT_FRAMES);
        for (int i = 0; i < n; i++) atomic_store(&f->stack.pc[i], (uint64_t)(uintptr_t)pc[i]);
        atomic_store(&f->stack.n_frames, n);
    }
    errno = saved;
}

void tti_flight_serve_stacks(tti_flight *f) {
    void *pc[2];
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_RESTART | SA_ONSTACK};
    tti_flight *none = NULL;
    if (!f || !atomic_compare_exchange_strong(&stack_owner, &none, f)) return;
    (void)backtrace(pc, 2);
    sigfillset(&action.sa_mask);
    sigaction(STACK_SIGNAL, &action, NULL);
    atomic_store(&f->stack.serves, 1);
}

static bool has_thread(const tti_flight *f, int tid) {
    for (int i = 0; i < TTI_FLIGHT_THREADS; i++)
        if (atomic_load(&f->threads[i].tid) == tid) return true;
    return false;
}

/* The rank that serves the stacks of its process.  NULL: no rank does, so that the signal would end
 * the process, or the thread has no signal stack. */
static tti_flight *server_of(tti_flight_memory *m, int rank, int tid) {
    int pid = atomic_load(&tti_flight_of(m, rank)->pid);
    tti_flight *server = NULL;
    bool is_ready = false;
    for (int r = 0; r < tti_flight_n_ranks(m) && tid > 0; r++) {
        tti_flight *f = tti_flight_of(m, r);
        if (atomic_load(&f->pid) != pid) continue;
        if (atomic_load(&f->stack.serves)) server = f;
        is_ready |= has_thread(f, tid);
    }
    return is_ready ? server : NULL;
}

int tti_flight_stack(tti_flight_memory *memory, int rank, int tid, int wait_ms, uint64_t *pc) {
    tti_flight *f = server_of(memory, rank, tid);
    int64_t end_ns = tti_now_ns() + wait_ms * TTI_NS_PER_MS;
    int n = 0;
    if (!f) return 0;
    atomic_store(&f->stack.n_frames, 0);
    atomic_store(&f->stack.tid, tid);
    if (syscall(SYS_tgkill, atomic_load(&f->pid), tid, STACK_SIGNAL) != 0) return 0;
    while ((n = atomic_load(&f->stack.n_frames)) == 0 && tti_now_ns() < end_ns) tti_sleep_ms(1);
    atomic_store(&f->stack.tid, 0);
    n = TTI_MIN(TTI_MAX(n, 0), TTI_FLIGHT_FRAMES);
    for (int i = 0; i < n; i++) pc[i] = atomic_load(&f->stack.pc[i]);
    return n;
}
