/* host_members.c - who is a member of an elastic run on several hosts.
 *
 * Host 0 alone begins an epoch: every epoch has its number and its rendezvous, which only host 0
 * gives out.  So no two groups of workers ever commit steps, however the network is divided.  The
 * other hosts report the state of their workers and do as it decides; a host that does not hear
 * from host 0 breaks its group and waits.
 *
 * When hosts are lost, host 0 goes on only with a majority: the members that it reaches must be
 * more than those that may live on hosts that do not answer.  A host whose supervisor closed its
 * connection has ended, and its workers with it, so these do not count.  Without a majority, or
 * with fewer than min_workers, host 0 waits as well.  The members keep their state meanwhile, and
 * go on from the last committed step when the connection is back. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "launch/supervisor_state.h"

enum { SHORT_MS = 30000, MOST_SHORT = 5 };

static int64_t now_ns(void) { return tti_now_ns(); }

static void report(const tti_supervisor *s, const char *text) {
    if (s->desc->on_leave) s->desc->on_leave(s->desc->user, text);
}

static int n_nodes(const tti_supervisor *s) { return tti_hosts_place(s->desc->hosts)->n_nodes; }
static int own_node(const tti_supervisor *s) { return tti_hosts_place(s->desc->hosts)->node; }

static int n_ready(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++)
        n += s->workers[r].alive && s->workers[r].is_ready && !s->workers[r].joins;
    return n;
}

/* The last message of this host describes it as it is now. */
static bool is_fresh(const tti_host *host) {
    return host->link.is_open && host->status.kind == TTI_HOST_STATUS &&
           (host->granted == 0 || host->status.epoch == host->granted);
}

int tti_host_members_elsewhere(const tti_supervisor *s) {
    int n = 0;
    if (!s->desc->hosts) return 0;
    if (own_node(s) > 0) {
        const tti_host *first = tti_hosts_get(s->desc->hosts, 0);
        return first->link.is_open ? first->status.n_elsewhere : 0;
    }
    for (int k = 1; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (host->link.is_open && !host->has_left) n += host->status.n_members;
    }
    return n;
}

bool tti_host_members_wait(const tti_supervisor *s) {
    if (!s->desc->hosts || tti_members_are_final(s)) return false;
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].respawn_ns < INT64_MAX) return true;
    bool is_empty = own_node(s) > 0 && s->n_target == 0; /* because a user asks for fewer workers */
    return is_empty && !tti_hosts_get(s->desc->hosts, 0)->has_left;
}

/* ---- how many workers each host has ---- */

void tti_host_members_begin(tti_supervisor *s) {
    if (!s->desc->hosts) return;
    const tti_host_place *place = tti_hosts_place(s->desc->hosts);
    memcpy(s->host.targets, place->n_workers, sizeof s->host.targets);
}

static int n_targets(const tti_supervisor *s) {
    int n = 0;
    for (int k = 0; k < n_nodes(s); k++) n += s->host.targets[k];
    return n;
}

/* Divides n workers among the hosts that are there, in the proportion of TUTTI_NODES.  Host 0 has
 * at least one, and no other has more. */
static void divide(tti_supervisor *s, int n) {
    const int *weights = tti_hosts_place(s->desc->hosts)->n_workers;
    int *to = s->host.targets;
    memset(s->host.targets, 0, sizeof s->host.targets);
    for (int best; n > 0; n--, to[best]++) {
        best = -1;
        for (int k = 0; k < n_nodes(s); k++) {
            const tti_host *host = tti_hosts_get(s->desc->hosts, k);
            bool is_there = k == 0 || s->host.epoch == 0 || (host->link.is_open && !host->has_left);
            bool is_full = to[k] >= TTI_MAX(weights[k], s->desc->max_workers);
            if (!is_there || is_full || (k > 0 && to[k] >= to[0])) continue;
            if (best < 0 || to[k] * weights[best] < to[best] * weights[k]) best = k;
        }
        if (best < 0) return;
    }
}

int tti_host_members_scale(tti_supervisor *s, int n_asked, int n_more) {
    const tti_host *first = tti_hosts_get(s->desc->hosts, 0);
    if (own_node(s) > 0) {
        bool knows = first->link.is_open && first->status.kind;
        return knows ? first->status.n_target : s->n_target;
    }
    int most = s->desc->max_workers;
    for (int k = 0, n = 0; k < n_nodes(s); k++) {
        n += tti_hosts_place(s->desc->hosts)->n_workers[k];
        most = TTI_MAX(most, n);
    }
    if (n_asked == 0 && n_more != 0) n_asked = n_targets(s) + n_more;
    if (n_asked != 0) divide(s, TTI_MIN(TTI_MAX(n_asked, s->desc->min_workers), most));
    return s->host.targets[0];
}

/* The members of the next epoch. */
typedef struct places {
    int n_here[TTI_MAX_HOSTS];
    int n_all;
    bool any_joins; /* some are not in the current epoch */
} places;

/* Members that stay, and workers that wait for a place, of a host that answers. */
static void count_host(const tti_supervisor *s, int node, int *n_stay, int *n_wait) {
    const tti_host *host = tti_hosts_get(s->desc->hosts, node);
    bool is_in_epoch =
        node == 0 ? s->host.epoch > 0 : host->granted == s->host.epoch && s->host.epoch > 0;
    int n = node == 0 ? tti_members_count(s) : host->status.n_members;
    *n_stay = *n_wait = 0;
    if (node > 0 && (!is_fresh(host) || host->has_left)) return;
    *n_stay = is_in_epoch ? n : 0;
    *n_wait = (node == 0 ? tti_members_spares(s) : host->status.n_spares) + n - *n_stay;
}

/* Members stay.  Those that wait take free places: first as many as their host shall have, then
 * places of hosts that have too few. */
static places find_places(const tti_supervisor *s) {
    places p = {0};
    int n_wait[TTI_MAX_HOSTS], n_free = n_targets(s);
    for (int k = 0; k < n_nodes(s); k++) {
        count_host(s, k, &p.n_here[k], &n_wait[k]);
        p.n_all += p.n_here[k];
    }
    n_free -= p.n_all;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < n_nodes(s); k++) {
            int n = pass == 0 ? TTI_MIN(s->host.targets[k] - p.n_here[k], n_wait[k]) : n_wait[k];
            n = TTI_MAX(TTI_MIN(n, n_free), 0);
            p.any_joins |= n > 0;
            p.n_here[k] += n;
            p.n_all += n;
            n_wait[k] -= n;
            n_free -= n;
        }
    return p;
}

/* A rank that lost its connection to another one has left the group without being asked. */
static void note_own_leave(tti_supervisor *s) {
    if (!s->changes && n_ready(s) > 0)
        tti_members_begin_change(s, -1, "a rank lost its connection to another one");
}

/* Ends the wait for other hosts if it lasts for too long; why: as reported when it began. */
static void suspend(tti_supervisor *s, const char *why) {
    char text[700];
    int wait_ms = tti_hosts_wait_ms(s->desc->hosts);
    if (s->host.suspended_ns == 0) {
        s->host.suspended_ns = now_ns();
        snprintf(text, sizeof text,
                 "%s; the workers of this host keep the last committed step and wait for up to %d "
                 "ms (parallel.timeout_ms)",
                 why, wait_ms);
        report(s, text);
    } else if (now_ns() - s->host.suspended_ns > wait_ms * TTI_NS_PER_MS) {
        snprintf(text, sizeof text, "%s, for %d ms (parallel.timeout_ms)", why, wait_ms);
        tti_supervisor_fail(s, text);
    }
}

static void resume(tti_supervisor *s) {
    if (s->host.suspended_ns && s->host.epoch > 0) report(s, "the hosts are connected again");
    s->host.suspended_ns = 0;
}

/* The next epoch for the workers of this host, whose first rank is first. */
static void start(tti_supervisor *s, uint64_t epoch, int first, int n_here, int n_ranks,
                  const char *address) {
    tti_epoch_message m = {.rank = first, .n_ranks = n_ranks, .n_local = n_here, .number = epoch};
    tti_members_retire(s, n_here);
    tti_members_admit(s, n_here);
    snprintf(m.address, sizeof m.address, "%.*s", (int)sizeof m.address - 1, address);
    tti_hosts_job(s->desc->hosts, epoch, m.job);
    snprintf(m.token, sizeof m.token, "%s", tti_hosts_token(s->desc->hosts));
    s->host.epoch = epoch;
    s->host.begun_ns = now_ns();
    tti_members_start_epoch(s, &m);
}

/* ---- host 0 ---- */

static void note_host_loss(tti_supervisor *s, int node, tti_host *host) {
    char text[300];
    bool is_silent = host->loss == TTI_HOST_SILENT;
    host->loss = TTI_HOST_NOT_LOST;
    if (host->has_left) return;
    snprintf(text, sizeof text, is_silent ? "host %d does not answer" : "host %d has ended", node);
    host->n_unknown = is_silent && !host->has_left ? host->n_granted : 0;
    host->n_granted = 0;
    report(s, text);
    tti_members_begin_change(s, -1, text);
}

/* The workers of the host leave the current epoch. */
static void note_leave(tti_supervisor *s, const tti_host *host) {
    if (!is_fresh(host) || host->has_left || s->host.epoch == 0) return;
    if (host->status.changes && host->granted == s->host.epoch)
        tti_members_begin_change(s, -1, "the membership changes on another host");
}

static void send_pulses(tti_supervisor *s) {
    int n_all = tti_members_count(s) + tti_host_members_elsewhere(s);
    for (int k = 1; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(s->desc->hosts, k);
        bool changes = s->changes && host->granted == s->host.epoch;
        bool is_same = changes == host->said_changes && s->host.targets[k] == host->said_target;
        if (!tti_hosts_is_due(host) && is_same) continue;
        tti_host_message m = {.kind = TTI_HOST_PULSE,
                              .epoch = s->host.epoch,
                              .changes = changes,
                              .n_target = s->host.targets[k],
                              .n_elsewhere = n_all - host->status.n_members};
        host->said_changes = changes;
        host->said_target = s->host.targets[k];
        tti_hosts_send(s->desc->hosts, host, &m);
    }
}

/* Members of the current epoch that host 0 reaches, those that may live elsewhere, and the next
 * epoch. */
typedef struct census {
    int n_reached, n_unknown;
    places next;
    bool is_complete; /* every host is connected */
    bool is_ready;    /* each connected host waits for the next epoch */
} census;

static census count(const tti_supervisor *s) {
    census c = {.n_reached = tti_members_count(s),
                .next = find_places(s),
                .is_complete = true,
                .is_ready = true};
    for (int k = 1; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        const tti_host_message *m = &host->status;
        if (!host->link.is_open || host->has_left) {
            c.is_complete = false;
            c.n_unknown += host->n_unknown;
            continue;
        }
        if (!is_fresh(host)) {
            c.is_ready = false;
            continue;
        }
        if (m->n_ready != m->n_members) c.is_ready = false;
        if (m->epoch == s->host.epoch) c.n_reached += m->n_members;
    }
    return c;
}

/* Why the next epoch cannot begin; false: it can. */
static bool must_wait(const tti_supervisor *s, const census *c, char *why, size_t n_bytes) {
    bool has_majority = c->n_reached > c->n_unknown;
    if (s->host.epoch == 0 && !c->is_complete)
        snprintf(why, n_bytes, "not all hosts of TUTTI_NODES are connected yet");
    else if (s->host.epoch > 0 && !has_majority)
        snprintf(why, n_bytes,
                 "this host reaches %d workers of the last epoch, and %d may be alive on hosts "
                 "that do not answer: that is no majority",
                 c->n_reached, c->n_unknown);
    else if (c->next.n_all < s->desc->min_workers)
        snprintf(why, n_bytes, "this host reaches %d workers, parallel.min_workers is %d",
                 c->next.n_all, s->desc->min_workers);
    else
        return false;
    return true;
}

/* Hosts that answer, but whose ranks cannot connect to each other, would change for ever. */
static bool is_in_vain(tti_supervisor *s, int n_ranks) {
    bool is_short = now_ns() - s->host.begun_ns < SHORT_MS * TTI_NS_PER_MS;
    bool is_same = s->host.epoch > 0 && n_ranks == s->host.n_ranks && s->host.suspended_ns == 0;
    s->host.n_short = is_short && is_same ? s->host.n_short + 1 : 0;
    s->host.n_ranks = n_ranks;
    if (s->host.n_short < MOST_SHORT) return false;
    tti_supervisor_fail(s,
                        "the hosts answer, but their workers lose their connections to each "
                        "other again and again: ports above MASTER_PORT may be blocked");
    return true;
}

static void grant(tti_supervisor *s, const places *next) {
    tti_hosts *hosts = s->desc->hosts;
    uint64_t epoch = s->host.epoch + 1;
    int first = next->n_here[0], home = 0, n_ranks = next->n_all;
    char address[TTI_HOST_TEXT_BYTES];
    while (next->n_here[home] == 0) home++;
    tti_hosts_address(hosts, home, address, sizeof address);
    for (int k = 1; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(hosts, k);
        bool takes_part = is_fresh(host) && !host->has_left;
        int n = next->n_here[k];
        tti_host_message m = {.kind = TTI_HOST_EPOCH,
                              .epoch = epoch,
                              .first_rank = first,
                              .n_here = n,
                              .n_ranks = n_ranks,
                              .n_target = s->host.targets[k],
                              .n_elsewhere = n_ranks - n};
        memcpy(m.text, address, sizeof m.text);
        host->n_unknown = 0;
        host->n_granted = n;
        first += n;
        if (!takes_part) continue;
        host->granted = epoch;
        host->said_changes = false;
        host->said_target = s->host.targets[k];
        tti_hosts_send(hosts, host, &m);
    }
    start(s, epoch, 0, next->n_here[0], n_ranks, address);
}

static void lead(tti_supervisor *s) {
    char why[300];
    for (int k = 1; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (host->has_ended) {
            snprintf(why, sizeof why, "host %d: %.250s", k, host->text);
            tti_supervisor_fail(s, why);
            return;
        }
        if (host->has_left && host->n_granted > 0 && host->text[0]) {
            host->n_granted = 0; /* its last worker was lost */
            report(s, host->text);
            tti_members_begin_change(s, -1, host->text);
        }
        if (host->loss) note_host_loss(s, k, host);
        note_leave(s, host);
    }
    if (s->n_alive == 0 && !tti_host_members_wait(s)) {
        tti_supervisor_fail(s, "host 0 has no worker left");
        return;
    }
    if (s->host.epoch > 0 && find_places(s).any_joins)
        tti_members_begin_change(s, -1, "the membership changes: a worker joins");
    send_pulses(s);
    if (!tti_members_have_left(s) || !s->changes) return;
    census c = count(s);
    if (must_wait(s, &c, why, sizeof why)) {
        suspend(s, why);
        return;
    }
    if (!c.is_ready || c.next.n_all == 0 || is_in_vain(s, c.next.n_all)) return;
    resume(s);
    grant(s, &c.next);
}

/* ---- the other hosts ---- */

static void send_status(tti_supervisor *s, tti_host *first) {
    tti_host_message m = {.kind = TTI_HOST_STATUS,
                          .node = own_node(s),
                          .epoch = s->host.epoch,
                          .n_members = tti_members_count(s),
                          .n_ready = n_ready(s),
                          .n_spares = tti_members_are_final(s) ? 0 : tti_members_spares(s),
                          .changes = s->changes && s->host.epoch > 0,
                          .is_done = s->is_done || s->stop_ns != INT64_MAX};
    tti_host_message said = s->host.said;
    said.magic = 0;
    if (memcmp(&said, &m, sizeof m) == 0 && !tti_hosts_is_due(first)) return;
    tti_hosts_send(s->desc->hosts, first, &m);
    s->host.said = m;
}

static void wait_for_first(tti_supervisor *s, const tti_host *first) {
    char text[TTI_HOST_TEXT_BYTES + 100];
    const char *refusal = tti_hosts_refusal(s->desc->hosts);
    if (first->link.is_open) {
        resume(s);
        return;
    }
    tti_members_begin_change(s, -1, "host 0 does not answer");
    snprintf(text, sizeof text, "host %d hears nothing from host 0, which decides who is a member",
             own_node(s));
    if (refusal[0])
        tti_supervisor_fail(s, refusal);
    else
        suspend(s, text);
}

static void follow(tti_supervisor *s) {
    char text[TTI_HOST_TEXT_BYTES + 100];
    tti_host *first = tti_hosts_get(s->desc->hosts, 0);
    if (first->has_ended || (first->loss == TTI_HOST_ENDED && !first->has_left)) {
        snprintf(text, sizeof text, "host 0: %s", first->has_ended ? first->text : "it has ended");
        tti_supervisor_fail(s, text);
        return;
    }
    first->loss = TTI_HOST_NOT_LOST;
    if (first->has_left) return; /* its workers are done, and those of this host soon are */
    wait_for_first(s, first);
    const tti_host_message *m = &first->status, *next = &first->epoch;
    if (m->changes && m->epoch == s->host.epoch && s->host.epoch > 0)
        tti_members_begin_change(s, -1, "host 0 changes the membership");
    bool have_left = tti_members_have_left(s);
    if (have_left && s->changes && next->epoch > s->host.epoch)
        start(s, next->epoch, next->first_rank, next->n_here, next->n_ranks, next->text);
    if (s->n_alive == 0 && !tti_host_members_wait(s)) {
        s->host.has_left = true;
        tti_supervisor_fail(s, "no worker of this host is left; the other hosts go on");
    }
    send_status(s, first);
}

/* ---- both ---- */

void tti_host_members_end(tti_supervisor *s) {
    tti_host_message m = {.kind = TTI_HOST_END};
    if (!s->desc->hosts || s->host.has_ended) return;
    s->host.has_ended = true;
    bool has_failed = s->failed_ns != INT64_MAX;
    bool is_last = has_failed && own_node(s) > 0 && s->host.has_left;
    m.is_done = !has_failed || is_last;
    if (is_last)
        snprintf(m.text, sizeof m.text, "host %d has no worker left", own_node(s));
    else if (has_failed)
        snprintf(m.text, sizeof m.text, "%.500s", s->report.text);
    for (int k = 0; k < n_nodes(s); k++)
        if (k != own_node(s)) tti_hosts_send(s->desc->hosts, tti_hosts_get(s->desc->hosts, k), &m);
}

void tti_host_members_change(tti_supervisor *s) {
    tti_hosts_move(s->desc->hosts);
    if (s->failed_ns != INT64_MAX) tti_host_members_end(s);
    if (tti_members_are_final(s)) {
        (void)tti_members_have_left(s); /* ends workers that wait to join */
        if (n_ready(s) > 0)             /* no further epoch begins for them */
            tti_supervisor_fail(s,
                                "the run ends before the workers of this host are in a group "
                                "again");
        if (s->failed_ns == INT64_MAX && own_node(s) == 0) send_pulses(s);
        if (s->failed_ns == INT64_MAX && own_node(s) > 0)
            send_status(s, tti_hosts_get(s->desc->hosts, 0));
        return;
    }
    note_own_leave(s);
    if (own_node(s) == 0)
        lead(s);
    else
        follow(s);
}
