/* watch.c - compares each rank's progress with that of the last look. */
#include "launch/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/patience.h"
#include "base/process.h"
#include "base/thread.h"
#include "launch/symbols.h"

enum { MIN_MS = 2000, FIRST_MS = 20000, PHASE_MS = 300000, MEDIANS = 5, STACK_MS = 200, SHOWN = 8 };

typedef struct watched {
    uint64_t progress;
    int64_t stalled_ns; /* without progress, as far as the rank could have made any */
    int64_t delay_ns;   /* for which its threads have waited for a core, so far */
    bool is_reported, is_slow;
} watched;

struct tti_watch {
    tti_watch_desc desc;
    tti_patience patience;
    int n;
    watched *ranks; /* [n] */
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

/* The operation that says most: one that does not wait for other ranks, else one that does. */
static bool main_op(const tti_flight *f, tti_flight_view *out, int *tid) {
    bool any = false;
    for (int lane = TTI_FLIGHT_LANES - 1; lane >= 0; lane--) {
        tti_flight_view op;
        int at;
        if (!tti_flight_open_op(f, lane, &op, &at)) continue;
        if (any && op.waits_for_peers && !out->waits_for_peers) continue;
        *out = op;
        *tid = at;
        any = true;
    }
    return any;
}

/* Time for which a thread was ready and had no core, so far; 0: not known. */
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
    for (int lane = 0; lane < TTI_FLIGHT_LANES; lane++) {
        tti_flight_view op;
        int tid;
        if (tti_flight_open_op(f, lane, &op, &tid) && tid != pid) sum += thread_delay_ns(pid, tid);
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

/* The names of the functions that the thread is in, innermost first.  The first frames are those of
 * the signal handler. */
static void add_stack(const tti_watch *w, int rank, int tid, tti_str *out) {
    uint64_t pc[TTI_FLIGHT_FRAMES];
    char name[160];
    int n = tti_flight_stack(w->desc.memory, rank, tid, STACK_MS, pc);
    tti_flight_state state;
    tti_flight_read(tti_flight_of(w->desc.memory, rank), &state);
    for (int i = 2, shown = 0; i < n && shown < SHOWN; i++, shown++) {
        tti_symbol_of(state.pid, pc[i], name, sizeof name);
        tti_str_printf(out, "%s%s", shown ? " < " : "; stack: ", name);
    }
    if (n == 0) {
        char process = tti_process_state(state.pid);
        tti_str_printf(out, "; its thread %d does not answer (process state %c)", tid,
                       process ? process : '?');
    }
}

static int64_t limit_ns(const tti_watch *w, const tti_flight_state *state) {
    if (state->median_ns == 0) return w->desc.first_ms * TTI_NS_PER_MS;
    return TTI_MAX(w->desc.min_ms * TTI_NS_PER_MS, MEDIANS * state->median_ns);
}

/* ---- all ranks ---- */

static void report_slow(const tti_watch *w, int rank, const tti_flight_state *state) {
    watched *at = &w->ranks[rank];
    int64_t t_ns = tti_now_ns() - state->phase_ns;
    char text[200];
    if (at->is_slow || t_ns < w->desc.phase_ms * TTI_NS_PER_MS) return;
    at->is_slow = true;
    snprintf(text, sizeof text, "rank %d (pid %d) is slow: %s for %.0f s, at step %" PRIu64, rank,
             state->pid, state->phase, (double)t_ns * 1e-9, state->steps);
    w->desc.report(w->desc.user, text);
}

static void report_hang(const tti_watch *w, int rank) {
    tti_flight *f = tti_flight_of(w->desc.memory, rank);
    tti_flight_state state;
    tti_flight_view op;
    tti_str text = {0};
    int tid;
    tti_flight_read(f, &state);
    if (!main_op(f, &op, &tid)) (void)tti_flight_open_op(f, TTI_LANE_MAIN, &op, &tid);
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

/* True if the rank is stalled for longer than its limit. */
static bool look_at(tti_watch *w, int rank, int64_t counted_ns) {
    const tti_flight *f = tti_flight_of(w->desc.memory, rank);
    watched *at = &w->ranks[rank];
    tti_flight_state state;
    tti_flight_read(f, &state);
    char process = state.pid ? tti_process_state(state.pid) : 0;
    bool is_there = process != 0 && process != 'Z' && process != 'T' && process != 't';
    if (is_there && state.phase[0]) report_slow(w, rank, &state);
    if (!is_there || state.phase[0] || state.progress != at->progress) {
        if (state.progress != at->progress) report_progress(w, rank);
        *at = (watched){.progress = state.progress,
                        .is_slow = at->is_slow && state.phase[0],
                        .delay_ns = is_there ? rank_delay_ns(f, state.pid) : 0};
        return false;
    }
    int64_t delay_ns = rank_delay_ns(f, state.pid), waited_ns = delay_ns - at->delay_ns;
    at->delay_ns = delay_ns;
    at->stalled_ns += TTI_MAX(counted_ns - TTI_MAX(waited_ns, 0), 0);
    return at->stalled_ns >= limit_ns(w, &state);
}

/* True if rank a, rather than b, keeps the others waiting: one that does not wait itself, else the
 * one that began its wait last. */
static bool blames(const tti_flight *a, const tti_flight *b) {
    tti_flight_view x = {0}, y = {0};
    int tid;
    bool a_waits = main_op(a, &x, &tid) && x.waits_for_peers;
    bool b_waits = main_op(b, &y, &tid) && y.waits_for_peers;
    if (a_waits != b_waits) return b_waits;
    return a_waits ? x.start_ns > y.start_ns : x.start_ns < y.start_ns;
}

/* Ranks that wait stall as well, a moment after or before the one that they wait for. */
void tti_watch_look(tti_watch *w) {
    int64_t counted_ns = tti_patience_look(&w->patience, tti_now_ns());
    int culprit = -1;
    bool any = false, is_known = false;
    for (int r = 0; r < w->n; r++) any |= look_at(w, r, counted_ns);
    for (int r = 0; any && r < w->n; r++) {
        const tti_flight *f = tti_flight_of(w->desc.memory, r);
        if (w->ranks[r].is_reported) is_known = true;
        if (w->ranks[r].stalled_ns < w->desc.min_ms * TTI_NS_PER_MS / 2) continue;
        if (culprit < 0 || blames(f, tti_flight_of(w->desc.memory, culprit))) culprit = r;
    }
    if (culprit >= 0 && !is_known) report_hang(w, culprit);
}

/* ---- a thread ---- */

static void *run(void *arg) {
    tti_watch *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->stops) {
        tti_cond_wait_until(&w->changed, &w->mutex,
                            tti_now_ns() + TTI_WATCH_EVERY_MS * TTI_NS_PER_MS);
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
