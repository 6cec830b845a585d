/* server_divided.c - connects the workers of a divided model to a server, as one worker per
 * replica.
 *
 * Between replicas there are only channels, part by part; inside a replica only collectives.  The
 * queue's orders are sent to the owners of parts as to range servers. */
#include <stdlib.h>

#include "comm/subgroup.h"
#include "ps/server_group.h"
#include "ps/server_ranges.h"

enum { MOST_AHEAD_MS = 2000 };

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

/* Between the state owner of this part and the workers of other replicas that have it. */
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
    TTI_TRY(tti_range_server_create(&s->desc, tti_server_kind(s), 0, control, channels,
                                    &s->range_server));
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
