/* hosts.c - authenticates and watches connections between supervisors, and reconnects when they are
 * lost.
 *
 * A supervisor must watch its workers, so nothing here blocks except tti_hosts_open on hosts other
 * than 0.  Messages of fixed size are sent five times a second; a table with numbers of each host
 * follows only when it has changed. */
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
    N_PENDING = 32, /* maximum number of connections that are not authenticated yet */
    RETRY_MS = 300, /* interval of connection attempts for up to this many hosts */
    RETRY_HOSTS = 16,
    N_PROBES = 4,   /* additional hosts that are tried after each RETRY_MS */
    RANK_PORTS = 16 /* ports for rank 0; the ports of hosts that may lead follow them */
};

struct tti_hosts {
    tti_host_layout place;
    char host[256], token[256], run_dir[TTI_HOST_TEXT_BYTES];
    int port;
    unsigned char job[32], run[32];
    char machine[256], name[TTI_HOST_NAME_BYTES]; /* name of this host */
    bool has_run;
    tcp_place at; /* address of MASTER_ADDR */
    char own[64]; /* address of this host */
    int listener; /* -1: none */
    int own_port; /* port of the listener; 0: none */
    int leader; /* node of the leader; the own node: this host is the leader, or has lost its leader
                 */
    bool seeks; /* the host seeks another leader */
    int64_t seeks_ns; /* time since which the host seeks a leader */
    uint64_t epoch;   /* epoch of its workers */
    tti_host_link pending[N_PENDING];
    tti_host_table table;
    tti_host *hosts;       /* [n_nodes], owned */
    tti_host_link *probes; /* [n_nodes], owned: connection attempts to hosts that may lead */
    int64_t *tried_ns;     /* [n_nodes], owned: start of the last attempt */
    /* Descriptors of abandoned connections; has room for several losses of all hosts. */
    int *parked; /* [most_parked], owned */
    int most_parked, n_parked;
    int wait_ms;
    char refusal[TTI_HOST_TEXT_BYTES]; /* reason of another host's refusal; "": none */
};

/* ---- environment ---- */

static tutti_status refuse_counts(const char *text) {
    return tti_fail(TUTTI_E_CONFIG,
                    "launch: TUTTI_NODES=%.60s: expected the number of workers of each host, such "
                    "as 3,1, for 2 hosts or more, each with at most %d workers and all together "
                    "with at most %d",
                    text, TTI_MAX_HOST_WORKERS, TTI_MAX_WORLD_SIZE);
}

static tutti_status read_counts(const char *text, tti_host_layout *out) {
    const char *p = text;
    size_t most = 1;
    for (const char *c = text; *c; c++) most += *c == ',';
    out->n_workers = calloc(most, sizeof *out->n_workers);
    if (!out->n_workers) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    for (;;) {
        char *end;
        long n = strtol(p, &end, 10);
        bool is_many = n > TTI_MAX_HOST_WORKERS || out->n_all + n > TTI_MAX_WORLD_SIZE;
        if (end == p || n < 1 || is_many || (*end && *end != ',')) return refuse_counts(text);
        out->n_workers[out->n_nodes++] = (int)n;
        out->n_all += (int)n;
        if (!*end) return out->n_nodes >= 2 ? TUTTI_OK : refuse_counts(text);
        p = end + 1;
    }
}

static tutti_status find_node(const char *node, const char *nodes, tti_host_layout *out) {
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
                            "launch: TUTTI_NODES=%.60s: host 0 decides the membership, so no other "
                            "host may have more workers; put the host with the most workers first",
                            nodes);
    return TUTTI_OK;
}

void tti_host_layout_free(tti_host_layout *place) {
    free(place->n_workers);
    *place = (tti_host_layout){0};
}

tutti_status tti_host_layout_find(tti_getenv_fn get, void *user, tti_host_layout *out) {
    const tti_environment env = {get, user};
    const char *nodes = tti_env_look(&env, "TUTTI_NODES"),
               *node = tti_env_look(&env, "TUTTI_NODE_RANK");
    *out = (tti_host_layout){0};
    if (!nodes && !node) return TUTTI_OK;
    if (!nodes || !node)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: an elastic run on several hosts needs both "
                        "TUTTI_NODES and TUTTI_NODE_RANK");
    tutti_status st = read_counts(nodes, out);
    if (st == TUTTI_OK) st = find_node(node, nodes, out);
    if (st != TUTTI_OK) tti_host_layout_free(out);
    return st;
}

/* ---- authentication ---- */

/* Computes the MAC of a message, which includes the nonce of the receiver. */
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

static bool send_on(const tti_hosts *h, tti_host_link *link, tti_host_message *m) {
    return tti_host_link_send(link, h->place.node, m, NULL);
}

/* Abandons a connection.  The other side must not mistake its end for the end of this process.  So
 * it gets a message, and if that cannot be sent, the descriptor stays open. */
static void abandon(tti_hosts *h, tti_host_link *link) {
    tti_host_message m = {.kind = TTI_HOST_LOST};
    if (link->fd < 0) return;
    (void)send_on(h, link, &m);
    int *place = &h->parked[h->n_parked++ % h->most_parked];
    if (*place >= 0) close(*place);
    *place = link->fd;
    link->fd = -1;
    tti_host_link_close(link);
}

static void lose(tti_hosts *h, tti_host *host, tti_host_loss loss) {
    bool was_open = host->link.is_open;
    if (loss == TTI_HOST_SILENT) abandon(h, &host->link);
    tti_host_link_close(&host->link);
    bool is_reported = !(host->has_left && host->text[0]); /* else host_members.c will report it */
    host->is_dead |= was_open && loss == TTI_HOST_ENDED && is_reported;
    host->status = host->epoch = (tti_host_message){0};
    tti_host_table_fini(&host->table);
    host->granted = 0;
    if (was_open) host->loss = loss;
}

/* Distinguishes network errors, after which the host may reconnect, from the end of a process,
 * which resets or closes the connection. */
static tti_host_loss loss_of(const tti_host_link *link) {
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return tti_tcp_is_cut_off(error ? error : errno) ? TTI_HOST_SILENT : TTI_HOST_ENDED;
}

/* Stores the table; out of memory counts as a lost connection. */
static bool take_table(tti_hosts *h, tti_host *host) {
    const tti_host_link *link = &host->link;
    tti_host_table *table = &host->table;
    bool leads = link->in.kind != TTI_HOST_STATUS && h->leader != h->place.node;
    if (!link->in.has_table) return true;
    if (table->n == 0 && !tti_host_table_init(table, h->place.n_nodes)) return false;
    tti_host_link_take_table(link, table);
    if (leads) memcpy(h->table.peers, table->peers, (size_t)table->n * sizeof *table->peers);
    return true;
}

void tti_host_request(int *n_asked, int *n_more, int n, int more) {
    if (n > 0) *n_asked = n, *n_more = 0;
    *n_more += TTI_MIN(TTI_MAX(more, -TTI_MAX_HOST_WORKERS), TTI_MAX_HOST_WORKERS);
}

/* Handles every message of an open connection. */
static void read_host(tti_hosts *h, tti_host *host) {
    int got = 0, n = h->place.n_nodes;
    errno = 0;
    while (host->link.fd >= 0 && (got = tti_host_link_receive(&host->link, n)) == 1) {
        const tti_host_message *m = &host->link.in;
        if (m->kind == TTI_HOST_LOST || !take_table(h, host)) {
            lose(h, host, TTI_HOST_SILENT);
            return;
        }
        if (m->kind == TTI_HOST_END) {
            host->has_left = m->is_done != 0;
            host->has_ended = !host->has_left;
            memcpy(host->text, m->text, sizeof host->text);
        } else if (m->kind == TTI_HOST_ASK) {
            tti_host_request(&host->n_asked, &host->n_more, m->n_asked, m->n_more);
        } else {
            host->status = *m;
            host->has_left |= m->kind == TTI_HOST_STATUS && m->is_done;
            if (m->kind == TTI_HOST_EPOCH) host->epoch = *m;
        }
    }
    if (host->link.fd < 0) return;
    /* A truncated message means a network error, not the end of the process. */
    if (got < 0)
        lose(h, host, host->link.n_in > 0 ? TTI_HOST_SILENT : loss_of(&host->link));
    else if (tti_host_link_is_silent(&host->link) || !tti_host_link_flush(&host->link))
        lose(h, host, TTI_HOST_SILENT);
}

/* ---- the accepting side ---- */

static const char *peer_text(int fd, char *out, size_t n_bytes) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getpeername(fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, out, (socklen_t)n_bytes, NULL, 0, NI_NUMERICHOST))
        snprintf(out, n_bytes, "?");
    return out;
}

/* Accepts a connection; false: none waits, or there is no room.  A caller that sends nothing for
 * TTI_HOST_LOST_MS is dropped. */
static bool accept_one(tti_hosts *h) {
    int i = 0, fd = -1;
    while (i < N_PENDING && h->pending[i].fd >= 0) i++;
    if (h->listener >= 0 && i < N_PENDING)
        fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return false;
    tti_host_message m = {.kind = TTI_HOST_CHALLENGE};
    tti_host_link *link = &h->pending[i];
    tti_host_link_begin(link, fd);
    peer_text(fd, link->peer, sizeof link->peer);
    if (!draw(link->nonce)) tti_host_link_close(link);
    memcpy(m.nonce, link->nonce, sizeof m.nonce);
    if (link->fd >= 0 && !send_on(h, link, &m)) tti_host_link_close(link);
    return true;
}

/* Returns true, with the reason in out, if a host that knows the token may not take part. */
static bool refuse(const tti_hosts *h, const tti_host_message *hello, char *out, size_t n_bytes) {
    static const unsigned char none[32];
    if (hello->node < 0 || hello->node >= h->place.n_nodes || hello->node == h->place.node)
        snprintf(out, n_bytes, "there is no host %d in TUTTI_NODES of host %d", hello->node,
                 h->place.node);
    else if (memcmp(hello->job, h->job, sizeof h->job) != 0)
        snprintf(out, n_bytes,
                 "the job, TUTTI_NODES or the version of host %d differs from that of host %d",
                 hello->node, h->place.node);
    else if (strcmp(hello->machine, h->machine) != 0)
        snprintf(out, n_bytes,
                 "host %d computes with %.150s, host %d with %.150s: the same bits need the same "
                 "kernels; on CPUs set TUTTI_KERNELS on all hosts to a level that all support, on "
                 "GPUs use one kind with the same driver and libraries",
                 hello->node, hello->machine, h->place.node, h->machine);
    else if (memcmp(hello->run, none, 32) != 0 && memcmp(hello->run, h->run, 32) != 0)
        snprintf(out, n_bytes, "host %d has started another run since host %d was connected",
                 h->place.node, hello->node);
    else
        return false;
    return true;
}

/* True if this host may lead the caller.  Among hosts that have lost their leader, the one with the
 * latest epoch leads; among equals the one with the smallest node number. */
static bool may_lead(const tti_hosts *h, const tti_host_message *hello) {
    if (h->leader != h->place.node) return false;
    if (!h->seeks || hello->epoch < h->epoch) return true;
    return hello->epoch == h->epoch && h->place.node < hello->node;
}

static void note_peer(tti_hosts *h, int node, const char *address, int port) {
    char *to = h->table.peers[node];
    to[0] = '\0';
    h->table.serial++;
    if (port > 0)
        snprintf(to, TTI_HOST_PEER_BYTES, strchr(address, ':') ? "[%.50s]:%d" : "%.50s:%d", address,
                 port);
}

/* Records the name of a host, which changes if another machine replaces the host. */
static void note_name(tti_host *host, const tti_host_message *hello, const char *address) {
    bool is_same = strcmp(host->name, hello->text) == 0 && strcmp(host->address, address) == 0;
    host->is_renamed |= !is_same;
    snprintf(host->name, sizeof host->name, "%.*s", (int)sizeof host->name - 1, hello->text);
    snprintf(host->address, sizeof host->address, "%s", address);
}

static void admit(tti_hosts *h, tti_host_link *link) {
    const tti_host_message hello = link->in;
    if (hello.kind != TTI_HOST_HELLO || !is_proved(h, link)) {
        tti_host_link_close(link);
        return;
    }
    tti_host_message m = {.kind = TTI_HOST_WELCOME};
    bool is_refused = refuse(h, &hello, m.text, sizeof m.text);
    if (is_refused)
        m.kind = TTI_HOST_REFUSAL;
    else if (!may_lead(h, &hello))
        m.kind = TTI_HOST_BUSY;
    else
        snprintf(m.text, sizeof m.text, "%s", h->run_dir);
    memcpy(m.run, h->run, sizeof m.run);
    tti_host_link_fill(&m, h->place.node);
    sign(h, hello.nonce, &m, m.mac);
    if (!send_on(h, link, &m) || m.kind != TTI_HOST_WELCOME) {
        tti_host_link_close(link);
        return;
    }
    tti_host *host = &h->hosts[hello.node];
    tti_host_link fresh = *link;
    *link = (tti_host_link){.fd = -1};
    lose(h, host, TTI_HOST_SILENT); /* the previous connection, if it is still open */
    fresh.is_open = true;
    fresh.node = hello.node;
    host->link = fresh;
    host->has_left = host->has_ended = host->is_dead = false;
    host->text[0] = '\0';
    note_name(host, &hello, fresh.peer);
    note_peer(h, hello.node, fresh.peer, hello.port);
}

static void accept_connections(tti_hosts *h) {
    while (accept_one(h)) continue;
    for (int i = 0; i < N_PENDING; i++) {
        tti_host_link *link = &h->pending[i];
        if (link->fd < 0) continue;
        int got = tti_host_link_receive(link, h->place.n_nodes);
        if (got == 1)
            admit(h, link);
        else if (got < 0 || tti_host_link_is_silent(link))
            tti_host_link_close(link);
    }
}

/* ---- the connecting side ---- */

/* Finds the address at which a host listens; before the first connection only that of host 0 is
 * known. */
static bool find_peer(const tti_hosts *h, int node, tcp_place *at) {
    tcp_address address;
    int n = 0;
    if (!h->has_run) *at = h->at;
    if (!h->has_run || !h->table.peers[node][0]) return !h->has_run && node == 0;
    tutti_status st = tti_tcp_parse(h->table.peers[node], &address);
    if (st == TUTTI_OK) st = tti_tcp_resolve(&address, address.first, at, 1, &n);
    if (st != TUTTI_OK) tti_clear_error();
    return st == TUTTI_OK && n == 1;
}

static void begin_probe(tti_hosts *h, int node) {
    int64_t now_ns = tti_now_ns();
    tcp_place at;
    bool is_refused = !h->has_run && h->refusal[0];
    int64_t retry_ms = RETRY_MS * (1 + h->place.n_nodes / RETRY_HOSTS);
    if (now_ns - h->tried_ns[node] < retry_ms * TTI_NS_PER_MS || is_refused) return;
    h->tried_ns[node] = now_ns;
    if (!find_peer(h, node, &at)) return;
    int fd = socket(at.at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    tti_host_link *link = &h->probes[node];
    tti_host_link_begin(link, fd);
    link->is_connecting = true;
    int rc = connect(fd, (const struct sockaddr *)&at.at, at.n_bytes);
    if (rc != 0 && errno != EINPROGRESS) tti_host_link_close(link);
}

static void send_hello(tti_hosts *h, tti_host_link *link) {
    tti_host_message m = {.kind = TTI_HOST_HELLO, .epoch = h->epoch, .port = h->own_port};
    unsigned char theirs[32];
    memcpy(theirs, link->in.nonce, sizeof theirs);
    memcpy(m.job, h->job, sizeof m.job);
    snprintf(m.machine, sizeof m.machine, "%s", h->machine);
    snprintf(m.text, sizeof m.text, "%s", h->name);
    if (h->has_run) memcpy(m.run, h->run, sizeof m.run);
    bool ok = draw(link->nonce);
    memcpy(m.nonce, link->nonce, sizeof m.nonce);
    tti_host_link_fill(&m, h->place.node);
    sign(h, theirs, &m, m.mac);
    if (!ok || !send_on(h, link, &m)) tti_host_link_close(link);
}

static void give_up_probes(tti_hosts *h) {
    for (int k = 0; k < h->place.n_nodes; k++) abandon(h, &h->probes[k]);
}

/* Follows a leader; abandons all other connections first. */
static void follow(tti_hosts *h, int node, tti_host_link *link) {
    tti_host_link fresh = *link;
    *link = (tti_host_link){.fd = -1};
    give_up_probes(h);
    for (int k = 0; k < h->place.n_nodes; k++) {
        lose(h, &h->hosts[k], TTI_HOST_SILENT);
        h->hosts[k].loss = TTI_HOST_NOT_LOST;
    }
    tti_host *host = &h->hosts[node];
    host->link = fresh;
    host->link.is_open = true;
    host->link.node = node;
    host->has_left = host->has_ended = host->is_dead = false;
    host->text[0] = '\0';
    h->leader = node;
    h->seeks = false;
}

static void take_welcome(tti_hosts *h, int node) {
    tti_host_link *link = &h->probes[node];
    const tti_host_message *m = &link->in;
    bool is_refused = m->kind == TTI_HOST_REFUSAL, is_welcome = m->kind == TTI_HOST_WELCOME;
    bool is_right = !h->has_run || m->node == node;
    bool is_host = m->node >= 0 && m->node < h->place.n_nodes && m->node != h->place.node;
    if ((!is_welcome && !is_refused) || !is_proved(h, link)) {
        tti_host_link_close(link);
        return;
    }
    if (is_welcome && (!is_right || !is_host)) {
        abandon(h, link);
        return;
    }
    if (is_refused) {
        memcpy(h->refusal, m->text, sizeof h->refusal);
        tti_host_link_close(link);
        return;
    }
    if (!h->has_run) {
        memcpy(h->run, m->run, sizeof h->run);
        memcpy(h->run_dir, m->text, sizeof h->run_dir);
        h->has_run = true;
    }
    follow(h, m->node, link);
}

static void move_probe(tti_hosts *h, int node) {
    tti_host_link *link = &h->probes[node];
    if (link->fd < 0) begin_probe(h, node);
    if (link->fd >= 0 && link->is_connecting) {
        struct pollfd p = {.fd = link->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 1) link->is_connecting = false;
    }
    if (link->fd < 0) return;
    int got = link->is_connecting ? 0 : tti_host_link_receive(link, h->place.n_nodes);
    if (got < 0)
        tti_host_link_close(link);
    else if (tti_host_link_is_silent(link))
        abandon(h, link);
    else if (got == 1 && link->in.kind == TTI_HOST_CHALLENGE)
        send_hello(h, link);
    else if (got == 1)
        take_welcome(h, node);
}

/* ---- both sides ---- */

/* Tries to connect to possible leaders, small node numbers first, because among hosts with the same
 * epoch the one with the smallest number leads.  If every host tried all others at once, the
 * attempts would block each other. */
static void move_probes(tti_hosts *h) {
    int64_t n = N_PROBES * (1 + (tti_now_ns() - h->seeks_ns) / (RETRY_MS * TTI_NS_PER_MS));
    for (int k = 0; k < h->place.n_nodes && (h->seeks || !h->has_run); k++) {
        if (k == h->place.node || (n-- <= 0 && h->probes[k].fd < 0)) continue;
        move_probe(h, k);
    }
}

void tti_hosts_move(tti_hosts *h) {
    accept_connections(h);
    for (int k = 0; k < h->place.n_nodes; k++) read_host(h, &h->hosts[k]);
    move_probes(h);
}

int tti_hosts_leader(const tti_hosts *h) { return h->leader; }

void tti_hosts_lead(tti_hosts *h) {
    h->leader = h->place.node;
    tti_hosts_seek(h, true, h->epoch);
    note_peer(h, h->place.node, h->own, h->own_port);
}

void tti_hosts_seek(tti_hosts *h, bool seeks, uint64_t epoch) {
    if (h->seeks && !seeks) give_up_probes(h);
    if (!h->seeks && seeks) h->seeks_ns = tti_now_ns();
    h->seeks = seeks;
    h->epoch = epoch;
}

int tti_hosts_most_fds(const tti_hosts *h) { return 2 * h->place.n_nodes + N_PENDING + 1; }

int tti_hosts_poll_fds(const tti_hosts *h, struct pollfd *fds) {
    int n = 0;
    if (h->listener >= 0) fds[n++] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    for (int i = 0; i < N_PENDING; i++)
        if (h->pending[i].fd >= 0) fds[n++] = tti_host_link_poll_fd(&h->pending[i]);
    for (int i = 0; i < 2 * h->place.n_nodes; i++) {
        const tti_host_link *link = i % 2 ? &h->probes[i / 2] : &h->hosts[i / 2].link;
        if (link->fd >= 0) fds[n++] = tti_host_link_poll_fd(link);
    }
    return n;
}

const tti_host_table *tti_hosts_table(const tti_hosts *h) { return &h->table; }

static void set_numbers(tti_hosts *h, int32_t *to, const int32_t *from) {
    size_t n_bytes = (size_t)h->place.n_nodes * sizeof *to;
    if (memcmp(to, from, n_bytes) == 0) return;
    memcpy(to, from, n_bytes);
    h->table.serial++;
}

void tti_hosts_set_members(tti_hosts *h, const int32_t *members) {
    set_numbers(h, h->table.members, members);
}

void tti_hosts_set_targets(tti_hosts *h, const int32_t *targets) {
    set_numbers(h, h->table.targets, targets);
}

void tti_hosts_send(tti_hosts *h, tti_host *to, tti_host_message *m) {
    bool is_open = to->link.is_open;
    if (is_open && !tti_host_link_send(&to->link, h->place.node, m, &h->table))
        lose(h, to, TTI_HOST_SILENT);
}

bool tti_hosts_is_due(const tti_hosts *h, const tti_host *to) {
    return tti_now_ns() - to->link.sent_ns >= TTI_HOST_SEND_MS * TTI_NS_PER_MS ||
           to->link.sent_serial != h->table.serial;
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

static void find_own(tti_hosts *h, const struct sockaddr *at, socklen_t n_bytes) {
    if (getnameinfo(at, n_bytes, h->own, sizeof h->own, NULL, 0, NI_NUMERICHOST) != 0)
        h->own[0] = '\0';
}

/* Listens at the address that reaches host 0, because this host may lead later.  Without a free
 * port it can only follow. */
static void listen_for_others(tti_hosts *h) {
    const tti_host_link *link = &h->hosts[h->leader].link;
    tcp_place at = h->at;
    tcp_address address;
    char text[TTI_HOST_PEER_BYTES + 16];
    int n = 0, port = h->port + RANK_PORTS + h->place.node;
    struct sockaddr_storage own;
    socklen_t n_bytes = sizeof own;
    if (getsockname(link->fd, (struct sockaddr *)&own, &n_bytes) != 0) return;
    find_own(h, (struct sockaddr *)&own, n_bytes);
    snprintf(text, sizeof text, strchr(h->own, ':') ? "[%s]:%d" : "%s:%d", h->own, port);
    if (tti_tcp_parse(text, &address) == TUTTI_OK &&
        tti_tcp_resolve(&address, port, &at, 1, &n) == TUTTI_OK && n == 1)
        h->listener = tti_tcp_listen(&at);
    if (h->listener < 0) tti_clear_error();
}

static tutti_status listen_here(tti_hosts *h) {
    h->listener = tti_tcp_listen(&h->at);
    h->own_port = h->port;
    find_own(h, (const struct sockaddr *)&h->at.at, h->at.n_bytes);
    note_peer(h, h->place.node, h->own, h->own_port);
    if (h->listener < 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: host 0 cannot listen at MASTER_ADDR=%s, MASTER_PORT=%d: %s",
                        h->host, h->port, strerror(errno));
    h->has_run = draw(h->run);
    return h->has_run ? TUTTI_OK : tti_fail(TUTTI_E_IO, "launch: cannot read random bytes");
}

static tutti_status connect_first(tti_hosts *h, int64_t deadline_ns, int timeout_ms) {
    h->own_port = h->port + RANK_PORTS + h->place.node;
    while (!h->has_run) {
        struct pollfd *fds = calloc((size_t)tti_hosts_most_fds(h), sizeof *fds);
        if (!fds) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
        (void)poll(fds, (nfds_t)tti_hosts_poll_fds(h, fds), TCP_RETRY_MS);
        free(fds);
        tti_hosts_move(h);
        if (h->refusal[0]) return tti_fail(TUTTI_E_CONFIG, "launch: %s", h->refusal);
        if (tti_now_ns() >= deadline_ns)
            return tti_fail(TUTTI_E_TIMEOUT,
                            "launch: host %d waited %d ms (parallel.timeout_ms) for host 0 at "
                            "%s:%d: it was not started, cannot be reached, or has another token",
                            h->place.node, timeout_ms, h->host, h->port);
    }
    listen_for_others(h);
    return TUTTI_OK;
}

/* Computes the digest of the job, which also covers the numbers of workers and the version of
 * Tutti. */
static void name_job(const tti_hosts_desc *desc, unsigned char out[32]) {
    unsigned char parts[96] = TUTTI_VERSION;
    const tti_host_layout *place = &desc->place;
    tti_sha256(desc->job, strlen(desc->job), parts + 32);
    tti_sha256(place->n_workers, (size_t)place->n_nodes * sizeof *place->n_workers, parts + 64);
    tti_sha256(parts, sizeof parts, out);
}

static bool alloc_lists(tti_hosts *h, const tti_host_layout *place) {
    size_t n = (size_t)place->n_nodes;
    h->most_parked = 64 + 4 * place->n_nodes;
    h->place.n_workers = calloc(n, sizeof *h->place.n_workers);
    h->hosts = calloc(n, sizeof *h->hosts);
    h->probes = calloc(n, sizeof *h->probes);
    h->tried_ns = calloc(n, sizeof *h->tried_ns);
    h->parked = calloc((size_t)h->most_parked, sizeof *h->parked);
    bool has_table = tti_host_table_init(&h->table, place->n_nodes);
    return has_table && h->place.n_workers && h->hosts && h->probes && h->tried_ns && h->parked;
}

static tutti_status make_lists(tti_hosts *h, const tti_host_layout *place) {
    h->listener = -1;
    for (int i = 0; i < N_PENDING; i++) h->pending[i].fd = -1;
    h->place = *place;
    if (!alloc_lists(h, place)) {
        h->place.n_nodes = h->most_parked = 0;
        return tti_fail(TUTTI_E_NOMEM, "launch: out of memory for %d hosts", place->n_nodes);
    }
    memcpy(h->place.n_workers, place->n_workers, (size_t)place->n_nodes * sizeof(int));
    tti_hosts_set_targets(h, place->n_workers);
    for (int i = 0; i < place->n_nodes; i++) h->hosts[i].link.fd = h->probes[i].fd = -1;
    for (int i = 0; i < h->most_parked; i++) h->parked[i] = -1;
    gethostname(h->name, sizeof h->name - 1);
    return TUTTI_OK;
}

tutti_status tti_hosts_open(const tti_hosts_desc *desc, int timeout_ms, tti_hosts **out) {
    if (desc->run_dir && strlen(desc->run_dir) >= TTI_HOST_TEXT_BYTES)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: run.dir has %zu bytes; on several hosts it may have at most %d",
                        strlen(desc->run_dir), TTI_HOST_TEXT_BYTES - 1);
    tti_hosts *h = calloc(1, sizeof *h);
    int64_t deadline_ns = tti_now_ns() + timeout_ms * TTI_NS_PER_MS;
    if (!h) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    tutti_status st = make_lists(h, &desc->place);
    h->port = desc->port;
    h->wait_ms = timeout_ms;
    snprintf(h->host, sizeof h->host, "%s", desc->host);
    snprintf(h->token, sizeof h->token, "%s", desc->token);
    snprintf(h->machine, sizeof h->machine, "%s", desc->machine);
    snprintf(h->run_dir, sizeof h->run_dir, "%s", desc->run_dir ? desc->run_dir : "");
    name_job(desc, h->job);
    if (st == TUTTI_OK) st = find_address(h, deadline_ns);
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
    for (int i = 0; i < N_PENDING; i++) tti_host_link_close(&h->pending[i]);
    for (int i = 0; i < h->place.n_nodes; i++) {
        tti_host_link_close(&h->hosts[i].link);
        tti_host_table_fini(&h->hosts[i].table);
        tti_host_link_close(&h->probes[i]);
    }
    for (int i = 0; i < h->most_parked; i++)
        if (h->parked[i] >= 0) close(h->parked[i]);
    tti_host_table_fini(&h->table);
    free(h->hosts);
    free(h->probes);
    free(h->tried_ns);
    free(h->parked);
    free(h->place.n_workers);
    free(h);
}

const tti_host_layout *tti_hosts_place(const tti_hosts *h) { return &h->place; }
const char *tti_hosts_run_dir(const tti_hosts *h) { return h->run_dir; }
const char *tti_hosts_token(const tti_hosts *h) { return h->token; }
tti_host *tti_hosts_get(tti_hosts *h, int node) { return &h->hosts[node]; }

tti_host_names tti_hosts_names(const tti_hosts *h, int node) {
    const tti_host *host = &h->hosts[node];
    if (node == h->place.node) return (tti_host_names){h->name, h->own, node == 0};
    return (tti_host_names){host->name, host->address, node == 0};
}

int tti_hosts_wait_ms(const tti_hosts *h) { return h->wait_ms; }
const char *tti_hosts_refusal(const tti_hosts *h) { return h->refusal; }

void tti_hosts_address(const tti_hosts *h, int node, char *out, size_t n_bytes) {
    bool is_own = node == h->place.node;
    const char *host = is_own && node == 0 ? h->host : is_own ? h->own : h->hosts[node].link.peer;
    snprintf(out, n_bytes, strchr(host, ':') ? "[%s]:%d-%d" : "%s:%d-%d", host, h->port + 1,
             h->port + RANK_PORTS);
}

void tti_hosts_job(const tti_hosts *h, uint64_t epoch, char out[128]) {
    for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", h->run[i]);
    snprintf(out + 64, 64, "/%llu/%d", (unsigned long long)epoch, h->leader);
}
