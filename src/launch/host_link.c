/* host_link.c - sends and receives messages of supervisors.
 *
 * A supervisor must watch its workers, so nothing here blocks.  The other side reads several times
 * a second, so a connection with many unsent bytes is considered lost.  Silence does not include
 * time in which this supervisor was stopped itself (tti_patience). */
#include "launch/host_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/worker_env.h"

enum { MOST_WAITING = 64 << 10 }; /* maximum number of unsent bytes before a message is added */

static const uint64_t magic = 0x3174736f48747554ULL;

bool tti_host_table_init(tti_host_table *table, int n) {
    *table = (tti_host_table){.n = n, .serial = 1};
    table->members = calloc((size_t)n, sizeof *table->members);
    table->targets = calloc((size_t)n, sizeof *table->targets);
    table->peers = calloc((size_t)n, sizeof *table->peers);
    return table->members && table->targets && table->peers;
}

void tti_host_table_fini(tti_host_table *table) {
    free(table->members);
    free(table->targets);
    free(table->peers);
    *table = (tti_host_table){0};
}

void tti_host_link_begin(tti_host_link *link, int fd) {
    *link = (tti_host_link){.fd = fd, .patience = tti_patience_begin(tti_now_ns())};
}

void tti_host_link_close(tti_host_link *link) {
    if (link->fd >= 0) close(link->fd);
    free(link->more);
    free(link->out);
    *link = (tti_host_link){.fd = -1};
}

/* ---- sending ---- */

static bool append(tti_host_link *link, const void *bytes, size_t n_bytes) {
    char *out = realloc(link->out, link->n_out + n_bytes);
    if (!out) return false;
    memcpy(out + link->n_out, bytes, n_bytes);
    link->out = out;
    link->n_out += n_bytes;
    return true;
}

static bool append_table(tti_host_link *link, uint32_t kind, const tti_host_table *table) {
    size_t n = (size_t)table->n;
    bool ok = append(link, table->members, n * sizeof *table->members);
    if (kind == TTI_HOST_STATUS) return ok;
    return ok && append(link, table->targets, n * sizeof *table->targets) &&
           append(link, table->peers, n * sizeof *table->peers);
}

bool tti_host_link_flush(tti_host_link *link) {
    size_t at = 0;
    ssize_t n = 0;
    while (at < link->n_out && n >= 0) {
        n = send(link->fd, link->out + at, link->n_out - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
    }
    bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    link->n_out -= at;
    if (at > 0) memmove(link->out, link->out + at, link->n_out);
    return n >= 0 || waits;
}

static bool may_have_table(uint32_t kind) {
    return kind == TTI_HOST_STATUS || kind == TTI_HOST_PULSE || kind == TTI_HOST_EPOCH;
}

void tti_host_link_fill(tti_host_message *m, int node) {
    m->magic = magic;
    m->node = node;
    m->has_table = 0;
}

bool tti_host_link_send(tti_host_link *link, int node, tti_host_message *m,
                        const tti_host_table *table) {
    tti_host_link_fill(m, node);
    m->has_table = table && may_have_table(m->kind) && link->sent_serial != table->serial;
    link->sent_ns = tti_now_ns();
    if (link->n_out > MOST_WAITING || !append(link, m, sizeof *m)) return false;
    if (m->has_table && !append_table(link, m->kind, table)) return false;
    if (m->has_table) link->sent_serial = table->serial;
    return tti_host_link_flush(link);
}

/* ---- receiving ---- */

static bool is_count(int32_t n, int32_t most) { return n >= 0 && n <= most; }

static bool is_sane(const tti_host_link *link) {
    enum { MOST_HERE = 2 * TTI_MAX_HOST_WORKERS };
    const tti_host_message *m = &link->in;
    bool has_table = m->has_table != 0;
    return m->magic == magic && is_count(m->n_members, MOST_HERE) &&
           is_count(m->n_ready, MOST_HERE) && is_count(m->n_spares, MOST_HERE) &&
           is_count(m->n_here, MOST_HERE) && is_count(m->n_ranks, TTI_MAX_WORLD_SIZE) &&
           is_count(m->first_rank, TTI_MAX_WORLD_SIZE) &&
           is_count(m->n_elsewhere, TTI_MAX_WORLD_SIZE) &&
           (!has_table || (link->is_open && may_have_table(m->kind)));
}

/* Prepares to read a table; false: the message is invalid. */
static bool begin_table(tti_host_link *link, int n_hosts) {
    tti_host_message *m = &link->in;
    size_t row = sizeof(int32_t);
    m->text[sizeof m->text - 1] = m->machine[sizeof m->machine - 1] = '\0';
    if (!is_sane(link)) return false;
    if (!m->has_table) return true;
    if (m->kind != TTI_HOST_STATUS) row += sizeof(int32_t) + TTI_HOST_PEER_BYTES;
    free(link->more);
    link->n_more = row * (size_t)n_hosts;
    link->more = malloc(link->n_more);
    return link->more != NULL;
}

/* NUL-terminates the texts of the table; false: a number is invalid. */
static bool check_table(tti_host_link *link, int n_hosts) {
    bool is_whole = link->in.kind != TTI_HOST_STATUS, ok = true;
    const int32_t *numbers = (const int32_t *)(void *)link->more;
    int n_numbers = is_whole ? 2 * n_hosts : n_hosts;
    for (int i = 0; i < n_numbers; i++) ok &= is_count(numbers[i], 2 * TTI_MAX_HOST_WORKERS);
    char *peers = link->more + (size_t)n_numbers * sizeof *numbers;
    for (int i = 1; is_whole && i <= n_hosts; i++) peers[i * TTI_HOST_PEER_BYTES - 1] = '\0';
    return ok;
}

int tti_host_link_receive(tti_host_link *link, int n_hosts) {
    const size_t n_head = sizeof link->in;
    while (link->n_in < n_head + link->n_more) {
        bool in_head = link->n_in < n_head;
        char *to = in_head ? (char *)&link->in + link->n_in : link->more + (link->n_in - n_head);
        size_t n_left = (in_head ? n_head : n_head + link->n_more) - link->n_in;
        ssize_t n = recv(link->fd, to, n_left, MSG_DONTWAIT);
        if (n == 0) return -1;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
        link->n_in += (size_t)n;
        link->silent_ns = 0;
        if (in_head && link->n_in == n_head && !begin_table(link, n_hosts)) return -1;
    }
    bool ok = !link->in.has_table || check_table(link, n_hosts);
    link->n_in = link->n_more = 0;
    return ok ? 1 : -1;
}

void tti_host_link_take_table(const tti_host_link *link, tti_host_table *to) {
    size_t n_bytes = (size_t)to->n * sizeof(int32_t);
    memcpy(to->members, link->more, n_bytes);
    if (link->in.kind == TTI_HOST_STATUS) return;
    memcpy(to->targets, link->more + n_bytes, n_bytes);
    memcpy(to->peers, link->more + 2 * n_bytes, (size_t)to->n * sizeof *to->peers);
}

bool tti_host_link_is_silent(tti_host_link *link) {
    link->silent_ns += tti_patience_look(&link->patience, tti_now_ns());
    return link->silent_ns > TTI_HOST_LOST_MS * TTI_NS_PER_MS;
}

struct pollfd tti_host_link_poll_fd(const tti_host_link *link) {
    short events = link->is_connecting ? POLLOUT : link->n_out > 0 ? POLLIN | POLLOUT : POLLIN;
    return (struct pollfd){.fd = link->fd, .events = events};
}
