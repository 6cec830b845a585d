/* port.c - the port on which a rank of a sparse link listens for the lifetime of the link.
 *
 * A separate thread authenticates callers, so a caller never waits for the rank's computation.
 * Connections are queued here until the rank takes them, for the whole group or for the subgroup
 * that the caller has named.  The port also stores the addresses of the ports of all ranks. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/tcp/tcp.h"

/* A caller that was authenticated. */
typedef struct arrival {
    struct arrival *next;
    int fd, rank, to, n_ranks;
    char job[sizeof((tcp_hello *)0)->job];
} arrival;

/* A link of this rank that has failed, or that the rank has left in order: TUTTI_OK. */
typedef struct ended_link {
    struct ended_link *next;
    int rank, n_ranks;
    char job[sizeof((tcp_hello *)0)->job];
    tutti_status status;
    char text[];
} ended_link;

/* The spot of a rank: the address of another spot, and a port. */
typedef struct folded_spot {
    uint32_t address, port;
} folded_spot;

struct tcp_port {
    tti_link_desc desc; /* rank, n_ranks, token, job */
    char *token;        /* owned; NULL: none */
    int listener, wake_fd;
    tcp_spot *spots;     /* [n_ranks], or [number of different addresses] if folded */
    folded_spot *folded; /* [n_ranks]; NULL: the table is not folded */
    pthread_t thread;
    bool is_running;
    _Atomic bool stop;
    _Atomic int n_owners, n_arrivals;
    pthread_mutex_t lock; /* guards the lists */
    arrival *arrivals;
    arrival *
        answered; /* callers of a link that has ended; kept open so that they can read the reason */
    ended_link *ended;
};

/* ---- spots ---- */

/* Names that the kernel chooses consist of a zero byte and five hexadecimal digits. */
enum { NAME_DIGITS = 5 };

void tti_tcp_spot_of(const tcp_place *place, tcp_spot *out) {
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_un un;
    *out = (tcp_spot){.family = place->at.ss_family};
    memcpy(&four, &place->at, sizeof four);
    memcpy(&six, &place->at, sizeof six);
    memcpy(&un, &place->at, sizeof un);
    if (out->family == AF_INET) {
        out->port = ntohs(four.sin_port);
        memcpy(out->address, &four.sin_addr, sizeof four.sin_addr);
    } else if (out->family == AF_INET6) {
        out->port = ntohs(six.sin6_port);
        out->scope = six.sin6_scope_id;
        memcpy(out->address, &six.sin6_addr, sizeof six.sin6_addr);
    } else {
        char digits[NAME_DIGITS + 1] = "";
        memcpy(digits, un.sun_path + 1, NAME_DIGITS);
        out->port = (uint32_t)strtoul(digits, NULL, 16);
    }
}

tutti_status tti_tcp_place_of_spot(const tcp_spot *spot, tcp_place *out) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)spot->port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)spot->port),
                               .sin6_scope_id = spot->scope};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    char digits[16];
    *out = (tcp_place){0};
    memcpy(&four.sin_addr, spot->address, sizeof four.sin_addr);
    memcpy(&six.sin6_addr, spot->address, sizeof six.sin6_addr);
    snprintf(digits, sizeof digits, "%05x", (unsigned)spot->port & 0xfffff);
    memcpy(un.sun_path + 1, digits, NAME_DIGITS);
    const void *from = spot->family == AF_INET ? (void *)&four : (void *)&six;
    out->n_bytes = spot->family == AF_INET ? sizeof four : sizeof six;
    if (spot->family == AF_UNIX) {
        from = &un;
        out->n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + NAME_DIGITS);
    } else if (spot->family != AF_INET && spot->family != AF_INET6) {
        return tti_fail(TUTTI_E_MISMATCH, "comm_create: a damaged address of a rank");
    }
    memcpy(&out->at, from, out->n_bytes);
    return TUTTI_OK;
}

int tti_tcp_listen_any(const tcp_place *place, int *port) {
    tcp_place at = *place, got = {.n_bytes = sizeof got.at};
    tcp_spot spot;
    if (at.at.ss_family == AF_UNIX) at.n_bytes = sizeof at.at.ss_family;
    tti_tcp_set_port(&at, 0);
    int fd = tti_tcp_listen(&at);
    if (fd < 0) return -1;
    if (getsockname(fd, (struct sockaddr *)&got.at, &got.n_bytes) != 0) {
        close(fd);
        return -1;
    }
    tti_tcp_spot_of(&got, &spot);
    *port = (int)spot.port;
    return fd;
}

/* ---- callers ---- */

static const char *job_of(const tti_link_desc *desc) { return desc->job ? desc->job : ""; }

/* Called with the lock held.  If the caller's link has ended, sends it the reason and returns
 * true. */
static bool answer_ended(const tcp_port *port, const arrival *a) {
    const ended_link *e = port->ended;
    while (e && (e->rank != a->to || e->n_ranks != a->n_ranks || strcmp(e->job, a->job) != 0))
        e = e->next;
    if (!e) return false;
    tcp_peer caller = {.rank = a->rank, .fd = a->fd};
    if (e->status == TUTTI_OK)
        (void)tti_tcp_send_leave(&caller);
    else
        (void)tti_tcp_send_failure(&caller, e->status, e->text);
    shutdown(a->fd, SHUT_WR);
    return true;
}

static void keep_caller(void *arg, const tcp_hello *hello, int fd) {
    tcp_port *port = arg;
    arrival *a = calloc(1, sizeof *a);
    if (!a) {
        close(fd); /* the caller will retry */
        return;
    }
    *a = (arrival){.fd = fd, .rank = hello->rank, .to = hello->to, .n_ranks = hello->n_ranks};
    snprintf(a->job, sizeof a->job, "%.*s", (int)sizeof a->job - 1, hello->job);
    pthread_mutex_lock(&port->lock);
    bool is_answered = answer_ended(port, a);
    /* Newest first: a rank that abandoned an attempt and retried is found at its newer
     * connection. */
    arrival **list = is_answered ? &port->answered : &port->arrivals;
    a->next = *list;
    *list = a;
    pthread_mutex_unlock(&port->lock);
    if (!is_answered) atomic_fetch_add(&port->n_arrivals, 1);
}

void tti_tcp_port_end(tcp_port *port, const tti_link_desc *desc, tutti_status status,
                      const char *text) {
    size_t n = strlen(text) + 1;
    ended_link *e = calloc(1, sizeof *e + n);
    if (!e) return; /* without the entry callers run into their timeout */
    *e = (ended_link){.rank = desc->rank, .n_ranks = desc->n_ranks, .status = status};
    snprintf(e->job, sizeof e->job, "%s", job_of(desc));
    memcpy(e->text, text, n);
    pthread_mutex_lock(&port->lock);
    e->next = port->ended;
    port->ended = e;
    pthread_mutex_unlock(&port->lock);
}

/* True if the caller is this rank of the link of desc; rank -1: any rank. */
static bool is_from(const arrival *a, const tti_link_desc *desc, int rank) {
    return (rank < 0 || a->rank == rank) && a->to == desc->rank && a->n_ranks == desc->n_ranks &&
           strncmp(a->job, job_of(desc), sizeof a->job - 1) == 0;
}

int tti_tcp_port_take(tcp_port *port, const tti_link_desc *desc, int *rank) {
    int fd = -1;
    if (atomic_load(&port->n_arrivals) == 0) return -1;
    pthread_mutex_lock(&port->lock);
    for (arrival **at = &port->arrivals; *at;) {
        arrival *a = *at;
        if (!is_from(a, desc, *rank)) {
            at = &a->next;
            continue;
        }
        if (fd < 0)
            fd = a->fd;
        else
            close(a->fd); /* connection of an attempt that was abandoned */
        *rank = a->rank;
        *at = a->next;
        free(a);
        atomic_fetch_sub(&port->n_arrivals, 1);
    }
    pthread_mutex_unlock(&port->lock);
    return fd;
}

static void *attend(void *arg) {
    tcp_port *port = arg;
    tti_tcp_serve_port(&port->desc, port->listener, port->wake_fd, &port->stop, keep_caller, port);
    return NULL;
}

/* ---- begin and end ---- */

tcp_spot *tti_tcp_port_spots(tcp_port *port) { return port->spots; }

static bool is_same_address(const tcp_spot *a, const tcp_spot *b) {
    return a->family == b->family && a->scope == b->scope &&
           memcmp(a->address, b->address, sizeof a->address) == 0;
}

void tti_tcp_port_fold_spots(tcp_port *port) {
    uint32_t n = (uint32_t)port->desc.n_ranks, n_addresses = 0;
    tcp_spot *spots = port->spots;
    for (uint32_t r = 0; r < n; r++)
        n_addresses += r == 0 || !is_same_address(&spots[r], &spots[r - 1]);
    folded_spot *folded = n_addresses <= n / 2 ? calloc(n, sizeof *folded) : NULL;
    if (!folded) return;
    n_addresses = 0;
    for (uint32_t r = 0; r < n; r++) {
        bool is_new = n_addresses == 0 || !is_same_address(&spots[r], &spots[n_addresses - 1]);
        folded[r].port = spots[r].port;
        if (is_new) spots[n_addresses++] = spots[r];
        folded[r].address = n_addresses - 1;
    }
    tcp_spot *fewer = realloc(spots, n_addresses * sizeof *spots);
    if (fewer) port->spots = fewer;
    port->folded = folded;
}

tcp_spot tti_tcp_port_spot(const tcp_port *port, int rank) {
    const folded_spot *f = port->folded ? &port->folded[rank] : NULL;
    tcp_spot spot = port->spots[f ? f->address : (uint32_t)rank];
    if (f) spot.port = f->port;
    return spot;
}

tcp_port *tti_tcp_port_share(tcp_port *port) {
    if (port) atomic_fetch_add(&port->n_owners, 1);
    return port;
}

static void close_callers(arrival *callers) {
    for (arrival *a = callers, *next; a; a = next) {
        next = a->next;
        close(a->fd);
        free(a);
    }
}

static void destroy(tcp_port *port) {
    uint64_t one = 1;
    atomic_store(&port->stop, true);
    if (port->is_running) {
        ssize_t n = write(port->wake_fd, &one, sizeof one);
        TTI_ASSERT(n == (ssize_t)sizeof one);
        pthread_join(port->thread, NULL);
    }
    close_callers(port->arrivals);
    close_callers(port->answered);
    for (ended_link *e = port->ended, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    close(port->listener);
    if (port->wake_fd >= 0) close(port->wake_fd);
    pthread_mutex_destroy(&port->lock);
    if (port->token) explicit_bzero(port->token, strlen(port->token));
    free(port->token);
    free(port->spots);
    free(port->folded);
    free(port);
}

void tti_tcp_port_close(tcp_port *port) {
    if (port && atomic_fetch_sub(&port->n_owners, 1) == 1) destroy(port);
}

tutti_status tti_tcp_port_open(const tti_link_desc *desc, int listener, tcp_port **out) {
    *out = NULL;
    tcp_port *port = calloc(1, sizeof *port);
    if (!port) {
        close(listener);
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    }
    port->desc = (tti_link_desc){.rank = desc->rank, .n_ranks = desc->n_ranks};
    port->listener = listener;
    port->n_owners = 1;
    port->wake_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&port->lock, NULL);
    port->desc.token = port->token = desc->token ? strdup(desc->token) : NULL;
    port->spots = calloc((size_t)desc->n_ranks, sizeof *port->spots);
    if (port->wake_fd >= 0 && port->spots && (port->token || !desc->token))
        port->is_running = tti_thread_start(&port->thread, NULL, attend, port) == 0;
    if (!port->is_running) {
        destroy(port);
        return tti_fail(TUTTI_E_NOMEM, "comm_create: no thread for callers");
    }
    *out = port;
    return TUTTI_OK;
}
