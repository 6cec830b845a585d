/* session_async.c - steps whose result is read later.
 *
 * As in tutti_train, a device works on one step while the host prepares the next: up to
 * tti_exec_depth steps are in flight, and a new one first ends the oldest if there are so many.
 * Each step has a ticket, which keeps its result for the caller.  Layouts in which tutti_train
 * waits for every step do so here.  A step that fails takes those behind it along: they find its
 * mark on the device and change nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "session/step_call.h"

static tti_ticket *ticket_of(const tutti_session *s, int64_t number) {
    return &s->tickets.of[number % TUTTI_SESSION_N_RESULTS];
}

static int64_t n_in_flight(const tutti_session *s) {
    return s->tickets.n_begun - s->tickets.n_ended;
}

/* Steps that may be in flight, by the rule of the training loop: 1 if a step depends on the result
 * of the one before.  With local SGD a worker would go on behind a bad step of another one. */
static int64_t most_in_flight(const tutti_session *s) {
    const tti_job_config *c = &s->b->config;
    bool free =
        !s->loss && !s->is_scaled && strcmp(c->train.on_nan, "stop") == 0 && !tti_job_is_local(c);
    return free ? tti_exec_depth(s->workers[0].exec) : 1;
}

static tutti_status make_tickets(tutti_session *s) {
    if (!s->tickets.of) s->tickets.of = calloc(TUTTI_SESSION_N_RESULTS, sizeof *s->tickets.of);
    return s->tickets.of ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "session: out of memory");
}

void tti_tickets_release(tti_tickets *t) {
    for (int i = 0; t->of && i < TUTTI_SESSION_N_RESULTS; i++) free(t->of[i].error);
    free(t->of);
    *t = (tti_tickets){0};
}

/* ---- on the workers ---- */

typedef struct async_call {
    bool ends;            /* the oldest step in flight */
    tti_step_call *begin; /* then begins this one; NULL: none */
    bool has_ended;       /* of worker 0: the oldest step has ended without a failure */
    tti_step_result ended;
} async_call;

static tutti_status end_oldest(tti_session_worker *w, async_call *call) {
    bool is_first = w == &w->session->workers[0];
    tti_step_result result = {0};
    tutti_status st = tti_exec_end(w->exec, &result);
    if (is_first) call->ended = result;
    if (is_first) call->has_ended = st == TUTTI_OK;
    return st;
}

static tutti_status async_worker(tti_session_worker *w, void *arg) {
    async_call *call = arg;
    tti_output_copy copies[TTI_MAX_OUTPUTS];
    tti_step_desc desc;
    if (call->ends) TTI_TRY(end_oldest(w, call));
    if (!call->begin) return TUTTI_OK;
    TTI_TRY(tti_step_describe(w, call->begin, copies, &desc));
    return tti_exec_begin(w->exec, &desc);
}

/* ---- tickets ---- */

static void add_ticket(tutti_session *s, const tti_step_call *call) {
    tti_ticket *t = ticket_of(s, ++s->tickets.n_begun);
    free(t->error);
    *t = (tti_ticket){.step = s->step, .n_rows = call->n_rows, .lr = call->lr};
}

static void end_ticket(tutti_session *s, tutti_status st, const tti_step_result *result) {
    tti_ticket *t = ticket_of(s, ++s->tickets.n_ended);
    t->status = st;
    t->result = *result;
    t->grad_scale = tti_step_grad_scale(s, result);
    if (st != TUTTI_OK) t->error = strdup(tutti_last_error()); /* NULL: the status alone remains */
}

/* Steps behind one that failed have left the parameters as they were. */
static void drop_followers(tutti_session *s) {
    while (n_in_flight(s) > 0 && s->failed == TUTTI_OK) {
        async_call call = {.ends = true};
        tutti_status st = tti_session_run(s, async_worker, &call);
        if (st == TUTTI_OK) st = TUTTI_E_NUMERICS; /* of the step before it */
        st = tti_fail(st, "session: step %" PRId64 " is left out, because step %" PRId64 " failed",
                      ticket_of(s, s->tickets.n_ended + 1)->step, s->step + 1);
        end_ticket(s, st, &call.ended);
    }
}

/* The oldest step in flight has failed: the session is where it was before that step. */
static void fail_ticket(tutti_session *s, tutti_status st, const tti_step_result *result) {
    end_ticket(s, st, result);
    s->tickets.n_failed = s->tickets.n_ended;
    s->step = ticket_of(s, s->tickets.n_failed)->step - 1;
    drop_followers(s);
}

/* Ends the oldest step if ends, then begins a step if there is one.  A failure of the oldest is in
 * tickets.n_failed; others are returned. */
static tutti_status advance(tutti_session *s, bool ends, tti_step_call *begin) {
    async_call call = {.ends = ends, .begin = begin};
    tutti_status st = tti_session_run(s, async_worker, &call);
    if (ends && !call.has_ended)
        fail_ticket(s, st, &call.ended);
    else if (ends)
        end_ticket(s, TUTTI_OK, &call.ended);
    if (ends && !call.has_ended) return TUTTI_OK;
    return st;
}

static tutti_status return_failure(tutti_session *s, const char *who) {
    const tti_ticket *t = ticket_of(s, s->tickets.n_failed);
    s->tickets.n_failed = 0;
    return tti_fail(t->status, "%s: an earlier step failed, and this call did nothing: %s", who,
                    t->error ? t->error : tutti_status_text(t->status));
}

tutti_status tti_session_settle(tutti_session *s, const char *who) {
    while (n_in_flight(s) > 0 && s->failed == TUTTI_OK) TTI_TRY(advance(s, true, NULL));
    return s->tickets.n_failed > 0 ? return_failure(s, who) : TUTTI_OK;
}

/* ---- public ---- */

/* In layouts whose steps wait for each other. */
static tutti_status step_at_once(tutti_session *s, tti_step_call *call) {
    TTI_TRY(tti_step_run(s, call));
    add_ticket(s, call);
    end_ticket(s, TUTTI_OK, &s->workers[0].result);
    ticket_of(s, s->tickets.n_ended)->grad_scale = s->grad_scale;
    return TUTTI_OK;
}

static tutti_status begin_step(tutti_session *s, tti_step_call *call, int64_t most) {
    bool ends = n_in_flight(s) >= most;
    call->follows_others = n_in_flight(s) - ends > 0;
    s->has_gradients = false;
    TTI_TRY(advance(s, ends, call));
    if (s->tickets.n_failed > 0) return return_failure(s, "tutti_session_step_async");
    s->step++;
    add_ticket(s, call);
    return TUTTI_OK;
}

static tutti_status step_async(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                               double lr, int64_t *ticket) {
    tti_step_call call = {.part = TTI_STEP_WHOLE};
    int64_t most = most_in_flight(s);
    TTI_TRY(make_tickets(s));
    TTI_TRY(tti_step_prepare(s, inputs, n_inputs, lr, &call));
    TTI_TRY(most > 1 ? begin_step(s, &call, most) : step_at_once(s, &call));
    *ticket = s->tickets.n_begun;
    return TUTTI_OK;
}

tutti_status tutti_session_step_async(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                                      double lr, int64_t *ticket) {
    tti_staged staged;
    if (!ticket) return tti_fail(TUTTI_E_INVALID, "%s: ticket is NULL", __func__);
    TTI_TRY(tti_session_enter_async(s, __func__));
    if (s->tickets.n_failed > 0) return tti_session_leave(s, return_failure(s, __func__));
    tutti_status st = tti_feed_stage(s, inputs, n_inputs, &staged);
    if (st == TUTTI_OK) st = step_async(s, tti_feed_staged(&staged, inputs), n_inputs, lr, ticket);
    tti_feed_unstage(&staged);
    return tti_session_leave(s, st);
}

static tutti_status check_ticket(const tutti_session *s, int64_t ticket) {
    int64_t last = s->tickets.n_begun, first = TTI_MAX(1, last - TUTTI_SESSION_N_RESULTS + 1);
    if (last == 0)
        return tti_fail(TUTTI_E_INVALID,
                        "tutti_session_wait: ticket is %" PRId64
                        ", but tutti_session_step_async was not called",
                        ticket);
    if (ticket >= first && ticket <= last) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "tutti_session_wait: ticket is %" PRId64
                    "; the session has the results of %" PRId64 " .. %" PRId64,
                    ticket, first, last);
}

static tutti_status wait_for(tutti_session *s, int64_t ticket, tutti_session_result *result) {
    TTI_TRY(check_ticket(s, ticket));
    while (s->tickets.n_ended < ticket && s->failed == TUTTI_OK) TTI_TRY(advance(s, true, NULL));
    const tti_ticket *t = ticket_of(s, ticket);
    if (s->tickets.n_ended < ticket) return tti_fail(s->failed, "%s", s->failure);
    if (t->status != TUTTI_OK) {
        if (ticket >= s->tickets.n_failed) s->tickets.n_failed = 0; /* the caller knows now */
        return tti_fail(t->status, "%s", t->error ? t->error : tutti_status_text(t->status));
    }
    const tti_step_facts facts = {t->step, t->n_rows, t->lr, t->grad_scale};
    if (result) tti_step_fill_result(s, &facts, &t->result, result);
    return TUTTI_OK;
}

tutti_status tutti_session_wait(tutti_session *s, int64_t ticket, tutti_session_result *result) {
    TTI_TRY(tti_session_enter_async(s, __func__));
    return tti_session_leave(s, wait_for(s, ticket, result));
}
