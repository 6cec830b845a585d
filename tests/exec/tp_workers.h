/* tp_workers.h - ranks as threads whose devices have the TP collectives of a tensor axis,
 * held against the sum of all ranks in the order of the host, bit for bit. */
#ifndef TTI_TESTS_EXEC_TP_WORKERS_H
#define TTI_TESTS_EXEC_TP_WORKERS_H

#include "base/dtype.h"
#include "base/philox.h"
#include "comm/local_sum.h"
#include "exec/peers_workers.h"

enum { TP_MAX_RANKS = 8, TP_MOST = 16, TP_ROUNDS = 4, TP_BYTES = 256 };

/* One collective of a sequence; in_place: of a sum. */
typedef struct tp_case {
    tti_collective kind;
    tutti_dtype dtype;
    size_t n_rows, part_elems;
    bool in_place, overlapped;
} tp_case;

/* By single elements, by units of 16 bytes, over more blocks than one, in parts, beside. */
static const tp_case tp_small_cases[] = {
    {TTI_COLLECTIVE_SUM, TUTTI_F32, 1, 1, false, false},
    {TTI_COLLECTIVE_SUM, TUTTI_BF16, 1, 1503, true, true},
    {TTI_COLLECTIVE_GATHER, TUTTI_BF16, 3, 7, false, false},
    {TTI_COLLECTIVE_SUM, TUTTI_F16, 1, 35, false, false},
    {TTI_COLLECTIVE_SCATTER, TUTTI_BF16, 5, 6, false, false},
    {TTI_COLLECTIVE_SUM, TUTTI_F64, 1, 11, true, false},
    {TTI_COLLECTIVE_SCATTER, TUTTI_F32, 1, 64, false, false},
    {TTI_COLLECTIVE_GATHER, TUTTI_F32, 1, 33, false, true},
    {TTI_COLLECTIVE_SCATTER, TUTTI_F16, 70, 72, false, true},
    {TTI_COLLECTIVE_GATHER, TUTTI_BF16, 30, 96, false, false},
};

typedef struct tp_workers {
    const tti_backend *backend;
    const tp_case *cases;
    int n_cases; /* at most TP_MOST */
    bool record;
} tp_workers;

typedef struct tp_rank {
    const tp_workers *c;
    const tti_device_ops *ops;
    tutti_comm *comm;
    int rank, n_ranks, timeout_ms; /* 0: 20 s */
    size_t tp_half_bytes;
    float *staging;
    void *group;
    void *in[TP_MOST], *out[TP_MOST]; /* device */
    void *host;                       /* [tp_half_bytes] */
} tp_rank;

static inline size_t tp_in_bytes(const tp_case *t, int n_ranks) {
    size_t n = t->n_rows * t->part_elems * tutti_dtype_bytes(t->dtype);
    return t->kind == TTI_COLLECTIVE_SCATTER ? n * (size_t)n_ranks : n;
}

static inline size_t tp_out_bytes(const tp_case *t, int n_ranks) {
    size_t n = t->n_rows * t->part_elems * tutti_dtype_bytes(t->dtype);
    return t->kind == TTI_COLLECTIVE_GATHER ? n * (size_t)n_ranks : n;
}

/* What a rank gives in a round: of very different sizes, so that another order gives other bits. */
static inline void tp_fill(const tp_case *t, int number, int round, int rank, size_t n_bytes,
                           void *host) {
    for (size_t i = 0; i < n_bytes / tutti_dtype_bytes(t->dtype); i++) {
        tti_philox draw = tti_philox_draw((uint64_t)(number * 100 + round), (uint64_t)rank, i);
        double unit = tti_philox_unit(draw.v[0]) - 0.5f;
        tti_store_elem(t->dtype, host, i, ldexp(unit, (int)(draw.v[1] % 12) - 6));
    }
}

/* ---- what must come of it ---- */

/* Elements first .. of the sum of what all gave, n <= TTI_SUM_BLOCK. */
static inline void tp_sum(const tp_case *t, void *const *given, int n_ranks, size_t first, size_t n,
                          void *out) {
    static _Thread_local _Alignas(64) char scratch[TTI_SUM_BLOCK * 8 * (TTI_SUM_DEPTH + 2)];
    size_t elem = tutti_dtype_bytes(t->dtype);
    tti_sum_order order;
    T_OK(tti_sum_order_ranks(n_ranks, &order));
    const void *sum = tti_sum_block(&order, (const void *const *)given, first * elem,
                                    tti_sum_dtypes_of(t->dtype), TUTTI_SUM, n, scratch);
    memcpy(out, sum, n * elem);
    tti_sum_order_free(&order);
}

static inline void tp_expect(const tp_case *t, void *const *given, int rank, int n_ranks,
                             char *want) {
    size_t elem = tutti_dtype_bytes(t->dtype), part = t->part_elems, bytes = part * elem;
    for (size_t row = 0; row < t->n_rows; row++) {
        size_t at = t->kind == TTI_COLLECTIVE_SUM ? 0 : (row * (size_t)n_ranks + (size_t)rank);
        for (int r = 0; t->kind == TTI_COLLECTIVE_GATHER && r < n_ranks; r++)
            memcpy(want + (row * (size_t)n_ranks + (size_t)r) * bytes,
                   (char *)given[r] + row * bytes, bytes);
        for (size_t i = 0; t->kind != TTI_COLLECTIVE_GATHER && i < part; i += TTI_SUM_BLOCK)
            tp_sum(t, given, n_ranks, at * part + i, TTI_MIN(part - i, (size_t)TTI_SUM_BLOCK),
                   want + row * bytes + i * elem);
    }
}

static inline const char *tp_check(tp_rank *r, int number, int round) {
    const tp_case *t = &r->c->cases[number];
    size_t n_in = tp_in_bytes(t, r->n_ranks), n_out = tp_out_bytes(t, r->n_ranks);
    void *given[TP_MAX_RANKS];
    char *want = malloc(n_out + 1);
    for (int k = 0; k < r->n_ranks; k++) {
        given[k] = malloc(n_in + 1);
        tp_fill(t, number, round, k, n_in, given[k]);
    }
    tp_expect(t, given, r->rank, r->n_ranks, want);
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->host, r->out[number], n_out));
    COMM_OK(r->ops->queues.sync());
    size_t at = 0;
    while (at < n_out && ((char *)r->host)[at] == want[at]) at++;
    for (int k = 0; k < r->n_ranks; k++) free(given[k]);
    free(want);
    if (at == n_out) return NULL;
    return comm_text("rank %d: collective %d, round %d: byte %zu of %zu differs", r->rank, number,
                     round, at, n_out);
}

/* ---- a rank ---- */

static inline const char *tp_connect(tp_rank *r) {
    tti_device_term terms[TP_MAX_RANKS];
    COMM_OK(workers_terms(r->n_ranks, terms));
    r->staging = r->c->backend->alloc(2 * r->tp_half_bytes);
    COMM_TRUE(r->staging);
    COMM_OK(r->ops->collectives.connect(
        &(tti_device_peers){.rank = r->rank,
                            .n_ranks = r->n_ranks,
                            .timeout_ms = r->timeout_ms ? r->timeout_ms : 20000,
                            .shown = r->rank + 6,
                            .terms = terms,
                            .n_terms = r->n_ranks,
                            .partials = &r->staging,
                            .n_partials = 1,
                            .n_flat = 2 * r->tp_half_bytes / sizeof(float),
                            .n_most = 2 * r->tp_half_bytes / sizeof(float),
                            .n_words = (size_t)r->n_ranks,
                            .tp_half_bytes = r->tp_half_bytes,
                            .algorithm = TTI_DEVICE_PEERS,
                            .user = r->comm,
                            .all_gather = workers_gather,
                            .check = workers_look},
        &r->group));
    return NULL;
}

static inline const char *tp_make(tp_rank *r) {
    for (int i = 0; i < r->c->n_cases; i++) {
        const tp_case *t = &r->c->cases[i];
        size_t n_in = tp_in_bytes(t, r->n_ranks), n_out = tp_out_bytes(t, r->n_ranks);
        size_t n = TTI_MAX(n_in, n_out);
        r->tp_half_bytes = TTI_MAX(r->tp_half_bytes, (n + TP_BYTES - 1) / TP_BYTES * TP_BYTES);
        r->in[i] = r->c->backend->alloc(n_in);
        r->out[i] = t->in_place ? r->in[i] : r->c->backend->alloc(n_out);
        COMM_TRUE(r->in[i] && r->out[i]);
    }
    r->host = malloc(r->tp_half_bytes + 1);
    return tp_connect(r);
}

static inline const char *tp_feed(tp_rank *r, int round) {
    for (int i = 0; i < r->c->n_cases; i++) {
        size_t n_in = tp_in_bytes(&r->c->cases[i], r->n_ranks);
        tp_fill(&r->c->cases[i], i, round, r->rank, n_in, r->host);
        COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->in[i], r->host, n_in));
        COMM_OK(r->ops->queues.sync());
    }
    COMM_OK(tutti_comm_barrier(r->comm));
    return NULL;
}

static inline const char *tp_put(tp_rank *r) {
    COMM_OK(r->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
    for (int i = 0; i < r->c->n_cases; i++) {
        const tp_case *t = &r->c->cases[i];
        const tti_tp_collective tp = {.kind = t->kind,
                                      .dtype = t->dtype,
                                      .in = r->in[i],
                                      .out = r->out[i],
                                      .n_rows = t->n_rows,
                                      .part_bytes = t->part_elems * tutti_dtype_bytes(t->dtype)};
        COMM_OK(r->ops->collectives.tp_collective(r->group, &tp, t->overlapped));
    }
    COMM_OK(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    return NULL;
}

/* From the second round on as a captured graph, if c->record is set. */
static inline const char *tp_round(tp_rank *r, int round, void **captured_graph) {
    const char *failure = tp_feed(r, round);
    if (failure) return failure;
    if (r->c->record && round == 1) {
        COMM_OK(r->ops->queues.capture_begin());
        failure = tp_put(r);
        if (failure) return failure;
        COMM_OK(r->ops->queues.capture_end(captured_graph));
        COMM_OK(r->ops->queues.sync());
        COMM_OK(tutti_comm_barrier(r->comm));
    }
    if (*captured_graph)
        COMM_OK(r->ops->queues.replay(*captured_graph));
    else
        failure = tp_put(r);
    if (failure) return failure;
    COMM_OK(r->ops->queues.sync());
    for (int i = 0; i < r->c->n_cases && !failure; i++) failure = tp_check(r, i, round);
    return failure;
}

static inline void tp_release(tp_rank *r, void *captured_graph) {
    const tti_backend *backend = r->c->backend;
    if (captured_graph) r->ops->queues.release_captured_graph(captured_graph);
    r->ops->collectives.disconnect(r->group);
    for (int i = 0; i < r->c->n_cases; i++) {
        const tp_case *t = &r->c->cases[i];
        if (!t->in_place) backend->release(r->out[i], tp_out_bytes(t, r->n_ranks));
        backend->release(r->in[i], tp_in_bytes(t, r->n_ranks));
    }
    backend->release(r->staging, 2 * r->tp_half_bytes);
    free(r->host);
    r->ops->close();
}

static inline const char *tp_rank_main(tutti_comm *comm, void *arg) {
    tp_rank r = {
        .c = arg, .comm = comm, .rank = tutti_comm_rank(comm), .n_ranks = tutti_comm_n_ranks(comm)};
    void *captured_graph = NULL;
    r.ops = r.c->backend->device;
    COMM_OK(r.ops->open(&(tti_device_desc){.index = r.rank, .exact = true}));
    const char *failure = tp_make(&r);
    for (int round = 0; round < TP_ROUNDS && !failure; round++)
        failure = tp_round(&r, round, &captured_graph);
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(comm));
    tp_release(&r, captured_graph);
    return NULL;
}

static inline void tp_run(tp_workers *c, int n_ranks) { comm_run(n_ranks, tp_rank_main, c); }

/* ---- lists ---- */

enum { FOLD_VALUES = 2 * TTI_LIST_LANES + 8, FOLD_LONG = FOLD_VALUES - 2 };

/* Members of the long list are the values from the last one down.  Each of these sums comes to
 * something else in any other order. */
static inline void fold_values(double *values) {
    double *last = values + FOLD_VALUES - 1;
    last[0] = 1e16, last[-TTI_LIST_LANES] = 1, last[-2 * TTI_LIST_LANES] = -1e16; /* 0 */
    last[-3] = 1e16, last[-3 - TTI_LIST_LANES / 2] = -1e16, last[-3 - TTI_LIST_LANES / 4] = 3;
    last[-5] = 7; /* all in all 3 and 7 */
}

/* A long list, an empty one and one of two values, on the device. */
static inline void tp_fold(const tti_backend *backend) {
    const tti_device_ops *ops = backend->device;
    double values[FOLD_VALUES] = {0}, sums[3] = {7, 7, 7}, back[FOLD_VALUES];
    int32_t arrays[4 + FOLD_LONG + 2 + 3] = {0, FOLD_LONG, FOLD_LONG, FOLD_LONG + 2};
    int32_t *member = arrays + 4, *home = member + FOLD_LONG + 2;
    fold_values(values);
    for (int i = 0; i < FOLD_LONG; i++) member[i] = FOLD_VALUES - 1 - i;
    member[FOLD_LONG] = FOLD_VALUES - 6, member[FOLD_LONG + 1] = FOLD_VALUES - 1 - TTI_LIST_LANES;
    home[0] = 1, home[1] = 6, home[2] = 3;
    T_OK(ops->open(&(tti_device_desc){.index = 0, .exact = true}));
    double *v = backend->alloc(sizeof values), *s = backend->alloc(sizeof sums);
    int32_t *a = backend->alloc(sizeof arrays);
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, v, values, sizeof values));
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, a, arrays, sizeof arrays));
    const tti_device_lists lists = {
        .begin = a, .member = a + 4, .home = a + (home - arrays), .n = 3};
    T_OK(ops->step.fold(v, &lists, s));
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, sums, s, sizeof sums));
    T_OK(ops->step.unfold(v, FOLD_VALUES, &lists, s));
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, back, v, sizeof back));
    T_OK(ops->queues.sync());
    assert_true(sums[0] == 10 && sums[1] == 0 && sums[2] == 8);
    for (int i = 0; i < FOLD_VALUES; i++) assert_true(back[i] == (i == 1 ? 10 : i == 3 ? 8 : 0));
    backend->release(v, sizeof values);
    backend->release(s, sizeof sums);
    backend->release(a, sizeof arrays);
    ops->close();
}

#endif /* TTI_TESTS_EXEC_TP_WORKERS_H */
