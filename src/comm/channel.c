/* channel.c - messages over a connected socket, with areas sent after them or in shared memory.
 *
 * The socket is also used on one host: it reports the death of the peer at once, and a message
 * through it orders the accesses of both ends to the areas. */
#include "comm/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/channel_ends.h"
#include "comm/tcp/tcp.h"
#include "comm/wait_clock.h"

enum { MAGIC = 0x48435454, SLICE = 4 << 20, AWAIT_SLICE_MS = 50 };

/* Sent before each message. */
typedef struct frame {
    uint32_t magic, n_bytes, areas, unused;
} frame;

struct tti_channel {
    int fd, peer, timeout_ms;
    bool shared; /* areas are shared memory */
    char *memory;
    size_t total;
    size_t offset[TTI_CHANNEL_AREAS], n_bytes[TTI_CHANNEL_AREAS];
    int n_areas;
};

static size_t rounded(size_t n_bytes) { return (n_bytes + 63) & ~(size_t)63; }

/* Places the areas one after the other. */
static tutti_status lay_out(tti_channel *c, const size_t *area_bytes, int n_areas) {
    TTI_ASSERT(n_areas >= 0 && n_areas <= TTI_CHANNEL_AREAS);
    c->total = 64;
    c->n_areas = n_areas;
    for (int i = 0; i < n_areas; i++) {
        c->offset[i] = c->total;
        c->n_bytes[i] = area_bytes[i];
        if (area_bytes[i] > PTRDIFF_MAX / 4 ||
            __builtin_add_overflow(c->total, rounded(area_bytes[i]), &c->total))
            return tti_fail(TUTTI_E_INVALID, "channel: %zu bytes are too many", area_bytes[i]);
    }
    return TUTTI_OK;
}

static tutti_status map_areas(tti_channel *c, int memory_fd) {
    int flags = memory_fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, c->total, PROT_READ | PROT_WRITE, flags, memory_fd, 0);
    if (memory == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM, "channel: cannot allocate %zu bytes: %s", c->total,
                        strerror(errno));
    c->memory = memory;
    c->shared = memory_fd >= 0;
    return TUTTI_OK;
}

tutti_status tti_channel_make(const tti_channel_ends *ends, const size_t *area_bytes, int n_areas,
                              tti_channel **out) {
    tti_channel *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        close(ends->fd);
        return tti_fail(TUTTI_E_NOMEM, "channel: out of memory");
    }
    *c = (tti_channel){.fd = ends->fd, .peer = ends->peer, .timeout_ms = ends->timeout_ms};
    tti_tcp_tune(c->fd, c->timeout_ms);
    tti_tcp_set_user_timeout(c->fd, c->timeout_ms + tti_tcp_resend_ms(c->fd, c->timeout_ms));
    tutti_status st = lay_out(c, area_bytes, n_areas);
    if (st == TUTTI_OK) st = map_areas(c, ends->memory_fd);
    if (st != TUTTI_OK) {
        tti_channel_close(c);
        return st;
    }
    *out = c;
    return TUTTI_OK;
}

tutti_status tti_channel_over(int fd, int peer, int timeout_ms, const size_t *area_bytes,
                              int n_areas, tti_channel **out) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    tti_channel_ends ends = {fd, -1, peer, timeout_ms};
    return tti_channel_make(&ends, area_bytes, n_areas, out);
}

size_t tti_channel_memory_bytes(const size_t *area_bytes, int n_areas) {
    tti_channel c = {0};
    return lay_out(&c, area_bytes, n_areas) == TUTTI_OK ? c.total : 0;
}

void tti_channel_close(tti_channel *c) {
    if (!c) return;
    if (c->memory) munmap(c->memory, c->total);
    close(c->fd);
    free(c);
}

void tti_channel_end(tti_channel *c) { shutdown(c->fd, SHUT_RDWR); }

void tti_channel_stop_receiving(tti_channel *c) { shutdown(c->fd, SHUT_RD); }

void *tti_channel_area(tti_channel *c, int area) { return c->memory + c->offset[area]; }

/* A wait on the other end. */
typedef struct wait {
    int64_t begin_ns, deadline_ns;
    int timeout_ms;
} wait;

static wait begin_wait(int timeout_ms) {
    int64_t now = tti_now_ns();
    bool ends = timeout_ms != TTI_NO_TIMEOUT;
    return (wait){now, ends ? now + timeout_ms * TTI_NS_PER_MS : INT64_MAX, timeout_ms};
}

/* The kernel also returns ETIMEDOUT if the other host has not answered for a long time. */
static tutti_status fail_wait(const tti_channel *c, const char *what, const wait *w) {
    int error = errno;
    int64_t now = tti_now_ns();
    long long waited_ms = (now - w->begin_ns) / TTI_NS_PER_MS;
    if (error == ETIMEDOUT && now >= w->deadline_ns)
        return tti_fail(TUTTI_E_TIMEOUT,
                        "channel: rank %d %s for %lld ms (the limit is %d ms, by "
                        "parallel.timeout_ms=%d)",
                        c->peer, what, waited_ms, w->timeout_ms, c->timeout_ms);
    if (tti_tcp_is_cut_off(error))
        return tti_fail(TUTTI_E_PEER,
                        "channel: rank %d cannot be reached any more (%s); waited %lld ms "
                        "(parallel.timeout_ms=%d)",
                        c->peer, strerror(error), waited_ms, c->timeout_ms);
    return tti_fail(TUTTI_E_PEER, "channel: rank %d has left: its connection ended", c->peer);
}

static tutti_status send_bytes(const tti_channel *c, const void *bytes, size_t n_bytes) {
    wait w = begin_wait(c->timeout_ms);
    if (tti_tcp_write(c->fd, bytes, n_bytes, w.deadline_ns)) return TUTTI_OK;
    return fail_wait(c, "took nothing", &w);
}

/* Receives the rest of a message whose first bytes have arrived. */
static tutti_status recv_rest(const tti_channel *c, void *bytes, size_t n_bytes) {
    wait w = begin_wait(c->timeout_ms);
    if (tti_tcp_read(c->fd, bytes, n_bytes, w.deadline_ns)) return TUTTI_OK;
    return fail_wait(c, "has sent only part of a message", &w);
}

/* Sends in slices, each with its own time limit: the total time depends on the network. */
static tutti_status send_area(const tti_channel *c, int area) {
    const char *from = c->memory + c->offset[area];
    for (size_t at = 0; at < c->n_bytes[area]; at += SLICE) {
        size_t n = TTI_MIN(c->n_bytes[area] - at, (size_t)SLICE);
        TTI_TRY(send_bytes(c, from + at, n));
    }
    return TUTTI_OK;
}

static tutti_status recv_area(const tti_channel *c, int area) {
    char *to = c->memory + c->offset[area];
    for (size_t at = 0; at < c->n_bytes[area]; at += SLICE) {
        size_t n = TTI_MIN(c->n_bytes[area] - at, (size_t)SLICE);
        TTI_TRY(recv_rest(c, to + at, n));
    }
    return TUTTI_OK;
}

tutti_status tti_channel_send(tti_channel *c, const void *bytes, size_t n_bytes, unsigned areas) {
    char first[sizeof(frame) + TTI_CHANNEL_BYTES];
    frame head = {MAGIC, (uint32_t)n_bytes, areas, 0};
    TTI_ASSERT(n_bytes >= 1 && n_bytes <= TTI_CHANNEL_BYTES && areas >> c->n_areas == 0);
    memcpy(first, &head, sizeof head);
    memcpy(first + sizeof head, bytes, n_bytes);
    TTI_TRY(send_bytes(c, first, sizeof head + n_bytes));
    for (int i = 0; i < c->n_areas && !c->shared; i++)
        if (areas & (1u << i)) TTI_TRY(send_area(c, i));
    return TUTTI_OK;
}

static tti_delay delay_of(const tti_channel *c, const tti_phase_watch *watch) {
    tti_delay delay = tti_delay_by(watch);
    int more_ms = delay.kind == TTI_DELAY_NONE ? tti_tcp_outage_ms(c->fd) : 0;
    return more_ms > 0 ? (tti_delay){TTI_DELAY_OUTAGE, more_ms} : delay;
}

tutti_status tti_channel_await(tti_channel *c, int timeout_ms, const tti_phase_watch *watch) {
    tti_wait_clock clock = tti_wait_clock_begin(timeout_ms, TTI_MAX(timeout_ms, watch->timeout_ms));
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    char waited[TTI_WAIT_TEXT_BYTES];
    int slice_ms = TTI_MAX(1, TTI_MIN(timeout_ms, AWAIT_SLICE_MS));
    while (poll(&p, 1, slice_ms) <= 0)
        if (tti_wait_clock_look(&clock, delay_of(c, watch))) break;
    if (p.revents) return TUTTI_OK;
    return tti_fail(TUTTI_E_TIMEOUT, "channel: rank %d sent nothing for %s%s", c->peer,
                    tti_wait_clock_text(&clock, waited), tti_wait_clock_reason(&clock));
}

tutti_status tti_channel_recv(tti_channel *c, void *bytes, size_t *n_bytes, unsigned may_bring,
                              int timeout_ms) {
    frame head;
    wait w = begin_wait(timeout_ms);
    if (!tti_tcp_read(c->fd, &head, sizeof head, w.deadline_ns))
        return fail_wait(c, "sent nothing", &w);
    if (head.magic != MAGIC || head.n_bytes < 1 || head.n_bytes > *n_bytes || head.unused != 0 ||
        (head.areas & ~may_bring) != 0 || head.areas >> c->n_areas != 0)
        return tti_fail(TUTTI_E_MISMATCH, "channel: rank %d sent an invalid message", c->peer);
    TTI_TRY(recv_rest(c, bytes, head.n_bytes));
    for (int i = 0; i < c->n_areas && !c->shared; i++)
        if (head.areas & (1u << i)) TTI_TRY(recv_area(c, i));
    *n_bytes = head.n_bytes;
    return TUTTI_OK;
}
