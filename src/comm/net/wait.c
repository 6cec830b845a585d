/* wait.c - waits for the link that always end: done, a failure somewhere, or the deadline.
 *
 * A waiter looks some times without sleeping, since a peer is often just as far, then lets the
 * link sleep in slices and looks between them at what the watcher of its host has seen. */
#include <sched.h>
#include <stdio.h>

#include "base/patience.h"
#include "comm/net/net.h"

enum { N_LOOKS = 60, SLICE_MS = 20 };

tutti_status tti_net_check_lost(const net_state *s) {
    int lost = atomic_load(&s->lost);
    if (lost < 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (pid %d on %s) %s", s->shown[lost],
                    s->peers[lost].pid, s->peers[lost].host, s->how_lost);
}

static tutti_status fail_timeout(const net_state *s, int blame) {
    char call[128];
    bool joining = s->call.kind == TTI_CALL_NONE;
    return tti_fail(TUTTI_E_TIMEOUT, "%s: rank %d waited %d ms for rank %d (pid %d on %s)",
                    joining ? "comm_create" : tti_call_text(&s->call, call, sizeof call),
                    s->shown[s->rank], s->timeout_ms, s->shown[blame], s->peers[blame].pid,
                    s->peers[blame].host[0] ? s->peers[blame].host : "a host that is not known");
}

/* Of this host's ranks, and for a part of the whole: its host hears of that first. */
static tutti_status check_host(const net_state *s) {
    TTI_TRY(tti_net_check_lost(s));
    return s->is_part ? tti_shm_cause(s->local) : TUTTI_OK;
}

static tutti_status listen_to_link(void *arg) {
    const net_state *s = arg;
    return s->link->check(s->wire, false);
}

void tti_net_listen(net_state *s) {
    if (s->n_hosts > 1) tti_shm_listen(s->local, listen_to_link, s);
}

tutti_status tti_net_wait(net_state *s) {
    tti_patience patience = tti_patience_begin(tti_now_ns());
    int64_t waited_ns = 0;
    int blame;
    for (int i = 0;; i++) {
        TTI_TRY(s->link->test(s->wire, &blame));
        if (blame < 0) return TUTTI_OK;
        TTI_TRY(check_host(s));
        waited_ns += tti_patience_look(&patience, tti_now_ns());
        if (waited_ns >= s->timeout_ms * TTI_NS_PER_MS) return fail_timeout(s, blame);
        if (i < N_LOOKS) {
            sched_yield();
            continue;
        }
        s->link->pause(s->wire, SLICE_MS * TTI_NS_PER_MS, -1);
        TTI_TRY(listen_to_link(s)); /* to ranks too of which no message is due */
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
