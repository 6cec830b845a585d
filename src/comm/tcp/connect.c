/* connect.c - connects every rank to every other rank, or the ranks of a sparse link along a tree.
 *
 * All ranks connect to rank 0, and each listens on the interface that it used for this.  Rank 0
 * sends all addresses to all ranks.  Then each rank connects to the lower ranks and accepts
 * connections of the higher ranks.  Listeners are closed afterwards.  Ranks of a subgroup already
 * know the addresses, so they perform only the last step.
 *
 * In a sparse link rank 0 sends each rank only the address of its parent in the tree, and closes
 * the connection.  Then the table of all addresses goes down the tree, and listeners become ports
 * (port.c). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

enum { MAX_PORTS = 64, MAX_PLACES = 8 };
enum { READ_MS = 3000, SLICE_MS = 1000, SPARE_FILES = 512 };

/* Rank 0's final message to all ranks: success, or the reason for a failure.  The addresses of all
 * ranks follow it, or in a sparse link the address of the parent. */
typedef struct verdict {
    uint32_t status, unused;
    char text[TTI_FAILURE_BYTES];
} verdict;

typedef struct rendezvous {
    tcp_state *s;
    const tti_link_desc *desc;
    tcp_address address;
    int64_t deadline_ns;
    const tcp_subgroup *subgroup; /* NULL: the whole group */
    int listener;                 /* -1: none */
    int port;                     /* port of the listener, on ranks other than 0 */
    bool is_sparse;
    int *fds;          /* [n_ranks], owned */
    tcp_place *places; /* [n_ranks], owned */
    bool *wanted;      /* [n_ranks], owned */
    verdict verdict;
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
        return tti_fail(
            TUTTI_E_CONFIG,
            "comm_create: rank 0 cannot listen at %s: that is not an address of this host; "
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

/* Rank 0 listens on the first port and address that are free. *error: errno if none is. */
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

/* Retries while the host name does not resolve: in Kubernetes it resolves only some time after the
 * pod has started. */
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

/* The other ranks listen on any port of the address that they used to connect to rank 0. */
static tutti_status listen_for_others(rendezvous *m, int fd) {
    tcp_place place = {.n_bytes = sizeof place.at};
    if (m->address.is_unix && !m->is_sparse) return listen_by_name(m);
    if (getsockname(fd, (struct sockaddr *)&place.at, &place.n_bytes) != 0)
        return tti_fail(TUTTI_E_IO, "comm_create: getsockname: %s", strerror(errno));
    m->listener = tti_tcp_listen_any(&place, &m->port);
    return m->listener < 0 ? fail_own_listener(m, errno) : TUTTI_OK;
}

/* ---- the connecting side ---- */

/* The handshake on a new connection to rank `to`. */
static tutti_status introduce(rendezvous *m, int fd, int to) {
    int64_t deadline_ns = TTI_MIN(m->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    tcp_challenge challenge;
    if (m->address.is_unix && !tti_tcp_same_user(fd))
        return tti_fail(TUTTI_E_MISMATCH, "a process of another user listens there");
    TTI_TRY(tti_tcp_recv_challenge(fd, deadline_ns, &challenge));
    if (m->listener < 0 && !m->subgroup) TTI_TRY(listen_for_others(m, fd));
    return tti_tcp_send_hello(m->desc, fd, to, m->port, &challenge, deadline_ns);
}

/* Tries one address once.  On failure the error text describes the reason. */
static tutti_status call_once(rendezvous *m, const tcp_place *place, int to) {
    int64_t deadline_ns = TTI_MIN(m->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    int fd = tti_tcp_connect(place, deadline_ns);
    if (fd < 0 && errno == EAGAIN) /* the queue of a Unix socket is full */
        return tti_fail(TUTTI_E_MISMATCH, "the process that listens there accepts no connections");
    if (fd < 0) return tti_fail(TUTTI_E_IO, "%s", strerror(errno));
    tutti_status st = introduce(m, fd, to);
    if (st == TUTTI_OK) {
        m->fds[to] = fd;
        return TUTTI_OK;
    }
    close(fd);
    if (to == 0 && m->listener >= 0 && !m->address.is_unix && !m->subgroup) {
        close(m->listener); /* rank 0 may be reachable through another interface */
        m->listener = -1;
    }
    return st;
}

/* A rank to which this one tries to connect until it answers. */
typedef struct callee {
    int to, n_places;
    bool one_port; /* the address has one port, so a wrong answer cannot come from another job at
                      that address */
    int64_t resolved_ns; /* time at which rank 0's name was last resolved, because its address may
                            change; 0: never */
    tcp_place places[MAX_PORTS + MAX_PLACES];
    tutti_status status; /* the most informative failure of the round, its reason and its address */
    char where[160], why[300];
} callee;

static void note_failure(const rendezvous *m, callee *c, tutti_status st, const tcp_place *place) {
    bool is_silent = st == TUTTI_E_IO || st == TUTTI_E_TIMEOUT;
    if (is_silent && c->status != TUTTI_OK)
        return; /* a refusal is more informative than no answer */
    c->status = st;
    snprintf(c->why, sizeof c->why, "%s", tutti_last_error());
    if (m->address.is_unix && !m->subgroup)
        snprintf(c->where, sizeof c->where, "%.150s", m->address.text);
    else
        tti_tcp_place_text(place, c->where, sizeof c->where);
}

/* Resolves the current address of rank 0.  If the name is not known yet, leaves no address and
 * records the reason. */
static void resolve_first(rendezvous *m, callee *c) {
    tcp_place found[MAX_PLACES];
    int n = 0;
    if (c->to != 0 || m->subgroup || m->address.is_unix ||
        (c->resolved_ns && tti_now_ns() < c->resolved_ns + m->s->resolve_ms * TTI_NS_PER_MS))
        return;
    c->n_places = 0;
    /* one query to the name service is enough for all ports */
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

/* Tries each address once.  A wrong token is a permanent failure; every other failure may be
 * temporary. */
static tutti_status call_round(rendezvous *m, callee *c) {
    TTI_TRY(tti_tcp_check_connected(m->desc->n_ranks, m->fds));
    TTI_TRY(tti_tcp_check_stop(m->desc));
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

/* Retries until the rank answers, because it may not listen yet. */
static tutti_status call_rank(rendezvous *m, callee *c) {
    char waited[TTI_WAIT_TEXT_BYTES];
    int t_ms = 1; /* short at first, because ranks of a job start at almost the same time */
    for (;;) {
        TTI_TRY(call_round(m, c));
        if (m->fds[c->to] >= 0) return TUTTI_OK;
        if (tti_now_ns() >= m->deadline_ns) break;
        tti_sleep_ms(t_ms);
        t_ms = TTI_MIN(2 * t_ms, (int)TCP_RETRY_MS);
    }
    return tti_fail(TUTTI_E_TIMEOUT,
                    "comm_create: rank %d tried for %s to reach rank %d at %s: %s%s", m->desc->rank,
                    tti_tcp_wait_text(m->desc, m->deadline_ns, waited), c->to, c->where, c->why,
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
    callee c = {.to = to, .n_places = 1, .one_port = true, .places = {m->places[to]}};
    return call_rank(m, &c);
}

/* ---- the two sides ---- */

static bool send_table(const rendezvous *m, int rank, int64_t deadline_ns) {
    return tti_tcp_write(m->fds[rank], &m->verdict, sizeof m->verdict, deadline_ns) &&
           tti_tcp_write(m->fds[rank], m->places, (size_t)m->desc->n_ranks * sizeof *m->places,
                         deadline_ns);
}

static int rank_above(int rank) { return (rank - 1) / TTI_FAN_OUT; }

static bool send_rank_above(const rendezvous *m, int rank, int64_t deadline_ns) {
    tcp_spot spot;
    tti_tcp_spot_of(&m->places[rank_above(rank)], &spot);
    return tti_tcp_write(m->fds[rank], &m->verdict, sizeof m->verdict, deadline_ns) &&
           tti_tcp_write(m->fds[rank], &spot, sizeof spot, deadline_ns);
}

/* Rank 0 accepts all ranks and sends them the verdict. */
static tutti_status gather(rendezvous *m) {
    for (int r = 1; r < m->desc->n_ranks; r++) m->wanted[r] = true;
    TTI_TRY(listen_at_address(m));
    tutti_status st = tti_tcp_admit(m->desc, m->listener, m->wanted, m->fds, m->places, m->s->where,
                                    m->deadline_ns);
    m->verdict.status = (uint32_t)st;
    if (st != TUTTI_OK) snprintf(m->verdict.text, sizeof m->verdict.text, "%s", tutti_last_error());
    int64_t deadline_ns = tti_now_ns() + m->s->slack_ms * TTI_NS_PER_MS;
    for (int r = 1; r < m->desc->n_ranks; r++) {
        if (m->fds[r] < 0 ||
            (m->is_sparse ? send_rank_above(m, r, deadline_ns) : send_table(m, r, deadline_ns)))
            continue;
        if (st == TUTTI_OK)
            st = tti_fail(TUTTI_E_PEER, "comm_create: rank %d left before the others had connected",
                          r);
    }
    return st == TUTTI_OK ? st : tti_fail(st, "%s", tutti_last_error());
}

/* Reads rank 0's verdict and the n_bytes after it. */
static tutti_status read_verdict(rendezvous *m, void *more, size_t n_bytes) {
    /* The deadline counts from now: rank 0 began to wait earlier, and reports missing ranks before
     * it. */
    int64_t begin_ns = tti_now_ns(), t_ms = (int64_t)m->desc->timeout_ms + m->s->slack_ms,
            deadline_ns = begin_ns + t_ms * TTI_NS_PER_MS;
    char waited[TTI_WAIT_TEXT_BYTES];
    bool ok = tti_tcp_read(m->fds[0], &m->verdict, sizeof m->verdict, deadline_ns) &&
              tti_tcp_read(m->fds[0], more, n_bytes, deadline_ns);
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
    m->verdict.text[sizeof m->verdict.text - 1] = '\0';
    if (m->verdict.status == TUTTI_OK) return TUTTI_OK;
    return tti_fail(
        m->verdict.status < TUTTI_N_STATUS ? (tutti_status)m->verdict.status : TUTTI_E_INTERNAL,
        "%s", m->verdict.text);
}

/* Connects ranks 1 .. n-1 with each other. */
static tutti_status mesh(rendezvous *m) {
    char where[64];
    for (int r = 1; r < m->desc->n_ranks; r++) {
        tcp_place *place = &m->places[r];
        if (place->n_bytes > sizeof place->at)
            return tti_fail(TUTTI_E_INTERNAL, "comm_create: a damaged place of rank %d", r);
        m->wanted[r] = r > m->desc->rank;
    }
    for (int r = 1; r < m->desc->rank; r++) TTI_TRY(call_at(m, r));
    if (m->address.is_unix)
        snprintf(where, sizeof where, "a name of its own");
    else
        snprintf(where, sizeof where, "its own port %d", m->port);
    return tti_tcp_admit(m->desc, m->listener, m->wanted, m->fds, m->places, where, m->deadline_ns);
}

static tutti_status connect_all(rendezvous *m) {
    if (m->desc->rank == 0) return gather(m);
    TTI_TRY(call_first(m));
    TTI_TRY(read_verdict(m, m->places, (size_t)m->desc->n_ranks * sizeof *m->places));
    m->deadline_ns = tti_now_ns() + m->desc->timeout_ms * TTI_NS_PER_MS;
    return mesh(m);
}

static tutti_status begin(tcp_state *s, rendezvous *m) {
    size_t n = (size_t)s->desc.n_ranks;
    *m = (rendezvous){.s = s,
                      .desc = &s->desc,
                      .deadline_ns = tti_now_ns() + s->desc.timeout_ms * TTI_NS_PER_MS,
                      .listener = -1};
    m->fds = malloc(n * sizeof *m->fds);
    m->places = calloc(n, sizeof *m->places);
    m->wanted = calloc(n, sizeof *m->wanted);
    if (m->fds && m->places && m->wanted) {
        for (size_t r = 0; r < n; r++) m->fds[r] = -1;
        return TUTTI_OK;
    }
    free(m->fds);
    free(m->places);
    free(m->wanted);
    return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %zu ranks", n);
}

/* Moves the connections to the state, on success and on failure. */
static tutti_status end(tcp_state *s, rendezvous *m, tutti_status st) {
    if (m->listener >= 0) close(m->listener);
    for (int r = 0; r < s->desc.n_ranks; r++) {
        tutti_status adopted = m->fds[r] >= 0 ? tti_tcp_adopt(s, r, m->fds[r]) : TUTTI_OK;
        if (st == TUTTI_OK) st = adopted;
    }
    for (int i = 0; i < s->n_peers && st != TUTTI_OK; i++)
        (void)tti_tcp_send_failure(s->peers[i], st, tutti_last_error());
    free(m->fds);
    free(m->places);
    free(m->wanted);
    return st;
}

/* ---- a sparse link ---- */

/* Raises the limit of open files, because rank 0 has a connection to each rank for a short time,
 * and other ranks have one to each rank of their host. */
static void raise_file_limit(int n_ranks) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)n_ranks + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = TTI_MIN(limit.rlim_max, wanted);
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* if the limit stays too low, accept reports it */
}

static tutti_status fail_getsockname(void) {
    return tti_fail(TUTTI_E_IO, "comm_create: getsockname: %s", strerror(errno));
}

/* Rank 0 publishes only its port, because each rank knows the address at which it reached rank
 * 0. */
static tutti_status open_first_port(rendezvous *m) {
    tcp_place here = {.n_bytes = sizeof here.at};
    if (getsockname(m->listener, (struct sockaddr *)&here.at, &here.n_bytes) != 0)
        return fail_getsockname();
    int listener = tti_tcp_listen_any(&here, &m->port);
    if (listener < 0) return fail_own_listener(m, errno);
    TTI_TRY(tti_tcp_port_open(m->desc, listener, &m->s->port));
    tcp_spot *spots = tti_tcp_port_spots(m->s->port);
    tti_tcp_spot_of(&here, &spots[0]);
    spots[0].port = (uint32_t)m->port;
    for (int r = 1; r < m->desc->n_ranks; r++) tti_tcp_spot_of(&m->places[r], &spots[r]);
    return TUTTI_OK;
}

static tutti_status open_own_port(rendezvous *m) {
    int listener = m->listener;
    m->listener = -1;
    return tti_tcp_port_open(m->desc, listener, &m->s->port);
}

/* Waits until the rank is connected, in either direction. */
static tutti_status await_rank(rendezvous *m, int rank) {
    char waited[TTI_WAIT_TEXT_BYTES];
    tcp_peer *p = tti_tcp_add_peer(m->s, rank);
    if (!p) return TUTTI_E_NOMEM;
    for (;;) {
        TTI_TRY(tti_tcp_reach(m->s, p));
        if (p->fd >= 0) return TUTTI_OK;
        if (tti_now_ns() >= m->deadline_ns) break;
        tti_sleep_ms(1);
    }
    return tti_fail(TUTTI_E_TIMEOUT, "comm_create: rank %d waited %s for rank %d to connect",
                    m->desc->rank, tti_tcp_wait_text(m->desc, m->deadline_ns, waited), rank);
}

/* Sends the table to the children in the tree. */
static tutti_status pass_table_on(rendezvous *m) {
    int first = TTI_FAN_OUT * m->desc->rank + 1;
    const tcp_spot *spots = tti_tcp_port_spots(m->s->port);
    for (int r = first; r < TTI_MIN(first + TTI_FAN_OUT, m->desc->n_ranks); r++) {
        TTI_TRY(await_rank(m, r));
        if (!tti_tcp_write(tti_tcp_fd(m->s, r), spots, (size_t)m->desc->n_ranks * sizeof *spots,
                           m->deadline_ns))
            return tti_fail(TUTTI_E_PEER, "comm_create: rank %d left before all had connected", r);
    }
    return TUTTI_OK;
}

static tutti_status read_table_from(rendezvous *m, int above) {
    tcp_spot *spots = tti_tcp_port_spots(m->s->port);
    if (tti_tcp_read(tti_tcp_fd(m->s, above), spots, (size_t)m->desc->n_ranks * sizeof *spots,
                     m->deadline_ns))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "comm_create: rank %d left before all ranks had connected (%s)",
                    above, strerror(errno));
}

static tutti_status connect_first_sparsely(rendezvous *m) {
    TTI_TRY(gather(m));
    TTI_TRY(open_first_port(m));
    for (int r = 1; r < m->desc->n_ranks; r++) {
        int fd = m->fds[r];
        m->fds[r] = -1;
        if (rank_above(r) == 0)
            TTI_TRY(tti_tcp_adopt(m->s, r, fd));
        else
            close(fd);
    }
    return pass_table_on(m);
}

static tutti_status connect_sparsely(rendezvous *m) {
    raise_file_limit(m->desc->n_ranks);
    if (m->desc->rank == 0) return connect_first_sparsely(m);
    int above = rank_above(m->desc->rank);
    tcp_place first = {.n_bytes = sizeof first.at};
    tcp_spot spot_above, spot_first;
    TTI_TRY(call_first(m));
    TTI_TRY(read_verdict(m, &spot_above, sizeof spot_above));
    m->deadline_ns = tti_now_ns() + m->desc->timeout_ms * TTI_NS_PER_MS;
    if (getpeername(m->fds[0], (struct sockaddr *)&first.at, &first.n_bytes) != 0)
        return fail_getsockname();
    TTI_TRY(open_own_port(m));
    int fd = m->fds[0];
    m->fds[0] = -1;
    if (above == 0)
        TTI_TRY(tti_tcp_adopt(m->s, 0, fd));
    else
        close(fd);
    tcp_spot *spots = tti_tcp_port_spots(m->s->port);
    spots[above] = spot_above;
    TTI_TRY(await_rank(m, above));
    TTI_TRY(read_table_from(m, above));
    tti_tcp_spot_of(&first, &spot_first);
    spot_first.port = spots[0].port;
    spots[0] = spot_first;
    return pass_table_on(m);
}

tutti_status tti_tcp_connect_ranks(tcp_state *s) {
    rendezvous m;
    TTI_TRY(begin(s, &m));
    m.is_sparse = tti_link_is_sparse(s->desc.n_ranks);
    tutti_status st = tti_tcp_parse(s->desc.address, &m.address);
    if (st == TUTTI_OK) st = m.is_sparse ? connect_sparsely(&m) : connect_all(&m);
    if (st == TUTTI_OK && m.is_sparse) tti_tcp_port_fold_spots(s->port);
    return end(s, &m, st);
}

/* ---- a subgroup ---- */

/* Waits in slices and checks the whole group between them, because it may fail during the wait. */
static tutti_status admit_above(rendezvous *m) {
    for (;;) {
        int64_t slice_ns = tti_now_ns() + SLICE_MS * TTI_NS_PER_MS;
        bool is_last = slice_ns >= m->deadline_ns;
        tutti_status st = tti_tcp_admit(m->desc, m->listener, m->wanted, m->fds, m->places,
                                        "a port of its own", TTI_MIN(slice_ns, m->deadline_ns));
        if (st != TUTTI_E_TIMEOUT || is_last) return st;
        TTI_TRY(tti_tcp_check(m->subgroup->whole, true));
    }
}

static tutti_status connect_subgroup(rendezvous *m) {
    for (int r = 0; r < m->desc->n_ranks; r++) {
        if (!m->subgroup->with[r]) continue;
        if (r < m->desc->rank) TTI_TRY(call_at(m, r));
        m->wanted[r] = r > m->desc->rank;
    }
    return m->listener < 0 ? TUTTI_OK : admit_above(m);
}

tutti_status tti_tcp_connect_subgroup(tcp_state *s, const tcp_subgroup *subgroup) {
    rendezvous m;
    tutti_status st = begin(s, &m);
    if (st != TUTTI_OK) {
        if (subgroup->listener >= 0) close(subgroup->listener);
        return st;
    }
    m.subgroup = subgroup;
    m.listener = subgroup->listener;
    for (int r = 0; r < s->desc.n_ranks; r++) {
        m.places[r] = subgroup->places[r];
        if (subgroup->with[r] && r < s->desc.rank)
            m.address.is_unix = subgroup->places[r].at.ss_family == AF_UNIX;
    }
    return end(s, &m, connect_subgroup(&m));
}
