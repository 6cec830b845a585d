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

/* REACH_MS: interval at which a rank checks for a connection that another rank makes */
enum { LINGER_MS = 1000, MOVE_SLICE_MS = 20, OUTAGE_LOOK_MS = 100, REACH_MS = 1 };

/* Frees everything except the connections. */
static void free_state(tcp_state *s) {
    if (s->token) explicit_bzero(s->token, strlen(s->token));
    free(s->token);
    tti_tcp_free_peers(s);
    free(s->global_ranks);
    free(s);
}

tutti_status tti_tcp_new(const tti_link_desc *desc, tcp_state **out) {
    tcp_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    s->token = desc->token ? strdup(desc->token) : NULL;
    if (desc->token && !s->token) {
        free_state(s);
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    }
    s->desc = *desc;
    s->resolve_ms = TCP_RESOLVE_MS;
    s->slack_ms = TCP_SLACK_MS;
    s->desc.token = s->token;
    snprintf(s->job, sizeof s->job, "%s", desc->job ? desc->job : "");
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
    s->desc.address = NULL; /* borrowed from the caller, not kept */
    s->desc.stop_fd = NULL;
    s->desc.job = s->job; /* ranks of a sparse link send it again */
    *state = s;
    return TUTTI_OK;
}

/* True if sent bytes have not reached the peer's host but still may.  False for a Unix socket,
 * which delivers at once, and after a reset, when the count includes bytes that will never be
 * delivered. */
static bool is_sending(int fd) {
    struct tcp_info info;
    socklen_t n = sizeof info;
    int n_unsent = 0;
    bool is_open =
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_state != TCP_CLOSE;
    return is_open && ioctl(fd, SIOCOUTQ, &n_unsent) == 0 && n_unsent > 0;
}

/* Waits for a limited time until the peer's host has received everything, because closing a socket
 * with unread bytes discards its unsent bytes. */
static void linger(int fd, int64_t deadline_ns) {
    while (is_sending(fd) && tti_now_ns() < deadline_ns) tti_sleep_ms(1);
}

/* Takes the connections of ranks that wait for this rank's first message. */
static void take_callers(tcp_state *s) {
    int fd, rank = -1;
    for (; s->port && (fd = tti_tcp_port_take(s->port, &s->desc, &rank)) >= 0; rank = -1) {
        if (tti_tcp_fd(s, rank) >= 0)
            close(fd); /* connection of an attempt that was abandoned */
        else if (tti_tcp_adopt(s, rank, fd) != TUTTI_OK)
            tti_clear_error();
    }
}

/* Announces to all ranks, also to those whose connection was not taken yet, that this rank leaves.
 * Without it they mistake the end of the connection for the death of this rank. */
static void send_leave(tcp_state *s) {
    if (s->port) tti_tcp_port_end(s->port, &s->desc, TUTTI_OK, "");
    take_callers(s);
    for (int i = 0; i < s->n_peers; i++) (void)tti_tcp_send_leave(s->peers[i]);
}

void tti_tcp_close(void *state, bool in_order) {
    tcp_state *s = state;
    if (!s) return;
    int64_t deadline_ns = tti_now_ns() + LINGER_MS * TTI_NS_PER_MS;
    if (in_order) send_leave(s);
    for (int i = 0; i < s->n_peers; i++)
        if (s->peers[i]->fd >= 0) shutdown(s->peers[i]->fd, SHUT_WR);
    for (int i = 0; i < s->n_peers; i++) {
        tcp_peer *p = s->peers[i];
        if (p->fd < 0) continue;
        linger(p->fd, deadline_ns);
        close(p->fd);
        tti_tcp_drop_bytes(p);
    }
    tti_tcp_port_close(s->port);
    free_state(s);
}

static tutti_status check_cause(const tcp_state *s) {
    return s->cause == TUTTI_OK ? TUTTI_OK : tti_fail(s->cause, "%s", s->text);
}

/* Messages of one direction and peer are processed in order. */
static tutti_status tcp_test(void *state, int *blame) {
    tcp_state *s = state;
    *blame = -1;
    TTI_TRY(check_cause(s));
    uint32_t pass = ++s->n_passes;
    for (int i = 0; i < s->n_batch; i++) {
        tti_message *m = &s->batch[i];
        if (m->done == m->n_bytes) continue;
        tcp_peer *p = tti_tcp_add_peer(s, m->peer);
        if (!p) return TUTTI_E_NOMEM;
        uint32_t *busy = m->out ? &p->busy_out : &p->busy_in;
        if (*busy == pass) continue;
        if (p->fd < 0) TTI_TRY(tti_tcp_reach(s, p));
        if (p->fd >= 0) TTI_TRY(m->out ? tti_tcp_push(s, p, m) : tti_tcp_pull(s, p, m));
        if (m->done == m->n_bytes) continue;
        *busy = pass;
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

/* Marks the peers of unfinished messages of the batch with the number of a pass.  Returns true if
 * some of these peers are not connected yet. */
static bool mark_waits(tcp_state *s, uint32_t pass) {
    bool is_reaching = false;
    for (int i = 0; i < s->n_batch; i++) {
        const tti_message *m = &s->batch[i];
        tcp_peer *p = m->done < m->n_bytes ? tti_tcp_peer(s, m->peer) : NULL;
        if (!p) continue;
        *(m->out ? &p->busy_out : &p->busy_in) = pass;
        is_reaching = is_reaching || p->fd < 0;
    }
    return is_reaching;
}

/* The poll events for a peer's socket that the next pass would handle. */
static short events_of(const tcp_peer *p, uint32_t pass) {
    short events = p->busy_out == pass ? POLLOUT : 0;
    if (!p->gone && (!p->has_header || p->busy_in == pass)) events |= POLLIN;
    return events;
}

static void tcp_pause(void *state, int64_t n_ns, int wake_fd) {
    tcp_state *s = state;
    uint32_t pass = ++s->n_passes;
    int n = 0, most_ms = (int)TTI_MAX(n_ns / TTI_NS_PER_MS, 1);
    if (mark_waits(s, pass)) most_ms = TTI_MIN(most_ms, REACH_MS);
    for (int i = 0; i < s->n_peers; i++) {
        tcp_peer *p = s->peers[i];
        short events = p->fd < 0 ? 0 : events_of(p, pass);
        if (!events) continue;
        s->polls[n] = (struct pollfd){.fd = p->fd, .events = events};
        s->polled[n++] = p;
    }
    tti_tcp_send_keepalive(s);
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN}; /* poll ignores -1 */
    struct pollfd *polls = s->polls ? s->polls : &wake;
    polls[n] = wake;
    if (poll(polls, (nfds_t)n + 1, most_ms) <= 0) return;
    for (int i = 0; i < n; i++) {
        tcp_peer *p = s->polled[i];
        if (!(polls[i].revents & (POLLIN | POLLHUP | POLLERR)) || p->busy_in == pass) continue;
        /* A failure report, or the end of a stream, is kept for the next test. */
        (void)tti_tcp_handle_control(s, p);
    }
}

static void tcp_report_failure(void *state, tutti_status status, const char *text) {
    tcp_state *s = state;
    if (s->reported == TUTTI_OK) {
        s->reported = status;
        snprintf(s->reported_text, sizeof s->reported_text, "%s", text);
        if (s->port) tti_tcp_port_end(s->port, &s->desc, status, text);
    }
    take_callers(s);
    for (int i = 0; i < s->n_peers; i++) {
        tcp_peer *p = s->peers[i];
        if (p->fd < 0) continue;
        (void)tti_tcp_send_failure(p, status, text);
        shutdown(p->fd, SHUT_WR); /* an unsent report is replaced by the end of the stream */
    }
}

tutti_status tti_tcp_check(void *state, bool left_too) {
    tcp_state *s = state;
    TTI_TRY(check_cause(s));
    tti_tcp_send_keepalive(s);
    for (int i = 0; i < s->n_peers; i++) TTI_TRY(tti_tcp_handle_control(s, s->peers[i]));
    for (int i = 0; i < s->n_peers; i++) {
        const tcp_peer *p = s->peers[i];
        bool is_at_end = p->gone && !p->has_header && p->in_first == p->in_last;
        if (p->cut || (is_at_end && (left_too || !p->has_left))) return tti_tcp_fail_gone(s, p);
    }
    return TUTTI_OK;
}

static tutti_status tcp_check_reported(void *state) {
    tcp_state *s = state;
    for (int i = 0; i < s->n_peers && s->cause == TUTTI_OK; i++)
        if (tti_tcp_handle_control(s, s->peers[i]) != TUTTI_OK && s->cause == TUTTI_OK)
            tti_clear_error();
    return check_cause(s);
}

/* A rank whose message is unread here is not silent: more bytes may follow the message. */
static void tcp_get_silence(void *state, int64_t n_ns, int64_t *silent_ns) {
    const tcp_state *s = state;
    int64_t now = tti_now_ns();
    memset(silent_ns, 0, (size_t)s->desc.n_ranks * sizeof *silent_ns);
    for (int i = 0; i < s->n_peers; i++) {
        const tcp_peer *p = s->peers[i];
        bool is_receiving = p->fd >= 0 && !p->has_header && !p->has_left;
        int64_t since_ns = TTI_MAX(now - p->received_ns, INT64_C(1));
        if (is_receiving && since_ns >= n_ns) silent_ns[p->rank] = since_ns;
    }
}

/* After an outage the other end may need as long as this one until it sends again.  Until then the
 * outage counts. */
static int tcp_outage(void *state) {
    tcp_state *s = state;
    int64_t now = tti_now_ns();
    int most_ms = 0;
    if (now - s->looked_ns < OUTAGE_LOOK_MS * TTI_NS_PER_MS)
        return now < s->out_until_ns ? s->out_ms : 0;
    s->looked_ns = now;
    for (int i = 0; i < s->n_peers; i++)
        if (s->peers[i]->fd >= 0 && !s->peers[i]->gone)
            most_ms = TTI_MAX(most_ms, tti_tcp_outage_ms(s->peers[i]->fd));
    if (most_ms > 0) {
        s->out_until_ns = now + 2 * most_ms * TTI_NS_PER_MS;
        s->out_ms = most_ms;
    }
    return now < s->out_until_ns ? s->out_ms : 0;
}

static void tcp_set_places(void *state, tti_rank_place place, const void *arg) {
    tcp_state *s = state;
    s->place = place;
    s->place_arg = arg;
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
                    tti_tcp_global_rank(s, s->desc.rank), tti_wait_clock_text(&clock, waited),
                    tti_tcp_global_rank(s, blame), tti_wait_clock_reason(&clock));
}

const tti_link tti_link_tcp = {
    .name = "tcp",
    .doc = "sockets between ranks, connected at an address",
    .open = tcp_open,
    .close = tti_tcp_close,
    .post = tcp_post,
    .test = tcp_test,
    .pause = tcp_pause,
    .report_failure = tcp_report_failure,
    .check = tti_tcp_check,
    .check_reported = tcp_check_reported,
    .get_silence = tcp_get_silence,
    .outage = tcp_outage,
    .split = tti_tcp_split,
    .set_places = tcp_set_places,
};
