/* server_group.c - connects the workers of a divided model to a server, as one worker per replica.
 *
 * Between replicas there are only channels, part by part; inside a replica only collectives.  The
 * queue's orders are sent to the owners of parts as to range servers. */
#include "ps/server_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mesh.h"
#include "comm/progress.h"
#include "comm/subgroup.h"
#include "ps/server_ranges.h"

enum { MOST_AHEAD_MS = 2000 };

struct tti_replica_group {
    tti_mesh mesh;
    int part, n_parts;
    uint64_t n_keys[TTI_MAX_RANKS]; /* [n_parts] */
    tutti_comm *state_owners;       /* in copy 0: of the threads that update; NULL: in others */
    tti_mesh updates;               /* theirs, of one copy */
    bool wants_stop;
    bool has_parted, has_left; /* from the others of the copy; with them */
    bool stays;                /* its failure ends the run */
};

bool tti_server_speaks(const tti_server *s) {
    return !s->replica_group || s->replica_group->part == 0;
}

const char *tti_server_kind(const tti_server *s) { return s->replica_group ? "copy" : "worker"; }

int tti_replica_group_n_parts(const tti_replica_group *t) { return t->n_parts; }

tti_range tti_replica_group_keys(const tti_replica_group *t, int part) {
    tti_range keys = {0, t->n_keys[0]};
    for (int i = 1; i <= part; i++) keys = (tti_range){keys.last, keys.last + t->n_keys[i]};
    return keys;
}

/* ---- inside a copy ---- */

void tti_replica_group_request_stop(tti_replica_group *t) { t->wants_stop = true; }

tutti_status tti_replica_group_ask_stop(tti_replica_group *t, bool *stops) {
    int32_t requested = t && t->wants_stop;
    if (!t) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_reduce(t->mesh.model, &requested, &requested, 1, TUTTI_I32, TUTTI_MAX,
                                  TUTTI_ALG_AUTO));
    *stops = requested > 0;
    return TUTTI_OK;
}

tutti_status tti_replica_group_meet(tti_replica_group *t) {
    return t ? tutti_comm_barrier(t->mesh.model) : TUTTI_OK;
}

tutti_status tti_replica_group_hear(tti_replica_group *t, void *data, size_t n_bytes) {
    if (!t || n_bytes == 0) return TUTTI_OK;
    return tutti_comm_broadcast(t->mesh.model, data, n_bytes, TUTTI_U8, 0);
}

tutti_status tti_replica_group_combine(tti_replica_group *t, tti_meet_op op, void *values, int n) {
    if (!t || n == 0) return tti_replica_group_meet(t);
    bool adds = op == TTI_MEET_SUM;
    return tutti_comm_all_reduce(t->mesh.model, values, values, (size_t)n,
                                 adds ? TUTTI_F64 : TUTTI_I64, adds ? TUTTI_SUM : TUTTI_MAX,
                                 TUTTI_ALG_AUTO);
}

/* ---- coming and going ---- */

void tti_replica_group_destroy(tti_replica_group *t) {
    if (!t) return;
    tti_mesh_fini(&t->updates);
    tutti_comm_destroy(t->state_owners);
    tti_mesh_fini(&t->mesh);
    free(t);
}

void tti_replica_group_abort(tti_replica_group *t, const char *text) {
    if (t) tti_comm_abort(t->mesh.world, text);
}

/* ---- a copy that leaves ---- */

enum { MOST_TIES = 4 };

/* The communicators of this replica: of the server's calls, and of the executor's. */
static int find_ties(const tti_replica_group *t, const tti_mesh *of_exec, tutti_comm **ties) {
    tutti_comm *all[MOST_TIES] = {t->mesh.model, of_exec->model, of_exec->pipeline,
                                  of_exec->tensor};
    int n = 0;
    for (int i = 0; i < MOST_TIES; i++)
        if (all[i]) ties[n++] = all[i];
    return n;
}

/* A failure of this worker is that of the replica; a failure of a call only if the connections
 * inside the replica broke, and not because another worker ended the run for all. */
static bool is_of_copy(const tti_replica_group *t, tutti_comm *const *ties, int n,
                       tutti_status st) {
    bool is_broken = false;
    for (int i = 0; i < n && st == TUTTI_E_PEER; i++)
        is_broken = is_broken || tti_comm_check(ties[i]) != TUTTI_OK;
    return (is_broken && tti_comm_heard(t->mesh.world) == TUTTI_OK) || st == TUTTI_E_INTERNAL ||
           st == TUTTI_E_NOMEM || st == TUTTI_E_IO;
}

/* The worker that sends requests reports for all; a report from another one names it already. */
static bool say_farewell(tti_server *s, tutti_status st, const char *why) {
    char text[512];
    int rank = tutti_comm_rank(s->replica_group->mesh.world);
    if (st == TUTTI_E_PEER) return tti_client_leave(s, why);
    snprintf(text, sizeof text, "rank %d failed: %s", rank, why);
    return tti_client_leave(s, text);
}

bool tti_server_leave_copy(tti_exec *x, tutti_status st, const char *why) {
    tutti_comm *ties[MOST_TIES];
    tti_server *s = x->desc.server;
    tti_replica_group *t = s->replica_group;
    if (!t || t->mesh.at.data == 0 || t->has_parted || t->stays) return t && t->has_left;
    int n = find_ties(t, x->desc.mesh, ties);
    t->stays = !is_of_copy(t, ties, n, st);
    if (t->stays) return false;
    for (int i = 0; i < n; i++) tti_comm_abort(ties[i], why);
    t->has_parted = true;
    t->has_left = t->part > 0 || say_farewell(s, st, why);
    return t->has_left;
}

/* Channels whose waits are limited to timeout_ms, even if those of comm are longer. */
static tutti_status open_within(tutti_comm *comm, int timeout_ms, const size_t *area_bytes, int n,
                                tti_channel **channels) {
    int whole_ms = tti_comm_timeout_ms(comm);
    tti_comm_set_timeout(comm, timeout_ms);
    tutti_status st = tti_channels_open(comm, 0, area_bytes, n, channels);
    tti_comm_set_timeout(comm, whole_ms);
    return st;
}

/* From the queue to the owner of each other part; in the first replica. */
static tutti_status open_control(tti_server *s, tti_channel **control) {
    tti_replica_group *t = s->replica_group;
    tti_channel *channels[TTI_MAX_RANKS];
    size_t none[] = {sizeof(double), sizeof(float)}; /* parts join and fetch otherwise */
    const tti_mesh_at size = {1, t->mesh.size.stage, t->mesh.size.tensor};
    TTI_TRY(tti_comm_split(t->mesh.model, 0, &t->state_owners));
    tti_comm_set_timeout(t->state_owners,
                         s->desc.timeout_ms); /* other workers wait for their result */
    TTI_TRY(tti_mesh_init(t->state_owners, &size, &t->updates));
    s->desc.exec.mesh = &t->updates;
    TTI_TRY(open_within(t->mesh.model, s->desc.timeout_ms, none, TTI_COUNT(none), channels));
    *control = channels[0];
    if (t->part > 0) return TUTTI_OK;
    s->ranges = tti_ranges_create(&s->desc, t->n_parts, channels);
    if (s->ranges) return TUTTI_OK;
    for (int r = 1; r < t->n_parts; r++) tti_channel_close(channels[r]);
    return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
}

/* Between the state owner of this part and the workers of other copies that have it. */
static tutti_status open_data(const tti_server *s, tti_channel **channels) {
    size_t areas[TTI_N_KEY_AREAS];
    for (int w = 0; w < s->desc.n_workers; w++) channels[w] = NULL;
    if (s->desc.n_workers == 1) return TUTTI_OK;
    tti_server_area_bytes(&s->desc, 0, areas);
    return open_within(s->replica_group->mesh.data, s->desc.answer_ms, areas, TTI_COUNT(areas),
                       channels);
}

static tutti_status be_queue(tti_server *s, tti_channel **channels) {
    tutti_status st = tti_server_start(s);
    if (st == TUTTI_OK) return tti_listener_open(s, channels);
    for (int w = 1; w < s->desc.n_workers; w++) tti_channel_close(channels[w]);
    return st;
}

static tutti_status be_follower(tti_server *s, tti_channel *state_owner) {
    s->keys = tti_keys_create_for_part(&s->desc, s->replica_group->part, state_owner);
    if (s->keys) return TUTTI_OK;
    tti_channel_close(state_owner);
    return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
}

/* Sets the role of this worker: the queue, a client that sends requests, an owner of a part, or a
 * follower. */
static tutti_status take_place(tti_server *s, tti_channel *control, tti_channel **channels) {
    bool keeps = s->replica_group->mesh.at.data == 0;
    if (s->replica_group->part == 0)
        return keeps ? be_queue(s, channels) : tti_client_begin(s, channels[0]);
    if (!keeps) return be_follower(s, channels[0]);
    TTI_TRY(tti_range_server_create(s, 0, control, channels, &s->range_server));
    return be_follower(s, NULL);
}

static tutti_status join(tti_server *s, tutti_comm *comm, const tti_mesh_at *size) {
    tti_replica_group *t = s->replica_group;
    tti_channel *channels[TTI_MAX_RANKS], *control = NULL;
    uint64_t mine = s->desc.exec.plan->n_flat;
    TTI_TRY(tti_mesh_init(comm, size, &t->mesh));
    t->part = tti_mesh_model_rank(size, &t->mesh.at);
    t->n_parts = tti_mesh_n_model(size);
    TTI_TRY(tutti_comm_all_gather(t->mesh.model, &mine, t->n_keys, 1, TUTTI_I64));
    if (t->mesh.at.data == 0) TTI_TRY(open_control(s, &control));
    tutti_status st = open_data(s, channels);
    if (st == TUTTI_OK) return take_place(s, control, channels);
    tti_channel_close(control);
    return st;
}

/* The workers of a replica wait for each other as long as the job allows.  A worker that waits for
 * an owner must report before that time is over, and the server, for which the owner waits, even
 * earlier. */
static void set_times(tti_server_desc *desc) {
    int ahead_ms = TTI_MIN(desc->timeout_ms / 4, MOST_AHEAD_MS);
    desc->answer_ms = desc->timeout_ms - ahead_ms / 2;
    desc->timeout_ms -= ahead_ms;
}

tutti_status tti_server_create_divided(const tti_server_desc *desc, tutti_comm *comm,
                                       const tti_mesh_at *size, tti_server **out) {
    *out = NULL;
    TTI_ASSERT(tti_mesh_n_model(size) > 1 && desc->n_ranges <= 1 && desc->n_workers == size->data);
    tti_server *s = tti_server_new(desc);
    tutti_status st = TUTTI_OK;
    if (s) s->replica_group = calloc(1, sizeof *s->replica_group);
    if (s) set_times(&s->desc);
    st = s && s->replica_group ? join(s, comm, size)
                               : tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    if (st == TUTTI_OK) {
        *out = s;
        return st;
    }
    if (s) tti_server_abort(s, st, tutti_last_error());
    tti_server_destroy(s);
    return st;
}
