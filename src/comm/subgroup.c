/* subgroup.c - splits a communicator by colors.
 *
 * Every rank learns all colors, so every rank knows all subgroups; the transport then connects each
 * subgroup: shared memory, and separate links between hosts. */
#include "comm/subgroup.h"

#include <stdlib.h>

#include "comm/call.h"

/* The ranks with this rank's color, in order; *index: its own place among them. */
static int find_members(const tutti_comm *comm, const int32_t *colors, int *members, int *index) {
    int n = 0;
    for (int r = 0; r < comm->n_ranks; r++) {
        if (colors[r] != colors[comm->rank]) continue;
        if (r == comm->rank) *index = n;
        members[n++] = r;
    }
    return n;
}

/* tutti_comm_create for the members of a subgroup. */
static tutti_status join_subgroup(tutti_comm *comm, const int *members, int n, int index,
                                  tutti_comm **out) {
    tutti_comm *subgroup = calloc(1, sizeof *subgroup);
    const tti_transport *on = NULL;
    void *state = NULL;
    /* Every rank takes part in this, so that all hear of a subgroup that could not be made. */
    tutti_status st = comm->transport->split(comm->state, members, n, index, &on, &state);
    if (st == TUTTI_OK && !subgroup) st = tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    if (st == TUTTI_OK && n > 1) {
        *subgroup = (tutti_comm){.transport = on,
                                 .state = state,
                                 .rank = index,
                                 .n_ranks = n,
                                 .timeout_ms = comm->timeout_ms,
                                 .phase_timeout_ms = comm->phase_timeout_ms,
                                 .n_hosts = 1};
        for (int i = 0; i < n; i++) subgroup->number_of[i] = comm->number_of[members[i]];
        if (on->hosts) subgroup->n_hosts = on->hosts(state, subgroup->host_of);
        st = tti_sum_order_ranks(n, &subgroup->by_rank);
    }
    if (st == TUTTI_OK && n > 1) {
        *out = subgroup;
        return TUTTI_OK;
    }
    if (state) on->leave(state);
    free(subgroup);
    return st;
}

tutti_status tti_comm_split(tutti_comm *comm, int color, tutti_comm **out) {
    int32_t mine = color, colors[TTI_MAX_RANKS];
    int members[TTI_MAX_RANKS], index = 0;
    *out = NULL;
    TTI_TRY(tti_check_comm("comm_split", comm));
    TTI_TRY(tutti_comm_all_gather(comm, &mine, colors, 1, TUTTI_I32));
    int n = find_members(comm, colors, members, &index);
    return tti_call_end(comm, join_subgroup(comm, members, n, index, out));
}
