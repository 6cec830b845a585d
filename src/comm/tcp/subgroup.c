/* subgroup.c - separate connections between some ranks, next to those of the whole.
 *
 * A rank to which other members connect listens on any port of the address at which they first
 * reached it.  It sends the port through the connections of the whole group.  Members authenticate
 * again with the token, and listeners are closed when all members have connected. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"

static tutti_status fail_socket(const char *what) {
    return tti_fail(TUTTI_E_IO, "comm_split: %s: %s", what, strerror(errno));
}

/* The address of this end, or of the other end, of the whole group's connection to a rank. */
static tutti_status end_of(const tcp_state *whole, int rank, bool other, tcp_place *out) {
    int fd = tti_tcp_fd(whole, rank);
    *out = (tcp_place){.n_bytes = sizeof out->at};
    struct sockaddr *at = (struct sockaddr *)&out->at;
    int rc = other ? getpeername(fd, at, &out->n_bytes) : getsockname(fd, at, &out->n_bytes);
    return rc == 0 ? TUTTI_OK : fail_socket("the connection of the whole");
}

/* Listens at the address to which the first higher rank connected. *place: that address with the
 * new port.  The kernel chooses the name of a Unix socket. */
static tutti_status listen_for_subgroup(const tti_link_subgroup *desc, tcp_subgroup *subgroup,
                                        tcp_place *place) {
    int first = desc->index + 1;
    while (first < desc->n_members && !desc->with[first]) first++;
    if (first >= desc->n_members) return TUTTI_OK;
    TTI_TRY(end_of(subgroup->whole, desc->members[first], false, place));
    if (place->at.ss_family == AF_UNIX) place->n_bytes = sizeof place->at.ss_family;
    tti_tcp_set_port(place, 0);
    subgroup->listener = tti_tcp_listen(place);
    if (subgroup->listener < 0) return fail_socket("cannot listen");
    place->n_bytes = sizeof place->at;
    if (getsockname(subgroup->listener, (struct sockaddr *)&place->at, &place->n_bytes) != 0)
        return fail_socket("getsockname");
    return TUTTI_OK;
}

/* Only the port that a rank sends is used: its address is that of its existing connection. */
static tutti_status check_place(const tcp_state *whole, int rank, tcp_place *place) {
    struct sockaddr_in six_or_four; /* the port has the same offset in both */
    tcp_place known;
    TTI_TRY(end_of(whole, rank, true, &known));
    if (place->n_bytes > sizeof place->at || place->at.ss_family != known.at.ss_family)
        return tti_fail(TUTTI_E_INTERNAL, "comm_split: a damaged place of rank %d",
                        tti_tcp_global_rank(whole, rank));
    if (place->at.ss_family == AF_UNIX) return TUTTI_OK;
    memcpy(&six_or_four, &place->at, sizeof six_or_four);
    tti_tcp_set_port(&known, ntohs(six_or_four.sin_port));
    *place = known;
    return TUTTI_OK;
}

static tutti_status send_places(const tti_link_subgroup *desc, tcp_subgroup *subgroup,
                                const tcp_place *mine) {
    tti_message *messages = calloc((size_t)desc->n_members, sizeof *messages);
    if (!messages) return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    int n = 0;
    for (int i = 0; i < desc->n_members; i++) {
        if (!desc->with[i]) continue;
        bool is_above = i > desc->index;
        messages[n++] = (tti_message){.peer = desc->members[i],
                                      .out = is_above ? mine : NULL,
                                      .in = is_above ? NULL : &subgroup->places[i],
                                      .n_bytes = sizeof *mine};
    }
    tutti_status st = tti_tcp_move(subgroup->whole, messages, n);
    free(messages);
    TTI_TRY(st);
    for (int i = 0; i < desc->index; i++)
        if (desc->with[i])
            TTI_TRY(check_place(subgroup->whole, desc->members[i], &subgroup->places[i]));
    return TUTTI_OK;
}

static tutti_status connect_members(tcp_state *whole, const tti_link_subgroup *desc, tcp_state *s) {
    tcp_subgroup subgroup = {.whole = whole, .with = desc->with, .listener = -1};
    tcp_place mine = {0};
    subgroup.places = calloc((size_t)desc->n_members, sizeof *subgroup.places);
    if (!subgroup.places) return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    tutti_status st = listen_for_subgroup(desc, &subgroup, &mine);
    if (st == TUTTI_OK) st = send_places(desc, &subgroup, &mine);
    if (st == TUTTI_OK)
        st = tti_tcp_connect_subgroup(s, &subgroup);
    else if (subgroup.listener >= 0)
        close(subgroup.listener);
    free(subgroup.places);
    return st;
}

tutti_status tti_tcp_split(void *state, const tti_link_subgroup *desc, void **out) {
    tcp_state *whole = state, *s;
    char job[sizeof whole->job];
    /* If the name must be truncated, keep its end, in which subgroups of subgroups differ. */
    int n_kept = (int)sizeof job - 16;
    size_t n_job = strlen(whole->job);
    const char *tail = n_job > (size_t)n_kept ? whole->job + n_job - n_kept : whole->job;
    snprintf(job, sizeof job, "%.*s/%u", n_kept, tail, desc->serial);
    tti_link_desc link = {.rank = desc->index,
                          .n_ranks = desc->n_members,
                          .timeout_ms = desc->timeout_ms,
                          .phase_timeout_ms = desc->phase_timeout_ms,
                          .token = whole->token,
                          .job = job};
    TTI_TRY(tti_tcp_new(&link, &s));
    s->desc.job = s->job;
    s->place = whole->place;
    s->place_arg = whole->place_arg;
    size_t ranks_bytes = (size_t)desc->n_members * sizeof *s->global_ranks;
    s->global_ranks = malloc(ranks_bytes);
    tutti_status st =
        s->global_ranks ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory");
    if (st == TUTTI_OK) memcpy(s->global_ranks, desc->global_ranks, ranks_bytes);
    /* Members of a sparse link connect when they have messages, through the ports of the whole
     * group. */
    s->port = tti_tcp_port_share(whole->port);
    if (st == TUTTI_OK && !s->port) st = connect_members(whole, desc, s);
    if (st != TUTTI_OK) {
        tti_tcp_close(s, false);
        return st;
    }
    *out = s;
    return TUTTI_OK;
}
