/* subgroup.c - a separate group for some ranks of a group.
 *
 * The first member creates the group and publishes its location in an agreement of the parent
 * group.  Ranks of one process share the object, so that they see each other's memory as in the
 * parent group.  Ranks of other processes open it through /proc, like ranks of a host that connect
 * over sockets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/shm/shm.h"

/* The location of the first member's group. */
typedef struct place {
    uint64_t object; /* address of the object in its process; 0: creation failed */
    int32_t pid, fd;
} place;

tutti_status tti_shm_open_group(int pid, int fd, tutti_comm_group **out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0) return tti_fail(TUTTI_E_IO, "comm: %s: %s", path, strerror(errno));
    tutti_status st = tutti_comm_group_open(own, out);
    if (st != TUTTI_OK) close(own);
    return st;
}

/* Each member in the same process will destroy the object once, so it starts with that many
 * owners. */
static tutti_status make(const shm_state *s, int n_members, place *at, tutti_comm_group **out) {
    TTI_TRY(tutti_comm_group_create(n_members, out));
    if (s->one_process) atomic_store(&(*out)->n_owners, n_members);
    *at = (place){(uintptr_t)*out, (int32_t)getpid(), tutti_comm_group_fd(*out)};
    return TUTTI_OK;
}

static tutti_status find(const shm_state *s, int first, tutti_comm_group **out) {
    place at;
    const shm_record *record = &shm_rank_of(s->header, first)->records[s->n_agreed % 2];
    memcpy(&at, record->payload, sizeof at);
    if (at.object == 0)
        return tti_fail(TUTTI_E_PEER, "comm_split: rank %d could not make a group",
                        tti_shm_global_rank(s, first));
    if (!s->one_process) return tti_shm_open_group(at.pid, at.fd, out);
    *out = (void *)(uintptr_t)at.object; /* NOLINT: an object of this process */
    return TUTTI_OK;
}

static tutti_status join_subgroup(const shm_state *s, tutti_comm_group *group, const int *members,
                                  int index, void **subgroup) {
    int n = tutti_comm_group_n_ranks(group);
    int *global_ranks = calloc((size_t)n, sizeof *global_ranks);
    if (!global_ranks) return tti_fail(TUTTI_E_NOMEM, "comm_split: out of memory for %d ranks", n);
    for (int i = 0; i < n; i++) global_ranks[i] = tti_shm_global_rank(s, members[i]);
    tutti_comm_desc desc = {.group = group,
                            .rank = index,
                            .n_ranks = n,
                            .timeout_ms = s->timeout_ms,
                            .phase_timeout_ms = s->phase_timeout_ms};
    tutti_status st = tti_shm_join_below(&desc, global_ranks, s, subgroup);
    if (st == TUTTI_OK) ((shm_state *)*subgroup)->own_group = group;
    free(global_ranks);
    return st;
}

tutti_status tti_shm_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup) {
    shm_state *s = state;
    tti_agreement agreement;
    tutti_comm_group *group = NULL;
    place mine = {0};
    bool is_first = n_members > 1 && index == 0;
    *on = &tti_transport_shm;
    *subgroup = NULL;
    tutti_status st = is_first ? make(s, n_members, &mine, &group) : TUTTI_OK;
    tti_offer offer = {
        .call = {.kind = TTI_CALL_SPLIT}, .inline_data = &mine, .inline_bytes = sizeof mine};
    tutti_status agreed = tti_transport_shm.agree(state, &offer, &agreement);
    if (agreed == TUTTI_OK && agreement.odd_rank >= 0)
        agreed = tti_fail(TUTTI_E_MISMATCH, "rank %d called another function than comm_split",
                          tti_shm_global_rank(
                              s, agreement.first.kind != TTI_CALL_SPLIT ? 0 : agreement.odd_rank));
    if (st == TUTTI_OK) st = agreed;
    if (st == TUTTI_OK && n_members > 1 && !is_first) st = find(s, members[0], &group);
    if (st == TUTTI_OK && n_members > 1) st = join_subgroup(s, group, members, index, subgroup);
    if (st != TUTTI_OK) tutti_comm_group_destroy(group);
    return st;
}
