/* hosts.c - connections between supervisors: authenticated, watched, and made again when lost.
 *
 * All messages have one size, so a connection is a buffer for one message.  Nothing here blocks
 * except tti_hosts_open on hosts other than 0: a supervisor has workers to watch.  A message of 1
 * KiB five times a second always fits into the buffer of the kernel, unless the other side is lost;
 * so a message that does not fit closes the connection.  Silence is measured with patience: a
 * supervisor that was stopped itself does not blame the others. */
#include "launch/hosts.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "comm/sockets.h"

enum {
    N_PENDING = 8, /* connections that have not proved anything yet */
    RETRY_MS = 300,
    RANK_PORTS = 16
};

static const uint64_t magic = 0x3174736f48747554ULL;

struct tti_hosts {
    tti_host_place place;
    char host[256], token[256], run_dir[TTI_HOST_TEXT_BYTES];
    int port;
    unsigned char job[32], run[32];
    char machine[256];
    bool has_run;
    tcp_place at;
    int listener;                     /* of host 0; else -1 */
    tti_host_link pending[N_PENDING]; /* of host 0 */
    tti_host hosts[TTI_MAX_HOSTS];
    int wait_ms;
    int64_t tried_ns;                  /* when the last connection was begun */
    char refusal[TTI_HOST_TEXT_BYTES]; /* by host 0; "": none */
};

/* ---- environment ---- */

static tutti_status read_counts(const char *text, tti_host_place *out) {
    const char *p = text;
    for (out->n_nodes = 0; out->n_nodes < TTI_MAX_HOSTS;) {
        char *end;
        long n = strtol(p, &end, 10);
        if (end == p || n < 1 || n > 64) break;
        out->n_workers[out->n_nodes++] = (int)n;
        if (!*end && out->n_nodes >= 2) return TUTTI_OK;
        if (*end != ',') break;
        p = end + 1;
    }
    return tti_fail(TUTTI_E_CONFIG,
                    "launch: TUTTI_NODES=%.60s: expected the number of workers of each host, such "
                    "as 3,1, for 2 to %d hosts",
                    text, TTI_MAX_HOSTS);
}

tutti_status tti_host_place_find(tti_getenv_fn get, void *user, tti_host_place *out) {
    const tti_environment env = {get, user};
    const char *nodes = tti_env_look(&env, "TUTTI_NODES"),
               *node = tti_env_look(&env, "TUTTI_NODE_RANK");
    *out = (tti_host_place){0};
    if (!nodes && !node) return TUTTI_OK;
    if (!nodes || !node)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: an elastic run on several hosts needs both "
                        "TUTTI_NODES and TUTTI_NODE_RANK");
    TTI_TRY(read_counts(nodes, out));
    char *end;
    long n = strtol(node, &end, 10);
    if (end == node || *end || n < 0 || n >= out->n_nodes)
        return tti_fail(TUTTI_E_CONFIG, "launch: TUTTI_NODE_RANK=%.40s: expected 0 to %d", node,
                        out->n_nodes - 1);
    out->node = (int)n;
    for (int i = 0; i < out->node; i++) out->first_rank += out->n_workers[i];
    for (int i = 1; i < out->n_nodes; i++)
        if (out->n_workers[i] > out->n_workers[0])
            return tti_fail(TUTTI_E_CONFIG,
                            "launch: TUTTI_NODES=%.60s: host 0 decides who is a member, so no "
                            "other host may have more workers than it: change the order",
                            nodes);
    return TUTTI_OK;
}

/* ---- proof ---- */

/* The code that proves a message: it includes the nonce of the side that checks it. */
static void sign(const tti_hosts *h, const unsigned char nonce[32], const tti_host_message *m,
                 unsigned char mac[32]) {
    struct {
        unsigned char nonce[32];
        tti_host_message m;
    } all = {.m = *m};
    memcpy(all.nonce, nonce, sizeof all.nonce);
    memset(all.m.mac, 0, sizeof all.m.mac);
    tti_hmac(h->token, &all, sizeof all, mac);
}

static bool is_proved(const tti_hosts *h, const tti_host_link *link) {
    unsigned char mac[32];
    sign(h, link->nonce, &link->in, mac);
    return tti_mac_equal(mac, link->in.mac);
}

static bool draw(unsigned char out[32]) { return getrandom(out, 32, 0) == 32; }

/* ---- one connection ---- */

static void drop(tti_host_link *link) {
    if (link->fd >= 0) close(link->fd);
    *link = (tti_host_link){.fd = -1};
}

static void lose(tti_host *host, tti_host_loss loss) {
    bool was_open = host->link.is_open;
    drop(&host->link);
    host->status = host->epoch = (tti_host_message){0};
    host->granted = 0;
    if (was_open) host->loss = loss;
}

static void begin(tti_host_link *link, int fd) {
    *link = (tti_host_link){.fd = fd, .patience = tti_patience_begin(tti_now_ns())};
}

static bool send_on(tti_hosts *h, tti_host_link *link, tti_host_message *m) {
    m->magic = magic;
    m->node = h->place.node;
    link->said_ns = tti_now_ns();
    return send(link->fd, m, sizeof *m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *m;
}

/* 1: a whole message is in link->in; 0: not yet; -1: the connection has ended. */
static int receive(tti_host_link *link) {
    while (link->n_in < sizeof link->in) {
        ssize_t n = recv(link->fd, (char *)&link->in + link->n_in, sizeof link->in - link->n_in,
                         MSG_DONTWAIT);
        if (n == 0) return -1;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
        link->n_in += (size_t)n;
        link->silent_ns = 0;
    }
    link->n_in = 0;
    tti_host_message *m = &link->in;
    m->text[sizeof m->text - 1] = m->machine[sizeof m->machine - 1] = '\0';
    bool is_sane = m->magic == magic && m->n_members >= 0 && m->n_members <= 64 &&
                   m->n_ready >= 0 && m->n_spares >= 0 && m->n_spares <= 64 && m->n_target >= 0 &&
                   m->n_target <= 64 && m->n_here >= 0 && m->n_here <= 64 && m->n_ranks >= 0 &&
                   m->n_ranks <= 64 && m->first_rank >= 0 && m->first_rank <= 64;
    return is_sane ? 1 : -1;
}

static bool is_silent(tti_host_link *link) {
    link->silent_ns += tti_patience_look(&link->patience, tti_now_ns());
    return link->silent_ns > TTI_HOST_LOST_MS * TTI_NS_PER_MS;
}

/* A connection that the network ends may come back; a process that ends resets or closes it. */
static tti_host_loss loss_of(const tti_host_link *link) {
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return tti_tcp_is_cut_off(error ? error : errno) ? TTI_HOST_SILENT : TTI_HOST_ENDED;
}

/* Handles every message of an open connection. */
static void read_host(tti_host *host) {
    int got = 0;
    errno = 0;
    while (host->link.fd >= 0 && (got = receive(&host->link)) == 1) {
        const tti_host_message *m = &host->link.in;
        if (m->kind == TTI_HOST_END) {
            host->has_left = m->is_done != 0;
            host->has_ended = !host->has_left;
            memcpy(host->text, m->text, sizeof host->text);
        } else {
            host->status = *m;
            host->has_left |= m->kind == TTI_HOST_STATUS && m->is_done;
            if (m->kind == TTI_HOST_EPOCH) host->epoch = *m;
        }
    }
    if (host->link.fd < 0) return;
    if (got < 0)
        lose(host, loss_of(&host->link));
    else if (is_silent(&host->link))
        lose(host, TTI_HOST_SILENT);
}

/* ---- host 0 ---- */

static const char *peer_text(int fd, char *out, size_t n_bytes) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getpeername(fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, out, (socklen_t)n_bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(out, n_bytes, "?");
    return out;
}

static void accept_one(tti_hosts *h) {
    int i = 0, fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    while (i < N_PENDING && h->pending[i].fd >= 0) i++;
    tti_host_message m = {.kind = TTI_HOST_CHALLENGE};
    if (i == N_PENDING) {
        close(fd);
        return;
    }
    tti_host_link *link = &h->pending[i];
    begin(link, fd);
    peer_text(fd, link->peer, sizeof link->peer);
    if (!draw(link->nonce)) drop(link);
    memcpy(m.nonce, link->nonce, sizeof m.nonce);
    if (link->fd >= 0 && !send_on(h, link, &m)) drop(link);
}

/* Why a host that knows the token may not take part; false: it may. */
static bool refuse(const tti_hosts *h, const tti_host_message *hello, char *out, size_t n_bytes) {
    static const unsigned char none[32];
    if (hello->node < 1 || hello->node >= h->place.n_nodes)
        snprintf(out, n_bytes, "there is no host %d in TUTTI_NODES of host 0", hello->node);
    else if (memcmp(hello->job, h->job, sizeof h->job) != 0)
        snprintf(out, n_bytes, "host %d has another job, TUTTI_NODES or version than host 0",
                 hello->node);
    else if (strcmp(hello->machine, h->machine) != 0)
        snprintf(out, n_bytes,
                 "host %d computes with %.150s, host 0 with %.150s: the same bits need the same "
                 "kernels; set TUTTI_KERNELS on all hosts to a level that each has",
                 hello->node, hello->machine, h->machine);
    else if (memcmp(hello->run, none, 32) != 0 && memcmp(hello->run, h->run, 32) != 0)
        snprintf(out, n_bytes, "host 0 has started another run since host %d was connected",
                 hello->node);
    else
        return false;
    return true;
}

static void admit(tti_hosts *h, tti_host_link *link) {
    const tti_host_message hello = link->in;
    if (hello.kind != TTI_HOST_HELLO || !is_proved(h, link)) {
        drop(link);
        return;
    }
    tti_host_message m = {.kind = TTI_HOST_WELCOME};
    bool is_refused = refuse(h, &hello, m.text, sizeof m.text);
    if (is_refused)
        m.kind = TTI_HOST_REFUSAL;
    else
        snprintf(m.text, sizeof m.text, "%s", h->run_dir);
    memcpy(m.run, h->run, sizeof m.run);
    m.magic = magic;
    m.node = h->place.node;
    sign(h, hello.nonce, &m, m.mac);
    if (!send_on(h, link, &m) || is_refused) {
        drop(link);
        return;
    }
    tti_host *host = &h->hosts[hello.node];
    tti_host_link fresh = *link;
    *link = (tti_host_link){.fd = -1};
    lose(host, TTI_HOST_SILENT); /* a former connection that has not been given up yet */
    fresh.is_open = true;
    fresh.node = hello.node;
    host->link = fresh;
    host->has_left = host->has_ended = false;
}

static void lead_connections(tti_hosts *h) {
    accept_one(h);
    for (int i = 0; i < N_PENDING; i++) {
        tti_host_link *link = &h->pending[i];
        if (link->fd < 0) continue;
        int got = receive(link);
        if (got == 1)
            admit(h, link);
        else if (got < 0 || is_silent(link))
            drop(link);
    }
    for (int n = 1; n < h->place.n_nodes; n++) read_host(&h->hosts[n]);
}

/* ---- the other hosts ---- */

static void connect_again(tti_hosts *h) {
    int64_t now_ns = tti_now_ns();
    if (now_ns - h->tried_ns < RETRY_MS * TTI_NS_PER_MS || h->refusal[0]) return;
    h->tried_ns = now_ns;
    int fd = socket(h->at.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    tti_host_link *link = &h->hosts[0].link;
    begin(link, fd);
    link->is_connecting = true;
    peer_text(fd, link->peer, sizeof link->peer);
    int rc = connect(fd, (const struct sockaddr *)&h->at.at, h->at.n_bytes);
    if (rc != 0 && errno != EINPROGRESS) drop(link);
}

static void say_hello(tti_hosts *h, tti_host_link *link) {
    tti_host_message m = {.kind = TTI_HOST_HELLO, .magic = magic, .node = h->place.node};
    unsigned char theirs[32];
    memcpy(theirs, link->in.nonce, sizeof theirs);
    memcpy(m.job, h->job, sizeof m.job);
    snprintf(m.machine, sizeof m.machine, "%s", h->machine);
    if (h->has_run) memcpy(m.run, h->run, sizeof m.run);
    bool ok = draw(link->nonce);
    memcpy(m.nonce, link->nonce, sizeof m.nonce);
    sign(h, theirs, &m, m.mac);
    if (!ok || !send_on(h, link, &m)) drop(link);
}

static void take_welcome(tti_hosts *h, tti_host *host) {
    const tti_host_message *m = &host->link.in;
    bool is_refused = m->kind == TTI_HOST_REFUSAL;
    if ((m->kind != TTI_HOST_WELCOME && !is_refused) || !is_proved(h, &host->link)) {
        drop(&host->link);
        return;
    }
    if (is_refused) {
        memcpy(h->refusal, m->text, sizeof h->refusal);
        drop(&host->link);
        return;
    }
    if (!h->has_run) {
        memcpy(h->run, m->run, sizeof h->run);
        memcpy(h->run_dir, m->text, sizeof h->run_dir);
        h->has_run = true;
    }
    host->link.is_open = true;
}

static void follow_connection(tti_hosts *h) {
    tti_host *host = &h->hosts[0];
    tti_host_link *link = &host->link;
    if (link->fd < 0) connect_again(h);
    if (link->fd >= 0 && link->is_connecting) {
        struct pollfd p = {.fd = link->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 1) link->is_connecting = false;
    }
    if (link->fd < 0) return;
    if (link->is_open) {
        read_host(host);
        return;
    }
    int got = link->is_connecting ? 0 : receive(link);
    if (got < 0 || is_silent(link))
        drop(link);
    else if (got == 1 && link->in.kind == TTI_HOST_CHALLENGE)
        say_hello(h, link);
    else if (got == 1)
        take_welcome(h, host);
}

void tti_hosts_move(tti_hosts *h) {
    if (h->place.node == 0)
        lead_connections(h);
    else
        follow_connection(h);
}

int tti_hosts_poll_fds(const tti_hosts *h, struct pollfd *fds) {
    int n = 0;
    if (h->listener >= 0) fds[n++] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    for (int i = 0; i < N_PENDING; i++)
        if (h->pending[i].fd >= 0)
            fds[n++] = (struct pollfd){.fd = h->pending[i].fd, .events = POLLIN};
    for (int i = 0; i < h->place.n_nodes; i++) {
        const tti_host_link *link = &h->hosts[i].link;
        short events = link->is_connecting ? POLLOUT : POLLIN;
        if (link->fd >= 0) fds[n++] = (struct pollfd){.fd = link->fd, .events = events};
    }
    return n;
}

void tti_hosts_send(tti_hosts *h, tti_host *to, tti_host_message *m) {
    if (to->link.is_open && !send_on(h, &to->link, m)) lose(to, TTI_HOST_SILENT);
}

bool tti_hosts_is_due(const tti_host *to) {
    return tti_now_ns() - to->link.said_ns >= TTI_HOST_SAY_MS * TTI_NS_PER_MS;
}

/* ---- the whole ---- */

static tutti_status find_address(tti_hosts *h, int64_t deadline_ns) {
    char text[300];
    tcp_address address;
    int n = 0;
    snprintf(text, sizeof text, strchr(h->host, ':') ? "[%s]:%d" : "%s:%d", h->host, h->port);
    TTI_TRY(tti_tcp_parse(text, &address));
    tutti_status st;
    while ((st = tti_tcp_resolve(&address, h->port, &h->at, 1, &n)) != TUTTI_OK &&
           tti_now_ns() < deadline_ns)
        tti_sleep_ms(TCP_RETRY_MS);
    if (st == TUTTI_OK && n == 0) return tti_fail(TUTTI_E_CONFIG, "no host '%s'", h->host);
    return st;
}

static tutti_status listen_here(tti_hosts *h) {
    h->listener = tti_tcp_listen(&h->at);
    if (h->listener < 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: host 0 cannot listen at MASTER_ADDR=%s, MASTER_PORT=%d: %s",
                        h->host, h->port, strerror(errno));
    h->has_run = draw(h->run);
    return h->has_run ? TUTTI_OK : tti_fail(TUTTI_E_IO, "launch: no random bytes");
}

static tutti_status connect_first(tti_hosts *h, int64_t deadline_ns, int timeout_ms) {
    while (!h->hosts[0].link.is_open) {
        struct pollfd fds[TTI_MAX_HOSTS + N_PENDING + 1];
        int n = tti_hosts_poll_fds(h, fds);
        (void)poll(fds, (nfds_t)n, TCP_RETRY_MS);
        tti_hosts_move(h);
        if (h->refusal[0]) return tti_fail(TUTTI_E_CONFIG, "launch: %s", h->refusal);
        if (tti_now_ns() >= deadline_ns)
            return tti_fail(TUTTI_E_TIMEOUT,
                            "launch: host %d waited %d ms (parallel.timeout_ms) for host 0 at "
                            "%s:%d: it was not started, cannot be reached, or has another token",
                            h->place.node, timeout_ms, h->host, h->port);
    }
    return TUTTI_OK;
}

/* Hosts that are started with other numbers of workers, or another version, differ too. */
static void name_job(const tti_hosts_desc *desc, unsigned char out[32]) {
    unsigned char parts[32 + sizeof desc->place.n_workers + 32] = TUTTI_VERSION;
    tti_sha256(desc->job, strlen(desc->job), parts + 32);
    memcpy(parts + 64, desc->place.n_workers, sizeof desc->place.n_workers);
    tti_sha256(parts, sizeof parts, out);
}

tutti_status tti_hosts_open(const tti_hosts_desc *desc, int timeout_ms, tti_hosts **out) {
    if (desc->run_dir && strlen(desc->run_dir) >= TTI_HOST_TEXT_BYTES)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: run.dir has %zu bytes; on several hosts it may have at most %d",
                        strlen(desc->run_dir), TTI_HOST_TEXT_BYTES - 1);
    tti_hosts *h = calloc(1, sizeof *h);
    int64_t deadline_ns = tti_now_ns() + timeout_ms * TTI_NS_PER_MS;
    if (!h) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    h->place = desc->place;
    h->port = desc->port;
    h->listener = -1;
    h->wait_ms = timeout_ms;
    for (int i = 0; i < N_PENDING; i++) h->pending[i].fd = -1;
    for (int i = 0; i < TTI_MAX_HOSTS; i++) h->hosts[i].link.fd = -1;
    snprintf(h->host, sizeof h->host, "%s", desc->host);
    snprintf(h->token, sizeof h->token, "%s", desc->token);
    snprintf(h->machine, sizeof h->machine, "%s", desc->machine);
    snprintf(h->run_dir, sizeof h->run_dir, "%s", desc->run_dir ? desc->run_dir : "");
    name_job(desc, h->job);
    tutti_status st = find_address(h, deadline_ns);
    if (st == TUTTI_OK)
        st = h->place.node == 0 ? listen_here(h) : connect_first(h, deadline_ns, timeout_ms);
    if (st != TUTTI_OK) {
        tti_hosts_close(h);
        return st;
    }
    *out = h;
    return TUTTI_OK;
}

void tti_hosts_close(tti_hosts *h) {
    if (!h) return;
    if (h->listener >= 0) close(h->listener);
    for (int i = 0; i < N_PENDING; i++) drop(&h->pending[i]);
    for (int i = 0; i < TTI_MAX_HOSTS; i++) drop(&h->hosts[i].link);
    free(h);
}

const tti_host_place *tti_hosts_place(const tti_hosts *h) { return &h->place; }
const char *tti_hosts_run_dir(const tti_hosts *h) { return h->run_dir; }
const char *tti_hosts_token(const tti_hosts *h) { return h->token; }
tti_host *tti_hosts_get(tti_hosts *h, int node) { return &h->hosts[node]; }
int tti_hosts_wait_ms(const tti_hosts *h) { return h->wait_ms; }
const char *tti_hosts_refusal(const tti_hosts *h) { return h->refusal; }

void tti_hosts_address(const tti_hosts *h, int node, char *out, size_t n_bytes) {
    const char *host = node == h->place.node ? h->host : h->hosts[node].link.peer;
    snprintf(out, n_bytes, strchr(host, ':') ? "[%s]:%d-%d" : "%s:%d-%d", host, h->port + 1,
             h->port + RANK_PORTS);
}

void tti_hosts_job(const tti_hosts *h, uint64_t epoch, char out[128]) {
    for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", h->run[i]);
    snprintf(out + 64, 64, "/%llu", (unsigned long long)epoch);
}
