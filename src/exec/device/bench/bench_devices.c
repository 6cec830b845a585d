/* bench_devices.c - times all-reduce between devices by size and algorithm.
 *
 * A round is a captured graph of many sums that is replayed, as in training, so that no time of the
 * host is measured; the slowest device of the best round counts. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/progress.h"
#include "comm/sum_order.h"
#include "exec/device/bench/bench_devices.h"

enum {
    UNIT = 8,
    N_ROUNDS = 4,
    N_SUMS = 20,
    N_QUICK_SUMS = 6,
    N_CHECKED = 1 << 16,
    MAX_DEVICES = 16,
    WAIT_MS = 60000
};

typedef struct bench {
    const tti_backend *backend;
    tutti_bench_devices_desc desc;
    tutti_bench_devices_fn report;
    void *user;
    bool for_table;          /* every algorithm of f32, with few sums */
    double link_bytes_per_s; /* of the slowest link; 0: not measured */
} bench;

/* One device's thread. */
typedef struct bench_rank {
    const bench *b;
    tutti_comm_group *meeting;
    pthread_t thread;
    int rank;
    tutti_comm *comm;
    void *group;
    float *piece, *host;
    char transport[128];
    tutti_status status;
    char text[512];
} bench_rank;

/* ---- the algorithms ---- */

typedef struct algorithm {
    tti_device_algorithm algorithm;
    bool fast;
    const char *name;
    tutti_dtype wire;
} algorithm;

static const algorithm algorithms[] = {{TTI_DEVICE_PEERS, false, "direct", TUTTI_F32},
                                       {TTI_DEVICE_PEERS, true, "direct", TUTTI_BF16},
                                       {TTI_DEVICE_LIBRARY, false, "tree", TUTTI_F32},
                                       {TTI_DEVICE_LIBRARY, true, "ring", TUTTI_F32},
                                       {TTI_DEVICE_LIBRARY, true, "ring", TUTTI_BF16}};

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    return tutti_comm_all_gather(user, src, dst, n_bytes, TUTTI_U8);
}

static tutti_status check(void *user) { return tti_comm_check(user); }

/* One term of each rank, added along the tree. */
static tutti_status make_terms(int n_ranks, tti_device_term *terms) {
    tti_sum_order order;
    TTI_TRY(tti_sum_order_ranks(n_ranks, &order));
    for (int t = 0; t < n_ranks; t++)
        terms[t] =
            (tti_device_term){order.terms[t].rank, order.terms[t].partial, order.terms[t].n_adds};
    tti_sum_order_free(&order);
    return TUTTI_OK;
}

/* TUTTI_E_UNSUPPORTED: not available. */
static tutti_status meet(bench_rank *r, const algorithm *w) {
    const tti_device_ops *ops = r->b->backend->device;
    size_t n = r->b->desc.max_bytes / tutti_dtype_bytes(w->wire);
    tti_device_term terms[MAX_DEVICES];
    tti_str name = {0};
    TTI_TRY(make_terms(r->b->desc.n_devices, terms));
    TTI_TRY(ops->collectives.connect(&(tti_device_peers){.rank = r->rank,
                                                         .n_ranks = r->b->desc.n_devices,
                                                         .timeout_ms = WAIT_MS,
                                                         .shown = r->rank,
                                                         .terms = terms,
                                                         .n_terms = r->b->desc.n_devices,
                                                         .partials = &r->piece,
                                                         .n_partials = 1,
                                                         .n_flat = n,
                                                         .n_most = n,
                                                         .n_words = MAX_DEVICES,
                                                         .fast = w->fast,
                                                         .wire = w->wire,
                                                         .algorithm = w->algorithm,
                                                         .user = r->comm,
                                                         .all_gather = all_gather,
                                                         .check = check},
                                     &r->group));
    ops->collectives.describe(r->group, &name);
    snprintf(r->transport, sizeof r->transport, "%s", tti_str_text(&name));
    tti_str_free(&name);
    return TUTTI_OK;
}

/* ---- is the sum right? ---- */

/* Small enough for any sum to be exact in bf16. */
static float value_of(int rank, size_t i) { return (float)(rank + (int)(i % 8)); }

static tutti_status put(bench_rank *r, size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) r->host[i] = value_of(r->rank, first + i);
    TTI_TRY(r->b->backend->device->queues.copy(TTI_QUEUE_COMPUTE, r->piece + first, r->host,
                                               n * sizeof(float)));
    return r->b->backend->device->queues.sync();
}

static tutti_status compare(bench_rank *r, size_t first, size_t n) {
    const tti_device_ops *ops = r->b->backend->device;
    int n_ranks = r->b->desc.n_devices;
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, r->host, r->piece + first, n * sizeof(float)));
    TTI_TRY(ops->queues.sync());
    for (size_t i = 0; i < n; i++) {
        float want = (float)(n_ranks * (n_ranks - 1) / 2) + (float)n_ranks * value_of(0, first + i);
        if (r->host[i] != want)
            return tti_fail(TUTTI_E_NUMERICS,
                            "bench: device %d: element %zu of a sum is %g, not %g", r->rank,
                            first + i, (double)r->host[i], (double)want);
    }
    return TUTTI_OK;
}

/* Both ends of the vector. */
static tutti_status check_sum(bench_rank *r, size_t n) {
    const tti_device_ops *ops = r->b->backend->device;
    size_t each = TTI_MIN(n, (size_t)N_CHECKED);
    TTI_TRY(put(r, 0, each));
    TTI_TRY(put(r, n - each, each));
    TTI_TRY(tutti_comm_barrier(r->comm));
    TTI_TRY(ops->collectives.all_reduce(r->group, 0, n, false));
    TTI_TRY(ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(ops->queues.sync());
    TTI_TRY(tutti_comm_barrier(r->comm));
    TTI_TRY(compare(r, 0, each));
    return compare(r, n - each, each);
}

/* ---- times ---- */

static int n_sums(const bench *b) { return b->desc.quick || b->for_table ? N_QUICK_SUMS : N_SUMS; }

static tutti_status record(bench_rank *r, size_t n, void **captured_graph) {
    const tti_device_ops *ops = r->b->backend->device;
    TTI_TRY(ops->queues.capture_begin());
    tutti_status st = ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE);
    for (int i = 0; i < n_sums(r->b) && st == TUTTI_OK; i++)
        st = ops->collectives.all_reduce(r->group, 0, n, false);
    if (st == TUTTI_OK) st = ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM);
    tutti_status ended = ops->queues.capture_end(captured_graph);
    return st == TUTTI_OK ? ended : st;
}

static tutti_status time_rounds(bench_rank *r, void *captured_graph, double *best_us) {
    const tti_device_ops *ops = r->b->backend->device;
    for (int round = 0; round < N_ROUNDS; round++) {
        double us[2];
        TTI_TRY(ops->queues.sync());
        TTI_TRY(tutti_comm_barrier(r->comm));
        TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 0));
        TTI_TRY(ops->queues.replay(captured_graph));
        TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 1));
        TTI_TRY(ops->queues.read_timestamps(2, us));
        double slowest = us[1] / n_sums(r->b);
        TTI_TRY(tutti_comm_all_reduce(r->comm, &slowest, &slowest, 1, TUTTI_F64, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
        if (round == 1 || (round > 1 && slowest < *best_us)) *best_us = slowest;
    }
    return TUTTI_OK;
}

static tutti_status bench_size(bench_rank *r, const algorithm *w, size_t n_bytes) {
    const bench *b = r->b;
    int n_ranks = b->desc.n_devices;
    size_t each = tutti_dtype_bytes(w->wire), n = n_bytes / each / UNIT * UNIT;
    void *captured_graph = NULL;
    double us = 0;
    TTI_TRY(check_sum(r, n));
    tutti_status st = record(r, n, &captured_graph);
    if (st == TUTTI_OK) st = time_rounds(r, captured_graph, &us);
    b->backend->device->queues.release_captured_graph(captured_graph);
    if (st != TUTTI_OK || r->rank != 0) return st;
    double moved = 2.0 * (n_ranks - 1) / n_ranks * (double)(n * each);
    double link_us = b->link_bytes_per_s > 0 ? moved / b->link_bytes_per_s * 1e6 : 0;
    b->report(&(tutti_bench_devices_row){.n_devices = n_ranks,
                                         .algorithm = w->name,
                                         .transport = r->transport,
                                         .wire = w->wire,
                                         .n_bytes = n * each,
                                         .us = us,
                                         .bus_gb_s = us > 0 ? moved / us * 1e-3 : 0,
                                         .link_us = link_us},
              b->user);
    return TUTTI_OK;
}

/* *done: sizes were timed. */
static tutti_status bench_algorithm(bench_rank *r, const algorithm *w, bool *done) {
    tutti_status st = meet(r, w);
    *done = false;
    if (st == TUTTI_E_UNSUPPORTED) { /* on all of them */
        tti_clear_error();
        return TUTTI_OK;
    }
    bool other = w->algorithm == TTI_DEVICE_PEERS && strncmp(r->transport, "NCCL", 4) == 0;
    const tutti_bench_devices_desc *d = &r->b->desc;
    for (size_t n = d->min_bytes; st == TUTTI_OK && !other && n <= d->max_bytes; n *= 4)
        st = bench_size(r, w, n);
    *done = !other;
    if (st == TUTTI_OK)
        st = tutti_comm_barrier(r->comm); /* no rank disconnects while others read */
    r->b->backend->device->collectives.disconnect(r->group);
    r->group = NULL;
    return st;
}

/* ---- the threads ---- */

/* Pieces are f32 whatever travels of them. */
static tutti_status run_open(bench_rank *r) {
    size_t n_bytes = r->b->desc.max_bytes / tutti_dtype_bytes(TUTTI_BF16) * sizeof(float);
    tutti_status st = TUTTI_OK;
    r->piece = r->b->backend->alloc(n_bytes);
    r->host = calloc(N_CHECKED, sizeof *r->host);
    if (!r->piece || !r->host)
        st = tti_fail(TUTTI_E_NOMEM, "bench: no %zu bytes on device %d", n_bytes, r->rank);
    for (size_t i = 0; i < TTI_COUNT(algorithms) && st == TUTTI_OK; i++) {
        bool quick = r->b->desc.quick, done = false;
        bool left_out =
            (quick && algorithms[i].fast) || (r->b->for_table && algorithms[i].wire != TUTTI_F32);
        if (!left_out) st = bench_algorithm(r, &algorithms[i], &done);
        if (quick && done) break;
    }
    r->b->backend->release(r->piece, n_bytes);
    free(r->host);
    return st;
}

static tutti_status run_rank(bench_rank *r) {
    const tti_device_ops *ops = r->b->backend->device;
    TTI_TRY(ops->open(&(tti_device_desc){.index = r->rank}));
    tutti_status st = tutti_comm_create(&(tutti_comm_desc){.group = r->meeting,
                                                           .rank = r->rank,
                                                           .n_ranks = r->b->desc.n_devices,
                                                           .timeout_ms = WAIT_MS},
                                        &r->comm);
    if (st == TUTTI_OK) st = run_open(r);
    ops->close();
    return st;
}

static void *rank_main(void *arg) {
    bench_rank *r = arg;
    r->status = run_rank(r);
    if (r->status != TUTTI_OK) {
        snprintf(r->text, sizeof r->text, "%s", tutti_last_error());
        tutti_comm_group_abort(r->meeting, r->rank, r->text); /* the others need not wait */
    }
    tutti_comm_destroy(r->comm);
    return NULL;
}

static tutti_status run_threads(bench_rank *ranks, int n) {
    int n_started = 0;
    tutti_status st = TUTTI_OK;
    for (; n_started < n && st == TUTTI_OK; n_started++)
        if (pthread_create(&ranks[n_started].thread, NULL, rank_main, &ranks[n_started]) != 0) {
            tutti_comm_group_abort(ranks[0].meeting, n_started, "a thread could not be started");
            st = tti_fail(TUTTI_E_NOMEM, "bench: cannot start thread %d", n_started--);
        }
    for (int i = 0; i < n_started; i++) {
        pthread_join(ranks[i].thread, NULL);
        bool is_cause = ranks[i].status != TUTTI_OK &&
                        (st == TUTTI_OK || (st == TUTTI_E_PEER && ranks[i].status != st));
        if (is_cause) st = tti_fail(ranks[i].status, "%s", ranks[i].text);
    }
    return st;
}

/* The slowest of the links into device 0; the others are equal, or `tutti doctor` shows that they
 * are not. */
static tutti_status measure_links(bench *b) {
    const tti_device_ops *ops = b->backend->device;
    if (!ops->link) return TUTTI_OK;
    TTI_TRY(ops->open(&(tti_device_desc){.index = 0}));
    tutti_status st = TUTTI_OK;
    for (int other = 1; other < b->desc.n_devices && st == TUTTI_OK; other++) {
        tti_device_link link;
        st = ops->link(other, &link);
        bool slower =
            st == TUTTI_OK && (b->link_bytes_per_s <= 0 || link.bytes_per_s < b->link_bytes_per_s);
        if (slower) b->link_bytes_per_s = link.bytes_per_s;
    }
    ops->close();
    return st;
}

static tutti_status check_desc(bench *b) {
    tutti_bench_devices_desc *d = &b->desc;
    int n_there = b->backend->device ? b->backend->device->count() : 0;
    if (d->n_devices == 0) d->n_devices = TTI_MIN(n_there, (int)MAX_DEVICES);
    if (d->min_bytes == 0) d->min_bytes = 4096;
    if (d->max_bytes == 0) d->max_bytes = (size_t)256 << 20;
    if (n_there > 0 && !b->backend->device->collectives.connect)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "bench: devices of backend %s do not add between each other",
                        b->backend->name);
    if (d->n_devices < 2 || d->n_devices > TTI_MIN(n_there, (int)MAX_DEVICES))
        return tti_fail(TUTTI_E_INVALID, "bench: %d devices asked for; 2 to %d can add, %d there",
                        d->n_devices, MAX_DEVICES, n_there);
    if (d->min_bytes < 64 || d->min_bytes > d->max_bytes || d->max_bytes > (size_t)16 << 30)
        return tti_fail(TUTTI_E_INVALID,
                        "bench: sizes must be 64 <= min <= max <= 16G, got %zu and %zu",
                        d->min_bytes, d->max_bytes);
    return TUTTI_OK;
}

static tutti_status run_bench(bench *b) {
    tutti_comm_group *meeting;
    TTI_TRY(tutti_comm_group_create(b->desc.n_devices, &meeting));
    bench_rank *ranks = calloc((size_t)b->desc.n_devices, sizeof *ranks);
    for (int i = 0; ranks && i < b->desc.n_devices; i++)
        ranks[i] = (bench_rank){.b = b, .meeting = meeting, .rank = i};
    tutti_status st = ranks ? run_threads(ranks, b->desc.n_devices)
                            : tti_fail(TUTTI_E_NOMEM, "bench: out of memory");
    free(ranks);
    tutti_comm_group_destroy(meeting);
    return st;
}

tutti_status tti_bench_devices(const tti_backend *backend, const tutti_bench_devices_desc *desc,
                               tutti_bench_devices_fn report, void *user) {
    bench b = {.backend = backend, .desc = *desc, .report = report, .user = user};
    TTI_TRY(check_desc(&b));
    TTI_TRY(measure_links(&b));
    return run_bench(&b);
}

tutti_status tti_bench_device_algorithms(const tti_backend *backend,
                                         const tutti_bench_devices_desc *desc,
                                         tutti_bench_devices_fn report, void *user) {
    bench b = {
        .backend = backend, .desc = *desc, .report = report, .user = user, .for_table = true};
    TTI_TRY(check_desc(&b));
    return run_bench(&b);
}

tutti_status tutti_bench_devices(const tutti_bench_devices_desc *desc,
                                 tutti_bench_devices_fn report, void *user) {
    const tti_backend *backend;
    if (!desc || !report) return tti_fail(TUTTI_E_INVALID, "bench: desc or report is NULL");
    TTI_TRY(tti_backend_find("cuda", &backend));
    return tti_bench_devices(backend, desc, report, user);
}
