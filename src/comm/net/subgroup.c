/* subgroup.c - a communicator for some ranks of several hosts.
 *
 * On each host its members get a shared-memory group below the host's group, so they see every
 * failure of the whole that a rank of the host receives.  Between hosts they get their own links,
 * so another thread than the whole's may use a subgroup. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

/* Fills the members, their hosts and their numbers in messages. */
static void take_members(const net_state *whole, const int *members, net_state *subgroup) {
    int number[TTI_MAX_NET_RANKS]; /* index among the ranks of each host; -1: none yet */
    for (int h = 0; h < TTI_MAX_NET_RANKS; h++) number[h] = -1;
    for (int i = 0; i < subgroup->n_ranks; i++) {
        int host = whole->host_of[members[i]];
        if (number[host] < 0) number[host] = subgroup->n_hosts++;
        bool is_here = host == whole->host_of[whole->rank];
        subgroup->host_of[i] = number[host];
        subgroup->index_of[i] = is_here ? subgroup->n_local : -1;
        if (is_here) subgroup->rank_of[subgroup->n_local++] = i;
        subgroup->peers[i] = whole->peers[members[i]];
        subgroup->shown[i] = whole->shown[members[i]];
    }
}

static tutti_status make(const net_state *whole, const int *members, int n, int index,
                         net_state **out) {
    net_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "comm_split: %zu bytes", sizeof *s);
    *s = (net_state){.link = whole->link,
                     .rank = index,
                     .n_ranks = n,
                     .timeout_ms = whole->timeout_ms,
                     .phase_timeout_ms = whole->phase_timeout_ms,
                     .is_subgroup = true,
                     .pages = whole->pages,
                     .stop_fd = -1,
                     .lost = -1};
    s->peers = calloc((size_t)n, sizeof *s->peers);
    s->records = calloc(2 * (size_t)n, sizeof *s->records);
    *out = s;
    if (!s->peers || !s->records) return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    take_members(whole, members, s);
    return TUTTI_OK;
}

/* The only member of this host: a group of one, so that calls need not know. */
static tutti_status join_alone(const net_state *whole, net_state *s) {
    TTI_TRY(tutti_comm_group_create(1, &s->group));
    tutti_comm_desc desc = {.group = s->group,
                            .n_ranks = 1,
                            .timeout_ms = s->timeout_ms,
                            .phase_timeout_ms = s->phase_timeout_ms};
    return tti_shm_join_subgroup(&desc, &s->shown[s->rank], whole->local, &s->local);
}

static tutti_status connect_hosts(const net_state *whole, const int *members, net_state *s) {
    bool with[TTI_MAX_NET_RANKS];
    for (int i = 0; i < s->n_ranks; i++) with[i] = s->host_of[i] != s->host_of[s->rank];
    tti_link_subgroup subgroup = {.members = members,
                                  .shown = s->shown,
                                  .with = with,
                                  .n_members = s->n_ranks,
                                  .index = s->rank,
                                  .timeout_ms = s->timeout_ms,
                                  .phase_timeout_ms = s->phase_timeout_ms,
                                  .serial = whole->n_splits};
    TTI_TRY(whole->link->split(whole->wire, &subgroup, &s->wire));
    tti_net_listen(s);
    return TUTTI_OK;
}

/* near: the subgroup inside this host; NULL: there is no other member here. */
static tutti_status join_subgroup(const net_state *whole, const int *members, int n, int index,
                                  void *near, void **subgroup) {
    net_state *s = NULL;
    tutti_status st = make(whole, members, n, index, &s);
    if (s) s->local = near;
    if (st == TUTTI_OK && !near) st = join_alone(whole, s);
    if (st == TUTTI_OK) st = connect_hosts(whole, members, s);
    if (st == TUTTI_OK) {
        *subgroup = s;
        return TUTTI_OK;
    }
    if (!s) tti_transport_shm.leave(near);
    if (s)
        s->is_subgroup =
            false; /* no other rank has joined it yet, so there is no failure to report */
    tti_net_leave(s);
    return st;
}

tutti_status tti_net_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup) {
    net_state *s = state;
    int local[TTI_MAX_NET_RANKS], n_local = 0, at = 0;
    void *near = NULL;
    *subgroup = NULL;
    s->n_splits++;
    for (int i = 0; i < n_members; i++) {
        if (s->index_of[members[i]] < 0) continue;
        if (i == index) at = n_local;
        local[n_local++] = s->index_of[members[i]];
    }
    TTI_TRY(tti_transport_shm.split(s->local, local, n_local, at, on, &near));
    if (n_local == n_members) {
        *subgroup = near;
        return TUTTI_OK;
    }
    *on = tti_net_transport(s);
    return join_subgroup(s, members, n_members, index, near, subgroup);
}
