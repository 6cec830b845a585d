/* session_async.c - steps whose result is read later.
 *
 * As in tutti_train, a device works on one step while the host prepares the next: up to
 * tti_exec_depth steps are in flight, and a new one first ends the oldest if there are so many.
 * Layouts in which tutti_train waits for every step do so here. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "session/session_tickets.h"
#include "session/step_call.h"

/* Steps that may be in flight, by the rule of the training loop: 1 if a step depends on the result
 * of the one before.  With local SGD a worker would continue after a bad step of another one. */
static int64_t most_in_flight(const tutti_session *s) {
    const tti_job_config *c = &s->b->config;
    bool free =
        !s->loss && !s->is_scaled && strcmp(c->train.on_nan, "stop") == 0 && !tti_job_is_local(c);
    return free ? tti_exec_depth(s->workers[0].exec) : 1;
}

static tutti_status begin_worker(tti_session_worker *w, void *arg) {
    tti_output_copy copies[TTI_MAX_OUTPUTS];
    tti_step_desc desc;
    TTI_TRY(tti_step_describe(w, arg, copies, &desc));
    return tti_exec_begin(w->exec, &desc);
}

/* In layouts whose steps wait for each other. */
static tutti_status step_at_once(tutti_session *s, tti_step_call *call) {
    TTI_TRY(tti_step_run(s, call));
    tti_tickets_add(s, call->n_rows, call->lr);
    tti_tickets_end(s, TUTTI_OK, &s->workers[0].result);
    tti_ticket_of(s, s->tickets.n_ended)->grad_scale = s->grad_scale;
    return TUTTI_OK;
}

static tutti_status begin_step(tutti_session *s, tti_step_call *call, int64_t most) {
    bool ends = tti_tickets_n_in_flight(s) >= most;
    call->follows_others = tti_tickets_n_in_flight(s) - ends > 0;
    s->has_gradients = false;
    TTI_TRY(tti_tickets_advance(s, ends, begin_worker, call));
    if (s->tickets.n_failed > 0) return tti_tickets_failure(s, "tutti_session_step_async");
    s->step++;
    tti_tickets_add(s, call->n_rows, call->lr);
    return TUTTI_OK;
}

static tutti_status step_async(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                               double lr, int64_t *ticket) {
    tti_step_call call = {.part = TTI_STEP_WHOLE};
    int64_t most = most_in_flight(s);
    TTI_TRY(tti_tickets_make(s));
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
    if (s->tickets.n_failed > 0) return tti_session_leave(s, tti_tickets_failure(s, __func__));
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
    while (s->tickets.n_ended < ticket && s->failed == TUTTI_OK)
        TTI_TRY(tti_tickets_advance(s, true, NULL, NULL));
    const tti_ticket *t = tti_ticket_of(s, ticket);
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
