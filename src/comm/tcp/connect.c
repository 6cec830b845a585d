/* connect.c - connects every rank to every other.
 *
 * All ranks connect to rank 0, each with its own listener on the interface that it used.  Rank 0
 * sends all addresses to all ranks; then each rank connects to the lower ranks and accepts the
 * higher ones.  Listeners are closed afterwards.  Ranks of a subgroup know the addresses already,
 * so they do only the last step. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

enum { MAX_PORTS = 64, MAX_PLACES = 8 };
enum { READ_MS = 3000, SLICE_MS = 1000 };

/* Rank 0's final message to all ranks: the addresses of the others, or the reason for a failure. */
typedef struct table {
    uint32_t status, unused;
    char text[TTI_CRY_BYTES];
    tcp_place places[TTI_MAX_NET_RANKS];
} table;

typedef struct rendezvous {
    tcp_state *s;
    const tti_link_desc *desc;
    tcp_address address;
    int64_t deadline_ns;
    const tcp_subgroup *subgroup; /* NULL: the whole group */
    int listener;                 /* -1: none */
    int port;                     /* of the listener of a rank but 0 */
    int fds[TTI_MAX_NET_RANKS];
    table table;
} rendezvous;

/* ---- the listener ---- */

static tutti_status fail_taken(const rendezvous *m) {
    return tti_fail(TUTTI_E_CONFIG,
                    "rank %d cannot listen at %s: processes of other users have taken "
                    "all %d names; set TUTTI_TOKEN to a secret of 16 characters or more, or "
                    "TUTTI_CACHE to a folder that you can write, the same for every rank",
                    m->desc->rank, m->address.text, TCP_UNIX_PLACES);
}

static tutti_status fail_listen(const rendezvous *m, int error) {
    const char *text = m->address.text;
    if (error == EADDRINUSE && m->address.is_unix)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: %s is taken: another job of this name runs on this host",
                        text);
    if (error == EACCES && m->address.is_unix) return fail_taken(m);
    if (error == EADDRINUSE)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank 0 cannot listen at %s: the port is taken, possibly by "
                        "another job; choose another one (MASTER_PORT)",
                        text);
    if (error == EADDRNOTAVAIL)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank 0 cannot listen at %s: that is no address of this host; "
                        "MASTER_ADDR must name the host of rank 0",
                        text);
    return tti_fail(TUTTI_E_IO, "comm_create: rank 0 cannot listen at %s: %s", text,
                    strerror(error));
}

/* The names of a rank at a "unix:" address. */
static void find_names(const rendezvous *m, int rank, tcp_place places[TCP_UNIX_PLACES]) {
    tti_tcp_unix_places(&m->address, m->desc->token, rank, places);
}

static int listen_at_name(const rendezvous *m) {
    tcp_place places[TCP_UNIX_PLACES];
    find_names(m, m->desc->rank, places);
    return tti_tcp_listen_unix(places);
}

/* Rank 0: the first port, and of it the first place, that can be had; *error: why none was. */
static tutti_status try_to_listen(rendezvous *m, int *error) {
    tcp_place places[MAX_PLACES];
    int n;
    *error = 0;
    if (m->address.is_unix) {
        m->listener = listen_at_name(m);
        if (m->listener < 0) *error = errno;
        snprintf(m->s->where, sizeof m->s->where, "%s", m->address.text);
        return TUTTI_OK;
    }
    for (int port = m->address.first; m->listener < 0 && port <= m->address.last; port++) {
        TTI_TRY(tti_tcp_resolve(&m->address, port, places, MAX_PLACES, &n));
        for (int i = 0; i < n && m->listener < 0; i++) {
            m->listener = tti_tcp_listen(&places[i]);
            if (m->listener < 0 && *error != EADDRINUSE) *error = errno;
            if (m->listener >= 0) tti_tcp_place_text(&places[i], m->s->where, sizeof m->s->where);
        }
    }
    return TUTTI_OK;
}

/* A name may not lead anywhere yet: in Kubernetes it does some time after its pod has begun. */
static tutti_status listen_at_address(rendezvous *m) {
    int error = 0;
    tutti_status st;
    while ((st = try_to_listen(m, &error)) != TUTTI_OK && tti_now_ns() < m->deadline_ns)
        tti_sleep_ms(m->s->resolve_ms);
    if (st != TUTTI_OK)
        return tti_fail(st, "comm_create: rank 0 cannot listen at %s: %s (MASTER_ADDR)",
                        m->address.text, tutti_last_error());
    return m->listener < 0 ? fail_listen(m, error) : TUTTI_OK;
}

static tutti_status fail_own_listener(const rendezvous *m, int error) {
    return tti_fail(TUTTI_E_IO, "comm_create: rank %d cannot listen: %s", m->desc->rank,
                    strerror(error));
}

static tutti_status listen_by_name(rendezvous *m) {
    m->listener = listen_at_name(m);
    if (m->listener >= 0) return TUTTI_OK;
    if (errno == EACCES) return fail_taken(m);
    if (errno != EADDRINUSE) return fail_own_listener(m, errno);
    return tti_fail(TUTTI_E_CONFIG,
                    "there is a rank %d already: two processes have the same RANK, or another job "
                    "uses the same MASTER_PORT",
                    m->desc->rank);
}

/* For the other ranks: any port on the address that they used to connect to rank 0. */
static tutti_status listen_for_others(rendezvous *m, int fd) {
    tcp_place place = {.n_bytes = sizeof place.at};
    struct sockaddr_in six_or_four;
    if (m->address.is_unix) return listen_by_name(m);
    if (getsockname(fd, (struct sockaddr *)&place.at, &place.n_bytes) != 0)
        return tti_fail(TUTTI_E_IO, "comm_create: getsockname: %s", strerror(errno));
    tti_tcp_set_port(&place, 0);
    m->listener = tti_tcp_listen(&place);
    if (m->listener < 0) return fail_own_listener(m, errno);
    place.n_bytes = sizeof place.at;
    if (getsockname(m->listener, (struct sockaddr *)&place.at, &place.n_bytes) != 0)
        return tti_fail(TUTTI_E_IO, "comm_create: getsockname: %s", strerror(errno));
    memcpy(&six_or_four, &place.at, sizeof six_or_four);
    m->port = ntohs(six_or_four.sin_port);
    return TUTTI_OK;
}

/* ---- calling ---- */

/* The handshake on a new connection to rank `to`. */
static tutti_status introduce(rendezvous *m, int fd, int to) {
    int64_t deadline_ns = TTI_MIN(m->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    tcp_challenge challenge;
    tcp_hello hello;
    tcp_answer answer;
    if (m->address.is_unix && !tti_tcp_same_user(fd))
        return tti_fail(TUTTI_E_MISMATCH, "a process of another user listens there");
    if (!tti_tcp_read(fd, &challenge, sizeof challenge, deadline_ns))
        return tti_fail(TUTTI_E_IO, "the process that listens there sends nothing (%s)",
                        strerror(errno));
    TTI_TRY(tti_tcp_check_challenge(&challenge));
    if (m->listener < 0 && !m->subgroup) TTI_TRY(listen_for_others(m, fd));
    tti_tcp_hello(m->desc, to, m->port, &challenge, &hello);
    if (!tti_tcp_write(fd, &hello, sizeof hello, deadline_ns) ||
        !tti_tcp_read(fd, &answer, sizeof answer, deadline_ns))
        return tti_fail(TUTTI_E_IO, "the connection broke (%s)", strerror(errno));
    return tti_tcp_check_answer(m->desc, &hello, &answer);
}

/* One attempt at one address: the text describes a failure. */
static tutti_status call_once(rendezvous *m, const tcp_place *place, int to) {
    int64_t deadline_ns = TTI_MIN(m->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    int fd = tti_tcp_connect(place, deadline_ns);
    if (fd < 0 && errno == EAGAIN) /* of a unix socket: its queue is full */
        return tti_fail(TUTTI_E_MISMATCH, "the process that listens there accepts no connections");
    if (fd < 0) return tti_fail(TUTTI_E_IO, "%s", strerror(errno));
    tutti_status st = introduce(m, fd, to);
    if (st == TUTTI_OK) {
        m->fds[to] = fd;
        return TUTTI_OK;
    }
    close(fd);
    if (to == 0 && m->listener >= 0 && !m->address.is_unix && !m->subgroup) {
        close(m->listener); /* rank 0 may be reached by another interface */
        m->listener = -1;
    }
    return st;
}

/* A rank that is called until it answers. */
typedef struct callee {
    int to, n_places;
    bool one_port; /* a wrong answer there is not from another job, which would use its own port */
    int64_t resolved_ns; /* time of resolving rank 0's name, whose address may change; 0: never */
    tcp_place places[MAX_PORTS + MAX_PLACES];
    tutti_status status; /* of the round: the failure that says most, why, and where it was */
    char where[160], why[300];
} callee;

static void note_failure(const rendezvous *m, callee *c, tutti_status st, const tcp_place *place) {
    if (st == TUTTI_E_IO && c->status != TUTTI_OK) return; /* an answer says more than none */
    c->status = st;
    snprintf(c->why, sizeof c->why, "%s", tutti_last_error());
    if (m->address.is_unix && !m->subgroup)
        snprintf(c->where, sizeof c->where, "%.150s", m->address.text);
    else
        tti_tcp_place_text(place, c->where, sizeof c->where);
}

/* Resolves the current address of rank 0; no address, with the reason, if the name is not known
 * yet. */
static void resolve_first(rendezvous *m, callee *c) {
    tcp_place found[MAX_PLACES];
    int n = 0;
    if (c->to != 0 || m->subgroup || m->address.is_unix ||
        (c->resolved_ns && tti_now_ns() < c->resolved_ns + m->s->resolve_ms * TTI_NS_PER_MS))
        return;
    c->n_places = 0;
    /* one query to the name service, however many ports */
    (void)tti_tcp_resolve(&m->address, m->address.first, found, MAX_PLACES, &n);
    for (int port = m->address.first; port <= m->address.last && c->n_places < MAX_PORTS; port++)
        for (int i = 0; i < n; i++) {
            c->places[c->n_places] = found[i];
            tti_tcp_set_port(&c->places[c->n_places++], port);
        }
    if (c->n_places == 0) {
        snprintf(c->why, sizeof c->why, "%s", tutti_last_error());
        snprintf(c->where, sizeof c->where, "%.150s", m->address.text);
    }
    c->resolved_ns = tti_now_ns();
}

/* One attempt at each address.  A wrong token is final; every other failure may be temporary. */
static tutti_status call_round(rendezvous *m, callee *c) {
    TTI_TRY(tti_tcp_check_met(m->desc->n_ranks, m->fds));
    if (m->subgroup) TTI_TRY(tti_tcp_check(m->subgroup->whole, true));
    resolve_first(m, c);
    c->status = TUTTI_OK;
    for (int i = 0; i < c->n_places && m->fds[c->to] < 0; i++) {
        tutti_status st = call_once(m, &c->places[i], c->to);
        if (st == TUTTI_OK) return TUTTI_OK;
        note_failure(m, c, st, &c->places[i]);
        if (st == TUTTI_E_CONFIG && c->one_port)
            return tti_fail(st, "comm_create: rank %d at %s: %s", c->to, c->where, c->why);
    }
    return TUTTI_OK;
}

/* Retries until it answers: it may not listen yet. */
static tutti_status call_rank(rendezvous *m, callee *c) {
    char waited[TTI_WAIT_TEXT_BYTES];
    int t_ms = 1; /* ranks of one start come almost together */
    for (;;) {
        TTI_TRY(call_round(m, c));
        if (m->fds[c->to] >= 0) return TUTTI_OK;
        if (tti_now_ns() >= m->deadline_ns) break;
        tti_sleep_ms(t_ms);
        t_ms = TTI_MIN(2 * t_ms, (int)TCP_RETRY_MS);
    }
    return tti_fail(TUTTI_E_TIMEOUT,
                    "comm_create: rank %d tried for %s to reach rank %d at %s: %s%s", m->desc->rank,
                    tti_tcp_met_text(m->desc, m->deadline_ns, waited), c->to, c->where, c->why,
                    c->to ? "" : "; is rank 0 running, and is this the address of its host?");
}

static tutti_status call_by_name(rendezvous *m, int to) {
    callee c = {.to = to, .n_places = TCP_UNIX_PLACES, .one_port = true};
    find_names(m, to, c.places);
    return call_rank(m, &c);
}

static tutti_status call_first(rendezvous *m) {
    callee c = {.one_port = m->address.first == m->address.last};
    return m->address.is_unix ? call_by_name(m, 0) : call_rank(m, &c);
}

static tutti_status call_at(rendezvous *m, int to) {
    if (m->address.is_unix && !m->subgroup) return call_by_name(m, to);
    callee c = {.to = to, .n_places = 1, .one_port = true, .places = {m->table.places[to]}};
    return call_rank(m, &c);
}

/* ---- the two sides ---- */

static tutti_status gather(rendezvous *m) {
    bool wanted[TTI_MAX_NET_RANKS] = {false};
    for (int r = 1; r < m->desc->n_ranks; r++) wanted[r] = true;
    TTI_TRY(listen_at_address(m));
    tutti_status st = tti_tcp_admit(m->desc, m->listener, wanted, m->fds, m->table.places,
                                    m->s->where, m->deadline_ns);
    m->table.status = (uint32_t)st;
    if (st != TUTTI_OK) snprintf(m->table.text, sizeof m->table.text, "%s", tutti_last_error());
    int64_t deadline_ns = tti_now_ns() + m->s->slack_ms * TTI_NS_PER_MS;
    for (int r = 1; r < m->desc->n_ranks; r++) {
        if (m->fds[r] < 0 || tti_tcp_write(m->fds[r], &m->table, sizeof m->table, deadline_ns))
            continue;
        if (st == TUTTI_OK)
            st = tti_fail(TUTTI_E_PEER, "comm_create: rank %d left before the others had connected",
                          r);
    }
    return st == TUTTI_OK ? st : tti_fail(st, "%s", tutti_last_error());
}

static tutti_status read_table(rendezvous *m) {
    /* Counts from now: rank 0 began to wait before it admitted this rank, and reports the missing
     * ranks. */
    int64_t begin_ns = tti_now_ns(), t_ms = (int64_t)m->desc->timeout_ms + m->s->slack_ms,
            deadline_ns = begin_ns + t_ms * TTI_NS_PER_MS;
    char waited[TTI_WAIT_TEXT_BYTES];
    bool ok = tti_tcp_read(m->fds[0], &m->table, sizeof m->table, deadline_ns);
    if (!ok && errno == ETIMEDOUT)
        return tti_fail(TUTTI_E_TIMEOUT,
                        "comm_create: rank 0 at %s let rank %d in, but did not report for %s that "
                        "all ranks have connected",
                        m->address.text, m->desc->rank,
                        tti_waited_text(tti_now_ns() - begin_ns, m->desc->timeout_ms, waited));
    if (!ok)
        return tti_fail(TUTTI_E_PEER,
                        "comm_create: rank 0 at %s left before all ranks had connected (%s)",
                        m->address.text, strerror(errno));
    m->table.text[sizeof m->table.text - 1] = '\0';
    if (m->table.status == TUTTI_OK) return TUTTI_OK;
    return tti_fail(
        m->table.status < TUTTI_N_STATUS ? (tutti_status)m->table.status : TUTTI_E_INTERNAL, "%s",
        m->table.text);
}

/* Ranks 1 .. n-1 among each other. */
static tutti_status mesh(rendezvous *m) {
    bool wanted[TTI_MAX_NET_RANKS] = {false};
    tcp_place places[TTI_MAX_NET_RANKS];
    char where[64];
    for (int r = 1; r < m->desc->n_ranks; r++) {
        tcp_place *place = &m->table.places[r];
        if (place->n_bytes > sizeof place->at)
            return tti_fail(TUTTI_E_INTERNAL, "comm_create: a damaged place of rank %d", r);
        wanted[r] = r > m->desc->rank;
    }
    for (int r = 1; r < m->desc->rank; r++) TTI_TRY(call_at(m, r));
    if (m->address.is_unix)
        snprintf(where, sizeof where, "a name of its own");
    else
        snprintf(where, sizeof where, "its own port %d", m->port);
    return tti_tcp_admit(m->desc, m->listener, wanted, m->fds, places, where, m->deadline_ns);
}

static tutti_status connect_all(rendezvous *m) {
    if (m->desc->rank == 0) return gather(m);
    TTI_TRY(call_first(m));
    TTI_TRY(read_table(m));
    m->deadline_ns = tti_now_ns() + m->desc->timeout_ms * TTI_NS_PER_MS;
    return mesh(m);
}

static void begin(tcp_state *s, rendezvous *m) {
    *m = (rendezvous){.s = s,
                      .desc = &s->desc,
                      .deadline_ns = tti_now_ns() + s->desc.timeout_ms * TTI_NS_PER_MS,
                      .listener = -1};
    for (int r = 0; r < TTI_MAX_NET_RANKS; r++) m->fds[r] = -1;
}

/* A wait may meet a phase and an outage.  The waits end by themselves, and say why: the kernel must
 * not be first. */
static int64_t longest_wait_ms(const tti_link_desc *desc) {
    return (int64_t)desc->phase_timeout_ms + INT64_C(3) * desc->timeout_ms;
}

/* The connections are the state's now, however it went. */
static tutti_status end(tcp_state *s, const rendezvous *m, tutti_status st) {
    if (m->listener >= 0) close(m->listener);
    for (int r = 0; r < s->desc.n_ranks; r++) {
        s->peers[r].fd = m->fds[r];
        s->peers[r].heard_ns = tti_now_ns();
        if (m->fds[r] < 0) continue;
        tti_tcp_tune(m->fds[r], s->desc.timeout_ms);
        tti_tcp_give_up_after(m->fds[r], longest_wait_ms(&s->desc));
        if (st != TUTTI_OK) (void)tti_tcp_say_cry(s, r, st, tutti_last_error());
    }
    return st;
}

tutti_status tti_tcp_connect_ranks(tcp_state *s) {
    rendezvous m;
    begin(s, &m);
    TTI_TRY(tti_tcp_parse(s->desc.address, &m.address));
    return end(s, &m, connect_all(&m));
}

/* ---- a subgroup ---- */

/* Waits in slices, and checks the whole between them, which may fail meanwhile. */
static tutti_status admit_above(rendezvous *m, bool *wanted) {
    tcp_place places[TTI_MAX_NET_RANKS];
    for (;;) {
        int64_t slice_ns = tti_now_ns() + SLICE_MS * TTI_NS_PER_MS;
        bool is_last = slice_ns >= m->deadline_ns;
        tutti_status st = tti_tcp_admit(m->desc, m->listener, wanted, m->fds, places,
                                        "a port of its own", TTI_MIN(slice_ns, m->deadline_ns));
        if (st != TUTTI_E_TIMEOUT || is_last) return st;
        TTI_TRY(tti_tcp_check(m->subgroup->whole, true));
    }
}

static tutti_status connect_subgroup(rendezvous *m) {
    bool wanted[TTI_MAX_NET_RANKS] = {false};
    for (int r = 0; r < m->desc->n_ranks; r++) {
        if (!m->subgroup->with[r]) continue;
        if (r < m->desc->rank) TTI_TRY(call_at(m, r));
        wanted[r] = r > m->desc->rank;
    }
    return m->listener < 0 ? TUTTI_OK : admit_above(m, wanted);
}

tutti_status tti_tcp_connect_subgroup(tcp_state *s, const tcp_subgroup *subgroup) {
    rendezvous m;
    begin(s, &m);
    m.subgroup = subgroup;
    m.listener = subgroup->listener;
    for (int r = 0; r < s->desc.n_ranks; r++) {
        m.table.places[r] = subgroup->places[r];
        if (subgroup->with[r] && r < s->desc.rank)
            m.address.is_unix = subgroup->places[r].at.ss_family == AF_UNIX;
    }
    return end(s, &m, connect_subgroup(&m));
}
