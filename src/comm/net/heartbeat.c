/* heartbeat.c - keeps the progress pages of ranks on other hosts up to date.
 *
 * A thread of the first rank of each host sends the progress pages (progress.h) of its host's ranks
 * to the first ranks of the other hosts, several times per timeout, and stores the pages that it
 * receives in memory that all ranks of its host can read.  The thread has its own link, because a
 * rank that saves, or waits in a subgroup, does not use the link of the whole group.  If the
 * heartbeat's link fails, only the heartbeat ends: the ranks detect the failure themselves.  A host
 * that leaves sends a last report and closes its connections; the heartbeat between the other hosts
 * continues.
 *
 * In a sparse group the thread communicates with the parent and the children of its host in a tree
 * of hosts.  It sends the suspects of its subtree (progress.h) up and the suspects of all other
 * ranks down, so that no report grows with the job.  It also forwards failures along the tree,
 * because the ranks of a host may compute for long before they check their links. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"
#include "comm/net/net.h"

enum {
    BEATS_PER_TIMEOUT = 16,
    MAX_PERIOD_MS = 250,
    STALE_BEATS = 8, /* maximum age of a report that counts as proof of a long phase */
    MIN_STALE_MS = 2000,
    FLUSH_MS = 500 /* time to send the last report at the end */
};

/* The pages of ranks, or in a sparse group a tti_suspects.  Clocks of hosts differ, so times are
 * sent as ages. */
typedef struct report {
    uint64_t is_last;
    uint64_t body[];
} report;

/* The first rank of another host. */
typedef struct peer {
    int host;
    size_t in_bytes, out_bytes; /* bytes of the body of a report */
    int n_in,
        n_out; /* number of ranks in its reports and in reports to it; not used in a sparse group */
    int *in_ranks;         /* [n_in]: ranks in the whole group */
    int *out_ranks;        /* [n_out] */
    tti_suspects suspects; /* sparse group: contents of its newest report */
    int64_t received_ns;   /* time of its newest report, 0: none */
    bool has_ended;        /* it sends no more reports, or need not */
    report *in, *out;
} peer;

typedef enum stop_kind { KEEP_ON, STOP_IN_ORDER, STOP_AT_ONCE } stop_kind;

struct net_heartbeat {
    net_state *s;
    void *wire;
    peer *peers; /* [n_peers] */
    int n_peers;
    _Atomic int period_ms;
    tti_message *messages; /* [n_peers][2]: in, out */
    int wake_fd;           /* an eventfd: stop or period_ms has changed */
    _Atomic int stop;      /* a stop_kind */
    int *global_ranks;     /* [n_hosts]: number of a host's first rank in messages */
    bool *with;            /* [n_hosts]: true for peers */
    pthread_t thread;
    bool is_running;
};

static size_t report_bytes(size_t body_bytes) { return offsetof(report, body) + body_bytes; }

static tti_progress *pages_of(report *r) { return (tti_progress *)(void *)r->body; }
static tti_suspects *suspects_of(report *r) { return (tti_suspects *)(void *)r->body; }

/* ---- pages that the ranks of this host read ---- */

typedef _Atomic uint64_t atomic_word;

static void put_words(atomic_word *version, atomic_word *to, const uint64_t *from, int n) {
    atomic_fetch_add(version, 1);
    for (int i = 0; i < n; i++) atomic_store(&to[i], from[i]);
    atomic_fetch_add(version, 1);
}

static void get_words(const atomic_word *version, const atomic_word *from, uint64_t *to, int n) {
    uint64_t before;
    int tries = 0;
    do {
        before = atomic_load(version);
        for (int i = 0; i < n; i++) to[i] = atomic_load(&from[i]);
    } while ((before % 2 || atomic_load(version) != before) && ++tries < 1000);
}

static void put_page(net_page *to, const tti_progress *page) {
    uint64_t words[NET_PAGE_WORDS];
    memcpy(words, page, sizeof words);
    put_words(&to->version, to->words, words, NET_PAGE_WORDS);
}

bool tti_net_get_page(const net_state *s, int rank, tti_progress *out) {
    uint64_t words[NET_PAGE_WORDS];
    *out = (tti_progress){0};
    if (!s->pages) return false;
    get_words(&s->pages[rank].version, s->pages[rank].words, words, NET_PAGE_WORDS);
    memcpy(out, words, sizeof *out);
    return out->joined;
}

static void put_suspects(net_remote *to, const tti_suspects *suspects) {
    uint64_t words[NET_SUSPECTS_WORDS];
    memcpy(words, suspects, sizeof words);
    put_words(&to->version, to->words, words, NET_SUSPECTS_WORDS);
}

void tti_net_get_suspects(const net_state *s, tti_suspects *out) {
    uint64_t words[NET_SUSPECTS_WORDS];
    get_words(&s->remote->version, s->remote->words, words, NET_SUSPECTS_WORDS);
    memcpy(out, words, sizeof *out);
}

/* ---- one beat ---- */

/* Turns a time into an age, or an age into a time; 0 stays 0. */
static uint64_t age_of(uint64_t ns) {
    return ns ? TTI_MAX((uint64_t)tti_now_ns() - ns, UINT64_C(1)) : 0;
}

static void convert_times(tti_progress *p) {
    p->entered_ns = age_of(p->entered_ns);
    p->since_ns = age_of(p->since_ns);
}

static void terminate_texts(tti_progress *p) {
    p->call[sizeof p->call - 1] = p->phase[sizeof p->phase - 1] = '\0';
    p->activity[sizeof p->activity - 1] = '\0';
}

/* Validates received suspects, because a sender that is not a rank of the job could send
 * anything. */
static void read_suspects(const net_state *s, tti_suspects *in) {
    terminate_texts(&in->culprit_page);
    terminate_texts(&in->busiest_page);
    convert_times(&in->culprit_page);
    convert_times(&in->busiest_page);
    if (in->culprit < 0 || in->culprit >= s->n_ranks) in->culprit = -1;
    if (in->busiest < 0 || in->busiest >= s->n_ranks) in->busiest = -1;
}

/* Merges the suspects of all other hosts, except those that peer `but` reports. */
static void merge_suspects(const net_heartbeat *h, const peer *but, tti_suspects *all) {
    tti_suspects_begin(all);
    for (int i = 0; i < h->n_peers; i++)
        if (&h->peers[i] != but) tti_suspects_merge(all, &h->peers[i].suspects);
}

static void store_suspects(net_heartbeat *h, peer *from) {
    tti_suspects all;
    from->suspects = *suspects_of(from->in);
    read_suspects(h->s, &from->suspects);
    if (from->has_ended) from->suspects.busiest = -1;
    merge_suspects(h, NULL, &all);
    put_suspects(h->s->remote, &all);
}

static void store_report(net_heartbeat *h, peer *from) {
    from->has_ended = from->in->is_last != 0;
    from->received_ns = tti_now_ns();
    if (h->s->is_sparse) store_suspects(h, from);
    for (int i = 0; i < from->n_in; i++) {
        tti_progress *p = &pages_of(from->in)[i];
        terminate_texts(p);
        convert_times(p);
        if (from->has_ended) p->since_ns = 0;
        put_page(&h->s->pages[from->in_ranks[i]], p);
    }
}

static void begin_receive(net_heartbeat *h, int i) {
    peer *p = &h->peers[i];
    h->messages[2 * i] = (tti_message){
        .peer = p->host, .in = p->in, .n_bytes = p->has_ended ? 0 : report_bytes(p->in_bytes)};
}

static void get_own_page(const net_state *s, int index, tti_progress *page) {
    if (tti_comm_group_progress(s->group, index, page) != TUTTI_OK) *page = (tti_progress){0};
}

static void fill_suspects(const net_heartbeat *h, const peer *to, tti_suspects *out) {
    const net_state *s = h->s;
    tti_progress page;
    merge_suspects(h, to, out);
    for (int i = 0; i < s->n_local; i++) {
        get_own_page(s, i, &page);
        tti_suspects_look(out, s->rank_of[i], &page);
    }
    convert_times(&out->culprit_page);
    convert_times(&out->busiest_page);
}

static void begin_send(net_heartbeat *h, int i, bool is_last) {
    peer *p = &h->peers[i];
    const net_state *s = h->s;
    p->out->is_last = is_last;
    if (s->is_sparse) fill_suspects(h, p, suspects_of(p->out));
    for (int k = 0; k < p->n_out; k++) {
        tti_progress *page = &pages_of(p->out)[k];
        get_own_page(s, s->index_of[p->out_ranks[k]], page);
        convert_times(page);
    }
    h->messages[2 * i + 1] =
        (tti_message){.peer = p->host, .out = p->out, .n_bytes = report_bytes(p->out_bytes)};
}

static bool is_done(const tti_message *m) { return m->done == m->n_bytes; }

/* True if the peer may have closed its connection: it has sent its last report, and the link need
 * not receive to the end. */
static bool may_be_gone(const net_heartbeat *h, const peer *p) {
    return p->has_ended && !h->s->link->receives_to_end;
}

/* True if the last report has been sent to every peer that waits for it and, if the link must
 * receive to the end, has arrived from every peer. */
static bool is_finished(const net_heartbeat *h) {
    for (int i = 0; i < h->n_peers; i++) {
        const peer *p = &h->peers[i];
        if (may_be_gone(h, p)) continue;
        if (!p->out->is_last || !is_done(&h->messages[2 * i + 1])) return false;
        if (h->s->link->receives_to_end && !p->has_ended) return false;
    }
    return true;
}

static bool is_any_busy(const net_heartbeat *h) {
    int64_t stale_ns = TTI_MAX(STALE_BEATS * h->period_ms, MIN_STALE_MS) * TTI_NS_PER_MS;
    for (int i = 0; i < h->n_peers; i++) {
        const peer *p = &h->peers[i];
        if (p->received_ns == 0 || tti_now_ns() - p->received_ns > stale_ns) continue;
        if (p->suspects.busiest >= 0 && p->suspects.busiest_page.since_ns) return true;
        for (int k = 0; k < p->n_in; k++)
            if (pages_of(p->in)[k].since_ns) return true;
    }
    return false;
}

/* Stores the reports that have arrived; false: there are none. */
static bool take_reports(net_heartbeat *h) {
    bool any = false;
    for (int i = 0; i < h->n_peers; i++) {
        if (h->peers[i].has_ended || !is_done(&h->messages[2 * i])) continue;
        store_report(h, &h->peers[i]);
        begin_receive(h, i);
        any = true;
    }
    return any;
}

/* Drops pending reports to peers that may have closed their connection, and pending reports of
 * peers that have this host's last report, because they may leave without an answer; false: there
 * are none. */
static bool drop_messages(net_heartbeat *h) {
    bool any = false;
    for (int i = 0; i < h->n_peers; i++) {
        peer *p = &h->peers[i];
        tti_message *out = &h->messages[2 * i + 1];
        if (may_be_gone(h, p) && !is_done(out)) {
            *out = (tti_message){.peer = out->peer, .out = out->out};
            any = true;
        } else if (!p->has_ended && p->out->is_last && is_done(out)) {
            p->has_ended = true;
            begin_receive(h, i);
            any = true;
        }
    }
    return any;
}

static tutti_status try_to_move(net_heartbeat *h) {
    const tti_link *link = h->s->link;
    int blame;
    if (TTI_FAULT_AT("heartbeat.move", h->s->rank, -1))
        return tti_fail(TUTTI_E_PEER, "comm: %s", strerror(errno));
    TTI_TRY(link->post(h->wire, h->messages, 2 * h->n_peers));
    return link->test(h->wire, &blame);
}

/* Moves messages.  Sending fails if a peer has closed its connection.  Then its last report has
 * arrived: the next try receives it, and drops the report to this peer.  The next try may fail at
 * an earlier peer that has closed meanwhile, so as many tries as there are peers may receive
 * nothing. */
static tutti_status move(net_heartbeat *h) {
    tutti_status st = try_to_move(h);
    if (h->s->link->receives_to_end) return st;
    for (int n_idle = 0; st != TUTTI_OK && n_idle <= h->n_peers; n_idle++) {
        st = try_to_move(h);
        bool is_new = take_reports(h);
        if (drop_messages(h) || is_new) n_idle = -1;
    }
    return st;
}

static tutti_status beat(net_heartbeat *h, bool is_last) {
    if (is_last && TTI_FAULT_AT("heartbeat.last", h->s->rank, -1))
        return tti_fail(TUTTI_E_PEER, "comm: %s", strerror(errno));
    TTI_TRY(move(h));
    (void)take_reports(h);
    for (int i = 0; i < h->n_peers; i++) {
        const peer *p = &h->peers[i];
        bool is_next = is_done(&h->messages[2 * i + 1]) && !p->out->is_last;
        if (is_next && !may_be_gone(h, p)) begin_send(h, i, is_last);
    }
    TTI_TRY(move(h));
    tti_shm_set_remote_busy(h->s->local, is_any_busy(h));
    return TUTTI_OK;
}

static void wake(const net_heartbeat *h) {
    uint64_t one = 1;
    while (write(h->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void sleep_until_woken(const net_heartbeat *h) {
    struct pollfd p = {.fd = h->wake_fd, .events = POLLIN};
    uint64_t n;
    if (poll(&p, 1, h->period_ms) > 0 && read(h->wake_fd, &n, sizeof n) < 0) return;
}

/* Reports a failure of this host to its neighbors in the tree. */
static tutti_status report_failure(net_heartbeat *h) {
    tutti_status st = tti_shm_cause(h->s->local);
    if (st != TUTTI_OK) h->s->link->report_failure(h->wire, st, tutti_last_error());
    return st;
}

/* Reports a failure of another host, or the loss of a rank there, to the ranks of this host, which
 * forward it.  A rank that has left in order is not a failure. */
static void break_host(const net_heartbeat *h) {
    const net_state *s = h->s;
    tutti_status st = s->link->check_reported(h->wire);
    if (st != TUTTI_OK)
        tti_transport_shm.fail(s->local, st);
    else if (s->link->check(h->wire, false) != TUTTI_OK)
        tti_shm_lose(s->group, tutti_last_error());
}

static void *run_heartbeat(void *arg) {
    net_heartbeat *h = arg;
    tutti_status st;
    for (st = beat(h, false); st == TUTTI_OK && h->stop == KEEP_ON;) {
        sleep_until_woken(h);
        st = beat(h, h->stop != KEEP_ON);
        if (st != TUTTI_OK && h->stop == KEEP_ON && h->s->is_sparse) break_host(h);
        if (st == TUTTI_OK && h->s->is_sparse) st = report_failure(h);
    }
    int flush_ms = h->s->link->receives_to_end ? h->s->timeout_ms : FLUSH_MS;
    int64_t end_ns = tti_now_ns() + flush_ms * TTI_NS_PER_MS;
    while (st == TUTTI_OK && h->stop == STOP_IN_ORDER && !is_finished(h) && tti_now_ns() < end_ns) {
        tti_sleep_ms(1);
        st = beat(h, true);
    }
    tti_shm_set_remote_busy(h->s->local, false);
    return NULL;
}

/* ---- begin and end ---- */

static int host_above(int host) { return (host - 1) / TTI_FAN_OUT; }

/* Lists the ranks of a host.  A report has one page for each of them. */
static tutti_status list_ranks(const net_state *s, int host, int **ranks, int *n) {
    for (int r = 0; r < s->n_ranks; r++) *n += s->host_of[r] == host;
    *ranks = calloc((size_t)*n, sizeof **ranks);
    if (!*ranks) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    for (int r = 0, i = 0; r < s->n_ranks; r++)
        if (s->host_of[r] == host) (*ranks)[i++] = r;
    return TUTTI_OK;
}

static tutti_status add_peer(net_heartbeat *h, int host) {
    const net_state *s = h->s;
    peer *p = &h->peers[h->n_peers++];
    p->host = host;
    p->in_bytes = p->out_bytes = sizeof(tti_suspects);
    tti_suspects_begin(&p->suspects);
    if (!s->is_sparse) {
        TTI_TRY(list_ranks(s, host, &p->in_ranks, &p->n_in));
        TTI_TRY(list_ranks(s, s->host_of[s->rank], &p->out_ranks, &p->n_out));
        p->in_bytes = (size_t)p->n_in * sizeof(tti_progress);
        p->out_bytes = (size_t)p->n_out * sizeof(tti_progress);
    }
    p->in = calloc(1, report_bytes(p->in_bytes));
    p->out = calloc(1, report_bytes(p->out_bytes));
    return p->in && p->out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
}

static bool is_peer(const net_state *s, int host) {
    int own = s->host_of[s->rank];
    if (!s->is_sparse) return host != own;
    return (host > 0 && host_above(host) == own) || (own > 0 && host_above(own) == host);
}

static tutti_status find_peers(net_heartbeat *h) {
    const net_state *s = h->s;
    for (int host = 0; host < s->n_hosts; host++) {
        h->global_ranks[host] = s->global_ranks[s->first_of[host]];
        h->with[host] = is_peer(s, host);
        if (h->with[host]) TTI_TRY(add_peer(h, host));
    }
    return TUTTI_OK;
}

void tti_net_pace_heartbeat(net_state *s) {
    if (!s->heartbeat) return;
    s->heartbeat->period_ms = TTI_MAX(1, TTI_MIN(s->timeout_ms / BEATS_PER_TIMEOUT, MAX_PERIOD_MS));
    wake(s->heartbeat);
}

static tutti_status start(net_heartbeat *h, uint32_t serial) {
    net_state *s = h->s;
    size_t n = (size_t)s->n_hosts;
    size_t n_peers = s->is_sparse ? TTI_MIN(n - 1, (size_t)TTI_FAN_OUT + 1) : n - 1;
    h->peers = calloc(n_peers, sizeof *h->peers);
    h->messages = calloc(2 * n_peers, sizeof *h->messages);
    h->global_ranks = calloc(n, sizeof *h->global_ranks);
    h->with = calloc(n, sizeof *h->with);
    if (!h->peers || !h->messages || !h->global_ranks || !h->with)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    TTI_TRY(find_peers(h));
    tti_link_subgroup subgroup = {.members = s->first_of,
                                  .global_ranks = h->global_ranks,
                                  .with = h->with,
                                  .n_members = s->n_hosts,
                                  .index = s->host_of[s->rank],
                                  .timeout_ms = s->timeout_ms,
                                  .phase_timeout_ms = s->phase_timeout_ms,
                                  .serial = serial};
    TTI_TRY(s->link->split(s->wire, &subgroup, &h->wire));
    for (int i = 0; i < h->n_peers; i++) begin_receive(h, i);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake_fd < 0) return tti_fail(TUTTI_E_IO, "comm_create: eventfd: %s", strerror(errno));
    tti_net_pace_heartbeat(s);
    int error = tti_thread_start(&h->thread, NULL, run_heartbeat, h);
    h->is_running = error == 0;
    return error == 0 ? TUTTI_OK
                      : tti_fail(TUTTI_E_NOMEM, "comm_create: no thread: %s", strerror(error));
}

static tutti_status share_pages(net_state *s) {
    void *memory = NULL;
    size_t n_bytes = s->is_sparse ? sizeof(net_remote) : (size_t)s->n_ranks * sizeof(net_page);
    tti_suspects none;
    TTI_TRY(tti_net_share(s, n_bytes, &memory));
    if (!s->is_sparse) {
        s->pages = memory;
        return TUTTI_OK;
    }
    s->remote = memory;
    tti_suspects_begin(&none);
    if (s->index_of[s->rank] == 0) put_suspects(s->remote, &none);
    return tti_transport_shm.barrier(s->local);
}

tutti_status tti_net_start_heartbeat(net_state *s) {
    uint32_t serial = ++s->n_splits; /* the same number on all ranks */
    if (s->n_hosts == 1) return TUTTI_OK;
    TTI_TRY(share_pages(s));
    if (s->index_of[s->rank] != 0) return TUTTI_OK;
    net_heartbeat *h = calloc(1, sizeof *h);
    if (!h) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    *h = (net_heartbeat){.s = s, .wake_fd = -1};
    s->heartbeat = h;
    return start(h, serial);
}

void tti_net_stop_heartbeat(net_state *s) {
    net_heartbeat *h = s->heartbeat;
    if (!h) return;
    if (h->is_running) {
        h->stop = s->has_reported ? STOP_AT_ONCE : STOP_IN_ORDER;
        wake(h);
        pthread_join(h->thread, NULL);
    }
    /* A rank that has not failed leaves in order even if a peer was too slow for the last
     * report. */
    bool is_complete = !s->link->receives_to_end || (h->is_running && is_finished(h));
    bool in_order = !s->has_reported && is_complete;
    /* In a sparse group, report the reason to the neighbors in the tree before the link closes. */
    if (s->has_reported && s->is_sparse && h->wire)
        s->link->report_failure(h->wire, s->failure_status, s->failure_text);
    s->link->close(h->wire, in_order);
    if (h->wake_fd >= 0) close(h->wake_fd);
    s->heartbeat = NULL;
    if (!in_order && s->link->receives_to_end)
        return; /* MPI may still use the memory, so it is not freed */
    for (int i = 0; i < h->n_peers; i++) {
        free(h->peers[i].in_ranks);
        free(h->peers[i].out_ranks);
        free(h->peers[i].in);
        free(h->peers[i].out);
    }
    free(h->peers);
    free(h->messages);
    free(h->global_ranks);
    free(h->with);
    free(h);
}
