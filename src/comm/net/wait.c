/* wait.c - waits for the link that always end: done, a failure on any rank, or the deadline.
 *
 * A waiter polls a few times without sleeping, because a peer has often come as far, then lets the
 * link sleep in slices and checks the reports of its host's watcher between them. */
#include <sched.h>
#include <stdio.h>

#include "comm/net/net.h"

enum { N_LOOKS = 60, SLICE_MS = 20 };

tutti_status tti_net_check_lost(const net_state *s) {
    int lost = atomic_load(&s->lost);
    if (lost < 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (pid %d on %s) %s", s->shown[lost],
                    s->peers[lost].pid, s->peers[lost].host, s->how_lost);
}

static tutti_status fail_timeout(const net_state *s, int blame, const tti_wait_clock *clock) {
    char call[128], waited[TTI_WAIT_TEXT_BYTES];
    bool joining = s->call.kind == TTI_CALL_NONE;
    return tti_fail(TUTTI_E_TIMEOUT, "%s: rank %d waited %s for rank %d (pid %d on %s)%s",
                    joining ? "comm_create" : tti_call_text(&s->call, call, sizeof call),
                    s->shown[s->rank], tti_wait_clock_text(clock, waited), s->shown[blame],
                    s->peers[blame].pid,
                    s->peers[blame].host[0] ? s->peers[blame].host : "a host that is not known",
                    tti_wait_clock_reason(clock));
}

/* Checks the ranks of this host and, for a part, those of the whole, whose host learns of failures
 * first. */
static tutti_status check_host(const net_state *s) {
    TTI_TRY(tti_net_check_lost(s));
    return s->is_part ? tti_shm_cause(s->local) : TUTTI_OK;
}

static tutti_status listen_to_link(void *arg) {
    const net_state *s = arg;
    return s->link->check(s->wire, false);
}

static tti_delay delay_of_link(void *arg) {
    const net_state *s = arg;
    int more_ms = s->link->outage ? s->link->outage(s->wire) : 0;
    return more_ms > 0 ? (tti_delay){TTI_DELAY_OUTAGE, more_ms} : (tti_delay){0};
}

tti_delay tti_net_delay(void *state) {
    const net_state *s = state;
    /* The first one asks the link too. */
    return s->local ? tti_transport_shm.delay(s->local) : delay_of_link(state);
}

void tti_net_listen(net_state *s) {
    if (s->n_hosts > 1) tti_shm_listen(s->local, listen_to_link, delay_of_link, s);
}

tutti_status tti_net_wait(net_state *s) {
    tti_wait_clock clock = tti_wait_clock_begin(s->timeout_ms, s->phase_timeout_ms);
    int blame;
    for (int i = 0;; i++) {
        TTI_TRY(s->link->test(s->wire, &blame));
        if (blame < 0) return TUTTI_OK;
        TTI_TRY(check_host(s));
        if (tti_wait_clock_look(&clock, tti_net_delay(s))) return fail_timeout(s, blame, &clock);
        if (i < N_LOOKS) {
            sched_yield();
            continue;
        }
        s->link->pause(s->wire, SLICE_MS * TTI_NS_PER_MS, -1);
        TTI_TRY(listen_to_link(s)); /* also listens to ranks from which no message is due */
    }
}

tutti_status tti_net_move(net_state *s, tti_message *messages, int n) {
    TTI_TRY(s->link->post(s->wire, messages, n));
    return tti_net_wait(s);
}

static size_t count_done(const tti_message *messages, int n) {
    size_t n_done = 0;
    for (int i = 0; i < n; i++) n_done += messages[i].done;
    return n_done;
}

tutti_status tti_net_stream(void *state, tti_message *messages, int n, int wake_fd) {
    net_state *s = state;
    size_t before = count_done(messages, n);
    int blame;
    TTI_TRY(check_host(s));
    TTI_TRY(s->link->post(s->wire, messages, n));
    TTI_TRY(s->link->test(s->wire, &blame));
    if (count_done(messages, n) != before) return TUTTI_OK;
    s->link->pause(s->wire, SLICE_MS * TTI_NS_PER_MS, wake_fd);
    return s->link->test(s->wire, &blame);
}
