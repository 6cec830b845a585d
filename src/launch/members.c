/* members.c - the members of an elastic run: handles losses and joins, and starts each epoch. */
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "launch/supervisor_state.h"

enum {
    RESPAWN_MS = 100, /* pause before a worker is restarted, doubled for each loss */
    CALM_MS = 10000,  /* unless the last loss is at least this long ago */
    CHANGE_MS = 60000 /* time for all members to leave a broken group; then late ones are killed */
};

static bool send_epoch(const tti_supervised *w, tti_epoch_message m, int fd) {
    m.magic = TTI_CONTROL_EPOCH;
    alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&m, sizeof m};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(w->control, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof m;
}

int tti_members_on_host(const tti_supervisor *s, int n) {
    int each =
        s->desc->hosts ? tti_hosts_place(s->desc->hosts)->n_together : s->desc->n_per_replica;
    return n - n % TTI_MAX(each, 1);
}

void tti_members_dismiss(tti_supervisor *s) {
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].alive && s->workers[r].is_ready)
            send_epoch(&s->workers[r], (tti_epoch_message){0}, -1);
}

void tti_members_begin_change(tti_supervisor *s, int rank, const char *text) {
    if (s->changes) return;
    s->changes = true;
    s->changes_ns = tti_now_ns();
    if (s->desc->on_failure) s->desc->on_failure(s->desc->user, rank, text);
}

int tti_members_count(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++) n += s->workers[r].alive && !s->workers[r].joins;
    return n;
}

int tti_members_training(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++)
        n += s->workers[r].alive && !s->workers[r].joins && s->workers[r].trains;
    return n;
}

int tti_members_spares(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++)
        n += s->workers[r].alive && s->workers[r].joins && s->workers[r].is_ready &&
             !s->workers[r].is_dropped;
    return n;
}

static bool is_starting(const tti_supervised *w) {
    return w->alive && w->joins && !w->is_ready && !w->is_dropped;
}

/* True if a loaded worker still waits for others to load: at most as long as its own loading
 * took. */
static bool is_patient(const tti_supervised *w) {
    return w->alive && w->joins && w->is_ready && !w->is_dropped &&
           tti_now_ns() - w->ready_ns < w->ready_ns - w->started_ns;
}

bool tti_members_gather(const tti_supervisor *s) {
    if (s->changes) return false; /* the others have already stopped, so waiting has no use */
    for (int r = 0; r < s->n_slots; r++)
        for (int k = 0; k < s->n_slots && is_patient(&s->workers[r]); k++) {
            const tti_supervised *late = &s->workers[k];
            if (is_starting(late) && late->started_ns < s->workers[r].ready_ns) return true;
        }
    return false;
}

int tti_members_starting(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++) n += is_starting(&s->workers[r]);
    return n;
}

bool tti_members_are_patient(const tti_supervisor *s) {
    bool any = false;
    for (int r = 0; r < s->n_slots; r++) any |= is_patient(&s->workers[r]);
    return any;
}

int tti_members_in_replicas(const tti_supervisor *s, int n) {
    return n - n % TTI_MAX(s->desc->n_per_replica, 1);
}

/* The number of workers that are started, or will be, and are meant to stay. */
static int n_started(const tti_supervisor *s) {
    int n = 0;
    for (int r = 0; r < s->n_slots; r++) {
        const tti_supervised *w = &s->workers[r];
        n += (w->alive && !w->is_dropped) || w->respawn_ns < INT64_MAX;
    }
    return n;
}

/* The others can continue if enough workers, including spares, are left. */
bool tti_members_may_lose(const tti_supervisor *s, int rank) {
    const tti_supervised *w = &s->workers[rank];
    bool is_spare = w->alive && w->joins && w->is_ready;
    int n_stay = tti_members_count(s) - (w->alive && !w->joins);
    int n_elsewhere = tti_host_members_elsewhere(s);
    int n_here = tti_members_on_host(s, n_stay + tti_members_spares(s) - is_spare);
    int n_left = tti_members_in_replicas(s, n_here + n_elsewhere);
    if (n_stay + n_elsewhere == 0 && !w->joins)
        return false; /* spares do not have the state of the run */
    if (s->desc->hosts && s->host.epoch == 0 && !s->host.joins)
        return false; /* no worker has the state of the run yet */
    return s->desc->min_workers > 0 && n_left >= s->desc->min_workers &&
           s->failed_ns == INT64_MAX && !s->kill_sent && s->stop_ns == INT64_MAX;
}

static void plan_respawn(tti_supervisor *s, tti_supervised *w) {
    if (w->is_dropped || w->is_excluded || s->n_respawned >= s->desc->n_respawns) return;
    int64_t now = tti_now_ns();
    bool is_calm = now - s->respawned_ns > CALM_MS * TTI_NS_PER_MS;
    s->n_doubled = is_calm ? 0 : TTI_MIN(s->n_doubled + 1, 7);
    s->respawned_ns = now;
    s->n_respawned++;
    w->respawn_ns = now + ((int64_t)RESPAWN_MS << s->n_doubled) * TTI_NS_PER_MS;
}

void tti_members_lose(tti_supervisor *s, int rank, const siginfo_t *info) {
    tti_supervised *w = &s->workers[rank];
    tti_supervisor_report end = {0};
    char text[700];
    bool was_member = !w->joins;
    tti_cause_fill(info, rank, &end);
    plan_respawn(s, w);
    w->joins = w->is_ready = false;
    w->place = -1;
    if (w->is_dropped) snprintf(end.text, sizeof end.text, "rank %d leaves", rank);
    if (w->is_excluded)
        snprintf(end.text, sizeof end.text, "rank %d is excluded: %s", rank, w->reported.words);
    int n = TTI_MIN(tti_members_count(s) + tti_members_spares(s), s->n_target);
    bool waits = n < s->n_target && w->respawn_ns < INT64_MAX;
    n = tti_members_in_replicas(s, tti_members_on_host(s, n) + tti_host_members_elsewhere(s));
    snprintf(text, sizeof text, "%s; the run goes on with %d worker%s%s", end.text, n,
             n == 1 ? "" : "s", waits ? " until another one has joined" : "");
    if (s->desc->on_leave) s->desc->on_leave(s->desc->user, text);
    if (was_member) tti_members_begin_change(s, rank, end.text);
}

bool tti_members_are_final(const tti_supervisor *s) {
    return s->is_done || s->failed_ns != INT64_MAX || s->kill_sent || s->stop_ns != INT64_MAX ||
           (tti_members_count(s) == 0 && !s->desc->hosts);
}

/* Returns the member that joined last, or if `joins` a worker that is joining; -1: none. */
static int next_junior(const tti_supervisor *s, bool joins) {
    int found = -1;
    for (int r = 0; r < s->n_slots; r++) {
        const tti_supervised *w = &s->workers[r];
        bool is_newer = found < 0 || w->seniority > s->workers[found].seniority;
        if (w->alive && !w->is_dropped && w->joins == joins && is_newer) found = r;
    }
    return found;
}

void tti_members_retire(tti_supervisor *s, int n_most) {
    for (int r; tti_members_count(s) > n_most && (r = next_junior(s, false)) >= 0;)
        s->workers[r].joins = true;
}

void tti_members_retire_parts(tti_supervisor *s) {
    tti_members_retire(s, tti_members_on_host(s, tti_members_count(s)));
}

bool tti_members_admit(tti_supervisor *s, int n_most) {
    bool any = false;
    int n = tti_members_count(s);
    for (int r = 0; r < s->n_slots && !tti_members_are_final(s); r++) {
        tti_supervised *w = &s->workers[r];
        if (!w->alive || !w->joins || !w->is_ready || w->is_dropped || n >= n_most) continue;
        w->joins = false;
        w->seniority = ++s->n_joined;
        any = true;
        n++;
    }
    return any;
}

/* Returns the most senior member that waits for an epoch, or -1. */
static int next_senior(const tti_supervisor *s) {
    int found = -1;
    for (int r = 0; r < s->n_slots; r++) {
        const tti_supervised *w = &s->workers[r];
        bool is_older = found < 0 || w->seniority < s->workers[found].seniority;
        if (w->alive && w->is_ready && !w->joins && is_older) found = r;
    }
    return found;
}

/* Returns the first place that no member has. */
static int free_place(const tti_supervisor *s) {
    int place = 0;
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].alive && s->workers[r].place == place) place++, r = -1;
    return place;
}

/* A worker that has just died does not get the message; its death begins the next change of
 * membership. */
void tti_members_start_epoch(tti_supervisor *s, const tti_epoch_message *epoch) {
    tti_epoch_message m = *epoch;
    int n = tti_members_count(s), fd = s->desc->new_group(s->desc->user, n, m.n_ranks);
    s->changes = false;
    if (fd < 0) m.n_ranks = 0;
    for (int r; (r = next_senior(s)) >= 0; m.rank++, m.local_rank++) {
        if (s->workers[r].place < 0) s->workers[r].place = free_place(s);
        m.place = s->workers[r].place;
        send_epoch(&s->workers[r], m, fd);
        s->workers[r].is_ready = false;
    }
}

bool tti_members_have_left(tti_supervisor *s) {
    int n_missing = 0;
    bool is_late = tti_now_ns() - s->changes_ns > CHANGE_MS * TTI_NS_PER_MS;
    for (int r = 0; r < s->n_slots; r++) {
        tti_supervised *w = &s->workers[r];
        if (!w->alive) continue;
        if (w->joins && tti_members_are_final(s)) tti_supervisor_signal(w, SIGKILL);
        if (w->joins) continue;
        n_missing += !w->is_ready;
        if (!w->is_ready && s->changes && is_late) tti_supervisor_signal(w, SIGKILL);
    }
    return n_missing == 0;
}

void tti_members_change(tti_supervisor *s) {
    if (s->desc->min_workers == 0) return;
    if (s->desc->hosts) {
        tti_host_members_change(s);
        return;
    }
    if (s->failed_ns != INT64_MAX) return;
    int n_all = tti_members_in_replicas(s, tti_members_count(s) + tti_members_spares(s));
    if (!tti_members_gather(s) && tti_members_admit(s, TTI_MIN(s->n_target, n_all)))
        tti_members_begin_change(s, -1, "the membership changes: a worker joins");
    if (!tti_members_have_left(s) || !s->changes) return;
    tti_members_retire_parts(s);
    int n = tti_members_count(s);
    if (n > 0) tti_members_start_epoch(s, &(tti_epoch_message){.n_ranks = n, .n_local = n});
}

static bool drop(tti_supervisor *s, bool joins) {
    int r = next_junior(s, joins);
    if (r < 0) return false;
    s->workers[r].is_dropped = true;
    tti_supervisor_signal(&s->workers[r], SIGKILL);
    return true;
}

/* Sets the wanted number of members; spares are started in addition. */
static void set_target(tti_supervisor *s, int n) {
    const tti_supervisor_desc *desc = s->desc;
    int n_stay = 0;
    s->n_target = n;
    for (int r = 0; r < s->n_slots; r++)
        n_stay += s->workers[r].alive && !s->workers[r].joins && !s->workers[r].is_dropped;
    while (n_stay > n && drop(s, false)) n_stay--;
    while (n_started(s) > n + desc->n_spares && drop(s, true)) continue;
    for (int r = 0; r < s->n_slots && n_started(s) < n + desc->n_spares; r++) {
        tti_supervised *w = &s->workers[r];
        bool may_start = !w->alive && !w->is_excluded && w->respawn_ns == INT64_MAX;
        if (may_start) w->respawn_ns = tti_now_ns();
    }
}

void tti_members_scale(tti_supervisor *s) {
    const tti_supervisor_desc *desc = s->desc;
    int n = desc->wanted ? desc->wanted(desc->user) : 0, n_more = s->n_more;
    s->n_more = 0;
    if (tti_members_are_final(s) || desc->min_workers == 0) return;
    if (desc->hosts) {
        n = tti_host_members_scale(s, n, n_more);
        if (n != s->n_target) set_target(s, n);
        return;
    }
    if (n == 0 && n_more != 0) n = s->n_target + n_more * TTI_MAX(desc->n_per_replica, 1);
    if (n == 0) return;
    set_target(s, TTI_MIN(TTI_MAX(n, desc->min_workers), s->n_slots - desc->n_spares));
}

/* A worker that cannot be started is not tried again. */
void tti_members_respawn(tti_supervisor *s) {
    for (int r = 0; r < s->n_slots; r++) {
        tti_supervised *w = &s->workers[r];
        if (w->alive || w->respawn_ns > tti_now_ns()) continue;
        w->respawn_ns = INT64_MAX;
        tti_supervisor_close(&w->control);
        if (tti_members_are_final(s)) continue;
        w->joins = true;
        w->is_dropped = false;
        w->reported = (tti_reported_failure){0};
        if (tti_supervisor_start(s, r, true) != TUTTI_OK && s->desc->on_leave)
            s->desc->on_leave(s->desc->user, tutti_last_error());
    }
}
