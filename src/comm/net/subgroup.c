/* subgroup.c - a communicator for some ranks of several hosts.
 *
 * On each host the members get a shared-memory group that is split from the host's group, so they
 * see every failure that a rank of the host receives.  Between hosts they get their own links, so
 * the subgroup and the whole group may be used by different threads. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

/* Fills the members, their hosts and their numbers in messages. */
static void take_members(const net_state *whole, const int *members, net_state *subgroup) {
    for (int i = 0; i < subgroup->n_ranks; i++) {
        int host = whole->host_of[members[i]], h = 0;
        while (h < subgroup->n_hosts && whole->host_of[members[subgroup->first_of[h]]] != host) h++;
        if (h == subgroup->n_hosts) subgroup->first_of[subgroup->n_hosts++] = i;
        bool is_here = host == whole->host_of[whole->rank];
        subgroup->host_of[i] = h;
        subgroup->index_of[i] = is_here ? subgroup->n_local : -1;
        if (is_here) subgroup->rank_of[subgroup->n_local++] = i;
        subgroup->peers[i] = whole->peers[members[i]];
        subgroup->global_ranks[i] = whole->global_ranks[members[i]];
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
                     .host_names = whole->host_names,
                     .pages = whole->pages,
                     .remote = whole->remote,
                     .stop_fd = -1,
                     .lost = -1};
    *out = s;
    TTI_TRY(tti_net_alloc(s));
    take_members(whole, members, s);
    return TUTTI_OK;
}

/* Creates a group of one for a member that is alone on its host, so that calls need no special
 * case. */
static tutti_status join_alone(const net_state *whole, net_state *s) {
    TTI_TRY(tutti_comm_group_create(1, &s->group));
    tutti_comm_desc desc = {.group = s->group,
                            .n_ranks = 1,
                            .timeout_ms = s->timeout_ms,
                            .phase_timeout_ms = s->phase_timeout_ms};
    return tti_shm_join_subgroup(&desc, &s->global_ranks[s->rank], whole->local, &s->local);
}

static tutti_status connect_hosts(const net_state *whole, const int *members, net_state *s) {
    bool *with = calloc((size_t)s->n_ranks, sizeof *with);
    if (!with) return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory for %d ranks", s->n_ranks);
    for (int i = 0; i < s->n_ranks; i++) with[i] = s->host_of[i] != s->host_of[s->rank];
    tti_link_subgroup subgroup = {.members = members,
                                  .global_ranks = s->global_ranks,
                                  .with = with,
                                  .n_members = s->n_ranks,
                                  .index = s->rank,
                                  .timeout_ms = s->timeout_ms,
                                  .phase_timeout_ms = s->phase_timeout_ms,
                                  .serial = whole->n_splits};
    tutti_status st = whole->link->split(whole->wire, &subgroup, &s->wire);
    free(with);
    TTI_TRY(st);
    tti_net_listen(s);
    return tti_net_create_tree(s);
}

/* Joins the subgroup. near: its state inside this host; NULL: there is no other member on this
 * host. */
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
    int *local = calloc((size_t)s->n_local, sizeof *local), n_local = 0, at = 0;
    void *near = NULL;
    *subgroup = NULL;
    if (!local)
        return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory for %d ranks", s->n_local);
    s->n_splits++;
    for (int i = 0; i < n_members; i++) {
        if (s->index_of[members[i]] < 0) continue;
        if (i == index) at = n_local;
        local[n_local++] = s->index_of[members[i]];
    }
    tutti_status st = tti_transport_shm.split(s->local, local, n_local, at, on, &near);
    free(local);
    TTI_TRY(st);
    if (n_local == n_members) {
        *subgroup = near;
        return TUTTI_OK;
    }
    *on = tti_net_transport(s);
    return join_subgroup(s, members, n_members, index, near, subgroup);
}
