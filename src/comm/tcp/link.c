/* link.c - the link over sockets as net/ sees it: batches of messages, sleep, disconnection. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

enum { LINGER_MS = 1000, MOVE_SLICE_MS = 20, OUTAGE_LOOK_MS = 100 };

tutti_status tti_tcp_new(const tti_link_desc *desc, tcp_state **out) {
    tcp_state *s = calloc(1, sizeof *s);
    tcp_peer *peers = calloc((size_t)desc->n_ranks, sizeof *peers);
    char *token = desc->token ? strdup(desc->token) : NULL;
    if (!s || !peers || (desc->token && !token)) {
        free(s);
        free(peers);
        free(token);
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    }
    s->desc = *desc;
    s->resolve_ms = TCP_RESOLVE_MS;
    s->slack_ms = TCP_SLACK_MS;
    s->peers = peers;
    s->desc.token = s->token = token;
    snprintf(s->job, sizeof s->job, "%s", desc->job ? desc->job : "");
    for (int r = 0; r < desc->n_ranks; r++) {
        peers[r].fd = -1;
        s->shown[r] = r;
    }
    *out = s;
    return TUTTI_OK;
}

static tutti_status tcp_open(const tti_link_desc *desc, void **state) {
    tcp_state *s;
    TTI_TRY(tti_tcp_new(desc, &s));
    tutti_status st = desc->n_ranks > 1 ? tti_tcp_connect_ranks(s) : TUTTI_OK;
    if (st != TUTTI_OK) {
        tti_tcp_close(s, false);
        return st;
    }
    s->desc.address = s->desc.job = NULL; /* the caller's */
    *state = s;
    return TUTTI_OK;
}

/* Whether sent bytes have not reached the peer's host and still may.  A unix socket delivers at
 * once, and after a reset by the peer the count includes bytes that will never be delivered. */
static bool is_sending(int fd) {
    struct tcp_info info;
    socklen_t n = sizeof info;
    int n_unsent = 0;
    bool is_open =
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_state != TCP_CLOSE;
    return is_open && ioctl(fd, SIOCOUTQ, &n_unsent) == 0 && n_unsent > 0;
}

/* Closing a socket with unread bytes discards its unsent bytes: waits, for a limited time, until
 * the peer's host has received everything. */
static void linger(int fd, int64_t deadline_ns) {
    while (is_sending(fd) && tti_now_ns() < deadline_ns) tti_sleep_ms(1);
}

void tti_tcp_close(void *state, bool in_order) {
    tcp_state *s = state;
    if (!s) return;
    int64_t deadline_ns = tti_now_ns() + LINGER_MS * TTI_NS_PER_MS;
    for (int r = 0; in_order && r < s->desc.n_ranks; r++) (void)tti_tcp_say_bye(s, r);
    for (int r = 0; r < s->desc.n_ranks; r++)
        if (s->peers[r].fd >= 0) shutdown(s->peers[r].fd, SHUT_WR);
    for (int r = 0; r < s->desc.n_ranks; r++) {
        if (s->peers[r].fd < 0) continue;
        linger(s->peers[r].fd, deadline_ns);
        close(s->peers[r].fd);
        tti_tcp_drop_ahead(&s->peers[r]);
    }
    if (s->token) explicit_bzero(s->token, strlen(s->token));
    free(s->token);
    free(s->peers);
    free(s);
}

static tutti_status check_cause(const tcp_state *s) {
    return s->cause == TUTTI_OK ? TUTTI_OK : tti_fail(s->cause, "%s", s->text);
}

/* Messages of one direction and peer go in order. */
static tutti_status tcp_test(void *state, int *blame) {
    tcp_state *s = state;
    uint64_t busy_out = 0, busy_in = 0;
    *blame = -1;
    TTI_TRY(check_cause(s));
    for (int i = 0; i < s->n_batch; i++) {
        tti_message *m = &s->batch[i];
        uint64_t bit = UINT64_C(1) << m->peer, *busy = m->out ? &busy_out : &busy_in;
        if (m->done == m->n_bytes || (*busy & bit)) continue;
        TTI_TRY(m->out ? tti_tcp_push(s, m) : tti_tcp_pull(s, m));
        if (m->done == m->n_bytes) continue;
        *busy |= bit;
        if (*blame < 0) *blame = m->peer;
    }
    if (*blame < 0) s->n_batch = 0;
    return TUTTI_OK;
}

static tutti_status tcp_post(void *state, tti_message *messages, int n) {
    tcp_state *s = state;
    int blame;
    s->batch = messages;
    s->n_batch = n;
    return tcp_test(s, &blame);
}

/* Whether an unfinished message of the batch goes to, or comes from, rank. */
static bool waits_for(const tcp_state *s, int rank, bool out) {
    for (int i = 0; i < s->n_batch; i++) {
        const tti_message *m = &s->batch[i];
        if (m->peer == rank && m->done < m->n_bytes && (m->out != NULL) == out) return true;
    }
    return false;
}

/* The poll events for a peer's socket: only those that a caller would handle. */
static short events_of(const tcp_state *s, int rank) {
    const tcp_peer *p = &s->peers[rank];
    short events = waits_for(s, rank, true) ? POLLOUT : 0;
    if (!p->gone && (!p->has_header || waits_for(s, rank, false))) events |= POLLIN;
    return events;
}

static void tcp_pause(void *state, int64_t n_ns, int wake_fd) {
    tcp_state *s = state;
    struct pollfd polls[TTI_MAX_NET_RANKS + 1];
    int ranks[TTI_MAX_NET_RANKS], n = 0;
    for (int r = 0; r < s->desc.n_ranks; r++) {
        short events = s->peers[r].fd < 0 ? 0 : events_of(s, r);
        if (!events) continue;
        polls[n] = (struct pollfd){.fd = s->peers[r].fd, .events = events};
        ranks[n++] = r;
    }
    tti_tcp_say_alive(s);
    polls[n] = (struct pollfd){.fd = wake_fd, .events = POLLIN}; /* poll passes over -1 */
    if (poll(polls, (nfds_t)n + 1, (int)TTI_MAX(n_ns / TTI_NS_PER_MS, 1)) <= 0) return;
    for (int i = 0; i < n; i++) {
        if (!(polls[i].revents & (POLLIN | POLLHUP | POLLERR)) || waits_for(s, ranks[i], false))
            continue;
        /* A failure report is kept for the next test; so is the end of a stream. */
        (void)tti_tcp_listen_aside(s, ranks[i]);
    }
}

static void tcp_cry(void *state, tutti_status status, const char *text) {
    tcp_state *s = state;
    if (s->reported == TUTTI_OK) {
        s->reported = status;
        snprintf(s->reported_text, sizeof s->reported_text, "%s", text);
    }
    for (int r = 0; r < s->desc.n_ranks; r++) {
        if (s->peers[r].fd < 0) continue;
        (void)tti_tcp_say_cry(s, r, status, text);
        shutdown(s->peers[r].fd, SHUT_WR); /* where it could not be said, the end says it */
    }
}

tutti_status tti_tcp_check(void *state, bool left_too) {
    tcp_state *s = state;
    TTI_TRY(check_cause(s));
    tti_tcp_say_alive(s);
    for (int r = 0; r < s->desc.n_ranks; r++) TTI_TRY(tti_tcp_listen_aside(s, r));
    for (int r = 0; r < s->desc.n_ranks; r++) {
        const tcp_peer *p = &s->peers[r];
        bool is_at_end = p->gone && !p->has_header && p->in_first == p->in_last;
        if (p->cut || (is_at_end && (left_too || !p->bye))) return tti_tcp_fail_gone(s, r);
    }
    return TUTTI_OK;
}

static tutti_status tcp_heard(void *state) {
    tcp_state *s = state;
    for (int r = 0; r < s->desc.n_ranks && s->cause == TUTTI_OK; r++)
        if (tti_tcp_listen_aside(s, r) != TUTTI_OK && s->cause == TUTTI_OK) tti_clear_error();
    return check_cause(s);
}

/* If a message of a rank lies here unread, more may follow it. */
static void tcp_quiet(void *state, int64_t n_ns, int64_t *quiet_ns) {
    const tcp_state *s = state;
    int64_t now = tti_now_ns();
    for (int r = 0; r < s->desc.n_ranks; r++) {
        const tcp_peer *p = &s->peers[r];
        bool is_listened_to = p->fd >= 0 && !p->has_header && !p->bye;
        int64_t since_ns = TTI_MAX(now - p->heard_ns, INT64_C(1));
        quiet_ns[r] = is_listened_to && since_ns >= n_ns ? since_ns : 0;
    }
}

/* The other end may send again as much later as this one: until then the outage counts as one. */
static int tcp_outage(void *state) {
    tcp_state *s = state;
    int64_t now = tti_now_ns();
    int most_ms = 0;
    if (now - s->looked_ns < OUTAGE_LOOK_MS * TTI_NS_PER_MS)
        return now < s->out_until_ns ? s->out_ms : 0;
    s->looked_ns = now;
    for (int r = 0; r < s->desc.n_ranks; r++)
        if (s->peers[r].fd >= 0 && !s->peers[r].gone)
            most_ms = TTI_MAX(most_ms, tti_tcp_outage_ms(s->peers[r].fd));
    if (most_ms > 0) {
        s->out_until_ns = now + 2 * most_ms * TTI_NS_PER_MS;
        s->out_ms = most_ms;
    }
    return now < s->out_until_ns ? s->out_ms : 0;
}

tutti_status tti_tcp_move(tcp_state *s, tti_message *messages, int n) {
    tti_wait_clock clock = tti_wait_clock_begin(s->desc.timeout_ms, s->desc.phase_timeout_ms);
    char waited[TTI_WAIT_TEXT_BYTES];
    int blame, more_ms;
    TTI_TRY(tcp_post(s, messages, n));
    for (;;) {
        TTI_TRY(tcp_test(s, &blame));
        if (blame < 0) return TUTTI_OK;
        more_ms = tcp_outage(s);
        if (tti_wait_clock_look(&clock,
                                (tti_delay){more_ms ? TTI_DELAY_OUTAGE : TTI_DELAY_NONE, more_ms}))
            break;
        tcp_pause(s, MOVE_SLICE_MS * TTI_NS_PER_MS, -1);
    }
    return tti_fail(TUTTI_E_TIMEOUT, "comm: rank %d waited %s for rank %d%s",
                    s->shown[s->desc.rank], tti_wait_clock_text(&clock, waited), s->shown[blame],
                    tti_wait_clock_reason(&clock));
}

const tti_link tti_link_tcp = {
    .name = "tcp",
    .doc = "sockets between all ranks, connected at an address",
    .open = tcp_open,
    .close = tti_tcp_close,
    .post = tcp_post,
    .test = tcp_test,
    .pause = tcp_pause,
    .cry = tcp_cry,
    .check = tti_tcp_check,
    .heard = tcp_heard,
    .quiet = tcp_quiet,
    .outage = tcp_outage,
    .split = tti_tcp_split,
};
