/* server.c - creates and destroys a server, connects its processes, and forwards calls that concern
 * all ranges to the owners of the ranges. */
#include "ps/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "comm/subgroup.h"
#include "ps/server_state.h"

/* ---- state of several processes ---- */

static tutti_status put_and_wait(tti_server *s, tti_request *r) {
    pthread_mutex_lock(&s->mutex);
    tti_server_put(s, r);
    tutti_status st = tti_server_wait_served(s, r);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_server_fetch(tti_exec *x, int k, tti_range keys, const float **data) {
    float *to = tti_exec_partial(x, 0) + keys.first;
    tti_server *s = tti_exec_server(x);
    tti_request r = {.kind = TTI_FETCH, .k = k, .keys = keys, .to = to};
    *data = to;
    if (!s->range_server) return put_and_wait(s, &r);
    tti_range_server_fetch(s->range_server, k, keys, to);
    return TUTTI_OK;
}

void tti_server_store(tti_exec *x, int k, tti_range keys, const float *data) {
    tti_server *s = tti_exec_server(x);
    if (s->range_server) tti_range_server_store(s->range_server, k, keys, data);
    if (!s->ranges) return;
    pthread_mutex_lock(&s->mutex);
    tti_exec_store_range(s->x, k, keys, data);
    pthread_mutex_unlock(&s->mutex);
}

tutti_status tti_server_range_traffic(tti_server *s, tti_range_traffic **out, int *n) {
    const tti_replica_group *t = s->replica_group;
    *n = t ? t->n_model_ranks : tti_server_n_ranges(&s->desc);
    int64_t *bytes = calloc((size_t)*n, sizeof *bytes);
    tti_range_traffic *traffic = *out = calloc((size_t)*n, sizeof *traffic);
    tti_request r = {.kind = TTI_TRAFFIC, .bytes = bytes};
    tutti_status st = bytes && traffic ? put_and_wait(s, &r)
                                       : tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    if (st != TUTTI_OK) {
        free(bytes);
        free(traffic);
        *out = NULL;
        return st;
    }
    for (int i = 0; i < *n; i++) {
        size_t first = i > 0 ? traffic[i - 1].keys.last : 0; /* ranges are concatenated */
        traffic[i].keys =
            t ? (tti_range){first, first + t->n_keys[i]} : tti_server_range(&s->desc, i);
        traffic[i].n_bytes = bytes[i];
    }
    free(bytes);
    return TUTTI_OK;
}

/* ---- create and destroy ---- */

bool tti_server_shards(const tti_server *s, int w, int n_shards, int *first, int *last) {
    if (s->desc.n_backup == 0) return false;
    *first = tti_shard_first(w, s->desc.n_workers, n_shards);
    *last = tti_shard_first(w + 1, s->desc.n_workers, n_shards);
    return true;
}

static const tti_server_calls calls = {
    .state_owner = tti_server_exec,
    .shards = tti_server_shards,
    .has_ranges = tti_server_has_ranges,
    .fetch = tti_server_fetch,
    .store = tti_server_store,
    .push = tti_server_push_step,
    .pull = tti_server_pull_step,
    .pull_averages = tti_server_pull_averages,
};

static void free_arrays(tti_server *s) {
    free(s->worker);
    free(s->n_begun);
    free(s->left);
    free(s->returned);
    free(s->barrier.has_arrived);
    free(s->terms);
}

/* Allocates the state of each worker; false: out of memory. */
static bool alloc_arrays(tti_server *s, const tti_server_desc *desc) {
    size_t n = (size_t)desc->n_workers;
    bool counts = desc->staleness > 0;
    s->worker = calloc(n, sizeof *s->worker);
    s->left = calloc(n, sizeof *s->left);
    s->returned = calloc(n, sizeof *s->returned);
    s->barrier.has_arrived = calloc(n, sizeof *s->barrier.has_arrived);
    if (counts) s->n_begun = calloc(n * n, sizeof *s->n_begun);
    if (!s->worker || !s->left || !s->returned || !s->barrier.has_arrived ||
        (counts && !s->n_begun))
        return false;
    for (size_t w = 0; w < n && counts; w++) s->worker[w].n_begun = s->n_begun + w * n;
    return true;
}

/* A server without threads and parameters; NULL: out of memory. */
static tti_server *new_server(const tti_server_desc *desc) {
    tti_server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (!alloc_arrays(s, desc)) {
        free_arrays(s);
        free(s);
        return NULL;
    }
    s->calls = &calls;
    s->desc = *desc;
    s->n_own = tti_server_range(desc, 0).last;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    tti_cond_init(&s->news);
    return s;
}

tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out) {
    *out = NULL;
    if (desc->n_workers < 1 || desc->n_workers > (int)TTI_MAX_SERVED)
        return tti_fail(TUTTI_E_INVALID, "parameter server: %d workers", desc->n_workers);
    tti_server *s = new_server(desc);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    tutti_status st = tti_server_start(s);
    if (st != TUTTI_OK) {
        tti_server_destroy(s);
        return st;
    }
    *out = s;
    return TUTTI_OK;
}

void tti_server_destroy(tti_server *s) {
    if (!s) return;
    tti_listener_close(s->listener);
    bool in_order = tti_client_close(s) && !(s->replica_group && s->failed);
    /* Other ranks need this range server until rank 0 ends. After a failure rank 0 may never end,
     * so the wait is limited. */
    tti_range_server_close(s->range_server, in_order ? TTI_NO_TIMEOUT : s->desc.timeout_ms);
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread) pthread_join(s->thread, NULL);
    tti_ranges_close(s->ranges);
    tti_keys_close(s->keys);
    tti_replica_group_destroy(s->replica_group);
    for (int i = 0; i < TTI_MAX_COMPUTE_THREADS; i++) free(s->scratch[i]);
    tti_sum_order_free(&s->order);
    tti_shard_map_free(&s->shard_map);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->mutex);
    free(s->n_to_pull);
    free(s->barrier.values);
    free(s->log);
    free_arrays(s);
    free(s);
}

void tti_server_watch_phases(tti_server *s, const tti_phase_watch *watch) {
    if (s) s->desc.watch = *watch;
}

void tti_server_abort(tti_server *s, tutti_status status, const char *text) {
    if (s->client) tti_client_abort(s, status, text);
    if (s->replica_group) tti_comm_abort(s->replica_group->mesh.world, text);
    pthread_mutex_lock(&s->mutex);
    tti_server_fail(s, TUTTI_E_PEER, text && *text ? text : "a worker is gone");
    pthread_mutex_unlock(&s->mutex);
}

/* ---- connections between processes ---- */

/* Allocates a channel to each rank; NULL: out of memory, with the message set. */
static tti_channel **new_channels(const tutti_comm *comm) {
    tti_channel **channels = calloc((size_t)tutti_comm_n_ranks(comm), sizeof(tti_channel *));
    if (!channels) (void)tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    return channels;
}

/* Connects rank 0 with every other rank, for commands and returned values. */
static tutti_status open_control(tti_server *s, tutti_comm *comm, tti_channel **channels,
                                 tti_channel **control) {
    const tti_server_desc *d = &s->desc;
    int rank = tutti_comm_rank(comm);
    size_t areas[] = {2 * (size_t)d->exec.plan->n_updates * sizeof(double),
                      TTI_MIN(d->exec.plan->n_flat, (size_t)TTI_FETCH_ELEMS) * sizeof(float)};
    TTI_TRY(tti_channels_open(comm, 0, areas, TTI_COUNT(areas), channels));
    *control = channels[0];
    if (rank == 0) s->ranges = tti_ranges_create(&s->desc, d->n_ranges, channels);
    for (int r = 0; r < d->n_workers; r++) { /* ranks without a range get no commands */
        bool is_used = rank == 0 ? s->ranges && r < d->n_ranges : r == 0 && rank < d->n_ranges;
        if (!is_used) tti_channel_close(channels[r]);
    }
    if (rank >= d->n_ranges) *control = NULL;
    if (rank > 0 || s->ranges) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
}

/* channels, to and from [n_workers]; to and from are all NULL on entry. */
static tutti_status open_range_channels(tti_server *s, tutti_comm *comm, tti_channel **channels,
                                        tti_channel **to, tti_channel **from) {
    tti_channel *control = NULL;
    int rank = tutti_comm_rank(comm);
    tutti_status st = open_control(s, comm, channels, &control);
    /* Connects each worker with each range server. */
    for (int r = 1; st == TUTTI_OK && r < s->desc.n_ranges; r++) {
        size_t areas[TTI_N_KEY_AREAS];
        tti_server_area_bytes(&s->desc, r, areas);
        TTI_TRY_GOTO(tti_channels_open(comm, r, areas, TTI_N_KEY_AREAS, channels), cleanup);
        if (r == rank)
            memcpy(from, channels, (size_t)s->desc.n_workers * sizeof(tti_channel *));
        else
            to[r] = channels[r];
    }
    if (st == TUTTI_OK && !(s->keys = tti_keys_create(&s->desc, to)))
        st = tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    if (st == TUTTI_OK && (!control || rank == 0)) return TUTTI_OK;
    if (st == TUTTI_OK)
        return tti_range_server_create(&s->desc, tti_server_worker_noun(s), rank, control, from,
                                       &s->range_server);
cleanup:
    for (int r = 0; r < s->desc.n_workers; r++) {
        tti_channel_close(to[r]);
        tti_channel_close(from[r]);
    }
    if (rank > 0) tti_channel_close(control);
    return st;
}

static tutti_status open_ranges(tti_server *s, tutti_comm *comm) {
    if (tti_server_n_ranges(&s->desc) == 1) return TUTTI_OK;
    tti_channel **channels = new_channels(comm), **to = new_channels(comm),
                **from = new_channels(comm);
    tutti_status st =
        channels && to && from ? open_range_channels(s, comm, channels, to, from) : TUTTI_E_NOMEM;
    free(channels);
    free(to);
    free(from);
    return st;
}

tutti_status tti_server_admit(tti_server *s, tutti_comm *comm) {
    tti_channel **channels = new_channels(comm);
    size_t areas[TTI_N_KEY_AREAS];
    if (!channels) return TUTTI_E_NOMEM;
    tti_server_area_bytes(&s->desc, 0, areas);
    TTI_ASSERT(!s->listener && tti_server_is_async(s));
    tutti_status st = tti_channels_open(comm, 0, areas, TTI_COUNT(areas), channels);
    if (st == TUTTI_OK) st = tti_listener_open(s, channels);
    free(channels);
    return st == TUTTI_OK ? open_ranges(s, comm) : st;
}

tutti_status tti_server_connect(const tti_server_desc *desc, tutti_comm *comm, tti_server **out) {
    size_t areas[TTI_N_KEY_AREAS];
    tti_server_area_bytes(desc, 0, areas);
    *out = NULL;
    tti_channel **channels = new_channels(comm);
    tti_server *s = channels ? new_server(desc) : NULL;
    if (!s) {
        free(channels);
        return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    tutti_status st = tti_channels_open(comm, 0, areas, TTI_COUNT(areas), channels);
    if (st == TUTTI_OK) st = tti_client_begin(s, channels[0]);
    free(channels);
    if (st == TUTTI_OK) st = open_ranges(s, comm);
    if (st == TUTTI_OK)
        *out = s;
    else
        tti_server_destroy(s);
    return st;
}

/* ---- connects the workers of a divided model to a server, as one worker per replica ---- */

/* Replicas communicate only over channels, one for each part; workers inside a replica use only
 * collectives. The queue sends the same commands to the owners of parts as to range servers. */

enum { MOST_AHEAD_MS = 2000 };

/* Opens channels whose waits are limited to timeout_ms, even if waits of comm may last longer. */
static tutti_status open_within(tutti_comm *comm, int timeout_ms, const size_t *area_bytes, int n,
                                tti_channel **channels) {
    int whole_ms = tti_comm_timeout_ms(comm);
    tti_comm_set_timeout(comm, timeout_ms);
    tutti_status st = tti_channels_open(comm, 0, area_bytes, n, channels);
    tti_comm_set_timeout(comm, whole_ms);
    return st;
}

/* Within the first replica: connects the queue with the owner of each other part. */
static tutti_status open_part_control(tti_server *s, tti_channel **channels,
                                      tti_channel **control) {
    tti_replica_group *t = s->replica_group;
    /* Model ranks other than the first use other channels to connect and to fetch. */
    size_t none[] = {sizeof(double), sizeof(float)};
    const tti_mesh_at size = {1, t->mesh.size.stage, t->mesh.size.tensor};
    TTI_TRY(tti_comm_split(t->mesh.model, 0, &t->state_owners));
    tti_comm_set_timeout(
        t->state_owners,
        s->desc.timeout_ms); /* the other workers wait for the result of the owners */
    TTI_TRY(tti_mesh_init(t->state_owners, &size, &t->updates));
    s->desc.exec.mesh = &t->updates;
    TTI_TRY(open_within(t->mesh.model, s->desc.timeout_ms, none, TTI_COUNT(none), channels));
    *control = channels[0];
    if (t->model_rank > 0) return TUTTI_OK;
    s->ranges = tti_ranges_create(&s->desc, t->n_model_ranks, channels);
    if (s->ranges) return TUTTI_OK;
    for (int r = 1; r < t->n_model_ranks; r++) tti_channel_close(channels[r]);
    return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
}

/* Connects the state owner of this part with the workers of other replicas that have the part. */
static tutti_status open_part_data(const tti_server *s, tti_channel **channels) {
    size_t areas[TTI_N_KEY_AREAS];
    for (int w = 0; w < s->desc.n_workers; w++) channels[w] = NULL;
    if (s->desc.n_workers == 1) return TUTTI_OK;
    tti_server_area_bytes(&s->desc, 0, areas);
    return open_within(s->replica_group->mesh.data, s->desc.answer_timeout_ms, areas,
                       TTI_COUNT(areas), channels);
}

static tutti_status init_follower(tti_server *s, tti_channel *state_owner) {
    s->keys = tti_keys_create_for_model_rank(&s->desc, s->replica_group->model_rank, state_owner);
    if (s->keys) return TUTTI_OK;
    tti_channel_close(state_owner);
    return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
}

/* channels: [n_ranks] */
static tutti_status connect_with_channels(tti_server *s, tutti_comm *comm, const tti_mesh_at *size,
                                          tti_channel **channels) {
    tti_replica_group *t = s->replica_group;
    tti_channel *control = NULL;
    uint64_t mine = s->desc.exec.plan->n_flat;
    TTI_TRY(tti_mesh_init(comm, size, &t->mesh));
    t->model_rank = tti_mesh_model_rank(size, &t->mesh.at);
    t->n_model_ranks = tti_mesh_n_model(size);
    t->n_keys = calloc((size_t)t->n_model_ranks, sizeof *t->n_keys);
    if (!t->n_keys) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    TTI_TRY(tutti_comm_all_gather(t->mesh.model, &mine, t->n_keys, 1, TUTTI_I64));
    if (t->mesh.at.data == 0) TTI_TRY(open_part_control(s, channels, &control));
    tutti_status st = open_part_data(s, channels);
    if (st == TUTTI_OK) {
        /* Sets the role of this worker: the queue, a client that sends requests, the owner of a
         * part, or a follower. */
        bool owns_part = s->replica_group->mesh.at.data == 0;
        if (t->model_rank == 0 && !owns_part) return tti_client_begin(s, channels[0]);
        if (t->model_rank == 0) {
            st = tti_server_start(s);
            if (st == TUTTI_OK) return tti_listener_open(s, channels);
            for (int w = 1; w < s->desc.n_workers; w++) tti_channel_close(channels[w]);
            return st;
        }
        if (!owns_part) return init_follower(s, channels[0]);
        TTI_TRY(tti_range_server_create(&s->desc, tti_server_worker_noun(s), 0, control, channels,
                                        &s->range_server));
        return init_follower(s, NULL);
    }
    tti_channel_close(control);
    return st;
}

static tutti_status connect_model_ranks(tti_server *s, tutti_comm *comm, const tti_mesh_at *size) {
    tti_channel **channels = new_channels(comm);
    if (!channels) return TUTTI_E_NOMEM;
    tutti_status st = connect_with_channels(s, comm, size, channels);
    free(channels);
    return st;
}

tutti_status tti_server_create_divided(const tti_server_desc *desc, tutti_comm *comm,
                                       const tti_mesh_at *size, tti_server **out) {
    *out = NULL;
    TTI_ASSERT(tti_mesh_n_model(size) > 1 && desc->n_ranges <= 1 && desc->n_workers == size->data);
    tti_server *s = new_server(desc);
    tutti_status st = TUTTI_OK;
    if (s) s->replica_group = calloc(1, sizeof *s->replica_group);
    if (s) {
        /* Workers of a replica wait for each other as long as the job allows. A worker that waits
         * for an owner must report its timeout before these workers do. The owner waits for the
         * server, so the server's timeout must be shorter still. */
        int ahead_ms = TTI_MIN(s->desc.timeout_ms / 4, MOST_AHEAD_MS);
        s->desc.answer_timeout_ms = s->desc.timeout_ms - ahead_ms / 2;
        s->desc.timeout_ms -= ahead_ms;
    }
    st = s && s->replica_group ? connect_model_ranks(s, comm, size)
                               : tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    if (st == TUTTI_OK) {
        *out = s;
        return st;
    }
    if (s) tti_server_abort(s, st, tutti_last_error());
    tti_server_destroy(s);
    return st;
}
