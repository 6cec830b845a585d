/* wait.c - waits for the link that always end: done, a failure on any rank, or the deadline.
 *
 * A waiter first polls a few times without sleeping, because peers often arrive at about the same
 * time.  Then it lets the link sleep in slices, and between them checks for ranks that its host's
 * watcher has reported. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/net/net.h"

enum { N_LOOKS = 60, SLICE_MS = 20 };

tutti_status tti_net_check_lost(const net_state *s) {
    int lost = atomic_load(&s->lost);
    if (lost < 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (pid %d on %s) %s", s->global_ranks[lost],
                    s->peers[lost].pid, tti_net_host_name(s->host_names, &s->peers[lost]),
                    s->how_lost);
}

/* Gets the pages of all ranks.  For a rank on another host only the page of the whole group is
 * known: it does not show in which subgroup's call the rank is. */
static void get_pages(const net_state *s, tti_progress *pages) {
    for (int r = 0; r < s->n_ranks; r++) {
        bool is_near = s->index_of[r] >= 0;
        if (is_near && tti_shm_get_progress(s->local, s->index_of[r], &pages[r])) continue;
        (void)tti_net_get_page(s, s->global_ranks[r], &pages[r]);
        if (s->is_subgroup) pages[r].in_call |= pages[r].in_subgroup > 0;
    }
}

/* The rank in this subgroup of a rank of the whole group; -1: not a member. */
static int member_of(const net_state *s, int rank) {
    int first = 0, last = s->n_ranks;
    while (first < last) {
        int middle = (first + last) / 2;
        if (s->global_ranks[middle] < rank)
            first = middle + 1;
        else
            last = middle;
    }
    return first < s->n_ranks && s->global_ranks[first] == rank ? first : -1;
}

static void look_at_remote(const net_state *s, int rank, tti_progress *page, tti_suspects *all) {
    int member = rank < 0 ? -1 : member_of(s, rank);
    if (s->is_subgroup) page->in_call |= page->in_subgroup > 0;
    if (member >= 0) tti_suspects_look(all, member, page);
}

/* Merges the pages of the ranks of this host and the suspects of others. */
static void get_suspects(const net_state *s, tti_suspects *all) {
    tti_suspects remote;
    tti_progress page;
    tti_suspects_begin(all);
    for (int i = 0; i < s->n_local; i++)
        if (tti_shm_get_progress(s->local, i, &page)) tti_suspects_look(all, s->rank_of[i], &page);
    tti_net_get_suspects(s, &remote);
    if (!s->is_subgroup) all->any_waits |= remote.any_waits;
    look_at_remote(s, remote.culprit, &remote.culprit_page, all);
    look_at_remote(s, remote.busiest, &remote.busiest_page, all);
}

/* Gets the page of a rank if it is known, else leaves *page unchanged. */
static void find_page(const net_state *s, const tti_suspects *all, int rank, tti_progress *page) {
    if (s->index_of[rank] >= 0)
        (void)tti_shm_get_progress(s->local, s->index_of[rank], page);
    else if (rank == all->culprit)
        *page = all->culprit_page;
    else if (rank == all->busiest)
        *page = all->busiest_page;
}

/* Returns the rank that the others wait for, or blame if the pages do not show it, and its page.  A
 * page that says "not joined" means that the page is not known. */
static int search_suspects(const net_state *s, int blame, tti_progress *page) {
    tti_suspects all;
    get_suspects(s, &all);
    int found = tti_suspects_find_culprit(&all);
    if (found < 0 || found == s->rank || !all.culprit_page.joined) found = blame;
    if (found >= 0) find_page(s, &all, found, page);
    return found;
}

static int search_pages(const net_state *s, int blame, tti_progress *page) {
    tti_progress *pages = calloc((size_t)s->n_ranks, sizeof *pages);
    if (!pages) return blame;
    get_pages(s, pages);
    int found = tti_progress_find_culprit(pages, s->n_ranks);
    if (found < 0 || found == s->rank || !pages[found].joined) found = blame;
    if (found >= 0) *page = pages[found];
    free(pages);
    return found;
}

/* Returns the rank that the others wait for, and appends its activity if it is known. */
static int find_culprit(const net_state *s, int blame, tti_str *what) {
    tti_progress page = {0};
    if (!s->local || (!s->pages && !s->remote)) return blame;
    int found = s->remote ? search_suspects(s, blame, &page) : search_pages(s, blame, &page);
    if (found < 0 || !page.joined) return found;
    if (s->index_of[found] < 0 && s->is_subgroup && page.in_subgroup)
        tti_str_add(what, "is in a call of a subgroup");
    else
        tti_progress_describe(&page, what);
    return found;
}

static int find_culprit_of_all(void *arg, tti_str *what) {
    return tti_net_find_culprit(arg, -1, what);
}

/* If no text is wanted, the shared memory of this host is enough: the heartbeat records there if a
 * rank of another host is busy. */
bool tti_net_find_busy(void *state, tti_str *what) {
    const net_state *s = state;
    tti_suspects all;
    if (what && s->remote) {
        get_suspects(s, &all);
        return tti_suspects_find_busy(&all, all.busiest < 0 ? -1 : s->global_ranks[all.busiest],
                                      what);
    }
    tti_progress *pages = what && s->pages ? calloc((size_t)s->n_ranks, sizeof *pages) : NULL;
    if (!pages) return tti_transport_shm.find_busy(s->local, what);
    get_pages(s, pages);
    bool is_busy = tti_progress_find_busy(pages, s->global_ranks, s->n_ranks, what);
    free(pages);
    return is_busy;
}

int tti_net_find_culprit(void *state, int blame, tti_str *what) {
    const net_state *s = state;
    int found = find_culprit(s, blame, what);
    return found < 0 ? -1 : s->global_ranks[found];
}

/* If the rank that this one waits for itself waits for another rank, the message names that
 * rank. */
static tutti_status fail_timeout(const net_state *s, int blame, const tti_wait_clock *clock) {
    char call[128], waited[TTI_WAIT_TEXT_BYTES];
    bool joining = s->call.kind == TTI_CALL_NONE, is_out = clock->kind == TTI_DELAY_OUTAGE;
    tti_str what = {0};
    /* During an outage the pages are outdated. */
    int culprit = is_out ? blame : find_culprit(s, blame, &what);
    const char *host = tti_net_host_name(s->host_names, &s->peers[culprit]);
    tutti_status st = tti_fail(
        TUTTI_E_TIMEOUT, "%s: rank %d waited %s for rank %d (pid %d on %s)%s%s%s",
        joining ? "comm_create" : tti_call_text(&s->call, call, sizeof call),
        s->global_ranks[s->rank], tti_wait_clock_text(clock, waited), s->global_ranks[culprit],
        s->peers[culprit].pid, host[0] ? host : "a host that is not known",
        what.n_bytes ? ", which " : "", tti_str_text(&what), tti_wait_clock_reason(clock));
    tti_str_free(&what);
    return st;
}

/* Checks the ranks of this host and, for a subgroup, the whole group, which gets failures first.
 * In a sparse group a failure may reach only one rank of this host. */
static tutti_status check_host(const net_state *s) {
    TTI_TRY(tti_net_check_lost(s));
    return s->local && (s->is_subgroup || s->is_sparse) ? tti_shm_cause(s->local) : TUTTI_OK;
}

static tutti_status listen_to_link(void *arg) {
    const net_state *s = arg;
    return s->link->check(s->wire, false);
}

static tti_delay delay_of_link(void *arg) {
    const net_state *s = arg;
    int more_ms = s->link->outage ? s->link->outage(s->wire) : 0;
    return more_ms > 0 ? (tti_delay){TTI_DELAY_OUTAGE, more_ms} : (tti_delay){0};
}

tti_delay tti_net_delay(void *state) {
    const net_state *s = state;
    /* The first check of the host's wait also asks the link. */
    return s->local ? tti_transport_shm.delay(s->local) : delay_of_link(state);
}

void tti_net_listen(net_state *s) {
    tti_shm_remote remote = {listen_to_link, delay_of_link, find_culprit_of_all, s};
    if (s->n_hosts > 1) tti_shm_listen(s->local, &remote);
}

tutti_status tti_net_cancel(const net_state *s, tutti_status st) {
    if (st != TUTTI_OK && s->link->cancel) s->link->cancel(s->wire);
    return st;
}

static tutti_status wait_for_batch(net_state *s) {
    tti_wait_clock clock = tti_wait_clock_begin(s->timeout_ms, s->phase_timeout_ms);
    int blame;
    for (int i = 0;; i++) {
        TTI_TRY(s->link->test(s->wire, &blame));
        if (blame < 0) return TUTTI_OK;
        TTI_TRY(check_host(s));
        if (tti_wait_clock_look(&clock, tti_net_delay(s))) return fail_timeout(s, blame, &clock);
        if (i < N_LOOKS) {
            sched_yield();
            continue;
        }
        s->link->pause(s->wire, SLICE_MS * TTI_NS_PER_MS, -1);
        TTI_TRY(listen_to_link(
            s)); /* also receives failures of ranks from which no message is expected */
    }
}

tutti_status tti_net_wait(net_state *s) { return tti_net_cancel(s, wait_for_batch(s)); }

tutti_status tti_net_move(net_state *s, tti_message *messages, int n) {
    tutti_status st = s->link->post(s->wire, messages, n);
    return st == TUTTI_OK ? tti_net_wait(s) : tti_net_cancel(s, st);
}

static size_t count_done(const tti_message *messages, int n) {
    size_t n_done = 0;
    for (int i = 0; i < n; i++) n_done += messages[i].done;
    return n_done;
}

static tutti_status stream(net_state *s, tti_message *messages, int n, int wake_fd) {
    size_t before = count_done(messages, n);
    int blame;
    TTI_TRY(check_host(s));
    TTI_TRY(s->link->post(s->wire, messages, n));
    TTI_TRY(s->link->test(s->wire, &blame));
    if (count_done(messages, n) != before) return TUTTI_OK;
    s->link->pause(s->wire, SLICE_MS * TTI_NS_PER_MS, wake_fd);
    return s->link->test(s->wire, &blame);
}

tutti_status tti_net_stream(void *state, tti_message *messages, int n, int wake_fd) {
    return tti_net_cancel(state, stream(state, messages, n, wake_fd));
}
