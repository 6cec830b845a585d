/* reduce_workers.h - ranks as threads that sum gradients as workers on devices do, held against the
 * sum of all shards along the tree, bit for bit. */
#ifndef TTI_TESTS_EXEC_REDUCE_WORKERS_H
#define TTI_TESTS_EXEC_REDUCE_WORKERS_H

#include "base/dtype.h"
#include "base/philox.h"
#include "comm/ranks.h"
#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_reduce.h"
#include "exec/worker/worker_state.h"
#include "ops/op_table.h"

enum { REDUCE_BUCKETS = 3, REDUCE_STEPS = 5, REDUCE_MAX_SHARDS = 64, REDUCE_MAX_RANKS = 8 };

typedef struct reduce_workers {
    const tti_backend *backend;
    tti_device_desc device; /* of rank 0; the others follow */
    int n_shards, n_compute_threads;
    const tti_shard_map *shard_map; /* NULL: equal runs */
    bool fast, record;
    bool parts;       /* each rank gets one of every bucket, and what the others have by a gather */
    bool sharded;     /* parts: and it keeps nothing else, in places of its own */
    tutti_dtype wire; /* of sums in fast mode; bf16 without it: of every partial sum */
    tutti_comm_alg alg;
    size_t n_elems[REDUCE_BUCKETS]; /* multiples of 16 */
    tti_plan plan;
    tti_bucket buckets[REDUCE_BUCKETS];
} reduce_workers;

/* Gradients of very different sizes, so that another order gives other bits. */
static inline float reduce_value(int shard, size_t i) {
    tti_philox draw = tti_philox_draw(23, (uint64_t)shard, i);
    float unit = tti_philox_unit(draw.v[0]) - 0.5f;
    return ldexpf(unit, (int)(draw.v[1] % 20) - 10);
}

static inline float reduce_as_sent(const reduce_workers *c, float x) {
    bool rounds = !c->fast && c->wire == TUTTI_BF16;
    return rounds ? tti_bf16_to_f32(tti_f32_to_bf16(x)) : x;
}

static inline float reduce_tree(const reduce_workers *c, int first, int n, size_t i) {
    if (n == 1) return reduce_as_sent(c, reduce_value(first, i));
    return reduce_as_sent(
        c, reduce_tree(c, first, n / 2, i) + reduce_tree(c, first + n / 2, n / 2, i));
}

typedef struct reduce_rank {
    reduce_workers *c;
    tti_exec *x;
    tti_sharded sharded;
    tti_device_reduce *reduce;
    tti_str way;
    const tti_device_ops *ops;
    float *shards[REDUCE_MAX_SHARDS]; /* device, of this rank */
    float *host;
    double *sums;        /* device */
    tti_step_args *args; /* device */
    tti_step_report *report;
} reduce_rank;

static inline const char *reduce_upload(reduce_rank *r, int s) {
    size_t n = r->c->plan.n_flat;
    r->shards[s] = r->c->backend->alloc(n * sizeof(float));
    COMM_TRUE(r->shards[s]);
    for (size_t i = 0; i < n; i++) r->host[i] = reduce_value(r->x->setup.first_shard + s, i);
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->shards[s], r->host, n * sizeof(float)));
    COMM_OK(r->ops->queues.sync());
    return NULL;
}

/* The first rank has nothing, the others the more the later they are. */
static inline tti_share reduce_share(const reduce_workers *c, int n_ranks) {
    size_t n = (size_t)n_ranks;
    tti_share share = {.n_ranks = n_ranks};
    share.bounds = calloc(REDUCE_BUCKETS * (n + 1), sizeof *share.bounds);
    for (size_t b = 0; share.bounds && b < REDUCE_BUCKETS; b++)
        for (size_t r = 0; r <= n; r++) {
            size_t part = c->n_elems[b] * r * (r > 1 ? r : 0) / (n * n) / 16 * 16;
            share.bounds[b * (n + 1) + r] = c->buckets[b].first + (r == n ? c->n_elems[b] : part);
        }
    return share;
}

/* Parts lie one after the other, in arrays longer than they are. */
static inline const char *reduce_sharded(reduce_rank *r) {
    tti_exec *x = r->x;
    size_t n_ranks = (size_t)x->setup.n_ranks, n_bytes = r->c->plan.n_flat * sizeof(float);
    x->sharded = &r->sharded;
    r->sharded = (tti_sharded){.params = true, .grads.n_elems = r->c->plan.n_flat};
    r->sharded.is_short = calloc((size_t)x->setup.acc.n_buffers + 1, sizeof *r->sharded.is_short);
    r->sharded.hashes = calloc(1, sizeof *r->sharded.hashes + (size_t)n_ranks * sizeof(uint64_t));
    r->sharded.own_grads = r->c->backend->alloc(n_bytes);
    r->sharded.gathered = r->c->backend->alloc(n_bytes);
    x->setup.share.from = calloc(REDUCE_BUCKETS * n_ranks, sizeof *x->setup.share.from);
    COMM_TRUE(r->sharded.is_short && r->sharded.hashes && x->setup.share.from);
    COMM_TRUE(r->sharded.own_grads && r->sharded.gathered);
    for (size_t i = 0; i < n_ranks; i++) {
        size_t at = i + 1 < n_ranks ? 16 * i : 0;
        r->sharded.hashes->by_rank[i] = 0x123456789ABCDEF0u;
        for (size_t b = 0; b < REDUCE_BUCKETS; b++) {
            const size_t *bound = x->setup.share.bounds + b * (n_ranks + 1) + i;
            x->setup.share.from[b * n_ranks + i] = at;
            at += bound[1] - bound[0];
        }
        COMM_TRUE(at <= r->c->plan.n_flat);
    }
    return NULL;
}

/* A worker with its shards' gradients, that has not met the others. */
static inline const char *reduce_prepare(reduce_rank *r, tutti_comm *comm) {
    reduce_workers *c = r->c;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t n_bytes = c->plan.n_flat * sizeof(float);
    r->ops = c->backend->device;
    tti_exec *x = r->x = tti_exec_alloc();
    COMM_TRUE(x);
    x->setup.desc = (tti_exec_desc){.plan = &c->plan,
                                    .backend = c->backend,
                                    .device.index = c->device.index + rank,
                                    .comm = comm,
                                    .n_shards = c->n_shards,
                                    .alg = c->alg,
                                    .fast = c->fast,
                                    .wire = c->wire};
    x->setup.rank = rank;
    x->setup.n_ranks = n_ranks;
    x->tally->has_hash = true;
    tti_shard_map_equally(n_ranks, c->n_shards, &x->setup.shard_map);
    if (c->shard_map) x->setup.shard_map = *c->shard_map;
    x->setup.first_shard = tti_shard_map_first(&x->setup.shard_map, rank);
    x->setup.last_shard = tti_shard_map_first(&x->setup.shard_map, rank + 1);
    x->tally->n_sums = (size_t)c->n_shards * TTI_LOSS_SUMS + 2 * (size_t)n_ranks + 1;
    x->tally->n_shards = c->n_shards;
    x->tally->sums = calloc(x->tally->n_sums, sizeof *x->tally->sums);
    COMM_OK(tti_exec_plan_merges(&x->setup.desc, x->setup.first_shard, x->setup.last_shard,
                                 c->n_compute_threads, &x->setup.acc));
    x->arrays->buffers = calloc((size_t)x->setup.acc.n_buffers, sizeof *x->arrays->buffers);
    for (int b = 0; b < x->setup.acc.n_buffers; b++)
        x->arrays->buffers[b] = c->backend->alloc(n_bytes);
    r->host = calloc(1, n_bytes);
    for (int s = 0; s < x->setup.last_shard - x->setup.first_shard; s++) {
        const char *failure = reduce_upload(r, s);
        if (failure) return failure;
    }
    x->arrays->params = c->backend->alloc(n_bytes);
    if (c->parts) x->setup.share = reduce_share(c, n_ranks);
    const char *unfit = c->sharded ? reduce_sharded(r) : NULL;
    if (unfit) return unfit;
    r->sums = c->backend->alloc((size_t)tti_device_n_reported(&x->setup) * sizeof(double));
    r->args = c->backend->alloc(sizeof *r->args);
    r->report = c->backend->alloc(sizeof *r->report);
    return NULL;
}

static inline const char *reduce_make(reduce_rank *r, tutti_comm *comm) {
    const char *failure = reduce_prepare(r, comm);
    if (failure) return failure;
    COMM_OK(tti_device_reduce_create(r->x, &r->reduce, &r->way));
    COMM_TRUE(r->reduce);
    return NULL;
}

/* What this rank says: its votes are 1 for odd ranks, its sums the numbers of its shards. */
static inline const char *reduce_say(reduce_rank *r, uint64_t hash) {
    double sums[REDUCE_MAX_SHARDS * TTI_LOSS_SUMS];
    for (int i = 0; i < r->c->n_shards * TTI_LOSS_SUMS; i++) sums[i] = i + 0.5;
    tti_step_args args = {.vote = r->x->setup.rank % 2 == 1};
    tti_step_report report = {.params_hash = hash};
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->sums, sums,
                                (size_t)r->c->n_shards * TTI_LOSS_SUMS * sizeof *sums));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->args, &args, sizeof args));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->report, &report, sizeof report));
    COMM_OK(r->ops->queues.sync());
    return NULL;
}

/* The own parts of the sums take the place of parameters, and the others' come. */
static inline const char *reduce_fetch(reduce_rank *r, bool overlapped) {
    tti_exec *x = r->x;
    float *dst = r->c->sharded ? r->sharded.gathered : x->arrays->params;
    if (r->c->sharded)
        COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, x->arrays->params, r->sharded.own_grads,
                                    r->c->plan.n_flat * sizeof(float)));
    for (int b = 0; !r->c->sharded && b < REDUCE_BUCKETS; b++) {
        const size_t *own = x->setup.share.bounds + b * (x->setup.n_ranks + 1) + x->setup.rank;
        COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, x->arrays->params + own[0],
                                    tti_exec_grads(x) + own[0], (own[1] - own[0]) * sizeof(float)));
    }
    if (!overlapped) COMM_OK(tti_device_reduce_sync_and_barrier(r->reduce));
    COMM_OK(tti_device_reduce_fetch_begin(r->reduce));
    for (int b = REDUCE_BUCKETS - 1; b >= 0; b--)
        COMM_OK(tti_device_reduce_fetch(r->reduce, b, 0, dst + r->c->buckets[b].first, overlapped));
    COMM_OK(tti_device_reduce_fetched(r->reduce, overlapped));
    COMM_OK(tti_device_reduce_hash(r->reduce, r->report, r->sums));
    return NULL;
}

static inline const char *reduce_shards(reduce_rank *r, bool overlapped) {
    tti_exec *x = r->x;
    size_t n_flat = r->c->plan.n_flat;
    tti_device_reduce_begin(r->reduce, overlapped);
    for (int w = 0; w < x->setup.acc.n_micro_groups; w++) {
        const tti_micro_group *micro_group = &x->setup.acc.micro_groups[w];
        for (int i = 0; i < micro_group->n_shards; i++)
            COMM_OK(r->ops->queues.copy(
                TTI_QUEUE_COMPUTE, x->arrays->buffers[micro_group->buffer[i]],
                r->shards[micro_group->first + i - x->setup.first_shard], n_flat * sizeof(float)));
        for (int s = 0; w == x->setup.acc.n_micro_groups - 1 && s < REDUCE_STEPS; s++)
            tti_device_reduce_after(r->reduce, s);
        if (!tti_device_reduce_merges(r->reduce, w)) tti_exec_merge(x, micro_group, 0, n_flat);
    }
    bool merged = tti_device_reduce_merges(r->reduce, x->setup.acc.n_micro_groups - 1);
    for (int i = 1; x->setup.desc.fast && !merged && i < x->setup.acc.n_partials; i++)
        r->c->backend->accumulate(tti_exec_grads(x),
                                  x->arrays->buffers[x->setup.acc.partial_buffer[i]], n_flat);
    COMM_OK(tti_device_reduce_finish(r->reduce, r->args, r->report, r->sums));
    return r->c->parts ? reduce_fetch(r, overlapped) : NULL;
}

/* The sums as they are on the device: of parts as they were fetched. */
static inline tutti_status reduce_download(reduce_rank *r) {
    tti_exec *x = r->x;
    const float *first = r->c->parts ? x->arrays->params : tti_exec_grads(x);
    if (r->c->sharded) first = r->sharded.gathered;
    TTI_TRY(
        r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->host, first, r->c->plan.n_flat * sizeof(float)));
    return r->ops->queues.sync();
}

/* How far from the tree an element may be: not at all in exact mode; in fast mode by the order,
 * and by a rounding of each term and, on the way around a ring, of the sum at each rank. */
static inline float reduce_slack(const reduce_workers *c, int n_ranks, size_t i) {
    float sizes = 0;
    if (!c->fast) return 0;
    for (int s = 0; s < c->n_shards; s++) sizes += fabsf(reduce_value(s, i));
    float rounding = c->wire == TUTTI_BF16 ? 0x1p-8f : c->wire == TUTTI_F16 ? 0x1p-11f : 0;
    return 1e-3f + sizes * rounding * (float)n_ranks;
}

static inline const char *reduce_check(reduce_rank *r) {
    size_t n = r->c->plan.n_flat;
    COMM_OK(reduce_download(r));
    for (size_t i = 0; i < n; i++) {
        float want = reduce_tree(r->c, 0, r->c->n_shards, i);
        if (!(fabsf(r->host[i] - want) <= reduce_slack(r->c, r->x->setup.n_ranks, i)))
            return comm_text("rank %d: element %zu of %zu is %.9g, want %.9g", r->x->setup.rank, i,
                             n, (double)r->host[i], (double)want);
    }
    return NULL;
}

static inline const char *reduce_check_reported(reduce_rank *r) {
    int n = tti_device_n_reported(&r->x->setup), n_sums = r->c->n_shards * TTI_LOSS_SUMS;
    double reported[REDUCE_MAX_SHARDS * TTI_LOSS_SUMS + 4 * REDUCE_MAX_RANKS];
    COMM_OK(
        r->ops->queues.copy(TTI_QUEUE_COMPUTE, reported, r->sums, (size_t)n * sizeof *reported));
    COMM_OK(r->ops->queues.sync());
    COMM_OK(tti_device_store_reported(r->x, reported, 3));
    uint64_t hash = (uint64_t)r->x->setup.n_ranks * 0x123456789ABCDEF0u;
    COMM_TRUE(!r->c->parts || tti_device_reported_hash(&r->x->setup, reported) == hash);
    for (int i = 0; i < n_sums; i++) COMM_TRUE(r->x->tally->sums[i] == i + 0.5);
    for (int i = 0; i < r->x->setup.n_ranks; i++) {
        COMM_TRUE(r->x->tally->sums[n_sums + 2 * i] == 0x12345678u);
        COMM_TRUE(r->x->tally->sums[n_sums + 2 * i + 1] == 0x9ABCDEF0u);
    }
    COMM_TRUE(r->x->tally->sums[r->x->tally->n_sums - 1] == r->x->setup.n_ranks / 2);
    return NULL;
}

/* Values that are joined inside the step. */
static inline const char *reduce_check_parts(reduce_rank *r) {
    enum { N = 6 }; /* as many words as the sums, which is what there is room for */
    size_t n_bytes = (size_t)r->c->n_shards * N * sizeof(float);
    float host[REDUCE_MAX_SHARDS * N], *parts = r->c->backend->alloc(n_bytes);
    size_t first = (size_t)r->x->setup.first_shard * N, last = (size_t)r->x->setup.last_shard * N;
    for (size_t i = 0; i < n_bytes / sizeof *host; i++)
        host[i] = i >= first && i < last ? -(float)i : 777; /* others' places hold anything */
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, parts, host, n_bytes));
    COMM_OK(tti_device_reduce_joins(r->reduce, parts, N));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, host, parts, n_bytes));
    COMM_OK(r->ops->queues.sync());
    for (size_t i = 0; i < n_bytes / sizeof *host; i++) {
        COMM_TRUE(host[i] == -(float)i);
        COMM_TRUE(signbit(host[i])); /* -0 too */
    }
    r->c->backend->release(parts, n_bytes);
    return NULL;
}

/* Twice: each replay counts its meetings anew. */
static inline const char *reduce_recorded(reduce_rank *r) {
    void *captured_graph;
    COMM_OK(r->ops->queues.capture_begin());
    const char *failure = reduce_shards(r, true);
    COMM_OK(r->ops->queues.capture_end(&captured_graph));
    if (failure) return failure;
    for (int i = 0; i < 3 && !failure; i++) {
        failure = reduce_say(r, 0x123456789ABCDEF0u);
        COMM_OK(tti_device_reduce_sync_and_barrier(r->reduce));
        COMM_OK(r->ops->queues.replay(captured_graph));
        COMM_OK(r->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, 0));
        COMM_OK(tti_device_reduce_await(r->reduce, 0));
        if (!failure) failure = reduce_check(r);
        if (!failure) failure = reduce_check_reported(r);
    }
    r->ops->queues.release_captured_graph(captured_graph);
    return failure;
}

static inline void reduce_free(reduce_rank *r) {
    const tti_backend *b = r->c->backend;
    size_t n_bytes = r->c->plan.n_flat * sizeof(float);
    tti_device_reduce_destroy(r->reduce);
    for (int s = 0; s < REDUCE_MAX_SHARDS; s++) b->release(r->shards[s], n_bytes);
    for (int i = 0; i < r->x->setup.acc.n_buffers; i++)
        b->release(r->x->arrays->buffers[i], n_bytes);
    b->release(r->sums, (size_t)tti_device_n_reported(&r->x->setup) * sizeof(double));
    b->release(r->args, sizeof *r->args);
    b->release(r->report, sizeof *r->report);
    tti_str_free(&r->way);
    tti_accumulation_fini(&r->x->setup.acc);
    b->release(r->x->arrays->params, n_bytes);
    b->release(r->sharded.own_grads, n_bytes);
    b->release(r->sharded.gathered, n_bytes);
    free(r->sharded.is_short);
    free(r->sharded.hashes);
    free(r->x->setup.share.from);
    free(r->x->setup.share.bounds);
    free(r->x->arrays->buffers);
    free(r->x->tally->sums);
    tti_exec_free(r->x);
    free(r->host);
}

static inline const char *reduce_rank_main(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    tti_device_desc device = r.c->device;
    device.index += tutti_comm_rank(comm);
    COMM_OK(r.c->backend->device->open(&device));
    const char *failure = reduce_make(&r, comm);
    if (!failure) failure = reduce_say(&r, 0x123456789ABCDEF0u);
    if (!failure) failure = reduce_shards(&r, false);
    if (!failure) failure = reduce_check(&r);
    if (!failure) failure = reduce_check_reported(&r);
    if (!failure) failure = reduce_check_parts(&r);
    if (!failure && r.c->record) failure = reduce_recorded(&r);
    if (!failure) COMM_OK(tutti_comm_barrier(comm)); /* nobody parts while others still read */
    reduce_free(&r);
    r.c->backend->device->close();
    return failure;
}

/* Lays out the plan. */
static inline void reduce_plan(reduce_workers *c) {
    static const int ready[REDUCE_BUCKETS] = {1, 1, 4};
    static tti_node view, *no_steps[REDUCE_STEPS]; /* steps that take no time */
    view.op = tti_op_find("reshape");
    for (int i = 0; i < REDUCE_STEPS; i++) no_steps[i] = &view;
    size_t first = 0;
    for (int b = 0; b < REDUCE_BUCKETS; b++) {
        c->buckets[b] = (tti_bucket){first, c->n_elems[b], ready[b]};
        first += c->n_elems[b];
    }
    c->plan = (tti_plan){.n_flat = first,
                         .buckets = c->buckets,
                         .n_buckets = REDUCE_BUCKETS,
                         .shard = {.steps = no_steps, .n_steps = REDUCE_STEPS}};
}

static inline void reduce_run(reduce_workers *c, int n_ranks) {
    reduce_plan(c);
    comm_run(n_ranks, reduce_rank_main, c);
}

#endif /* TTI_TESTS_EXEC_REDUCE_WORKERS_H */
