/* join.c - connects ranks of several hosts, and disconnects them.
 *
 * First the link, then a hello from each rank to each, which is refused if it is from another
 * version; then the groups of the hosts; then the watcher. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

tutti_status tti_net_check_hello(net_state *s, int rank) {
    net_hello *theirs = &s->peers[rank], *mine = &s->peers[s->rank];
    theirs->host[sizeof theirs->host - 1] = theirs->version[sizeof theirs->version - 1] = '\0';
    if (theirs->magic != mine->magic)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank %d is another program than rank %d, or of another byte "
                        "order",
                        rank, s->rank);
    if (theirs->wire != mine->wire || strcmp(theirs->version, mine->version) != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank %d on %s is of tutti %s (wire %u), rank %d on %s of %s "
                        "(wire %u): install the same version on every host",
                        rank, theirs->host, theirs->version, theirs->wire, s->rank, mine->host,
                        mine->version, mine->wire);
    return TUTTI_OK;
}

static tutti_status say_hello(net_state *s) {
    tti_net_introduce(s->rank, &s->peers[s->rank]);
    tti_message *messages = tti_message_list_room(&s->messages, 2 * s->n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 1; i < s->n_ranks; i++) {
        int peer = (s->rank + i) % s->n_ranks;
        messages[n++] =
            (tti_message){.peer = peer, .out = &s->peers[s->rank], .n_bytes = sizeof(net_hello)};
        messages[n++] =
            (tti_message){.peer = peer, .in = &s->peers[peer], .n_bytes = sizeof(net_hello)};
    }
    TTI_TRY(tti_net_move(s, messages, n));
    for (int r = 0; r < s->n_ranks; r++) TTI_TRY(tti_net_check_hello(s, r));
    return TUTTI_OK;
}

/* Makes the groups of the hosts; if one cannot be made, its ranks become separate hosts. */
static tutti_status form_hosts(net_state *s) {
    bool apart[TTI_MAX_NET_RANKS] = {false};
    tti_net_divide(s, apart);
    TTI_TRY(tti_net_connect_locally(s, apart));
    tti_net_divide(s, apart);
    if (!s->group) TTI_TRY(tutti_comm_group_create(1, &s->group));
    tutti_comm_desc local = {.group = s->group,
                             .rank = s->index_of[s->rank],
                             .n_ranks = s->n_local,
                             .timeout_ms = s->timeout_ms,
                             .phase_timeout_ms = s->phase_timeout_ms};
    TTI_TRY(tti_shm_join_as(&local, s->rank_of, &s->local));
    tti_net_listen(s);
    TTI_TRY(tti_net_start_heartbeat(s));
    return tti_net_watch(s);
}

static tutti_status join(net_state *s, const tutti_comm_desc *desc) {
    tti_link_desc link = {.rank = desc->rank,
                          .n_ranks = desc->n_ranks,
                          .timeout_ms = desc->timeout_ms,
                          .phase_timeout_ms = desc->phase_timeout_ms,
                          .address = desc->address,
                          .token = desc->token,
                          .job = desc->job};
    s->peers = calloc((size_t)desc->n_ranks, sizeof *s->peers);
    s->records = calloc(2 * (size_t)desc->n_ranks, sizeof *s->records);
    if (!s->peers || !s->records) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    TTI_TRY(tti_link_find(desc->transport, &s->link));
    TTI_TRY(s->link->open(&link, &s->wire));
    TTI_TRY(say_hello(s));
    return form_hosts(s);
}

tutti_status tti_net_join(const tutti_comm_desc *desc, void **state) {
    net_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "comm_create: %zu bytes", sizeof *s);
    s->rank = desc->rank;
    s->n_ranks = desc->n_ranks;
    s->timeout_ms = desc->timeout_ms;
    s->phase_timeout_ms = desc->phase_timeout_ms;
    s->stop_fd = -1;
    s->lost = -1;
    for (int r = 0; r < s->n_ranks; r++) s->shown[r] = r;
    tutti_status st = join(s, desc);
    if (st != TUTTI_OK) {
        tti_net_fail(s, st);
        tti_net_leave(s);
        return st;
    }
    *state = s;
    return TUTTI_OK;
}

void tti_net_fail(void *state, tutti_status status) {
    net_state *s = state;
    if (s->cried) return;
    s->cried = true;
    snprintf(s->said, sizeof s->said, "%s", tutti_last_error());
    /* Report to other hosts first: ranks of this host may leave as soon as they see the failure. */
    if (s->wire) s->link->cry(s->wire, status, s->said);
    if (s->local) tti_transport_shm.fail(s->local, status);
}

/* A subgroup that was in no call when the whole failed passes that on before it goes.  The text of
 * the calling thread stays as it is. */
static void pass_failure_on(net_state *s) {
    char kept[8192];
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    tutti_status st = tti_shm_cause(s->local);
    if (st == TUTTI_OK) return;
    tti_net_fail(s, st);
    (void)tti_fail(st, "%s", kept);
}

void tti_net_leave(void *state) {
    net_state *s = state;
    if (!s) return;
    if (s->is_subgroup && s->local && !s->cried) pass_failure_on(s);
    tti_net_unwatch(s);
    tti_net_stop_heartbeat(s);
    tti_transport_shm.leave(s->local);
    if (s->link) s->link->close(s->wire, !s->cried);
    tutti_comm_group_destroy(s->group);
    tti_message_list_free(&s->messages);
    free(s->records);
    free(s->peers);
    free(s);
}
