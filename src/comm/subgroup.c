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
    int *number_of = calloc((size_t)n, sizeof *number_of);
    const tti_transport *on = NULL;
    void *state = NULL;
    /* Every rank takes part in this, so that all hear of a subgroup that could not be made. */
    tutti_status st = comm->transport->split(comm->state, members, n, index, &on, &state);
    if (st == TUTTI_OK && (!subgroup || !number_of))
        st = tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    if (st == TUTTI_OK && n > 1) {
        *subgroup = (tutti_comm){.transport = on,
                                 .state = state,
                                 .rank = index,
                                 .n_ranks = n,
                                 .timeout_ms = comm->timeout_ms,
                                 .phase_timeout_ms = comm->phase_timeout_ms,
                                 .number_of = number_of};
        for (int i = 0; i < n; i++) number_of[i] = tti_comm_number_of(comm, members[i]);
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
    free(number_of);
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
