/* join.c - connects ranks of several hosts, and disconnects them.
 *
 * A rank first opens the link and exchanges a hello with each other rank, and refuses a hello of
 * another version.  Then it joins the group of its host and starts the watcher.  In a sparse group
 * ranks exchange hellos only with their neighbors in the tree of ranks: if none is refused, all
 * ranks have the same version.  All ranks then get a shorter entry of each rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

tutti_status tti_net_check_hello(const net_hello *mine, int my_rank, net_hello *theirs, int rank) {
    theirs->host[sizeof theirs->host - 1] = theirs->version[sizeof theirs->version - 1] = '\0';
    if (theirs->magic != mine->magic)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank %d is another program than rank %d, or of another byte "
                        "order",
                        rank, my_rank);
    if (theirs->wire != mine->wire || strcmp(theirs->version, mine->version) != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "comm_create: rank %d on %s is of tutti %s (wire %u), rank %d on %s of %s "
                        "(wire %u): install the same version on every host",
                        rank, theirs->host, theirs->version, theirs->wire, my_rank, mine->host,
                        mine->version, mine->wire);
    return TUTTI_OK;
}

static void write_place(const void *arg, int rank, char *text, size_t n_bytes) {
    const net_state *s = arg;
    snprintf(text, n_bytes, "pid %d on %s", (int)s->peers[rank].pid,
             tti_net_host_name(s->host_names, &s->peers[rank]));
}

/* Stores each host name once.  Checks the last name first, because ranks of a host mostly follow
 * each other. */
static tutti_status keep_name(net_state *s, const char *name, int32_t *out) {
    for (int i = s->n_host_names - 1; i >= 0; i--)
        if (strcmp(s->host_names[i], name) == 0) {
            *out = i;
            return TUTTI_OK;
        }
    char **names = realloc(s->host_names, (size_t)(s->n_host_names + 1) * sizeof *names);
    if (!names) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    s->host_names = names;
    names[s->n_host_names] = strdup(name);
    if (!names[s->n_host_names]) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory");
    *out = s->n_host_names++;
    return TUTTI_OK;
}

static tutti_status keep_peer(net_state *s, int rank, int32_t pid, uint64_t host_id,
                              const char *host) {
    s->peers[rank].pid = pid;
    s->host_ids[rank] = host_id;
    return keep_name(s, host, &s->peers[rank].host);
}

static tutti_status greet_all(net_state *s, const net_hello *mine) {
    net_hello *all = calloc((size_t)s->n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    tutti_status st = tti_net_gather(s, mine, sizeof *mine, all);
    for (int r = 0; r < s->n_ranks && st == TUTTI_OK; r++) {
        st = tti_net_check_hello(mine, s->rank, &all[r], r);
        if (st == TUTTI_OK) st = keep_peer(s, r, all[r].pid, all[r].host_id, all[r].host);
    }
    free(all);
    return st;
}

static tutti_status greet_neighbors(net_state *s, net_hello *mine) {
    int ranks[TTI_FAN_OUT + 1], n = 0, first = s->rank * TTI_FAN_OUT + 1;
    net_hello theirs[TTI_FAN_OUT + 1];
    tti_message messages[2 * (TTI_FAN_OUT + 1)];
    if (s->rank > 0) ranks[n++] = (s->rank - 1) / TTI_FAN_OUT;
    for (int r = first; r < TTI_MIN(first + TTI_FAN_OUT, s->n_ranks); r++) ranks[n++] = r;
    for (int i = 0; i < n; i++) {
        messages[2 * i] = (tti_message){.peer = ranks[i], .out = mine, .n_bytes = sizeof *mine};
        messages[2 * i + 1] =
            (tti_message){.peer = ranks[i], .in = &theirs[i], .n_bytes = sizeof theirs[i]};
    }
    TTI_TRY(tti_net_move(s, messages, 2 * n));
    for (int i = 0; i < n; i++) TTI_TRY(tti_net_check_hello(mine, s->rank, &theirs[i], ranks[i]));
    return TUTTI_OK;
}

static tutti_status gather_entries(net_state *s, const net_hello *hello) {
    net_entry mine = {.host_id = hello->host_id, .pid = hello->pid};
    net_entry *all = calloc((size_t)s->n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    snprintf(mine.host, sizeof mine.host, "%s", hello->host);
    tutti_status st = tti_net_gather(s, &mine, sizeof mine, all);
    for (int r = 0; r < s->n_ranks && st == TUTTI_OK; r++) {
        all[r].host[sizeof all[r].host - 1] = '\0';
        st = keep_peer(s, r, all[r].pid, all[r].host_id, all[r].host);
    }
    free(all);
    return st;
}

static tutti_status exchange_hellos(net_state *s) {
    net_hello mine;
    tti_net_fill_hello(s->rank, &mine);
    if (s->is_sparse) {
        TTI_TRY(greet_neighbors(s, &mine));
        TTI_TRY(gather_entries(s, &mine));
    } else {
        TTI_TRY(greet_all(s, &mine));
    }
    if (s->link->set_places) s->link->set_places(s->wire, write_place, s);
    return TUTTI_OK;
}

/* Creates the groups of the hosts.  If a group cannot be created, its ranks become separate
 * hosts. */
static tutti_status form_hosts(net_state *s) {
    bool *apart = calloc((size_t)s->n_ranks, sizeof *apart);
    if (!apart)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    tti_net_divide(s, apart);
    tutti_status st = tti_net_connect_locally(s, apart);
    if (st == TUTTI_OK) tti_net_divide(s, apart);
    free(apart);
    free(s->host_ids);
    s->host_ids = NULL;
    TTI_TRY(st);
    if (!s->group) TTI_TRY(tutti_comm_group_create(1, &s->group));
    tutti_comm_desc local = {.group = s->group,
                             .rank = s->index_of[s->rank],
                             .n_ranks = s->n_local,
                             .timeout_ms = s->timeout_ms,
                             .phase_timeout_ms = s->phase_timeout_ms};
    TTI_TRY(tti_shm_join_as(&local, s->rank_of, &s->local));
    tti_net_listen(s);
    TTI_TRY(tti_net_create_tree(s));
    TTI_TRY(tti_net_start_heartbeat(s));
    return tti_net_watch(s);
}

tutti_status tti_net_alloc(net_state *s) {
    size_t n = (size_t)s->n_ranks;
    s->is_sparse = tti_link_is_sparse(s->n_ranks);
    s->numbers = calloc(5 * n, sizeof *s->numbers);
    s->peers = calloc(n, sizeof *s->peers);
    if (!s->is_sparse) s->records = calloc(2 * n, sizeof *s->records);
    if (!s->numbers || !s->peers || (!s->is_sparse && !s->records))
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %zu ranks", n);
    for (size_t r = 0; r < n; r++) s->peers[r].host = -1;
    s->global_ranks = s->numbers;
    s->host_of = s->numbers + n;
    s->first_of = s->numbers + 2 * n;
    s->index_of = s->numbers + 3 * n;
    s->rank_of = s->numbers + 4 * n;
    return TUTTI_OK;
}

static tutti_status join(net_state *s, const tutti_comm_desc *desc) {
    tti_link_desc link = {.rank = desc->rank,
                          .n_ranks = desc->n_ranks,
                          .timeout_ms = desc->timeout_ms,
                          .phase_timeout_ms = desc->phase_timeout_ms,
                          .address = desc->address,
                          .token = desc->token,
                          .job = desc->job,
                          .stop_fd = desc->stop_fd};
    TTI_TRY(tti_net_alloc(s));
    s->host_ids = calloc((size_t)s->n_ranks, sizeof *s->host_ids);
    if (!s->host_ids)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    for (int r = 0; r < s->n_ranks; r++) s->global_ranks[r] = r;
    TTI_TRY(tti_link_find(desc->transport, &s->link));
    TTI_TRY(s->link->open(&link, &s->wire));
    TTI_TRY(exchange_hellos(s));
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
    if (s->has_reported) return;
    s->has_reported = true;
    s->failure_status = status;
    snprintf(s->failure_text, sizeof s->failure_text, "%s", tutti_last_error());
    /* Report to other hosts first, because ranks of this host may exit as soon as they see the
     * failure. */
    if (s->wire) s->link->report_failure(s->wire, status, s->failure_text);
    if (s->local) tti_transport_shm.fail(s->local, status);
}

/* Forwards a failure before leaving: for a subgroup that was in no call when the whole group
 * failed, and for a sparse group whose failure another rank of this host has received.  The error
 * text of the calling thread stays as it is. */
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
    if ((s->is_subgroup || s->is_sparse) && s->local && !s->has_reported) pass_failure_on(s);
    tti_net_unwatch(s);
    tti_net_stop_heartbeat(s);
    tti_transport_shm.leave(s->local);
    if (s->link) s->link->close(s->wire, !s->has_reported);
    tutti_comm_group_destroy(s->group);
    tti_message_list_free(&s->messages);
    tti_net_destroy_tree(s);
    free(s->records);
    for (int i = 0; i < s->n_host_names; i++) free(s->host_names[i]);
    if (!s->is_subgroup) free(s->host_names);
    free(s->host_ids);
    free(s->peers);
    free(s->numbers);
    free(s);
}
