/* subgroup.c - splits a communicator by colors.
 *
 * Every rank gets all colors, so every rank knows all subgroups.  Then the transport connects each
 * subgroup: through shared memory inside hosts, and separate links between hosts. */
#include "comm/subgroup.h"

#include <stdlib.h>

#include "comm/call.h"

/* Lists the ranks with this rank's color, in order. *index: this rank's position among them. */
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
    int *global_ranks = calloc((size_t)n, sizeof *global_ranks);
    const tti_transport *on = NULL;
    void *state = NULL;
    /* Every rank takes part, so that all ranks fail if a subgroup cannot be created. */
    tutti_status st = comm->transport->split(comm->state, members, n, index, &on, &state);
    if (st == TUTTI_OK && (!subgroup || !global_ranks))
        st = tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    if (st == TUTTI_OK && n > 1) {
        *subgroup = (tutti_comm){.transport = on,
                                 .state = state,
                                 .rank = index,
                                 .n_ranks = n,
                                 .timeout_ms = comm->timeout_ms,
                                 .phase_timeout_ms = comm->phase_timeout_ms,
                                 .global_ranks = global_ranks};
        for (int i = 0; i < n; i++) global_ranks[i] = tti_comm_global_rank(comm, members[i]);
        st = tti_comm_find_hosts(subgroup);
    }
    if (st == TUTTI_OK && n > 1) {
        *out = subgroup;
        return TUTTI_OK;
    }
    if (state) on->leave(state);
    if (subgroup) {
        free(subgroup->host_of);
        free(subgroup->host_ranks);
        free(subgroup->host_first);
    }
    free(subgroup);
    free(global_ranks);
    return st;
}

tutti_status tti_comm_split(tutti_comm *comm, int color, tutti_comm **out) {
    int32_t mine = color;
    int index = 0;
    *out = NULL;
    TTI_TRY(tti_check_comm("comm_split", comm));
    size_t n_ranks = (size_t)comm->n_ranks;
    int32_t *colors = calloc(2 * n_ranks, sizeof *colors);
    if (!colors)
        return tti_call_end(comm, tti_fail(TUTTI_E_NOMEM, "comm_split: %zu ranks", n_ranks));
    int *members = (int *)colors + n_ranks;
    tutti_status st = tutti_comm_all_gather(comm, &mine, colors, 1, TUTTI_I32);
    if (st == TUTTI_OK) {
        int n = find_members(comm, colors, members, &index);
        st = tti_call_end(comm, join_subgroup(comm, members, n, index, out));
    }
    free(colors);
    return st;
}
