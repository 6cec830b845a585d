/* watch.c - compares each rank's progress with the previous check. */
#include "launch/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blocked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/patience.h"
#include "base/process.h"
#include "base/thread.h"
#include "launch/symbols.h"

/* MIN_MS plus the time of a check and of a stack trace is below 2 s. */
enum { MIN_MS = 1800, FIRST_MS = 20000, PHASE_MS = 300000, MEDIANS = 5, STACK_MS = 150, SHOWN = 8 };

/* With this many ranks, checks are less frequent, and the delays of a rank are read only when it
 * has stalled for half of its limit. */
enum { MANY_RANKS = 65, MANY_RANKS_EVERY_MS = 500 };

/* The data of a process in one check; ranks that are threads share it. */
typedef struct process_seen {
    int pid; /* 0: none yet */
    char state;
    bool has_io;
    uint64_t io;
} process_seen;

typedef struct watched {
    uint64_t progress;
    int64_t stalled_ns; /* time without progress in which the rank could run */
    int64_t delay_ns;   /* total time for which its threads have waited for a core; 0: not read */
    uint64_t io;        /* bytes read and written so far; 0: not read */
    int64_t longest_ns; /* longest stall in a phase that has ended, which may recur */
    bool is_reported, is_slow;
} watched;

struct tti_watch {
    tti_watch_desc desc;
    tti_patience patience;
    int n;
    watched *ranks; /* [n] */
    process_seen seen;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stops;
};

tutti_status tti_watch_create(const tti_watch_desc *desc, tti_watch **out) {
    tti_watch *w = *out = calloc(1, sizeof *w);
    if (!w) return tti_fail(TUTTI_E_NOMEM, "watch: out of memory");
    w->desc = *desc;
    if (w->desc.min_ms == 0) w->desc.min_ms = MIN_MS;
    if (w->desc.first_ms == 0) w->desc.first_ms = FIRST_MS;
    if (w->desc.phase_ms == 0) w->desc.phase_ms = PHASE_MS;
    w->n = tti_flight_n_ranks(desc->memory);
    w->patience = tti_patience_begin(tti_now_ns());
    pthread_mutex_init(&w->mutex, NULL);
    tti_cond_init(&w->changed);
    w->ranks = calloc((size_t)w->n, sizeof *w->ranks);
    if (w->ranks) return TUTTI_OK;
    tti_watch_destroy(w);
    *out = NULL;
    return tti_fail(TUTTI_E_NOMEM, "watch: out of memory");
}

void tti_watch_destroy(tti_watch *w) {
    if (!w) return;
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
    free(w->ranks);
    free(w);
}

/* ---- one rank ---- */

/* Finds the oldest operation of the loader's threads. */
static void find_load(const tti_flight *f, tti_flight_view *out, int *tid) {
    bool any = false;
    for (int thread = TTI_THREAD_LOAD; thread < TTI_FLIGHT_THREADS; thread++) {
        tti_flight_view op;
        int at;
        if (!tti_flight_open_op(f, thread, &op, &at)) continue;
        if (any && op.start_ns >= out->start_ns) continue;
        *out = op;
        *tid = at;
        any = true;
    }
}

/* Finds the most informative operation: one that does not wait for other ranks, else one that does.
 * Operations of loader threads are used only while their rank waits for them. */
static bool main_op(const tti_flight *f, tti_flight_view *out, int *tid) {
    bool any = false;
    for (int thread = TTI_THREAD_LOAD - 1; thread >= 0; thread--) {
        tti_flight_view op;
        int at;
        if (!tti_flight_open_op(f, thread, &op, &at)) continue;
        if (any && op.waits_for_peers && !out->waits_for_peers) continue;
        *out = op;
        *tid = at;
        any = true;
    }
    if (any && out->waits_for_loads) find_load(f, out, tid);
    return any;
}

static bool waits_for_peers(const tti_flight *f, int64_t *since_ns) {
    tti_flight_view op = {0};
    int tid;
    bool waits = main_op(f, &op, &tid) && op.waits_for_peers;
    *since_ns = op.start_ns;
    return waits;
}

/* Returns the total time for which a thread was ready and had no core; 0: not known. */
static int64_t thread_delay_ns(int pid, int tid) {
    char path[64];
    int64_t ran, delay = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, tid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%" SCNd64 " %" SCNd64, &ran, &delay) != 2) delay = 0;
    fclose(file);
    return delay;
}

static int64_t rank_delay_ns(const tti_flight *f, int pid) {
    int64_t sum = thread_delay_ns(pid, pid);
    for (int thread = 0; thread < TTI_FLIGHT_THREADS; thread++) {
        tti_flight_view op;
        int tid;
        if (tti_flight_open_op(f, thread, &op, &tid) && tid != pid)
            sum += thread_delay_ns(pid, tid);
    }
    return sum;
}

void tti_watch_describe(const tti_flight *f, tti_str *out) {
    tti_flight_state state;
    tti_flight_view op;
    int tid;
    tti_flight_read(f, &state);
    bool any = main_op(f, &op, &tid);
    if (state.phase[0]) tti_str_printf(out, "%s, ", state.phase);
    tti_str_printf(out, "step %" PRIu64 ", ", any ? op.step : state.steps);
    if (!any) {
        tti_str_add(out, "between operations");
        return;
    }
    tti_str_add(out, op.name);
    if (op.layer[0]) tti_str_printf(out, " %s", op.layer);
    if (op.n_bytes > 0) tti_str_printf(out, " of %" PRIu64 " bytes", op.n_bytes);
    if (op.n_peers > 0)
        tti_str_printf(out, " with %d other rank%s", op.n_peers, op.n_peers > 1 ? "s" : "");
}

/* Appends the names of the functions on the thread's stack, innermost first.  Skips the frames of
 * the signal handler. */
static void add_stack(const tti_watch *w, int rank, int tid, tti_str *out) {
    uint64_t pc[TTI_FLIGHT_FRAMES];
    char name[160];
    tti_flight_state state;
    tti_flight_read(tti_flight_of(w->desc.memory, rank), &state);
    tti_blocked_file(state.pid, tid, name, sizeof name);
    if (name[0] == '/') tti_str_printf(out, "; at file '%s'", name);
    int n = tti_flight_stack(w->desc.memory, rank, tid, STACK_MS, pc);
    for (int i = 2, shown = 0; i < n && shown < SHOWN; i++, shown++) {
        tti_symbol_of(state.pid, pc[i], name, sizeof name);
        tti_str_printf(out, "%s%s", shown ? " < " : "; stack: ", name);
    }
    if (n == 0) {
        char now = tti_thread_state(state.pid, tid);
        tti_str_printf(out, "; its thread %d does not answer (state %c%s)", tid, now ? now : '?',
                       now == 'R'                 ? ": ready, but it gets no core"
                       : now == 'T' || now == 't' ? ": stopped"
                                                  : "");
    }
}

static int64_t limit_ns(const tti_watch *w, const tti_flight_state *state) {
    if (state->median_ns == 0) return w->desc.first_ms * TTI_NS_PER_MS;
    return TTI_MAX(w->desc.min_ms * TTI_NS_PER_MS, MEDIANS * state->median_ns);
}

/* ---- all ranks ---- */

static void report_slow(const tti_watch *w, int rank, const tti_flight_state *state) {
    watched *at = &w->ranks[rank];
    int64_t t_ns = tti_now_ns() - state->phase_ns, since_ns;
    char text[200];
    if (waits_for_peers(tti_flight_of(w->desc.memory, rank), &since_ns)) return;
    if (at->is_slow || t_ns < w->desc.phase_ms * TTI_NS_PER_MS) return;
    at->is_slow = true;
    snprintf(text, sizeof text, "rank %d (pid %d) is slow: %s for %.0f s, at step %" PRIu64, rank,
             state->pid, state->phase, (double)t_ns * 1e-9, state->steps);
    w->desc.report(w->desc.user, text);
}

/* Reads the data of a process once per check, because reading /proc takes longer the more threads
 * it has. */
static process_seen *see_process(tti_watch *w, int pid) {
    if (w->seen.pid != pid) w->seen = (process_seen){.pid = pid, .state = tti_process_state(pid)};
    return &w->seen;
}

static uint64_t io_of(tti_watch *w, int pid) {
    process_seen *seen = see_process(w, pid);
    if (!seen->has_io) seen->io = tti_process_io(pid);
    seen->has_io = true;
    return seen->io;
}

/* Counts the time for which an operation in a phase also moves no bytes. */
static void look_at_phase(tti_watch *w, int rank, const tti_flight_state *state,
                          int64_t counted_ns) {
    watched *at = &w->ranks[rank];
    tti_flight_view op;
    int tid;
    report_slow(w, rank, state);
    bool any = main_op(tti_flight_of(w->desc.memory, rank), &op, &tid) && !op.waits_for_peers;
    uint64_t io = any ? io_of(w, state->pid) : 0;
    bool moves = io != at->io;
    at->io = io;
    if (moves) at->longest_ns = TTI_MAX(at->longest_ns, at->stalled_ns);
    at->stalled_ns = any && !moves ? at->stalled_ns + counted_ns : 0;
    if (at->is_slow || at->stalled_ns < TTI_MAX(limit_ns(w, state), 2 * at->longest_ns)) return;
    tti_str text = {0};
    at->is_slow = true;
    tti_str_printf(&text, "rank %d (pid %d) is slow: no progress for %.1f s while ", rank,
                   state->pid, (double)at->stalled_ns * 1e-9);
    tti_watch_describe(tti_flight_of(w->desc.memory, rank), &text);
    add_stack(w, rank, tid, &text);
    w->desc.report(w->desc.user, tti_str_text(&text));
    tti_str_free(&text);
}

static void report_hang(const tti_watch *w, int rank) {
    tti_flight *f = tti_flight_of(w->desc.memory, rank);
    tti_flight_state state;
    tti_flight_view op;
    tti_str text = {0};
    int tid;
    tti_flight_read(f, &state);
    if (!main_op(f, &op, &tid)) (void)tti_flight_open_op(f, TTI_THREAD_MAIN, &op, &tid);
    tti_str_printf(&text, "rank %d (pid %d) has made no progress for %.1f s: ", rank, state.pid,
                   (double)w->ranks[rank].stalled_ns * 1e-9);
    tti_watch_describe(f, &text);
    add_stack(w, rank, tid, &text);
    w->ranks[rank].is_reported = true;
    w->desc.report(w->desc.user, tti_str_text(&text));
    tti_str_free(&text);
}

static void report_progress(const tti_watch *w, int rank) {
    char text[100];
    watched *at = &w->ranks[rank];
    if (!at->is_reported) return;
    at->is_reported = false;
    snprintf(text, sizeof text, "rank %d makes progress again, after %.1f s", rank,
             (double)at->stalled_ns * 1e-9);
    w->desc.report(w->desc.user, text);
}

/* Restarts the stall time of a rank that made progress since the last check. */
static void begin_stall(watched *at, const tti_flight_state *state, int64_t counted_ns) {
    int64_t since_ns = TTI_MAX(tti_now_ns() - state->last_ns, 0);
    bool in_phase = state->phase[0];
    *at = (watched){.progress = state->progress,
                    .stalled_ns = in_phase ? 0 : TTI_MIN(since_ns, counted_ns),
                    .longest_ns = TTI_MAX(at->longest_ns, in_phase ? at->stalled_ns : 0),
                    .is_slow = at->is_slow && in_phase};
}

static bool is_alive(char process) { return process != 0 && process != 'Z'; }

static bool is_there(tti_watch *w, int pid) {
    char process = pid ? see_process(w, pid)->state : (char)0;
    return is_alive(process) && process != 'T' && process != 't';
}

static bool is_spare(const tti_flight_state *state) {
    return strcmp(state->phase, TTI_FLIGHT_SPARE) == 0;
}

/* False for spares and for processes that have ended: they take no part in steps. */
static bool takes_part(tti_watch *w, const tti_flight_state *state) {
    return state->pid && !is_spare(state) && is_alive(see_process(w, state->pid)->state);
}

/* Checks a rank; true if it has stalled for longer than its limit. */
static bool look_at(tti_watch *w, int rank, int64_t counted_ns) {
    const tti_flight *f = tti_flight_of(w->desc.memory, rank);
    watched *at = &w->ranks[rank];
    tti_flight_state state;
    tti_flight_read(f, &state);
    if (state.progress != at->progress || !is_there(w, state.pid) || is_spare(&state)) {
        if (state.progress != at->progress) report_progress(w, rank);
        begin_stall(at, &state, state.pid ? counted_ns : 0);
        return false;
    }
    if (state.phase[0]) {
        look_at_phase(w, rank, &state, counted_ns);
        return false;
    }
    bool reads = w->n < MANY_RANKS || 2 * at->stalled_ns >= limit_ns(w, &state);
    int64_t delay_ns = reads ? rank_delay_ns(f, state.pid) : 0;
    int64_t waited_ns = at->delay_ns ? delay_ns - at->delay_ns : 0;
    at->delay_ns = delay_ns;
    at->stalled_ns += TTI_MAX(counted_ns - TTI_MAX(waited_ns, 0), 0);
    return at->stalled_ns >= limit_ns(w, &state);
}

/* True if the thread of the rank is stopped, so that it cannot notice the arrival of other
 * ranks. */
static bool is_held(const tti_flight *f, int pid) {
    tti_flight_view op;
    int tid;
    char now = (char)(main_op(f, &op, &tid) ? tti_thread_state(pid, tid) : 0);
    return now == 'T' || now == 't';
}

/* The state of the ranks of a run at one check. */
typedef struct finding {
    int stuck;        /* a rank that does not wait for peers and exceeds its limit; -1: none */
    int last_to_wait; /* the rank that began last to wait for peers; -1: none */
    int64_t stuck_ns, wait_ns; /* times since which they stall and wait */
    bool is_in_call;           /* last_to_wait waits in a call */
    bool is_wait_stalled;      /* a rank that waits for peers exceeds its limit */
    bool any_works;            /* a rank does not wait for peers, or began to wait only just now */
} finding;

/* A rank that waits for its device outside a call is more likely the cause than a rank in a
 * collective, which may wait for it. */
static void add_waiting(int rank, bool is_in_call, int64_t since_ns, finding *out) {
    bool is_first = out->last_to_wait < 0;
    bool is_later = is_in_call == out->is_in_call && since_ns > out->wait_ns;
    if (!is_first && !is_later && (is_in_call || !out->is_in_call)) return;
    out->last_to_wait = rank;
    out->wait_ns = since_ns;
    out->is_in_call = is_in_call;
}

static void add_rank(tti_watch *w, int rank, bool is_stalled, finding *out) {
    const tti_flight *f = tti_flight_of(w->desc.memory, rank);
    tti_flight_state state;
    int64_t since_ns;
    tti_flight_read(f, &state);
    if (!takes_part(w, &state)) return;
    bool waits = waits_for_peers(f, &since_ns) && !(is_stalled && is_held(f, state.pid));
    out->any_works |= !waits || 2 * w->ranks[rank].stalled_ns < w->desc.min_ms * TTI_NS_PER_MS;
    if (is_stalled && !waits && (out->stuck < 0 || since_ns < out->stuck_ns)) {
        out->stuck = rank;
        out->stuck_ns = since_ns;
    }
    if (waits) add_waiting(rank, state.n_calls > 0, since_ns, out);
    out->is_wait_stalled |= is_stalled && waits;
}

/* Ranks that wait for a stuck rank stall too, and earlier.  They are reported only if all ranks
 * wait; then the rank that began to wait last is reported, even if it does not exceed its own limit
 * yet. */
void tti_watch_look(tti_watch *w) {
    int64_t counted_ns = tti_patience_look(&w->patience, tti_now_ns());
    finding found = {.stuck = -1, .last_to_wait = -1};
    bool is_known = false;
    (void)TTI_FAULT("watch.look");
    w->seen.pid = 0;
    for (int r = 0; r < w->n; r++) {
        bool is_stalled = look_at(w, r, counted_ns);
        add_rank(w, r, is_stalled, &found);
        is_known |= w->ranks[r].is_reported;
    }
    if (is_known) return;
    if (found.stuck >= 0)
        report_hang(w, found.stuck);
    else if (found.is_wait_stalled && !found.any_works)
        report_hang(w, found.last_to_wait);
}

/* ---- a thread ---- */

static void *run(void *arg) {
    tti_watch *w = arg;
    int64_t every_ms = w->n < MANY_RANKS ? TTI_WATCH_EVERY_MS : MANY_RANKS_EVERY_MS;
    pthread_mutex_lock(&w->mutex);
    while (!w->stops) {
        tti_cond_wait_until(&w->changed, &w->mutex, tti_now_ns() + every_ms * TTI_NS_PER_MS);
        if (!w->stops) tti_watch_look(w);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

tutti_status tti_watch_start(tti_watch *w) {
    int e = tti_thread_start(&w->thread, NULL, run, w);
    return e ? tti_fail(TUTTI_E_NOMEM, "watch: cannot start a thread") : TUTTI_OK;
}

void tti_watch_stop(tti_watch *w) {
    pthread_mutex_lock(&w->mutex);
    w->stops = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
}
