/* stream.c - frames on a connection: data of messages, and the control frames failure, leave and
 * keep-alive.
 *
 * A data frame is read when its receive is posted; until then it stays in the socket.  Small frames
 * are read together into a buffer; the middle of a large one goes directly to its destination.  A
 * failure report may be behind a frame that waits for its receive, while this rank waits for the
 * failed rank.  So a frame that waits for long is read ahead of its receive, and no failure stays
 * hidden. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"

typedef enum frame_kind { FRAME_DATA = 1, FRAME_FAILURE, FRAME_LEAVE, FRAME_KEEPALIVE } frame_kind;

typedef struct frame {
    uint32_t magic, kind;
    uint64_t n_bytes;
} frame;

typedef struct failure_frame {
    frame head;
    uint32_t status;
    char text[TTI_FAILURE_BYTES - 4];
} failure_frame;

enum { FRAME_MAGIC = 0x4d465454 };

/* A waiting rank sends keep-alive frames ALIVE_PARTS times per timeout, or every ALIVE_MOST_MS if
 * that is more often. */
enum { ALIVE_PARTS = 8, ALIVE_MOST_MS = 1000 };

/* ---- receiving ---- */

/* n: result of recv.  True if the stream has ended. */
static bool has_ended(ssize_t n) {
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Records the end of a stream. error: errno of recv, 0: closed in order. */
static void note_gone(tcp_peer *p, int error) {
    p->gone = true;
    p->error = error;
}

static size_t n_ahead(const tcp_peer *p) { return p->ahead.last - p->ahead.first; }

static void drop_ahead(tcp_peer *p) {
    free(p->ahead.bytes);
    p->ahead = (tcp_ahead){0};
}

void tti_tcp_drop_bytes(tcp_peer *p) {
    drop_ahead(p);
    free(p->in);
    p->in = NULL;
}

static ssize_t receive(tcp_peer *p, void *bytes, size_t n_bytes) {
    ssize_t n = recv(p->fd, bytes, n_bytes, MSG_DONTWAIT);
    if (n > 0) p->received_ns = tti_now_ns();
    return n;
}

/* Like recv, but reads the bytes that were read ahead before those of the socket. */
static ssize_t read_stream(tcp_peer *p, void *bytes, size_t n_bytes) {
    tcp_ahead *a = &p->ahead;
    size_t n = TTI_MIN(n_ahead(p), n_bytes);
    if (n > 0) {
        memcpy(bytes, a->bytes + a->first, n);
        a->first += n;
        if (a->first == a->last && !a->ended) drop_ahead(p);
        return (ssize_t)n;
    }
    if (!a->ended) return receive(p, bytes, n_bytes);
    errno = a->error;
    return a->error ? -1 : 0;
}

/* Reads available bytes into the empty part of the buffer. */
static void fill(tcp_peer *p) {
    if (p->in_first == p->in_last) p->in_first = p->in_last = 0;
    if (p->in_first > 0 && p->in_last == TCP_IN_BYTES) {
        memmove(p->in, p->in + p->in_first, p->in_last - p->in_first);
        p->in_last -= p->in_first;
        p->in_first = 0;
    }
    if (p->gone || p->in_last == TCP_IN_BYTES) return;
    if (!p->in) p->in = malloc(TCP_IN_BYTES);
    if (!p->in) {
        note_gone(p, ENOMEM);
        return;
    }
    ssize_t n = read_stream(p, p->in + p->in_last, TCP_IN_BYTES - p->in_last);
    if (n > 0)
        p->in_last += (size_t)n;
    else if (has_ended(n))
        note_gone(p, n == 0 ? 0 : errno);
}

static bool take(tcp_peer *p, void *bytes, size_t n_bytes) {
    if (p->in_last - p->in_first < n_bytes) return false;
    memcpy(bytes, p->in + p->in_first, n_bytes);
    p->in_first += n_bytes;
    return true;
}

static bool peek(const tcp_peer *p, void *bytes, size_t n_bytes) {
    if (p->in_last - p->in_first < n_bytes) return false;
    memcpy(bytes, p->in + p->in_first, n_bytes);
    return true;
}

static tutti_status check_frame(const tcp_state *s, const tcp_peer *p, const frame *head) {
    if (head->magic == FRAME_MAGIC && head->kind >= FRAME_DATA && head->kind <= FRAME_KEEPALIVE)
        return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "comm: rank %d sent an invalid frame",
                    tti_tcp_global_rank(s, p->rank));
}

/* Handles a reported failure. */
static tutti_status handle_failure(tcp_state *s, failure_frame *failure) {
    failure->text[sizeof failure->text - 1] = '\0';
    s->cause = failure->status < TUTTI_N_STATUS && failure->status ? (tutti_status)failure->status
                                                                   : TUTTI_E_PEER;
    memcpy(s->text, failure->text, sizeof failure->text);
    return tti_fail(s->cause, "%s", s->text);
}

/* Handles control frames until a data frame is at the front or no complete frame is left. */
static tutti_status take_frames(tcp_state *s, tcp_peer *p) {
    frame head;
    failure_frame failure;
    while (!p->has_header && peek(p, &head, sizeof head)) {
        TTI_TRY(check_frame(s, p, &head));
        if (head.kind == FRAME_FAILURE)
            return take(p, &failure, sizeof failure) ? handle_failure(s, &failure) : TUTTI_OK;
        (void)take(p, &head, sizeof head);
        p->has_left = p->has_left || head.kind == FRAME_LEAVE;
        if (head.kind != FRAME_DATA) continue;
        p->has_header = true;
        p->frame_bytes = p->frame_left = head.n_bytes;
        p->untaken_ns = 0;
    }
    return TUTTI_OK;
}

/* ---- ahead of receives ---- */

/* Makes room for more bytes; false: out of memory, or the limit is reached. */
static bool widen_ahead(tcp_ahead *a) {
    if (a->first > 0) memmove(a->bytes, a->bytes + a->first, a->last - a->first);
    a->last -= a->first;
    a->first = 0;
    if (a->last < a->room) return true;
    size_t room = a->room ? 2 * a->room : 8 * (size_t)TCP_IN_BYTES;
    unsigned char *bytes = room <= (size_t)TCP_AHEAD_BYTES ? realloc(a->bytes, room) : NULL;
    if (!bytes) return false;
    a->bytes = bytes;
    a->room = room;
    return true;
}

static void fill_ahead(tcp_peer *p) {
    tcp_ahead *a = &p->ahead;
    while (!p->gone && !a->ended && widen_ahead(a)) {
        ssize_t n = receive(p, a->bytes + a->last, a->room - a->last);
        if (has_ended(n)) {
            a->ended = true;
            a->error = n == 0 ? 0 : errno;
        }
        if (n <= 0) return;
        a->last += (size_t)n;
    }
}

/* Copies n bytes at offset `at` after the last consumed byte; false: they have not arrived. */
static bool peek_at(const tcp_peer *p, uint64_t at, void *bytes, size_t n_bytes) {
    size_t n_in = p->in_last - p->in_first, n_all = n_in + n_ahead(p);
    if (n_all < n_bytes || at > n_all - n_bytes) return false;
    size_t n = at < n_in ? TTI_MIN(n_in - (size_t)at, n_bytes) : 0;
    if (n > 0) memcpy(bytes, p->in + p->in_first + at, n);
    if (n < n_bytes)
        memcpy((char *)bytes + n, p->ahead.bytes + p->ahead.first + (at + n - n_in), n_bytes - n);
    return true;
}

/* Reads past the waiting message, to find a reported failure or a truncated stream.  A stream that
 * ends between messages belongs to a rank that has finished. */
static tutti_status look_ahead(tcp_state *s, tcp_peer *p) {
    uint64_t at = p->frame_left;
    frame head;
    failure_frame failure;
    while (peek_at(p, at, &head, sizeof head)) {
        TTI_TRY(check_frame(s, p, &head));
        if (head.kind == FRAME_FAILURE && peek_at(p, at, &failure, sizeof failure))
            return handle_failure(s, &failure);
        if (__builtin_add_overflow(at, head.n_bytes, &at) ||
            __builtin_add_overflow(at, sizeof head, &at))
            return TUTTI_OK;
    }
    size_t n_all = p->in_last - p->in_first + n_ahead(p);
    p->cut = (p->gone || p->ahead.ended) && at != n_all;
    return TUTTI_OK;
}

static tutti_status read_ahead(tcp_state *s, tcp_peer *p) {
    fill_ahead(p);
    return look_ahead(s, p);
}

/* True while a waiting message counts as early: its receive may be posted soon. */
static bool is_early(tcp_peer *p) {
    int64_t now = tti_now_ns();
    if (p->untaken_ns == 0) p->untaken_ns = now;
    return now - p->untaken_ns < TCP_AHEAD_MS * TTI_NS_PER_MS;
}

tutti_status tti_tcp_handle_control(tcp_state *s, tcp_peer *p) {
    if (p->fd < 0) return TUTTI_OK;
    if (p->has_header) return is_early(p) ? TUTTI_OK : read_ahead(s, p);
    fill(p);
    return take_frames(s, p);
}

/* True if no complete message of the peer is left to read. */
static bool is_silent(const tcp_peer *p) {
    return p->cut || (p->gone && !p->has_left && (!p->has_header || p->in_first == p->in_last));
}

/* Writes " (rank 3: pid 71 on node3)", or "" if the location is not known. */
static const char *place_of(const tcp_state *s, int rank, char *text, size_t n_bytes) {
    char place[256];
    text[0] = '\0';
    if (!s->place) return text;
    s->place(s->place_arg, tti_tcp_global_rank(s, rank), place, sizeof place);
    snprintf(text, n_bytes, " (rank %d: %s)", tti_tcp_global_rank(s, rank), place);
    return text;
}

/* A rank that fails in the middle of a message cannot report the reason.  If the reason was a
 * failure report, this rank gets that report too; if it was a lost peer, this rank loses that peer
 * too. */
tutti_status tti_tcp_fail_gone(tcp_state *s, const tcp_peer *gone) {
    /* This rank closed its connections itself after it reported its failure; no rank died. */
    if (s->reported != TUTTI_OK) return tti_fail(s->reported, "%s", s->reported_text);
    char also[256] = "", where[320];
    size_t n = 0;
    int rank = tti_tcp_global_rank(s, gone->rank);
    for (int i = 0; i < s->n_peers && !gone->has_left; i++) {
        tcp_peer *p = s->peers[i];
        if (p == gone) continue;
        TTI_TRY(tti_tcp_handle_control(s, p));
        if (!is_silent(p) || n + 16 > sizeof also) continue;
        n += (size_t)snprintf(also + n, sizeof also - n, ", rank %d",
                              tti_tcp_global_rank(s, p->rank));
    }
    if (gone->has_left)
        return tti_fail(TUTTI_E_PEER, "comm: rank %d waits for rank %d, which left the group",
                        tti_tcp_global_rank(s, s->desc.rank), rank);
    int error = gone->error ? gone->error : gone->ahead.error;
    if (tti_tcp_is_cut_off(error))
        return tti_fail(TUTTI_E_PEER, "comm: rank %d%s cannot be reached any more: %s%s", rank,
                        also, strerror(error), place_of(s, gone->rank, where, sizeof where));
    return tti_fail(TUTTI_E_PEER,
                    "comm: rank %d%s died, or failed in the middle of a message: %s ended without "
                    "an error report%s",
                    rank, also, n ? "their connections" : "its connection",
                    place_of(s, gone->rank, where, sizeof where));
}

static tutti_status fail_size(const tcp_state *s, const tcp_peer *p, const tti_message *m) {
    return tti_fail(TUTTI_E_MISMATCH,
                    "comm: rank %d sent %llu bytes where rank %d expects %zu: they are not in the "
                    "same call",
                    tti_tcp_global_rank(s, p->rank), (unsigned long long)p->frame_bytes,
                    tti_tcp_global_rank(s, s->desc.rank), m->n_bytes);
}

static void move_data(tcp_peer *p, tti_message *m) {
    while (m->done < m->n_bytes) {
        size_t n = TTI_MIN(p->in_last - p->in_first, m->n_bytes - m->done);
        memcpy((char *)m->in + m->done, p->in + p->in_first, n);
        p->in_first += n;
        m->done += n;
        if (m->done == m->n_bytes) break;
        if (m->n_bytes - m->done < TCP_IN_BYTES) {
            fill(p);
            if (p->in_first == p->in_last) return;
            continue;
        }
        ssize_t got = read_stream(p, (char *)m->in + m->done, m->n_bytes - m->done);
        if (has_ended(got)) note_gone(p, got == 0 ? 0 : errno);
        if (got <= 0) return;
        m->done += (size_t)got;
    }
}

/* Copies bytes of the frame at the front to their destination. */
static void take_data(tcp_peer *p, tti_message *m) {
    move_data(p, m);
    p->frame_left = m->n_bytes - m->done;
    p->has_header = p->frame_left > 0;
}

tutti_status tti_tcp_pull(tcp_state *s, tcp_peer *p, tti_message *m) {
    p->untaken_ns = 0;
    if (!p->has_header) {
        TTI_TRY(take_frames(s, p));
        if (!p->has_header) fill(p);
        TTI_TRY(take_frames(s, p));
    }
    if (p->has_header) {
        if (p->frame_bytes != m->n_bytes) return fail_size(s, p, m);
        take_data(p, m);
    }
    return m->done < m->n_bytes && p->gone ? tti_tcp_fail_gone(s, p) : TUTTI_OK;
}

/* Reads a stream that the other side has closed to its end.  Fails with the failure report in it,
 * if there is one. */
static tutti_status last_word(int rank, int fd) {
    int64_t at_once_ns = 0;
    failure_frame failure;
    char skipped[TCP_IN_BYTES];
    while (tti_tcp_read(fd, &failure.head, sizeof failure.head, at_once_ns)) {
        uint64_t n_rest = failure.head.n_bytes;
        if (failure.head.magic != FRAME_MAGIC) break;
        if (failure.head.kind == FRAME_FAILURE) {
            if (!tti_tcp_read(fd, &failure.status, sizeof failure - sizeof failure.head,
                              at_once_ns))
                break;
            failure.text[sizeof failure.text - 1] = '\0';
            return tti_fail(TUTTI_E_PEER, "%s", failure.text);
        }
        for (size_t n; n_rest > 0; n_rest -= n) {
            n = (size_t)TTI_MIN(n_rest, (uint64_t)sizeof skipped);
            if (!tti_tcp_read(fd, skipped, n, at_once_ns)) break;
        }
        if (n_rest) break;
    }
    return tti_fail(TUTTI_E_PEER, "comm_create: rank %d left before all ranks had connected", rank);
}

tutti_status tti_tcp_check_connected(int n_ranks, const int *fds) {
    for (int r = 0; r < n_ranks; r++)
        if (fds[r] >= 0 && tti_tcp_hung_up(fds[r])) return last_word(r, fds[r]);
    return TUTTI_OK;
}

/* ---- sending ---- */

static const frame alive = {FRAME_MAGIC, FRAME_KEEPALIVE, 0};

/* The unsent rest of a keep-alive frame, which must be sent before all other bytes. */
static struct iovec rest_of_alive(const tcp_peer *p) {
    size_t n = p->out_alive ? sizeof alive - p->out_alive : 0;
    return (struct iovec){(char *)(uintptr_t)&alive + p->out_alive, n};
}

/* Returns how many of n sent bytes did not belong to the message. */
static size_t count_alive(tcp_peer *p, size_t n) {
    size_t rest = rest_of_alive(p).iov_len, went = TTI_MIN(n, rest);
    p->out_alive = went == rest ? 0 : p->out_alive + went;
    return n - went;
}

tutti_status tti_tcp_push(tcp_state *s, tcp_peer *p, tti_message *m) {
    frame head = {FRAME_MAGIC, FRAME_DATA, m->n_bytes};
    while (m->done < m->n_bytes) {
        struct iovec parts[3] = {rest_of_alive(p),
                                 {(char *)&head + p->out_header, sizeof head - p->out_header},
                                 {(char *)(uintptr_t)m->out + m->done, m->n_bytes - m->done}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
        ssize_t n = sendmsg(p->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return TUTTI_OK;
        if (n < 0) { /* the peer may have sent its failure before it closed */
            int error = errno;
            do TTI_TRY(tti_tcp_handle_control(s, p));
            while (!p->gone && !p->has_header && p->in_first != p->in_last);
            if (p->has_header) TTI_TRY(read_ahead(s, p));
            if (!p->error)
                p->error = error; /* a socket reports its error only once, to send or to recv */
            return tti_tcp_fail_gone(s, p);
        }
        size_t n_sent = count_alive(p, (size_t)n);
        size_t n_head = TTI_MIN(n_sent, sizeof head - p->out_header);
        p->out_header += n_head;
        m->done += n_sent - n_head;
    }
    p->out_header = 0;
    return TUTTI_OK;
}

/* True if a control frame may be sent: inside a message it would be read as data. */
static bool is_between(const tcp_peer *p) { return p->fd >= 0 && !p->out_header; }

static ssize_t put(const tcp_peer *p, const void *bytes, size_t n_bytes) {
    return send(p->fd, bytes, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* False: the rest of a message or of a keep-alive frame must be sent first. */
static bool is_free(tcp_peer *p) {
    if (!is_between(p)) return false;
    struct iovec rest = rest_of_alive(p);
    ssize_t n = rest.iov_len ? put(p, rest.iov_base, rest.iov_len) : 0;
    if (n > 0) (void)count_alive(p, (size_t)n);
    return p->out_alive == 0;
}

/* Sends the last frame of a connection.  If only part of it can be sent, no other frame follows. */
static bool send_last_frame(tcp_peer *p, const void *bytes, size_t n_bytes) {
    return is_free(p) && put(p, bytes, n_bytes) == (ssize_t)n_bytes;
}

bool tti_tcp_send_leave(tcp_peer *p) {
    frame leave = {FRAME_MAGIC, FRAME_LEAVE, 0};
    return send_last_frame(p, &leave, sizeof leave);
}

bool tti_tcp_send_failure(tcp_peer *p, tutti_status status, const char *text) {
    failure_frame failure = {.head = {FRAME_MAGIC, FRAME_FAILURE, sizeof failure},
                             .status = (uint32_t)status};
    snprintf(failure.text, sizeof failure.text, "%s", text);
    return send_last_frame(p, &failure, sizeof failure);
}

void tti_tcp_send_keepalive(tcp_state *s) {
    int64_t now = tti_now_ns(), ms = TTI_MIN(s->desc.timeout_ms / ALIVE_PARTS, ALIVE_MOST_MS);
    if (s->keepalive_ns && now - s->keepalive_ns < ms * TTI_NS_PER_MS) return;
    s->keepalive_ns = now;
    for (int i = 0; i < s->n_peers; i++) {
        tcp_peer *p = s->peers[i];
        ssize_t n = is_free(p) ? put(p, &alive, sizeof alive) : 0;
        if (n > 0) p->out_alive = (size_t)n % sizeof alive;
    }
}
