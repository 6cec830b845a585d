/* listener.c - the accepting side: authenticates several callers at a time and rejects strangers.
 *
 * A caller has three seconds to authenticate.  At most 64 callers, or as many as there are ranks,
 * are served at a time; the next caller replaces the one that has been silent longest.  So port
 * scanners cannot block the ranks. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "comm/tcp/tcp.h"

/* LOOK_MS: interval at which deadlines are checked */
enum { LEAST_CALLERS = 64, PATIENCE_MS = 3000, LOOK_MS = 100 };

typedef struct caller {
    int fd;
    size_t n_bytes; /* bytes of its hello that were read */
    int64_t deadline_ns;
    tcp_place from;
    tcp_challenge challenge;
    tcp_hello hello;
} caller;

typedef struct acceptor {
    const tti_link_desc *desc;
    int listener;
    bool *wanted;
    int *fds;
    tcp_place *places;
    caller *callers;     /* [most] */
    struct pollfd *news; /* [most + 2] */
    int most, n_callers, n_refused;
    char refused[400]; /* the last refused caller and the reason */
    /* For a port: receives all callers instead of the arrays. */
    void (*take)(void *arg, const tcp_hello *hello, int fd);
    void *arg;
} acceptor;

static void note_refusal(acceptor *d, const caller *c, const char *why) {
    char from[128];
    d->n_refused++;
    snprintf(d->refused, sizeof d->refused, "%s: %s",
             tti_tcp_place_text(&c->from, from, sizeof from), why);
}

static void send_away(acceptor *d, int i, const char *why) {
    note_refusal(d, &d->callers[i], why);
    close(d->callers[i].fd);
    d->callers[i] = d->callers[--d->n_callers];
}

static void make_room(acceptor *d) {
    int oldest = 0;
    for (int i = 1; i < d->n_callers; i++)
        if (d->callers[i].deadline_ns < d->callers[oldest].deadline_ns) oldest = i;
    if (d->n_callers == d->most) send_away(d, oldest, "it did not identify itself");
}

/* Accepts the next caller; false: none waits. */
static bool greet(acceptor *d) {
    tcp_place from = {.n_bytes = sizeof from.at};
    int fd = accept4(d->listener, (struct sockaddr *)&from.at, &from.n_bytes,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return false;
    make_room(d);
    caller *c = &d->callers[d->n_callers];
    *c =
        (caller){.fd = fd, .deadline_ns = tti_now_ns() + PATIENCE_MS * TTI_NS_PER_MS, .from = from};
    tti_tcp_challenge(&c->challenge);
    bool stranger = from.at.ss_family == AF_UNIX && !tti_tcp_same_user(fd);
    if (stranger) note_refusal(d, c, "a process of another user");
    if (stranger || !tti_tcp_write(fd, &c->challenge, sizeof c->challenge, tti_now_ns())) {
        close(fd);
        return true;
    }
    d->n_callers++;
    return true;
}

/* The listening address of an authenticated rank: the address from which it connected, with the
 * port in its hello. */
static tcp_place place_of(const caller *c) {
    tcp_place place = c->from;
    tti_tcp_set_port(&place, c->hello.port);
    if (place.at.ss_family == AF_UNIX && c->hello.port > 0) /* the number in its name */
        (void)tti_tcp_place_of_spot(&(tcp_spot){.family = AF_UNIX, .port = (uint32_t)c->hello.port},
                                    &place);
    return place;
}

/* Accepts or refuses a caller whose hello is complete. */
static void decide(acceptor *d, caller *c) {
    tcp_answer answer;
    tti_tcp_answer_hello(d->desc, d->wanted, &c->challenge, &c->hello, &answer);
    bool sent = tti_tcp_write(c->fd, &answer, sizeof answer, tti_now_ns());
    if (answer.status != TUTTI_OK || !sent) {
        note_refusal(d, c, answer.status != TUTTI_OK ? answer.text : "it went away");
        close(c->fd);
        return;
    }
    int rank = c->hello.rank;
    if (d->take) {
        d->take(d->arg, &c->hello, c->fd);
        return;
    }
    d->wanted[rank] = false;
    d->fds[rank] = c->fd;
    d->places[rank] = place_of(c);
}

/* Reads the available bytes; true if the caller is done. */
static bool receive(acceptor *d, caller *c) {
    ssize_t n = recv(c->fd, (char *)&c->hello + c->n_bytes, sizeof c->hello - c->n_bytes, 0);
    if (n > 0) c->n_bytes += (size_t)n;
    if (c->n_bytes == sizeof c->hello) {
        decide(d, c);
        return true;
    }
    bool over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (!over && tti_now_ns() < c->deadline_ns) return false;
    note_refusal(d, c, over ? "it went away" : "it did not identify itself");
    close(c->fd);
    return true;
}

/* Handles admitted ranks that have closed their connection.  Such a rank, for example a restarted
 * process, may connect again to rank 0, but not to other ranks, because they no longer listen. */
static tutti_status check_admitted(acceptor *d) {
    if (d->desc->rank != 0) return tti_tcp_check_connected(d->desc->n_ranks, d->fds);
    for (int r = 1; r < d->desc->n_ranks; r++) {
        if (d->fds[r] < 0 || !tti_tcp_hung_up(d->fds[r])) continue;
        caller gone = {.fd = d->fds[r], .from = d->places[r]};
        note_refusal(d, &gone, "a rank that connected and left");
        close(d->fds[r]);
        d->fds[r] = -1;
        d->wanted[r] = true;
    }
    return TUTTI_OK;
}

static int count_wanted(const acceptor *d) {
    int n = 0;
    for (int r = 0; r < d->desc->n_ranks; r++) n += d->wanted[r];
    return n;
}

const char *tti_tcp_wait_text(const tti_link_desc *desc, int64_t deadline_ns, char *text) {
    int64_t left_ns = deadline_ns - tti_now_ns();
    return tti_waited_text(desc->timeout_ms * TTI_NS_PER_MS - left_ns, desc->timeout_ms, text);
}

/* Sleeps until a caller connects or sends bytes, or wake_fd (-1: none) is readable. */
static void wait_for_news(const acceptor *d, int wake_fd, int most_ms) {
    struct pollfd *p = d->news;
    p[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
    p[1] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    for (int i = 0; i < d->n_callers; i++)
        p[i + 2] = (struct pollfd){.fd = d->callers[i].fd, .events = POLLIN};
    poll(p, (nfds_t)d->n_callers + 2, most_ms);
}

static int stop_fd_of(const tti_link_desc *desc) { return desc->stop_fd ? *desc->stop_fd : -1; }

tutti_status tti_tcp_check_stop(const tti_link_desc *desc) {
    struct pollfd p = {.fd = stop_fd_of(desc), .events = POLLIN};
    if (poll(&p, 1, 0) <= 0 || (p.revents & POLLNVAL)) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER,
                    "comm_create: rank %d stops waiting for the other ranks: the group has ended "
                    "before all had connected",
                    desc->rank);
}

/* Accepts callers and continues with those that were accepted. */
static void serve_callers(acceptor *d) {
    for (int i = 0; i < LEAST_CALLERS && greet(d); i++) continue;
    for (int i = d->n_callers - 1; i >= 0; i--)
        if (receive(d, &d->callers[i])) d->callers[i] = d->callers[--d->n_callers];
}

static tutti_status fail_missing(const acceptor *d, const char *where, int64_t deadline_ns) {
    tti_str names = {0};
    char waited[TTI_WAIT_TEXT_BYTES];
    int n = count_wanted(d);
    for (int r = 0; r < d->desc->n_ranks; r++)
        if (d->wanted[r]) tti_str_printf(&names, "%s%d", names.n_bytes ? ", " : "", r);
    if (d->n_refused)
        tti_str_printf(&names, " (%d refused, the last from %s)", d->n_refused, d->refused);
    if (strncmp(where, "unix:", 5) == 0)
        tti_str_add(&names, "; only ranks of this host can connect there");
    tutti_status st =
        tti_fail(TUTTI_E_TIMEOUT, "comm_create: rank %d waited %s at %s for rank%s %s",
                 d->desc->rank, tti_tcp_wait_text(d->desc, deadline_ns, waited), where,
                 n == 1 ? "" : "s", tti_str_text(&names));
    tti_str_free(&names);
    return st;
}

static tutti_status begin_accepting(acceptor *d) {
    d->most = TTI_MAX((int)LEAST_CALLERS, d->desc->n_ranks);
    d->callers = calloc((size_t)d->most, sizeof *d->callers);
    d->news = calloc((size_t)d->most + 2, sizeof *d->news);
    return d->callers && d->news
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d callers", d->most);
}

static void end_accepting(acceptor *d) {
    for (int i = 0; i < d->n_callers; i++) close(d->callers[i].fd);
    free(d->callers);
    free(d->news);
}

tutti_status tti_tcp_admit(const tti_link_desc *desc, int listener, bool *wanted, int *fds,
                           tcp_place *places, const char *where, int64_t deadline_ns) {
    acceptor d = {
        .desc = desc, .listener = listener, .wanted = wanted, .fds = fds, .places = places};
    tutti_status st = begin_accepting(&d);
    while (st == TUTTI_OK && count_wanted(&d) > 0) {
        if (tti_now_ns() >= deadline_ns) {
            st = fail_missing(&d, where, deadline_ns);
            break;
        }
        wait_for_news(&d, stop_fd_of(desc), TTI_MIN(LOOK_MS, tti_ms_until(deadline_ns)));
        serve_callers(&d);
        st = check_admitted(&d);
        if (st == TUTTI_OK && count_wanted(&d) > 0) st = tti_tcp_check_stop(desc);
    }
    end_accepting(&d);
    return st;
}

void tti_tcp_serve_port(const tti_link_desc *desc, int listener, int wake_fd,
                        const _Atomic bool *stop,
                        void (*take)(void *arg, const tcp_hello *hello, int fd), void *arg) {
    acceptor d = {.desc = desc, .listener = listener, .take = take, .arg = arg};
    bool ok = begin_accepting(&d) == TUTTI_OK; /* on failure callers get no answer */
    while (ok && !atomic_load(stop)) {
        wait_for_news(&d, wake_fd, d.n_callers > 0 ? LOOK_MS : -1);
        serve_callers(&d);
    }
    end_accepting(&d);
}
