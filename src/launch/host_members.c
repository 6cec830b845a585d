/* host_members.c - decides which workers are members of an elastic run on several hosts.
 *
 * One host is the leader, at first host 0.  Only the leader begins an epoch and chooses its number
 * and rendezvous address.  The other hosts report the state of their workers and follow its
 * decisions.  A host that gets no messages from its leader breaks its group, and looks for another
 * leader or leads the hosts that accept it.
 *
 * When hosts are lost, the leader continues only with a majority: it must reach more members of the
 * last epoch than may be alive on hosts that do not answer.  The last epoch is the latest one that
 * a connected host knows.  A host whose supervisor has closed its connection has ended with its
 * workers, so these are not counted.  Without a majority, or with fewer than min_workers, all hosts
 * wait.  The members keep their state and continue from the last committed step when the connection
 * is back.
 *
 * Two groups never both commit, for this reason: All remaining members of an epoch are members of
 * the next one, and an epoch commits nothing before all of its members have joined.  A host joins
 * only epochs of the leader to which it is connected, which knows the host's last epoch, and it has
 * one leader at a time.  So two epochs that follow the same one, each with a majority of it, have a
 * common host, and the leader of the second epoch knows the first.
 *
 * Workers that must be on one host, a replica or a tensor group, are lost together: the host makes
 * the remaining ones spares before it reports, and they are not counted in the majority.  If
 * replicas are on several hosts, the leader leaves out members that form no whole replica.  These
 * could join another leader, so the remaining members must be more than the members that were left
 * out and the unreachable ones together.  Then two groups of remaining members, each with such a
 * majority, have a common host. */
#include <stdio.h>
#include <stdlib.h>
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
static const tti_host_layout *place_of(const tti_supervisor *s) {
    return tti_hosts_place(s->desc->hosts);
}
static int own_node(const tti_supervisor *s) { return tti_hosts_place(s->desc->hosts)->node; }
static bool leads(const tti_supervisor *s) {
    return tti_hosts_leader(s->desc->hosts) == own_node(s);
}
static tti_host *leader_of(const tti_supervisor *s) {
    return tti_hosts_get(s->desc->hosts, tti_hosts_leader(s->desc->hosts));
}

static int n_ready(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++)
        n += s->workers[r].alive && s->workers[r].is_ready && !s->workers[r].joins;
    return n;
}

/* True if the last message of the host describes its current state. */
static bool is_fresh(const tti_host *host) {
    return host->link.is_open && host->status.kind == TTI_HOST_STATUS &&
           (host->granted == 0 || host->status.epoch == host->granted);
}

int tti_host_members_elsewhere(const tti_supervisor *s) {
    int n = 0;
    if (!s->desc->hosts) return 0;
    if (!leads(s)) {
        const tti_host *first = leader_of(s);
        return first->link.is_open ? first->status.n_elsewhere : 0;
    }
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (host->link.is_open && !host->has_left)
            n += tti_members_on_host(s, host->status.n_members);
    }
    return n;
}

bool tti_host_members_wait(const tti_supervisor *s) {
    if (!s->desc->hosts || tti_members_are_final(s)) return false;
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].respawn_ns < INT64_MAX) return true;
    bool is_empty = s->n_target == 0; /* a user has requested fewer workers */
    return is_empty && !leader_of(s)->has_left;
}

/* ---- numbers of workers per host ---- */

/* Arrays with a number per host, which the functions below compute. */
enum { NEXT_TARGETS, NEXT_MEMBERS, WAITING, JOINING, N_NUMBERS };

static int32_t *numbers(const tti_supervisor *s, int which) {
    return s->host.numbers + (size_t)which * (size_t)n_nodes(s);
}

tutti_status tti_host_members_begin(tti_supervisor *s) {
    if (!s->desc->hosts) return TUTTI_OK;
    s->host.file.path = s->desc->host_file;
    s->host.numbers = calloc(N_NUMBERS * (size_t)n_nodes(s), sizeof *s->host.numbers);
    return s->host.numbers
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "launch: out of memory for %d hosts", n_nodes(s));
}

static const int32_t *targets(const tti_supervisor *s) {
    return tti_hosts_table(s->desc->hosts)->targets;
}

static int n_per_replica(const tti_supervisor *s) { return TTI_MAX(s->desc->n_per_replica, 1); }

static int n_targets(const tti_supervisor *s) {
    int n = 0;
    for (int k = 0; k < n_nodes(s); k++) n += targets(s)[k];
    return n;
}

/* Distributes n workers over the connected hosts, in the proportion of TUTTI_NODES.  This host, the
 * leader, always gets some. */
static void divide(tti_supervisor *s, int n) {
    const int *weights = tti_hosts_place(s->desc->hosts)->n_workers;
    int32_t *to = numbers(s, NEXT_TARGETS);
    int own = own_node(s), each = TTI_MAX(place_of(s)->n_together, 1);
    memset(to, 0, (size_t)n_nodes(s) * sizeof *to);
    for (int best; n >= each; n -= each, to[best] += each) {
        best = -1;
        for (int k = 0; k < n_nodes(s); k++) {
            const tti_host *host = tti_hosts_get(s->desc->hosts, k);
            bool is_there =
                k == own || s->host.epoch == 0 || (host->link.is_open && !host->has_left);
            int most = TTI_MIN(s->desc->max_workers, TTI_MAX_HOST_WORKERS);
            bool is_full = to[k] + each > TTI_MAX(weights[k], most);
            if (!is_there || is_full || (k != own && to[own] == 0)) continue;
            if (best < 0 || to[k] * weights[best] < to[best] * weights[k]) best = k;
        }
        if (best < 0) break;
    }
    tti_hosts_set_targets(s->desc->hosts, to);
}

/* Applies requests of users that other hosts have forwarded. */
static void take_asked(tti_supervisor *s) {
    for (int k = 0; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (leads(s))
            tti_host_request(&s->host.n_asked, &s->host.n_more, host->n_asked, host->n_more);
        host->n_asked = host->n_more = 0;
    }
}

static void ask_leader(tti_supervisor *s) {
    tti_host *leader = leader_of(s);
    tti_host_message m = {
        .kind = TTI_HOST_ASK, .n_asked = s->host.n_asked, .n_more = s->host.n_more};
    bool is_asked = s->host.n_asked != 0 || s->host.n_more != 0;
    if (!is_asked || !leader->link.is_open) return;
    tti_hosts_send(s->desc->hosts, leader, &m);
    s->host.n_asked = s->host.n_more = 0;
}

int tti_host_members_scale(tti_supervisor *s, int n_asked, int n_more) {
    int own = own_node(s), most = TTI_MAX(s->desc->max_workers, place_of(s)->n_all);
    tti_hosts_move(s->desc->hosts); /* the leader may have sent new targets */
    tti_host_slots_look(s);
    tti_host_request(&s->host.n_asked, &s->host.n_more, n_asked, n_more);
    take_asked(s);
    if (!leads(s)) {
        const tti_host_table *table = &leader_of(s)->table;
        ask_leader(s);
        if (table->n > 0) tti_hosts_set_targets(s->desc->hosts, table->targets);
        return targets(s)[own];
    }
    bool is_asked = s->host.n_asked != 0 || s->host.n_more != 0;
    int n = s->host.n_asked ? s->host.n_asked : n_targets(s);
    n += s->host.n_more * n_per_replica(s);
    s->host.n_asked = s->host.n_more = 0;
    if (is_asked) divide(s, TTI_MIN(TTI_MAX(n, s->desc->min_workers), most));
    return targets(s)[own];
}

/* The members of the next epoch. */
typedef struct places {
    int32_t *n_here; /* [n_nodes], numbers NEXT_MEMBERS */
    int n_all;
    int n_left_out; /* remaining members of the last epoch that form no whole replica */
    int n_free;     /* free places without a worker that is ready */
    bool any_joins; /* some members are not in the current epoch */
} places;

/* Returns the latest epoch that a connected host knows, and its number of members on each host;
 * NULL: not reported. */
static uint64_t last_epoch(const tti_supervisor *s, const int32_t **members) {
    uint64_t epoch = s->host.epoch;
    *members = tti_hosts_table(s->desc->hosts)->members;
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (k == own_node(s) || !is_fresh(host) || host->status.epoch <= epoch) continue;
        epoch = host->status.epoch;
        *members = host->table.members;
    }
    return epoch;
}

/* The number of workers of this host that wait for a place, and not for other workers to load. */
static int n_waiting(const tti_supervisor *s) {
    return tti_members_are_final(s) || tti_members_gather(s) ? 0 : tti_members_spares(s);
}

/* True if a host that joins is still loading its workers; the others do not wait for it. */
static bool is_loading(const tti_host *host, uint64_t last) {
    const tti_host_message *m = &host->status;
    return last > 0 && m->epoch != last && m->n_ready < m->n_members;
}

/* Counts the remaining members of a connected host, and its workers that wait for a place. */
static void count_host(const tti_supervisor *s, int node, uint64_t last, int32_t *n_stay,
                       int32_t *n_wait) {
    const tti_host *host = tti_hosts_get(s->desc->hosts, node);
    bool is_own = node == own_node(s);
    uint64_t epoch = is_own ? s->host.epoch : host->status.epoch;
    int n = is_own ? tti_members_count(s) : host->status.n_members;
    int n_spares = is_own ? n_waiting(s) : host->status.n_spares;
    *n_stay = *n_wait = 0;
    if (!is_own && (!is_fresh(host) || host->has_left || is_loading(host, last))) return;
    *n_stay = epoch > 0 && epoch == last ? n : 0;
    *n_wait = n_spares + n - *n_stay;
}

/* Leaves out workers that form no whole replica: waiting workers first, then members. */
static void leave_out(const tti_supervisor *s, places *p) {
    int32_t *n_joining = numbers(s, JOINING);
    int n_more = p->n_all - tti_members_in_replicas(s, p->n_all);
    for (int pass = 0; pass < 2; pass++)
        for (int k = n_nodes(s) - 1; k >= 0; k--) {
            int n = TTI_MIN(pass == 0 ? n_joining[k] : p->n_here[k], n_more);
            p->n_here[k] -= n;
            p->n_all -= n;
            n_more -= n;
            if (pass == 0) n_joining[k] -= n;
            if (pass == 1) p->n_left_out += n;
        }
    for (int k = 0; k < n_nodes(s); k++) p->any_joins |= n_joining[k] > 0;
}

/* Chooses the members of the next epoch.  Members stay.  Waiting workers take free places: first up
 * to the target of their host, then places of hosts with too few workers. */
static places find_places(const tti_supervisor *s) {
    places p = {.n_here = numbers(s, NEXT_MEMBERS)};
    int32_t *n_joining = numbers(s, JOINING);
    int32_t *n_wait = numbers(s, WAITING);
    const int32_t *members;
    uint64_t last = last_epoch(s, &members);
    int n_free = n_targets(s);
    for (int k = 0; k < n_nodes(s); k++) {
        count_host(s, k, last, &p.n_here[k], &n_wait[k]);
        n_joining[k] = 0;
        p.n_all += p.n_here[k];
    }
    n_free -= p.n_all;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < n_nodes(s); k++) {
            int n = pass == 0 ? TTI_MIN(targets(s)[k] - p.n_here[k], n_wait[k]) : n_wait[k];
            n = tti_members_on_host(s, TTI_MAX(TTI_MIN(n, n_free), 0));
            n_joining[k] += n;
            p.n_here[k] += n;
            p.n_all += n;
            n_wait[k] -= n;
            n_free -= n;
        }
    p.n_free = n_free;
    leave_out(s, &p);
    return p;
}

/* Notices ranks of this host that left the group by themselves because they lost a connection. */
static void note_own_leave(tti_supervisor *s) {
    if (!s->changes && n_ready(s) > 0)
        tti_members_begin_change(s, -1, "a rank lost its connection to another rank");
}

/* Fails the run if the wait for other hosts lasts too long. why: the reason, reported when the wait
 * begins. */
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
        const char *refusal = tti_hosts_refusal(s->desc->hosts);
        snprintf(text, sizeof text, "%s, for %d ms (parallel.timeout_ms)%s%.250s", why, wait_ms,
                 refusal[0] ? "; " : "", refusal);
        tti_supervisor_fail(s, text);
    }
}

static void resume(tti_supervisor *s) {
    if (s->host.suspended_ns && s->host.epoch > 0) report(s, "the hosts are connected again");
    s->host.suspended_ns = 0;
}

/* Starts the next epoch for the workers of this host. members: number of members on each host. */
static void start(tti_supervisor *s, const tti_host_message *next, const int32_t *members) {
    int n_here = next->n_here;
    tti_epoch_message m = {.rank = next->first_rank,
                           .n_ranks = next->n_ranks,
                           .n_local = n_here,
                           .number = next->epoch};
    tti_members_retire(s, n_here);
    tti_members_admit(s, n_here);
    snprintf(m.address, sizeof m.address, "%.*s", (int)sizeof m.address - 1, next->text);
    tti_hosts_job(s->desc->hosts, next->epoch, m.job);
    snprintf(m.token, sizeof m.token, "%s", tti_hosts_token(s->desc->hosts));
    s->host.epoch = next->epoch;
    s->host.joins = s->host.trains = false;
    s->host.begun_ns = now_ns();
    tti_hosts_set_members(s->desc->hosts, members);
    for (int k = 0; k < n_nodes(s); k++) /* the host is connected again */
        if (members[k] > 0) tti_hosts_get(s->desc->hosts, k)->is_dead = false;
    tti_members_start_epoch(s, &m);
    if (tti_members_count(s) < n_here) /* the other hosts would wait for the missing worker */
        tti_members_begin_change(s, -1, "a worker was lost before it was in the group");
}

/* ---- the leader ---- */

static void note_host_loss(tti_supervisor *s, int node, tti_host *host) {
    char text[300];
    bool is_silent = host->loss == TTI_HOST_SILENT;
    host->loss = TTI_HOST_NOT_LOST;
    if (host->has_left) return;
    snprintf(text, sizeof text, is_silent ? "host %d does not answer" : "host %d has ended", node);
    report(s, text);
    tti_members_begin_change(s, -1, text);
}

/* Records that the workers of a host leave the current epoch. */
static void note_leave(tti_supervisor *s, const tti_host *host) {
    if (!is_fresh(host) || host->has_left || s->host.epoch == 0) return;
    if (host->status.changes && host->granted == s->host.epoch)
        tti_members_begin_change(s, -1, "the membership changes on another host");
}

/* Returns the number of members of the current epoch, on all hosts, if all of them train; else
 * 0. */
static int count_training(const tti_supervisor *s) {
    const int32_t *members = tti_hosts_table(s->desc->hosts)->members;
    int n = 0;
    if (s->changes || s->host.epoch == 0) return 0;
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        bool is_own = k == own_node(s);
        if (members[k] == 0) continue;
        if (!is_own && (!is_fresh(host) || host->status.epoch != s->host.epoch)) return 0;
        int n_training = is_own ? tti_members_training(s) : host->status.n_training;
        if (n_training != members[k]) return 0;
        n += n_training;
    }
    return n;
}

/* Publishes that all members train, which ends the wait of tutti scale. */
static void note_training(tti_supervisor *s) {
    if (s->host.trains) return;
    s->host.trains = true;
    if (s->desc->on_training) s->desc->on_training(s->desc->user);
}

static void send_pulses(tti_supervisor *s) {
    int n_training = count_training(s);
    int n_all = tti_members_on_host(s, tti_members_count(s)) + tti_host_members_elsewhere(s);
    for (int k = 0; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (!host->link.is_open) continue;
        bool changes = s->changes && host->granted == s->host.epoch;
        bool is_new = changes != host->sent_changes || n_training != host->n_sent_training;
        if (!tti_hosts_is_due(s->desc->hosts, host) && !is_new) continue;
        tti_host_message m = {
            .kind = TTI_HOST_PULSE,
            .epoch = s->host.epoch,
            .changes = changes,
            .n_training = n_training,
            .n_elsewhere = n_all - tti_members_on_host(s, host->status.n_members)};
        host->sent_changes = changes;
        host->n_sent_training = n_training;
        tti_hosts_send(s->desc->hosts, host, &m);
    }
}

/* The members of the current epoch that the leader reaches, those that may be alive elsewhere, and
 * the next epoch. */
typedef struct census {
    uint64_t epoch; /* the last one */
    int n_reached, n_unknown;
    places next;
    bool is_complete; /* every host is connected */
    bool is_ready;    /* each connected host waits for the next epoch */
} census;

static census count(const tti_supervisor *s) {
    const int32_t *members;
    uint64_t epoch = last_epoch(s, &members);
    census c = {.epoch = epoch,
                .n_reached = s->host.epoch == epoch ? tti_members_count(s) : 0,
                .next = find_places(s),
                .is_complete = true,
                .is_ready = true};
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        const tti_host_message *m = &host->status;
        if (k == own_node(s)) continue;
        if (!host->link.is_open || host->has_left) {
            c.is_complete = false;
            if (!host->is_dead && !host->has_left) c.n_unknown += members ? members[k] : 0;
            continue;
        }
        if (!is_fresh(host)) {
            c.is_ready = false;
            continue;
        }
        if (is_loading(host, epoch)) continue;
        bool is_whole = tti_members_on_host(s, m->n_members) == m->n_members;
        if (m->n_ready != m->n_members || !is_whole) c.is_ready = false;
        if (m->epoch == epoch) c.n_reached += m->n_members;
    }
    return c;
}

/* Returns true, with the reason in why, if the next epoch cannot begin. */
static bool must_wait(const tti_supervisor *s, const census *c, char *why, size_t n_bytes) {
    int n_left_out = c->next.n_left_out;
    bool has_majority = c->n_reached - n_left_out > c->n_unknown + n_left_out;
    if (s->host.joins)
        snprintf(why, n_bytes, "this host has lost the run that it joins");
    else if (s->host.epoch == 0 && !c->is_complete)
        snprintf(why, n_bytes, "not all hosts of TUTTI_NODES are connected yet");
    else if (s->host.epoch > 0 && !has_majority)
        snprintf(why, n_bytes,
                 "this host reaches %d workers of the last epoch and %d may be alive on hosts that "
                 "do not answer, so it has no majority",
                 c->n_reached, c->n_unknown);
    else if (c->next.n_all < s->desc->min_workers)
        snprintf(why, n_bytes, "this host reaches %d workers, fewer than parallel.min_workers=%d",
                 c->next.n_all, s->desc->min_workers);
    else
        return false;
    return true;
}

/* Counts epochs that end soon.  If hosts answer but their ranks cannot connect to each other,
 * membership would change forever; then returns true. */
static bool is_futile(tti_supervisor *s, int n_ranks) {
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

static void grant(tti_supervisor *s, const census *c) {
    tti_hosts *hosts = s->desc->hosts;
    const places *next = &c->next;
    int own = own_node(s), home = own;
    tti_host_message m = {.kind = TTI_HOST_EPOCH, .epoch = c->epoch + 1, .n_ranks = next->n_all};
    for (int k = 0; next->n_here[home] == 0; k++) home = k;
    tti_hosts_address(hosts, home, m.text, sizeof m.text);
    tti_hosts_set_members(hosts, next->n_here);
    if (s->desc->on_lead) s->desc->on_lead(s->desc->user);
    m.n_here = next->n_here[own];
    tti_host_message mine = m;
    m.first_rank = m.n_here;
    for (int k = 0; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(hosts, k);
        if (k == own || !is_fresh(host) || host->has_left || is_loading(host, c->epoch)) continue;
        m.n_here = next->n_here[k];
        m.n_elsewhere = next->n_all - m.n_here;
        host->granted = m.epoch;
        host->sent_changes = false;
        host->n_sent_training = 0;
        tti_hosts_send(hosts, host, &m);
        m.first_rank += m.n_here;
    }
    start(s, &mine, next->n_here);
}

/* Handles losses and requests of the other hosts; false: the run has failed. */
static bool look_at_hosts(tti_supervisor *s) {
    char why[300];
    for (int k = 0; k < n_nodes(s); k++) {
        tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (k == own_node(s)) continue;
        if (host->has_ended) {
            snprintf(why, sizeof why, "host %d: %.250s", k, host->text);
            tti_supervisor_fail(s, why);
            return false;
        }
        if (host->has_left && !host->is_dead && host->text[0]) {
            host->is_dead = true; /* the last worker of the host was lost */
            report(s, host->text);
            bool had_members = tti_hosts_table(s->desc->hosts)->members[k] > 0;
            if (had_members) tti_members_begin_change(s, -1, host->text);
        }
        if (host->loss) note_host_loss(s, k, host);
        note_leave(s, host);
        bool is_done = host->has_left && !host->text[0];
        if (is_done && tti_members_count(s) == 0) s->is_done = true; /* then the run is done too */
    }
    return true;
}

/* True while the leader waits for hosts that have also lost their leader.  They do not connect at
 * the same time, and one that is left out may have the only copy of a partition. */
static bool is_gathering(const tti_supervisor *s, const census *c) {
    int64_t since_ns = now_ns() - s->host.leaderless_ns;
    bool is_new = s->host.leaderless_ns && since_ns < TTI_HOST_LOST_MS * TTI_NS_PER_MS;
    return is_new && c->n_unknown > 0;
}

/* True if all hosts have reported that they are in the current epoch.  Before that, places of their
 * members would seem to be free. */
static bool have_reported(const tti_supervisor *s) {
    bool all = true;
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        bool is_there = k != own_node(s) && host->link.is_open && !host->has_left;
        all &= !is_there || is_fresh(host);
    }
    return all;
}

/* True if workers that could join wait for workers that are loading on any host, so that one change
 * of membership is enough for all. */
static bool is_gathering_workers(const tti_supervisor *s) {
    bool is_patient = tti_members_are_patient(s);
    int n_starting = tti_members_starting(s);
    for (int k = 0; k < n_nodes(s); k++) {
        const tti_host *host = tti_hosts_get(s->desc->hosts, k);
        if (k == own_node(s) || !is_fresh(host) || host->has_left) continue;
        is_patient |= host->status.is_patient != 0;
        n_starting += host->status.n_starting;
    }
    return is_patient && n_starting > 0;
}

/* True if a change of membership would let workers join now. */
static bool any_can_join(const tti_supervisor *s) {
    if (s->host.epoch == 0 || s->changes || !have_reported(s)) return false;
    places p = find_places(s);
    return p.any_joins && (p.n_free <= 0 || !is_gathering_workers(s));
}

static void lead(tti_supervisor *s) {
    char why[300];
    if (!look_at_hosts(s)) return;
    if (s->n_alive == 0 && !tti_host_members_wait(s)) {
        s->host.has_left = s->host.epoch > 0;
        tti_supervisor_fail(s, "no worker of this host is left; the other hosts go on");
        return;
    }
    if (any_can_join(s)) tti_members_begin_change(s, -1, "the membership changes: a worker joins");
    if (count_training(s) > 0) note_training(s);
    send_pulses(s);
    if (!tti_members_have_left(s) || !s->changes) return;
    tti_members_retire_parts(s);
    census c = count(s);
    bool waits = must_wait(s, &c, why, sizeof why);
    bool is_early = is_gathering(s, &c), is_begun = s->host.epoch > 0 || s->host.joins;
    tti_hosts_seek(s->desc->hosts, (waits || is_early) && is_begun, s->host.epoch);
    if (is_early) return;
    if (waits) {
        suspend(s, why);
        return;
    }
    if (!c.is_ready || c.next.n_all == 0 || is_futile(s, c.next.n_all)) return;
    resume(s);
    grant(s, &c);
}

/* ---- the other hosts ---- */

static void send_status(tti_supervisor *s, tti_host *first) {
    tti_host_message m = {.kind = TTI_HOST_STATUS,
                          .node = own_node(s),
                          .epoch = s->host.epoch,
                          .n_members = tti_members_count(s),
                          .n_ready = n_ready(s),
                          .n_spares = n_waiting(s),
                          .n_starting = tti_members_starting(s),
                          .is_patient = tti_members_are_patient(s),
                          .n_training = tti_members_training(s),
                          .changes = s->changes && s->host.epoch > 0,
                          .is_done = s->is_done || s->stop_ns != INT64_MAX};
    tti_host_message last = s->host.last_status;
    last.magic = 0;
    last.has_table = 0;
    if (memcmp(&last, &m, sizeof m) == 0 && !tti_hosts_is_due(s->desc->hosts, first)) return;
    tti_hosts_send(s->desc->hosts, first, &m);
    s->host.last_status = m;
}

/* Handles the loss of the leader: this host looks for another one, or leads hosts that have also
 * lost theirs. */
static void lose_leader(tti_supervisor *s, tti_host *leader, const char *text) {
    report(s, text);
    leader->is_dead |= leader->has_left;
    leader->loss = TTI_HOST_NOT_LOST;
    tti_members_begin_change(s, -1, text);
    s->host.leaderless_ns = now_ns();
    tti_hosts_lead(s->desc->hosts);
    tti_hosts_seek(s->desc->hosts, true, s->host.epoch);
}

/* Returns true, with the reason in text, if this host has lost its leader. */
static bool has_lost_leader(tti_supervisor *s, const tti_host *leader, char *text, size_t n_bytes) {
    int node = tti_hosts_leader(s->desc->hosts);
    if (leader->has_left && leader->text[0])
        snprintf(text, n_bytes, "%s", leader->text);
    else if (leader->link.is_open)
        return false;
    else if (leader->loss == TTI_HOST_ENDED)
        snprintf(text, n_bytes, "host %d has ended", node);
    else
        snprintf(text, n_bytes,
                 "host %d receives nothing from host %d, which decides the membership", own_node(s),
                 node);
    return true;
}

static void follow(tti_supervisor *s) {
    char text[TTI_HOST_TEXT_BYTES + 100];
    tti_host *first = leader_of(s);
    int node = tti_hosts_leader(s->desc->hosts);
    s->host.joins |= s->host.epoch == 0 && first->status.epoch > 0;
    bool is_early =
        s->host.epoch == 0 && !s->host.joins; /* no worker has the state of the run yet */
    if (first->has_ended || (is_early && first->loss == TTI_HOST_ENDED && !first->has_left)) {
        snprintf(text, sizeof text, "host %d: %s", node,
                 first->has_ended ? first->text : "it has ended");
        tti_supervisor_fail(s, text);
        return;
    }
    if (first->has_left && !first->text[0]) {
        s->is_done =
            true; /* the leader's workers are done, so these finish soon, and joining workers end */
        return;
    }
    if (has_lost_leader(s, first, text, sizeof text)) {
        lose_leader(s, first, text);
        return;
    }
    resume(s);
    const tti_host_message *m = &first->status, *next = &first->epoch;
    bool is_over = (m->changes && m->epoch == s->host.epoch) || next->epoch > s->host.epoch;
    if (is_over && s->host.epoch > 0) /* a host without members need not leave the group */
        tti_members_begin_change(s, -1, "the membership changes on another host");
    if (m->n_training > 0 && m->epoch == s->host.epoch && !s->changes) note_training(s);
    bool have_left = tti_members_have_left(s);
    if (have_left && s->changes) tti_members_retire_parts(s);
    bool is_next = next->epoch > s->host.epoch && first->table.n > 0;
    if (have_left && s->changes && is_next) start(s, next, first->table.members);
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
    bool is_last = has_failed && s->host.has_left;
    bool joins = has_failed && !is_last && s->host.joins;
    m.is_done = !has_failed || is_last || joins;
    if (joins)
        snprintf(m.text, sizeof m.text, "host %d could not join: %.450s", own_node(s),
                 s->report.text);
    else if (is_last)
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
        (void)tti_members_have_left(s); /* also ends workers that wait to join */
        bool was_late = s->host.joins && s->stop_ns == INT64_MAX;
        if (n_ready(s) > 0 || was_late) /* there is no further epoch for these workers */
            tti_supervisor_fail(s, "the run ends before the workers of this host are in a group");
        if (s->failed_ns == INT64_MAX && leads(s)) send_pulses(s);
        if (s->failed_ns == INT64_MAX && !leads(s)) send_status(s, leader_of(s));
        return;
    }
    note_own_leave(s);
    if (leads(s))
        lead(s);
    else
        follow(s);
}
