/* reach.c - connects a pair of ranks of a sparse link when it has its first message.
 *
 * The higher rank calls the lower one, whose port answers at once, whatever that rank is doing.
 * The lower rank finds the connection at its own port.  A port that refuses has ended with its
 * rank.  That rank, or the one whose failure made it end, is named by a report that may still be on
 * its way, so the refusal counts only after a while. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

/* ANSWER_MS: a port answers at once, but on a busy machine its thread may have to wait. */
enum { CALL_MS = 1000, ANSWER_MS = 20000, RETRY_MS = 5, REFUSED_MS = 1000 };

/* One attempt; the text says why it failed.  TUTTI_E_TIMEOUT: nothing answers yet. */
static tutti_status call(tcp_state *s, int rank) {
    const tcp_spot spot = tti_tcp_port_spot(s->port, tti_tcp_shown(s, rank));
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
    if (st == TUTTI_OK) st = tti_tcp_hear_challenge(fd, deadline_ns, &challenge);
    if (st == TUTTI_OK) st = tti_tcp_prove(&s->desc, fd, rank, 0, &challenge, deadline_ns);
    if (st == TUTTI_OK) return tti_tcp_adopt(s, rank, fd);
    close(fd);
    return st;
}

static tutti_status fail_reach(const tcp_state *s, int rank) {
    char why[300], place[256] = "of another host";
    snprintf(why, sizeof why, "%s", tutti_last_error());
    int shown = tti_tcp_shown(s, rank);
    if (s->place) s->place(s->place_arg, shown, place, sizeof place);
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (%s) has ended: rank %d cannot reach it: %s",
                    shown, place, tti_tcp_shown(s, s->desc.rank), why);
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
