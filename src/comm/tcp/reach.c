/* reach.c - connects a pair of ranks of a sparse link when it has its first message.
 *
 * The higher rank connects to the port of the lower rank, which answers at once even while that
 * rank computes.  The lower rank takes the connection from its own port.  A port that refuses
 * connections has closed because its rank has ended.  A report about that rank, or about the
 * failure that ended it, may not have arrived yet, so a refusal becomes an error only after some
 * time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

/* ANSWER_MS is long because the thread of a port may have to wait on a busy machine. */
enum { CALL_MS = 1000, ANSWER_MS = 20000, RETRY_MS = 5, REFUSED_MS = 1000 };

/* Tries to connect once.  On failure the error text gives the reason.  TUTTI_E_TIMEOUT: no answer
 * yet. */
static tutti_status call(tcp_state *s, int rank) {
    const tcp_spot spot = tti_tcp_port_spot(s->port, tti_tcp_global_rank(s, rank));
    int64_t deadline_ns = tti_now_ns() + CALL_MS * TTI_NS_PER_MS;
    tcp_challenge challenge;
    tcp_place place;
    TTI_TRY(tti_tcp_place_of_spot(&spot, &place));
    int fd = tti_tcp_connect(&place, deadline_ns);
    if (fd < 0)
        return tti_fail(errno == ETIMEDOUT || errno == EAGAIN ? TUTTI_E_TIMEOUT : TUTTI_E_IO, "%s",
                        strerror(errno));
    deadline_ns = tti_now_ns() + ANSWER_MS * TTI_NS_PER_MS;
    tutti_status st = TUTTI_OK;
    if (spot.family == AF_UNIX && !tti_tcp_same_user(fd))
        st = tti_fail(TUTTI_E_MISMATCH, "a process of another user listens there");
    if (st == TUTTI_OK) st = tti_tcp_recv_challenge(fd, deadline_ns, &challenge);
    if (st == TUTTI_OK) st = tti_tcp_send_hello(&s->desc, fd, rank, 0, &challenge, deadline_ns);
    if (st == TUTTI_OK) return tti_tcp_adopt(s, rank, fd);
    close(fd);
    return st;
}

static tutti_status fail_reach(const tcp_state *s, int rank) {
    char why[300], place[256] = "of another host";
    snprintf(why, sizeof why, "%s", tutti_last_error());
    int global_rank = tti_tcp_global_rank(s, rank);
    if (s->place) s->place(s->place_arg, global_rank, place, sizeof place);
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (%s) has ended: rank %d cannot reach it: %s",
                    global_rank, place, tti_tcp_global_rank(s, s->desc.rank), why);
}

tutti_status tti_tcp_reach(tcp_state *s, tcp_peer *p) {
    int64_t now = tti_now_ns();
    int rank = p->rank;
    if (!s->port || p->fd >= 0 || p->gone || now < p->retry_ns) return TUTTI_OK;
    if (s->reported != TUTTI_OK) return tti_fail(s->reported, "%s", s->reported_text);
    if (rank > s->desc.rank) {
        int fd = tti_tcp_port_take(s->port, &s->desc, &rank);
        return fd >= 0 ? tti_tcp_adopt(s, rank, fd) : TUTTI_OK;
    }
    tutti_status st = call(s, rank);
    if (st == TUTTI_OK) return TUTTI_OK;
    if (st == TUTTI_E_TIMEOUT || p->refused_ns == 0) p->refused_ns = tti_now_ns();
    if (now - p->refused_ns >= REFUSED_MS * TTI_NS_PER_MS) return fail_reach(s, rank);
    tti_clear_error();
    p->retry_ns = tti_now_ns() + RETRY_MS * TTI_NS_PER_MS;
    return TUTTI_OK;
}
