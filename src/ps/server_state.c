/* server_state.c - functions that all files of the server use: failures, waits and messages. */
#include "ps/server_state.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/transport.h"
#include "comm/wait_clock.h"
#include "exec/worker/worker.h"

enum { WAIT_SLICE_MS = 50 };

/* ---- the kind of workers ---- */

const char *tti_server_worker_noun(const tti_server *s) {
    return s->replica_group ? "replica" : "worker";
}

tti_exec *tti_server_exec(tti_server *s) { return tti_server_has_ranges(s) ? NULL : s->x; }

bool tti_server_has_ranges(const tti_server *s) { return s->desc.n_ranges > 1 || s->replica_group; }

bool tti_server_is_async(const tti_server *s) {
    return s->desc.staleness != 0 || s->desc.n_backup > 0;
}

bool tti_server_skips_nonfinite(const tti_server *s) {
    return tti_server_is_async(s) && s->desc.exec.watch_gradients;
}

/* ---- ranges ---- */

int tti_server_n_ranges(const tti_server_desc *desc) { return TTI_MAX(1, desc->n_ranges); }

tti_range tti_server_range(const tti_server_desc *desc, int r) {
    return tti_share_range(desc->exec.plan, r, tti_server_n_ranges(desc));
}

void tti_server_area_bytes(const tti_server_desc *desc, int r, size_t bytes[TTI_N_KEY_AREAS]) {
    tti_range keys = tti_server_range(desc, r);
    size_t n = keys.last - keys.first;
    bytes[TTI_WIRE_PARAMS] = n * sizeof(float);
    bytes[TTI_WIRE_GRADS] = n * tutti_dtype_bytes(desc->exec.wire);
    bytes[TTI_WIRE_EMA] = desc->exec.ema > 0 ? bytes[TTI_WIRE_PARAMS] : 0;
}

/* ---- failures and waits ---- */

void tti_server_fail(tti_server *s, tutti_status status, const char *text) {
    if (!s->failed) snprintf(s->error, sizeof s->error, "%s", text);
    if (!s->failed) s->cause = status;
    s->failed = true;
    pthread_cond_broadcast(&s->news);
}

/* True if worker `waiter` waits for w, which still computes or has not arrived at the barrier. */
static bool blocks_waiter(const tti_server *s, int w, int waiter) {
    if (w == waiter || s->worker[w].is_dead) return false;
    if (s->barrier.has_arrived[waiter]) return !s->barrier.has_arrived[w];
    return tti_server_is_async(s) ? s->worker[w].computes : s->worker[w].n_partials == 0;
}

/* Names the worker that has computed longest, of those for which worker `waiter` waits. */
static const char *slowest(const tti_server *s, int waiter, char text[32]) {
    int found = -1;
    for (int w = 0; w < s->desc.n_workers; w++)
        if (blocks_waiter(s, w, waiter) &&
            (found < 0 || s->worker[w].version < s->worker[found].version))
            found = w;
    snprintf(text, 32, "%s %d", tti_server_worker_noun(s), found);
    return found < 0 ? "the others" : text;
}

tutti_status tti_server_wait(tti_server *s, int w, tti_server_ready ready, int64_t arg) {
    const tti_phase_watch *watch = &s->desc.watch;
    int limit_ms = s->desc.timeout_ms;
    tti_wait_clock clock = tti_wait_clock_begin(limit_ms, TTI_MAX(limit_ms, watch->timeout_ms));
    while (!s->failed && !ready(s, w, arg)) {
        int64_t end_ns = tti_now_ns() + TTI_MIN(limit_ms, WAIT_SLICE_MS) * TTI_NS_PER_MS;
        tti_cond_wait_until(&s->news, &s->mutex, end_ns);
        if (tti_wait_clock_look(&clock, tti_delay_by(watch)) && !s->failed && !ready(s, w, arg)) {
            /* Report the actual limit: for ordinary waits it may be less than parallel.timeout_ms
             * (server.c). */
            bool is_phase = clock.kind == TTI_DELAY_PHASE;
            char text[400], slowest_text[32];
            tti_str why = {0};
            if (is_phase) (void)watch->find_busy(watch->user, &why);
            snprintf(text, sizeof text,
                     "parameter server: %s %d waited %lld ms for %s (the limit is %d ms, by "
                     "parallel.%s)%s%s",
                     tti_server_worker_noun(s), w,
                     (long long)(clock.waited_ns[clock.kind] / TTI_NS_PER_MS),
                     slowest(s, w, slowest_text),
                     is_phase ? clock.phase_timeout_ms : clock.timeout_ms,
                     is_phase ? "phase_timeout_ms" : "timeout_ms", is_phase ? "; " : "",
                     tti_str_text(&why));
            tti_str_free(&why);
            tti_server_fail(s, TUTTI_E_PEER, text);
            return tti_fail(TUTTI_E_TIMEOUT, "%s", text);
        }
    }
    return s->failed ? tti_fail(s->cause, "%s", s->error) : TUTTI_OK;
}

void tti_server_put(tti_server *s, tti_request *r) {
    r->next = NULL;
    if (s->tail)
        s->tail->next = r;
    else
        s->head = r;
    s->tail = r;
    pthread_cond_signal(&s->work);
}

/* This wait needs no timeout: the server's thread completes a request even if workers fail. */
tutti_status tti_server_wait_served(tti_server *s, const tti_request *r) {
    while (!r->done) pthread_cond_wait(&s->news, &s->mutex);
    return r->status == TUTTI_OK ? TUTTI_OK : tti_fail(r->status, "%s", r->error);
}

static bool is_served(const tti_server *s, int w, int64_t n_before) {
    (void)w;
    return s->n_steps > (uint64_t)n_before;
}

/* A worker that leaves after a failure frees its gradients, so it must first wait until no thread
 * reads them. */
tutti_status tti_server_wait_step(tti_server *s, int w) {
    int64_t n_before = (int64_t)s->n_steps;
    int n_needed = s->desc.n_workers - s->desc.n_backup;
    tutti_status st = tti_server_wait(s, w, is_served, n_before);
    while (st != TUTTI_OK && s->n_arrived == n_needed && !is_served(s, w, n_before))
        pthread_cond_wait(&s->news, &s->mutex); /* until the threads have finished */
    return st;
}

/* ---- profile ---- */

void tti_server_profile(tti_exec *x, const char *name, int64_t start_ns, int64_t end_ns,
                        int64_t served_ns) {
    int64_t from = served_ns > 0 ? TTI_MAX(start_ns, end_ns - served_ns) : start_ns;
    tti_profile_add(x, TTI_ROW_SERVER, tti_span_of(TTI_SPAN_OTHER, name), -1, from, end_ns);
    tti_profile_add(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WAIT, "waiting for the server"), -1,
                    start_ns, end_ns);
}

/* ---- messages ---- */

enum { HEAD_BYTES = offsetof(tti_wire_message, more), SLACK_MS = 10000 };

_Static_assert(sizeof(tti_wire_message) <= (size_t)TTI_CHANNEL_BYTES,
               "a message fits into a channel");

static bool has_count(const tti_wire_message *m) {
    return m->number[0] >= 0 && m->number[0] <= TTI_COMBINE_VALUES && m->number[2] >= 0 &&
           m->number[2] <= TTI_SET_WORDS;
}

/* number[2] is the number of words of each set, 0 in a request. */
void tti_wire_put_members(tti_wire_message *m, const tti_members *members, int n_workers) {
    int n_words = tti_set_n_words(n_workers);
    int64_t *to = m->more.values + m->number[0];
    m->number[2] = n_words;
    memcpy(to, members->all.words, (size_t)n_words * sizeof *to);
    memcpy(to + n_words, members->live.words, (size_t)n_words * sizeof *to);
}

void tti_wire_get_members(const tti_wire_message *m, tti_members *members) {
    size_t n_words = (size_t)m->number[2];
    const int64_t *from = m->more.values + m->number[0];
    *members = (tti_members){0};
    memcpy(members->all.words, from, n_words * sizeof *from);
    memcpy(members->live.words, from + n_words, n_words * sizeof *from);
}

static bool has_words(const tti_wire_message *m) {
    return m->number[2] >= 0 && m->number[2] <= TTI_SET_WORDS;
}

size_t tti_wire_bytes(const tti_wire_message *m) {
    switch (m->kind) {
        case TTI_WIRE_GRADIENT:
            return HEAD_BYTES + sizeof m->more.arrival;
        case TTI_WIRE_LEAVE:
        case TTI_WIRE_REPORT:
        case TTI_WIRE_FAIL:
            return HEAD_BYTES + sizeof m->more.text;
        case TTI_WIRE_UPDATE:
            return HEAD_BYTES + offsetof(tti_wire_update, workers) +
                   (has_words(m) ? (size_t)m->number[2] : 0) * sizeof(uint64_t);
        case TTI_WIRE_COMBINE:
            return HEAD_BYTES +
                   (has_count(m) ? (size_t)(m->number[0] + 2 * m->number[2]) : 0) * sizeof(int64_t);
        default:
            return HEAD_BYTES;
    }
}

static bool is_valid(const tti_wire_message *m) {
    const tti_arrival *a = &m->more.arrival;
    switch (m->kind) {
        case TTI_WIRE_OPEN:
            return m->number[0] >= 0 && m->number[1] >= m->number[0];
        case TTI_WIRE_GRADIENT:
            return m->number[0] >= 0 && a->n_rows >= m->number[0] && a->result.count >= 0 &&
                   isfinite(a->result.count) && isfinite(a->result.bubble) &&
                   isfinite(a->loss_scale) && a->loss_scale >= 0;
        case TTI_WIRE_COMBINE:
            return has_count(m);
        case TTI_WIRE_UPDATE: /* in an answer number[0] is a hash */
            return m->number[2] >= 0 && m->number[2] <= TTI_SET_WORDS;
        case TTI_WIRE_COPY:
            return m->number[0] >= 0 && m->number[0] < (int64_t)TTI_MAX_SERVED;
        case TTI_WIRE_FETCH:
            return m->number[1] >= 0 && m->number[2] >= 0;
        default:
            return true;
    }
}

tutti_status tti_wire_check(tti_wire_message *m, size_t n_bytes) {
    if (n_bytes < (size_t)HEAD_BYTES || m->kind <= TTI_WIRE_NONE || m->kind >= TTI_N_WIRE_KINDS ||
        n_bytes != tti_wire_bytes(m) || !is_valid(m))
        return tti_fail(TUTTI_E_MISMATCH,
                        "parameter server: %zu bytes that are not one of its messages", n_bytes);
    if (m->kind == TTI_WIRE_LEAVE || m->kind == TTI_WIRE_REPORT || m->kind == TTI_WIRE_FAIL)
        m->more.text[TTI_WIRE_TEXT - 1] = '\0';
    return TUTTI_OK;
}

tutti_status tti_wire_send(tti_channel *channel, const tti_wire_message *m, unsigned areas) {
    return tti_channel_send(channel, m, tti_wire_bytes(m), areas);
}

tutti_status tti_wire_recv(tti_channel *channel, tti_wire_message *m, unsigned allowed_areas,
                           int timeout_ms, const tti_phase_watch *watch) {
    size_t n_bytes = sizeof *m;
    if (watch) TTI_TRY(tti_channel_await(channel, timeout_ms, watch));
    TTI_TRY(tti_channel_recv(channel, m, &n_bytes, allowed_areas, timeout_ms));
    return tti_wire_check(m, n_bytes);
}

int tti_wire_answer_timeout_ms(const tti_server_desc *desc) {
    if (desc->answer_timeout_ms > 0) return desc->answer_timeout_ms;
    return TTI_MIN(desc->timeout_ms, INT32_MAX / 4) * 2 + SLACK_MS;
}

void tti_wire_fail(tti_wire_message *m, tutti_status status, const char *text) {
    *m = (tti_wire_message){.kind = TTI_WIRE_FAIL, .number = {(int64_t)status}};
    snprintf(m->more.text, sizeof m->more.text, "%s", text);
}

tutti_status tti_wire_status(const tti_wire_message *m) {
    bool known = m->number[0] > TUTTI_OK && m->number[0] < TUTTI_N_STATUS;
    return known ? (tutti_status)m->number[0] : TUTTI_E_PEER;
}
