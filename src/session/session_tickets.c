/* session_tickets.c - the steps in flight and their results, for which public calls wait: each has
 * a ticket, which keeps its result for the caller.
 *
 * A step that fails takes those after it along: they find its mark on the device and change
 * nothing. */
#include "session/session_tickets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

tti_ticket *tti_ticket_of(const tutti_session *s, int64_t number) {
    return &s->tickets.of[number % TUTTI_SESSION_N_RESULTS];
}

int64_t tti_tickets_n_in_flight(const tutti_session *s) {
    return s->tickets.n_begun - s->tickets.n_ended;
}

tutti_status tti_tickets_make(tutti_session *s) {
    if (!s->tickets.of) s->tickets.of = calloc(TUTTI_SESSION_N_RESULTS, sizeof *s->tickets.of);
    return s->tickets.of ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "session: out of memory");
}

void tti_tickets_release(tti_tickets *t) {
    for (int i = 0; t->of && i < TUTTI_SESSION_N_RESULTS; i++) free(t->of[i].error);
    free(t->of);
    *t = (tti_tickets){0};
}

double tti_step_grad_scale(const tutti_session *s, const tti_step_result *r) {
    double scale = s->is_scaled ? s->run.loss_scale.scale : 1;
    return r->count > 0 ? 1 / (r->count * scale) : 0;
}

/* ---- on the workers ---- */

typedef struct advance_call {
    bool ends; /* the oldest step in flight */
    tti_session_fn begin;
    void *arg;
    bool has_ended; /* of worker 0: the oldest step has ended without a failure */
    tti_step_result ended;
} advance_call;

static tutti_status end_oldest(tti_session_worker *w, advance_call *call) {
    bool is_first = w == &w->session->workers[0];
    tti_step_result result = {0};
    tutti_status st = tti_exec_end(w->exec, &result);
    if (is_first) call->ended = result;
    if (is_first) call->has_ended = st == TUTTI_OK;
    return st;
}

static tutti_status advance_worker(tti_session_worker *w, void *arg) {
    advance_call *call = arg;
    if (call->ends) TTI_TRY(end_oldest(w, call));
    return call->begin ? call->begin(w, call->arg) : TUTTI_OK;
}

/* ---- tickets ---- */

void tti_tickets_add(tutti_session *s, int64_t n_rows, double lr) {
    tti_ticket *t = tti_ticket_of(s, ++s->tickets.n_begun);
    free(t->error);
    *t = (tti_ticket){.step = s->step, .n_rows = n_rows, .lr = lr};
}

void tti_tickets_end(tutti_session *s, tutti_status st, const tti_step_result *result) {
    tti_ticket *t = tti_ticket_of(s, ++s->tickets.n_ended);
    t->status = st;
    t->result = *result;
    t->grad_scale = tti_step_grad_scale(s, result);
    if (st != TUTTI_OK) t->error = strdup(tutti_last_error()); /* NULL: the status alone remains */
}

/* Steps after one that failed have left the parameters as they were. */
static void drop_followers(tutti_session *s) {
    while (tti_tickets_n_in_flight(s) > 0 && s->failed == TUTTI_OK) {
        advance_call call = {.ends = true};
        tutti_status st = tti_session_run(s, advance_worker, &call);
        if (st == TUTTI_OK) st = TUTTI_E_NUMERICS; /* of the step before it */
        st = tti_fail(st, "session: step %" PRId64 " is left out, because step %" PRId64 " failed",
                      tti_ticket_of(s, s->tickets.n_ended + 1)->step, s->step + 1);
        tti_tickets_end(s, st, &call.ended);
    }
}

/* The oldest step in flight has failed: the session is where it was before that step. */
static void fail_ticket(tutti_session *s, tutti_status st, const tti_step_result *result) {
    tti_tickets_end(s, st, result);
    s->tickets.n_failed = s->tickets.n_ended;
    s->step = tti_ticket_of(s, s->tickets.n_failed)->step - 1;
    drop_followers(s);
}

tutti_status tti_tickets_advance(tutti_session *s, bool ends, tti_session_fn begin, void *arg) {
    advance_call call = {.ends = ends, .begin = begin, .arg = arg};
    tutti_status st = tti_session_run(s, advance_worker, &call);
    if (ends && !call.has_ended)
        fail_ticket(s, st, &call.ended);
    else if (ends)
        tti_tickets_end(s, TUTTI_OK, &call.ended);
    if (ends && !call.has_ended) return TUTTI_OK;
    return st;
}

tutti_status tti_tickets_failure(tutti_session *s, const char *who) {
    const tti_ticket *t = tti_ticket_of(s, s->tickets.n_failed);
    s->tickets.n_failed = 0;
    return tti_fail(t->status, "%s: an earlier step failed, and this call did nothing: %s", who,
                    t->error ? t->error : tutti_status_text(t->status));
}

tutti_status tti_session_settle(tutti_session *s, const char *who) {
    while (tti_tickets_n_in_flight(s) > 0 && s->failed == TUTTI_OK)
        TTI_TRY(tti_tickets_advance(s, true, NULL, NULL));
    return s->tickets.n_failed > 0 ? tti_tickets_failure(s, who) : TUTTI_OK;
}

/* ---- public calls ---- */

bool tti_session_is_inherited(const tutti_session *s) { return s->owner != getpid(); }

tutti_status tti_session_enter_async(tutti_session *s, const char *who) {
    if (!s) return tti_fail(TUTTI_E_INVALID, "%s: session is NULL", who);
    if (tti_session_is_inherited(s))
        return tti_fail(TUTTI_E_INVALID,
                        "%s: the session belongs to the process that this one was forked from; "
                        "create one after fork",
                        who);
    if (pthread_mutex_lock(&s->mutex) == EDEADLK)
        return tti_fail(TUTTI_E_INVALID, "%s: called from a callback of the same session", who);
    tutti_status st = TUTTI_OK;
    if (!s->is_open)
        st = tti_fail(TUTTI_E_INVALID, "%s: the session is closed", who);
    else if (s->failed != TUTTI_OK)
        st = tti_fail(s->failed, "%s: the session has failed before: %s", who, s->failure);
    s->has_flat = s->gives_flat;
    s->gives_flat = false;
    if (st == TUTTI_OK) st = tti_session_accept_views(s);
    if (st != TUTTI_OK) pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_session_enter(tutti_session *s, const char *who) {
    TTI_TRY(tti_session_enter_async(s, who));
    tutti_status st = tti_session_settle(s, who);
    if (st != TUTTI_OK) pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_session_leave(tutti_session *s, tutti_status st) {
    if (st == TUTTI_OK) tti_clear_error();
    pthread_mutex_unlock(&s->mutex);
    return st;
}
