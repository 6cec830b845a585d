/* p2p_workers.h - ranks as threads whose devices put values into each other's memory, as stages of
 * a pipeline do: every rank to every other one, through two slots for each pair in turn. */
#ifndef TTI_TESTS_EXEC_P2P_WORKERS_H
#define TTI_TESTS_EXEC_P2P_WORKERS_H

#include <pthread.h>

#include "base/philox.h"
#include "exec/peers_workers.h"

enum { P2P_MAX_RANKS = 4, P2P_EACH = 5, P2P_ROUNDS = 3, P2P_TURNS = 2, P2P_TRIAL = 1024 };

typedef struct p2p_workers {
    const tti_backend *backend;
    size_t n_bytes[P2P_EACH]; /* of the values from each rank to each other one */
    bool ahead;               /* all are put before any is taken: most wait for their slot */
    bool record, overlapped;
    int timeout_ms; /* 0: 20 s */
} p2p_workers;

typedef struct p2p_rank {
    const p2p_workers *c;
    const tti_device_ops *ops;
    tutti_comm *comm;
    int rank, n_ranks;
    size_t room;            /* of a slot */
    char *inbox, *out, *in; /* device [slots]; [n_ranks][P2P_EACH], to and from each rank */
    size_t inbox_bytes, box_bytes;
    char *host; /* [room] */
    void *group;
} p2p_rank;

static inline int p2p_slot(const p2p_rank *r, int from, int to, int k) {
    return (from * r->n_ranks + to) * P2P_TURNS + k % P2P_TURNS;
}

static inline size_t p2p_place(const p2p_rank *r, int from, int k) {
    return r->room * (size_t)(from * P2P_TURNS + k % P2P_TURNS);
}

static inline char *p2p_box(const p2p_rank *r, char *box, int rank, int k) {
    return box + r->room * (size_t)(rank * P2P_EACH + k);
}

static inline void p2p_fill(int from, int to, int k, int round, size_t n_bytes, char *host) {
    for (size_t i = 0; i < n_bytes; i++)
        host[i] =
            (char)tti_philox_draw((uint64_t)(from * 8 + to), (uint64_t)(k * 64 + round), i / 64)
                .v[i % 4];
}

static inline const char *p2p_connect(p2p_rank *r) {
    tti_device_term terms[P2P_MAX_RANKS];
    COMM_OK(workers_terms(r->n_ranks, terms));
    float *partials[] = {(float *)(void *)r->inbox};
    COMM_OK(r->ops->collectives.connect(
        &(tti_device_peers){.rank = r->rank,
                            .n_ranks = r->n_ranks,
                            .timeout_ms = r->c->timeout_ms ? r->c->timeout_ms : 20000,
                            .shown = r->rank + 6,
                            .terms = terms,
                            .n_terms = r->n_ranks,
                            .partials = partials,
                            .n_partials = 1,
                            .n_flat = P2P_TRIAL,
                            .n_most = P2P_TRIAL,
                            .n_words = (size_t)r->n_ranks,
                            .n_slots = r->n_ranks * r->n_ranks * P2P_TURNS,
                            .algorithm = TTI_DEVICE_PEERS,
                            .user = r->comm,
                            .all_gather = workers_gather,
                            .check = workers_look},
        &r->group));
    return NULL;
}

static inline const char *p2p_make(p2p_rank *r, const p2p_workers *c, tutti_comm *comm) {
    *r = (p2p_rank){.c = c,
                    .ops = c->backend->device,
                    .comm = comm,
                    .rank = tutti_comm_rank(comm),
                    .n_ranks = tutti_comm_n_ranks(comm)};
    COMM_OK(r->ops->open(&(tti_device_desc){.index = r->rank, .exact = true}));
    for (int k = 0; k < P2P_EACH; k++) r->room = TTI_MAX(r->room, c->n_bytes[k]);
    r->room = (r->room + 255) / 256 * 256;
    r->inbox_bytes = TTI_MAX(r->room * (size_t)(r->n_ranks * P2P_TURNS), P2P_TRIAL * 4);
    r->box_bytes = r->room * (size_t)(r->n_ranks * P2P_EACH);
    r->inbox = c->backend->alloc(r->inbox_bytes);
    r->out = c->backend->alloc(r->box_bytes);
    r->in = c->backend->alloc(r->box_bytes);
    r->host = calloc(1, r->room);
    COMM_TRUE(r->inbox && r->out && r->in && r->host);
    return p2p_connect(r);
}

static inline void p2p_release(p2p_rank *r) {
    r->ops->collectives.disconnect(r->group);
    r->c->backend->release(r->inbox, r->inbox_bytes);
    r->c->backend->release(r->out, r->box_bytes);
    r->c->backend->release(r->in, r->box_bytes);
    free(r->host);
    r->ops->close();
}

/* ---- a round ---- */

static inline const char *p2p_write(p2p_rank *r, int round) {
    for (int to = 0; to < r->n_ranks; to++)
        for (int k = 0; k < P2P_EACH; k++) {
            p2p_fill(r->rank, to, k, round, r->c->n_bytes[k], r->host);
            COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, p2p_box(r, r->out, to, k), r->host,
                                        r->c->n_bytes[k]));
            COMM_OK(r->ops->queues.sync());
        }
    return NULL;
}

static inline const char *p2p_put(p2p_rank *r, int to, int k) {
    const tti_device_message message = {.slot = p2p_slot(r, r->rank, to, k),
                                        .to = to,
                                        .src = p2p_box(r, r->out, to, k),
                                        .place = p2p_place(r, r->rank, k),
                                        .n_bytes = r->c->n_bytes[k]};
    COMM_OK(r->ops->p2p.send(r->group, &message, r->c->overlapped));
    return NULL;
}

static inline const char *p2p_take(p2p_rank *r, int from, int k) {
    int slot = p2p_slot(r, from, r->rank, k);
    COMM_OK(r->ops->p2p.recv(r->group, slot));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, p2p_box(r, r->in, from, k),
                                r->inbox + p2p_place(r, from, k), r->c->n_bytes[k]));
    COMM_OK(r->ops->p2p.release(r->group, slot, from));
    return NULL;
}

static inline const char *p2p_with_all(p2p_rank *r, int k,
                                       const char *(*act)(p2p_rank *, int, int)) {
    for (int i = 1; i < r->n_ranks; i++) {
        const char *failure = act(r, (r->rank + i) % r->n_ranks, k);
        if (failure) return failure;
    }
    return NULL;
}

static inline const char *p2p_exchange(p2p_rank *r) {
    const char *failure = NULL;
    COMM_OK(r->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
    for (int k = 0; r->c->ahead && k < P2P_EACH && !failure; k++)
        failure = p2p_with_all(r, k, p2p_put);
    for (int k = 0; k < P2P_EACH && !failure; k++) {
        if (!r->c->ahead) failure = p2p_with_all(r, k, p2p_put);
        if (!failure) failure = p2p_with_all(r, k, p2p_take);
    }
    if (failure) return failure;
    COMM_OK(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    return NULL;
}

static inline const char *p2p_check(p2p_rank *r, int round) {
    char *want = malloc(r->room);
    const char *failure = NULL;
    for (int i = 0; i < r->n_ranks * P2P_EACH && !failure; i++) {
        int from = i / P2P_EACH, k = i % P2P_EACH;
        if (from == r->rank) continue;
        p2p_fill(from, r->rank, k, round, r->c->n_bytes[k], want);
        if (r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->host, p2p_box(r, r->in, from, k),
                                r->c->n_bytes[k]) != TUTTI_OK ||
            r->ops->queues.sync() != TUTTI_OK || memcmp(r->host, want, r->c->n_bytes[k]) != 0)
            failure = comm_text("rank %d, round %d: value %d of rank %d is another", r->rank, round,
                                k, from);
    }
    free(want);
    return failure;
}

/* From the second round on as a captured graph, if c->record is set; all are made before any
 * runs. */
static inline const char *p2p_round(p2p_rank *r, int round, void **captured_graph) {
    const char *failure = p2p_write(r, round);
    if (!failure && r->c->record && round == 1) {
        COMM_OK(r->ops->queues.capture_begin());
        failure = p2p_exchange(r);
        COMM_OK(r->ops->queues.capture_end(captured_graph));
        COMM_OK(r->ops->queues.sync());
        COMM_OK(tutti_comm_barrier(r->comm));
    }
    if (failure) return failure;
    if (*captured_graph)
        COMM_OK(r->ops->queues.replay(*captured_graph));
    else
        failure = p2p_exchange(r);
    if (failure) return failure;
    COMM_OK(r->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, 0));
    COMM_OK(r->ops->collectives.await(r->group, 0));
    return p2p_check(r, round);
}

static inline const char *p2p_rank_main(tutti_comm *comm, void *arg) {
    p2p_rank r;
    void *captured_graph = NULL;
    const char *failure = p2p_make(&r, arg, comm);
    for (int round = 0; round < P2P_ROUNDS && !failure; round++)
        failure = p2p_round(&r, round, &captured_graph);
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(comm));
    r.ops->queues.release_captured_graph(captured_graph);
    p2p_release(&r);
    return NULL;
}

static inline void p2p_run(const p2p_workers *c, int n_ranks) {
    comm_run(n_ranks, p2p_rank_main, (void *)(uintptr_t)c);
}

/* ---- who does not come ---- */

static inline const char *p2p_await(p2p_rank *r, tutti_status status, const char *text) {
    COMM_OK(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    COMM_OK(r->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, 0));
    COMM_FAILS(r->ops->collectives.await(r->group, 0), status, text);
    return NULL;
}

/* The first rank waits for what the other one puts, and then the other one for a slot that nobody
 * empties. */
static inline const char *p2p_wait_alone(tutti_comm *comm, void *arg) {
    p2p_rank r;
    const char *failure = p2p_make(&r, arg, comm);
    if (!failure) failure = r.rank == 0 ? p2p_take(&r, 1, 0) : p2p_put(&r, 0, 1);
    if (!failure && r.rank == 1) failure = p2p_put(&r, 0, 1 + P2P_TURNS);
    if (!failure)
        failure = p2p_await(&r, TUTTI_E_TIMEOUT,
                            r.rank ? "rank 7: its device waited" : "rank 6: its device waited");
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(comm));
    p2p_release(&r);
    return NULL;
}

typedef struct p2p_loss {
    p2p_workers workers;
    pthread_barrier_t end; /* of all three: until then others may look at what one has */
} p2p_loss;

/* Rank 0 is lost; rank 1 waits for a value from it and rank 2 sends it one; both calls fail. */
static inline const char *p2p_lose_one(tutti_comm *comm, void *arg) {
    p2p_loss *loss = arg;
    p2p_rank r;
    const char *failure = p2p_make(&r, &loss->workers, comm);
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(comm));
    if (r.rank == 0) tti_comm_abort(comm, "the first one is lost");
    if (r.rank == 1) failure = p2p_take(&r, 0, 0);
    for (int i = 0; i < 2 && r.rank == 2 && !failure; i++)
        failure = p2p_put(&r, 0, 1 + i * P2P_TURNS);
    if (r.rank > 0 && !failure) failure = p2p_await(&r, TUTTI_E_PEER, "the first one is lost");
    pthread_barrier_wait(&loss->end);
    p2p_release(&r);
    return failure;
}

static inline void p2p_lose(const p2p_workers *c) {
    p2p_loss loss = {.workers = *c};
    pthread_barrier_init(&loss.end, NULL, 3);
    comm_run(3, p2p_lose_one, &loss);
    pthread_barrier_destroy(&loss.end);
}

#endif /* TTI_TESTS_EXEC_P2P_WORKERS_H */
