/* socket.c - sockets that never block: every wait is a poll with a deadline. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

enum {
    RTO_MAX_MS = 44,  /* the option TCP_RTO_MAX_MS, which headers of older systems do not define */
    RESEND_PARTS = 8, /* minimum number of retransmissions within the limit of a wait */
    RESEND_LEAST_MS = 1000, /* smallest value that the kernel accepts */
    RESEND_MOST_MS = 120000,
    RESEND_SLACK_MS = 500, /* time for the round trip */
    OUTAGE_RESENDS = 2,    /* retransmissions that count as an outage; a single loss is none */
    KEEP_ALIVE_S = 10
};

static int fail_close(int fd) {
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int open_socket(const tcp_place *place) {
    return socket(place->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int tti_tcp_listen(const tcp_place *place) {
    int fd = open_socket(place), on = 1;
    if (fd < 0) return -1;
    if (place->at.ss_family != AF_UNIX) /* allows reuse of the port of a job that has just ended */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&place->at, place->n_bytes) != 0 ||
        listen(fd, SOMAXCONN) != 0)
        return fail_close(fd);
    return fd;
}

/* Waits for events until the deadline; false with errno.  During an outage it waits longer, until
 * the next retransmission. */
static bool wait_for(int fd, short events, int64_t deadline_ns) {
    struct pollfd p = {.fd = fd, .events = events};
    int64_t more_ms = -1; /* not determined yet */
    for (;;) {
        int n = poll(&p, 1, tti_ms_until(deadline_ns));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
        if (n == 0 && tti_now_ns() >= deadline_ns) {
            more_ms = more_ms < 0 ? tti_tcp_outage_ms(fd) : 0;
            deadline_ns = tti_now_ns() + more_ms * TTI_NS_PER_MS;
            errno = ETIMEDOUT;
            if (more_ms == 0) return false;
        }
    }
}

/* True if a socket is connected to itself.  This can happen when connecting to a local ephemeral
 * port without a listener, and must not be mistaken for a connection to the listener. */
static bool is_itself(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n_here = sizeof here, n_there = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &n_here) == 0 && here.ss_family != AF_UNIX &&
           getpeername(fd, (struct sockaddr *)&there, &n_there) == 0 && n_here == n_there &&
           memcmp(&here, &there, n_here) == 0;
}

int tti_tcp_connect(const tcp_place *place, int64_t deadline_ns) {
    int fd = open_socket(place), error = 0;
    socklen_t n = sizeof error;
    if (fd < 0) return -1;
    int rc = connect(fd, (const struct sockaddr *)&place->at, place->n_bytes);
    if (rc != 0 && (errno != EINPROGRESS || !wait_for(fd, POLLOUT, deadline_ns)))
        return fail_close(fd);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error == 0 && !is_itself(fd)) return fd;
    errno = error ? error : ECONNREFUSED;
    return fail_close(fd);
}

bool tti_tcp_hung_up(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0;
}

static bool may_try_again(void) { return errno == EAGAIN || errno == EWOULDBLOCK; }

bool tti_tcp_read(int fd, void *bytes, size_t n_bytes, int64_t deadline_ns) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = recv(fd, (char *)bytes + done, n_bytes - done, 0);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            errno = ECONNRESET;
            return false;
        } else if (may_try_again() ? !wait_for(fd, POLLIN, deadline_ns) : errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool tti_tcp_write(int fd, const void *bytes, size_t n_bytes, int64_t deadline_ns) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = send(fd, (const char *)bytes + done, n_bytes - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (may_try_again() ? !wait_for(fd, POLLOUT, deadline_ns) : errno != EINTR)
            return false;
    }
    return true;
}

/* Limits the retransmission interval, which TCP doubles during an outage: after an outage of 8 s
 * the next attempt would come at 12.6 s, too late for a limit of 10 s.  Kernels before 6.15 do not
 * support the option. */
void tti_tcp_tune(int fd, int timeout_ms) {
    int on = 1, every_s = TTI_MAX(1, TTI_MIN(timeout_ms / (1000 * RESEND_PARTS), KEEP_ALIVE_S));
    unsigned resend_ms = (unsigned)TTI_MAX(RESEND_LEAST_MS, timeout_ms / RESEND_PARTS);
    if (resend_ms > RESEND_MOST_MS) resend_ms = RESEND_MOST_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on); /* a Unix socket refuses these options */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &resend_ms, sizeof resend_ms);
}

void tti_tcp_set_user_timeout(int fd, int64_t n_ms) {
    unsigned silent_ms = (unsigned)TTI_MIN(n_ms, (int64_t)INT32_MAX);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
}

int tti_tcp_outage_ms(int fd) {
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0)
        return 0; /* a Unix socket has no outages */
    bool is_out = info.tcpi_state == TCP_ESTABLISHED && info.tcpi_retransmits >= OUTAGE_RESENDS;
    return is_out ? (int)(info.tcpi_rto / 1000) + RESEND_SLACK_MS : 0;
}

int64_t tti_tcp_resend_ms(int fd, int timeout_ms) {
    struct tcp_info info;
    unsigned resend_ms = (unsigned)timeout_ms;
    socklen_t n = sizeof info, n_resend = sizeof resend_ms;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0) return 0;
    if (getsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &resend_ms, &n_resend) != 0)
        resend_ms = (unsigned)timeout_ms;
    return (int64_t)resend_ms + RESEND_SLACK_MS;
}

bool tti_tcp_is_cut_off(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

bool tti_tcp_same_user(int fd) {
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

/* True if a process of this user listens at a name that is taken.  If there is no listener, another
 * user has taken the name, because ranks listen directly after bind. */
static bool is_own(const tcp_place *place) {
    int fd = tti_tcp_connect(place, tti_now_ns() + TCP_RETRY_MS * TTI_NS_PER_MS);
    bool own = fd >= 0 && tti_tcp_same_user(fd);
    if (fd >= 0) close(fd);
    return own;
}

/* Returns -1 with EADDRINUSE if a process of this user listens at the name, with EACCES if the name
 * belongs to another user. */
static int listen_at_name(const tcp_place *place) {
    enum {
        TRIES = 3
    }; /* repeated because a rank of this user may be between bind and listen, or may be closing */
    for (int i = 0; i < TRIES; i++) {
        if (i) tti_sleep_ms(1);
        int fd = tti_tcp_listen(place);
        if (fd >= 0 || errno != EADDRINUSE) return fd;
        if (is_own(place)) {
            errno = EADDRINUSE;
            return -1;
        }
    }
    errno = EACCES;
    return -1;
}

int tti_tcp_listen_unix(const tcp_place places[TCP_UNIX_PLACES]) {
    int fd = listen_at_name(&places[0]);
    for (int i = 1; fd < 0 && errno == EACCES && i < TCP_UNIX_PLACES; i++)
        fd = listen_at_name(&places[i]);
    return fd;
}

/* Longer than a long phase plus an outage: waits end earlier by themselves, with a better message
 * than the kernel's. */
static int64_t longest_wait_ms(const tti_link_desc *desc) {
    return (int64_t)desc->phase_timeout_ms + INT64_C(3) * desc->timeout_ms;
}

tutti_status tti_tcp_adopt(tcp_state *s, int rank, int fd) {
    tcp_peer *p = tti_tcp_add_peer(s, rank);
    if (!p) {
        close(fd);
        return TUTTI_E_NOMEM;
    }
    p->fd = fd;
    p->received_ns = tti_now_ns();
    tti_tcp_tune(fd, s->desc.timeout_ms);
    tti_tcp_set_user_timeout(fd, longest_wait_ms(&s->desc));
    return TUTTI_OK;
}
