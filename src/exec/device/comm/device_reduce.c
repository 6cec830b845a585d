/* device_reduce.c - reduces gradients between devices, bucket by bucket, in tree order.
 *
 * The order is comm/sum_order.h's, as on the host, so the sums have the same bits. */
#include "exec/device/comm/device_reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/progress.h"
#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_p2p.h"
#include "exec/device/comm/device_tp.h"
#include "exec/device/state/device_state.h"
#include "exec/worker/worker.h"
#include "ops/weight.h"

struct tti_device_reduce {
    tti_exec *x;
    const tti_device_ops *ops;
    void *group;
    void *library; /* a second group, for the buckets that the library sums faster; NULL: none */
    void *update;  /* a group whose update kernel also sums the gradients of captured steps; NULL:
                      none */
    int first_joined;              /* this bucket and those after it are summed in the update */
    tti_device_compress *compress; /* the compressed message replaces the gradients; NULL: gradients
                                      are not compressed */
    tti_bucket_algorithms algorithms;
    int *hosts;        /* [n_ranks]: the host of each rank */
    int *shard_bounds; /* [n_ranks + 1]: the first shard of each rank at the last join */
    int next_bucket;
    bool after_shards; /* sums of captured steps begin when all gradients are complete */
    bool compresses;   /* true from the first compressed step on */
    bool overlapped, has_summed, has_gathered;      /* in this step */
    tti_device_partitions sources[TTI_MAX_SOURCES]; /* arrays that other ranks fetch */
    size_t *at; /* [n_buckets][n_partials]: offsets of buckets in the partials; NULL: as in the flat
                   arrays */
    size_t *whole_bounds; /* [n_ranks][n_buckets][n_ranks + 1]: in group r * n_buckets + b rank r
                             has all of bucket b; NULL: arrays are not broadcast */
    int *events;          /* [n_buckets]: event after the bucket's sum */
    int next_event;       /* events are reused cyclically */
    tutti_status status;  /* the first failure while shards were launched */
};

/* ---- connecting ---- */

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    tti_exec *x = user;
    return tutti_comm_all_gather(tti_setup_of(x)->desc.comm, src, dst, n_bytes, TUTTI_U8);
}

/* Checks all workers of the job, as device.c does: a worker that is lost in another group blocks
 * this group too, and all groups are asked which worker is late (tti_device_late). */
static tutti_status check_workers(void *user) {
    tti_exec *x = user;
    const tti_setup *setup = tti_setup_of(x);
    if (setup->desc.mesh) TTI_TRY(tti_comm_check(setup->desc.mesh->world));
    return tti_comm_check(setup->desc.comm);
}

/* The terms of the sum: in fast mode one of each rank, which has added its own before. */
static tutti_status make_terms(const tti_setup *setup, tti_device_term **out, int *n_terms) {
    tti_sum_order order;
    if (setup->desc.fast)
        TTI_TRY(tti_sum_order_ranks(setup->n_ranks, &order));
    else
        TTI_TRY(tti_sum_order_shards(&setup->shard_map, &order));
    tti_device_term *terms = calloc((size_t)order.n_terms, sizeof *terms);
    if (terms) tti_device_terms(&order, terms);
    *n_terms = order.n_terms;
    *out = terms;
    tti_sum_order_free(&order);
    return terms ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

/* 32-bit words of the longest small vector. */
static size_t most_words(const tti_setup *setup, const tti_joins *joins) {
    size_t n = 2 * (size_t)tti_device_n_reported(setup);
    if (tti_exec_has_partitions(setup))
        n = TTI_MAX(n, 4 * (size_t)setup->desc.plan->n_updates); /* 2 doubles */
    return TTI_MAX(n, (size_t)setup->desc.n_shards * joins->most.n_part);
}

/* The algorithm for parallel.algorithm, as on the host. */
static tti_device_algorithm algorithm_of(tutti_comm_alg alg) {
    if (alg == TUTTI_ALG_AUTO) return TTI_DEVICE_AUTO;
    if (alg == TUTTI_ALG_TREE) return TTI_DEVICE_HOSTS;
    return alg == TUTTI_ALG_DIRECT ? TTI_DEVICE_PEERS : TTI_DEVICE_LIBRARY;
}

static int n_partials_of(const tti_setup *setup) {
    return setup->desc.fast ? 1 : setup->acc.n_partials;
}

/* Gradients that exist only until they are summed have their own memory. */
static tutti_status find_places(tti_device_reduce *r) {
    const tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    size_t n_buckets = (size_t)setup->desc.plan->n_buckets, n = (size_t)n_partials_of(setup);
    r->events = calloc(n_buckets + 1, sizeof *r->events);
    if (!r->events) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (!sharded) return TUTTI_OK;
    r->at = calloc(n_buckets * n + 1, sizeof *r->at);
    if (!r->at) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; i < n_buckets * n; i++) {
        int buffer = setup->acc.partial_buffer[i % n];
        r->at[i] = setup->desc.plan->buckets[i / n].first;
        if (sharded->is_short[buffer])
            r->at[i] = tti_bucket_memory_at(&sharded->grads, -1, r->at[i]);
    }
    return TUTTI_OK;
}

/* True in fast mode if the sum of a worker's own shards is rounded before it is sent. */
static bool is_rounded(const tti_setup *setup) {
    return setup->desc.fast && setup->desc.wire != TUTTI_F32;
}

/* Number of elements that every partial sum has.  A rounded sum is the only one and has all
 * elements. */
static size_t n_shared_elems(const tti_setup *setup, const tti_exec *x) {
    const tti_sharded *sharded = tti_sharded_of(x);
    size_t n = setup->desc.plan->n_flat;
    bool is_short =
        sharded && (!is_rounded(setup) || sharded->is_short[setup->acc.partial_buffer[0]]);
    return is_short ? TTI_MIN(n, sharded->grads.n_elems) : n;
}

/* True if a worker may receive whole arrays from another one. */
static bool can_broadcast(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return setup->desc.elastic && !tti_exec_has_partitions(setup) && !tti_offload_of(x);
}

/* Computes the partitions of a broadcast: in the groups of a rank, it has everything. */
static tutti_status find_whole_bounds(tti_device_reduce *r) {
    const tti_setup *setup = tti_setup_of(r->x);
    const tti_plan *plan = setup->desc.plan;
    size_t n = (size_t)setup->n_ranks, n_buckets = (size_t)plan->n_buckets;
    if (!can_broadcast(r->x)) return TUTTI_OK;
    r->whole_bounds = calloc(n * n_buckets * (n + 1), sizeof *r->whole_bounds);
    if (!r->whole_bounds) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; i < n * n_buckets; i++)
        for (size_t k = 0; k <= n; k++) {
            const tti_bucket *bucket = &plan->buckets[i % n_buckets];
            r->whole_bounds[i * (n + 1) + k] =
                bucket->first + (k > i / n_buckets ? bucket->n_elems : 0);
        }
    return TUTTI_OK;
}

/* Lists the arrays that other ranks fetch: parameters, fetched averages, and for a broadcast the
 * first partial sum, into which the source copies its array. */
static int find_sources(tti_device_reduce *r) {
    const tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    if (r->whole_bounds) {
        r->sources[0] =
            (tti_device_partitions){.data = tti_exec_buffer(x, setup->acc.partial_buffer[0])};
        return 1;
    }
    bool averages = tti_sharded_of(x) && tti_exec_array(x, TTI_STATE_EMA);
    float *low_copies = tti_exec_low_copies(x); /* NULL with sharded parameters */
    r->sources[TTI_FROM_PARAMS] = (tti_device_partitions){
        .data = tti_exec_array(x, TTI_STATE_PARAMS),
        .places = tti_exec_has_sharded_params(x) ? setup->share.from : NULL};
    r->sources[TTI_FROM_AVERAGES] = (tti_device_partitions){
        .data = tti_exec_array(x, TTI_STATE_EMA), .places = setup->share.from};
    if (!tti_exec_has_partitions(setup) || tti_offload_of(x)) return 0;
    bool low = low_copies && !averages && r->ops->collectives.all_gather_pieces;
    if (low) r->sources[TTI_FROM_LOW_COPIES] = (tti_device_partitions){.data = low_copies};
    return averages || low ? 2 : 1;
}

/* An algorithm, and the existing group that it is connected in addition to; NULL: none. */
typedef struct connection {
    tti_device_algorithm algorithm;
    void *with;
} connection;

/* Fills partials [TTI_MAX_PARTIALS], which the result borrows. */
static tti_device_peers peers_of(tti_device_reduce *r, const tti_device_term *terms, int n_terms,
                                 const connection *how, float **partials) {
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    int n_partials = n_partials_of(setup);
    bool is_partitioned = tti_exec_has_partitions(setup);
    size_t n_buckets = (size_t)setup->desc.plan->n_buckets, n_most = 0;
    for (size_t b = 0; b < n_buckets; b++)
        n_most = TTI_MAX(n_most, setup->desc.plan->buckets[b].n_elems);
    bool rounds = is_rounded(setup) || tti_exec_rounds_partials(&setup->desc);
    /* Sums of this worker's partitions go to memory that is not reused in this step. */
    tti_device_partitions sums = {0};
    if (tti_sharded_of(x))
        sums = (tti_device_partitions){.data = tti_sharded_of(x)->own_grads,
                                       .places = setup->share.from};
    for (int i = 0; i < n_partials; i++)
        partials[i] = tti_exec_buffer(x, setup->acc.partial_buffer[i]);
    const tutti_comm *all = setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm;
    tti_comm_get_hosts(setup->desc.comm, r->hosts);
    return (tti_device_peers){.rank = setup->rank,
                              .n_ranks = setup->n_ranks,
                              .hosts = r->hosts,
                              .timeout_ms = tti_comm_timeout_ms(setup->desc.comm),
                              .grace_ms = tti_device_grace_ms(setup),
                              .shown = tutti_comm_rank(all),
                              .terms = terms,
                              .n_terms = n_terms,
                              .partials = partials,
                              .n_partials = n_partials,
                              .n_flat = n_shared_elems(setup, x),
                              .n_most = n_most,
                              .n_words = most_words(setup, tti_joins_of(x)),
                              .bounds = is_partitioned ? setup->share.bounds : r->whole_bounds,
                              .n_groups = is_partitioned    ? n_buckets
                                          : r->whole_bounds ? n_buckets * (size_t)setup->n_ranks
                                                            : 0,
                              .sources = r->sources,
                              .n_sources = find_sources(r),
                              .at = r->at,
                              .sums = sums,
                              .with = how->with,
                              .fast = setup->desc.fast,
                              .wire = rounds ? setup->desc.wire : TUTTI_F32,
                              .algorithm = how->algorithm,
                              .user = x,
                              .all_gather = all_gather,
                              .check = check_workers};
}

static tutti_status connect_group(tti_device_reduce *r, const tti_device_term *terms, int n_terms,
                                  const connection *how, void **group) {
    float *partials[TTI_MAX_PARTIALS];
    tti_device_peers peers = peers_of(r, terms, n_terms, how, partials);
    return r->ops->collectives.connect(&peers, group);
}

/* Connects the library's group in addition to the first one; without it, or with another library
 * than the table's, all buckets use the first.  The same on all ranks. */
static tutti_status connect_library(tti_device_reduce *r, const tti_device_term *terms,
                                    int n_terms) {
    connection how = {.algorithm = TTI_DEVICE_LIBRARY, .with = r->group};
    bool is_same = false;
    if (r->algorithms.n_by_library == 0) return TUTTI_OK;
    tutti_status st = connect_group(r, terms, n_terms, &how, &r->library);
    if (st == TUTTI_E_UNSUPPORTED) { /* on all of them */
        tti_clear_error();
        tti_bucket_algorithms_forget(&r->algorithms);
        return TUTTI_OK;
    }
    TTI_TRY(st);
    /* Whether the library is the same on all ranks, and that of the table. */
    tti_str at_hand = {0};
    r->ops->collectives.describe(r->library, &at_hand);
    is_same = strcmp(tti_str_text(&at_hand), r->algorithms.table.library) == 0;
    tti_str_free(&at_hand);
    TTI_TRY(tti_device_agree(tti_setup_of(r->x), &is_same));
    if (is_same) return TUTTI_OK;
    r->ops->collectives.disconnect(r->library);
    r->library = NULL;
    r->algorithms.found = TTI_CACHE_FOREIGN;
    tti_bucket_algorithms_forget(&r->algorithms);
    return TUTTI_OK;
}

bool tti_device_sums_after(const tti_plan *plan, const tti_weights *weights, bool is_partitioned) {
    static const double MOSTLY = 2.0 / 3;
    const tti_program *shard = &plan->shard;
    if (is_partitioned) return true;
    return weights && tti_share_of_operations(weights, shard->steps, shard->n_steps, true) > MOSTLY;
}

static tutti_status choose_overlap(tti_device_reduce *r) {
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    bool is_plain = !setup->divided && !tti_pipe_of(x) && !tti_offload_of(x) && !tti_sharded_of(x);
    if (!is_plain || !r->ops->collectives.are_linked) return TUTTI_OK;
    if (!tti_device_sums_after(setup->desc.plan, setup->desc.backend->weights,
                               tti_exec_has_partitions(setup)))
        return TUTTI_OK; /* on all ranks: links need not be asked for */
    r->after_shards = r->ops->collectives.are_linked(r->group);
    return tti_device_agree(setup, &r->after_shards);
}

/* Connects the group of compressed gradients in addition to the first one, which then adds only
 * small values. */
static tutti_status connect_compress(tti_device_reduce *r, const tti_device_term *terms,
                                     int n_terms, tti_str *transport) {
    float *partials[TTI_MAX_PARTIALS];
    connection how = {.algorithm = algorithm_of(tti_setup_of(r->x)->desc.alg), .with = r->group};
    tti_device_peers peers = peers_of(r, terms, n_terms, &how, partials);
    TTI_TRY(tti_device_compress_create(r->x, &peers, r->group, &r->compress));
    tti_str_add(transport, ", compressed there");
    return TUTTI_OK;
}

/* All groups; transport: describes them. */
static tutti_status connect_all(tti_device_reduce *r, const tti_device_term *terms, int n_terms,
                                tti_str *transport) {
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    void *with = tti_device_tp_group(tti_tp_of(x)); /* another group of this device */
    if (!with && tti_pipe_of(x)) with = tti_device_p2p_group(tti_device_p2p_of(x));
    connection how = {.algorithm = algorithm_of(setup->desc.alg), .with = with};
    TTI_TRY(find_places(r));
    TTI_TRY(find_whole_bounds(r));
    TTI_TRY(connect_group(r, terms, n_terms, &how, &r->group));
    r->ops->collectives.describe(r->group, transport);
    TTI_TRY(choose_overlap(r));
    if (tti_device_compress_can(&setup->desc, setup->n_ranks))
        return connect_compress(r, terms, n_terms, transport);
    TTI_TRY(tti_bucket_algorithms_init(x, &r->algorithms));
    bool is_library = strcmp(tti_str_text(transport), r->algorithms.table.library) == 0;
    if (is_library) return TUTTI_OK; /* the library is the only group */
    TTI_TRY(connect_library(r, terms, n_terms));
    tti_bucket_algorithms_describe(&r->algorithms, setup->desc.plan->n_buckets, transport);
    return TUTTI_OK;
}

static void release(tti_device_reduce *r) {
    tti_device_compress_destroy(r->compress);
    r->ops->collectives.disconnect(r->library);
    r->ops->collectives.disconnect(r->group);
    tti_bucket_algorithms_forget(&r->algorithms);
    free(r->hosts);
    free(r->shard_bounds);
    free(r->at);
    free(r->whole_bounds);
    free(r->events);
    free(r);
}

tutti_status tti_device_reduce_create(tti_exec *x, tti_device_reduce **out, tti_str *transport) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_device_ops *ops = setup->desc.backend->device;
    tti_device_term *terms = NULL;
    int n_terms = 0;
    *out = NULL;
    if (setup->n_ranks == 1 || !ops->collectives.connect) return TUTTI_OK;
    if (setup->desc.alg == TUTTI_ALG_RING && !setup->desc.fast)
        return tti_fail(TUTTI_E_INVALID,
                        "exec: the ring algorithm adds in an order that depends on the number of "
                        "workers, so its result cannot be exact; use auto, direct or tree");
    tti_device_reduce *r = calloc(1, sizeof *r);
    if (!r) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *r = (tti_device_reduce){.x = x, .ops = ops};
    r->hosts = calloc((size_t)setup->n_ranks, sizeof *r->hosts);
    r->shard_bounds = calloc((size_t)setup->n_ranks + 1, sizeof *r->shard_bounds);
    tutti_status st =
        r->hosts && r->shard_bounds ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (st == TUTTI_OK) st = make_terms(setup, &terms, &n_terms);
    if (st == TUTTI_OK) st = connect_all(r, terms, n_terms, transport);
    free(terms);
    if (st == TUTTI_OK) {
        *out = r;
        return TUTTI_OK;
    }
    release(r);
    if (st != TUTTI_E_UNSUPPORTED) return st;
    tti_str_printf(transport, "through the host: %.300s", tutti_last_error());
    tti_clear_error();
    return TUTTI_OK;
}

tutti_status tti_device_reduce_settle(tti_device_reduce *r) {
    TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(r->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_SETTLED));
    return tti_device_reduce_await(r, TTI_EVENT_SETTLED);
}

void tti_device_reduce_destroy(tti_device_reduce *r) {
    if (r) release(r);
}

const uint32_t *tti_device_reduce_failure(const tti_device_reduce *r) {
    return r->ops->collectives.failure(r->group);
}

/* True if the compute queue waits for the communication queue, whose sums wait for other
 * workers. */
tutti_status tti_device_reduce_waited(const tti_device_reduce *r, int64_t *t_ns) {
    bool waits_itself = !tti_sharded_of(r->x) && !r->compress &&
                        tti_shard_map_is_even(&tti_setup_of(r->x)->shard_map);
    *t_ns = -1;
    return r->ops->collectives.get_waited_ns && waits_itself
               ? r->ops->collectives.get_waited_ns(r->group, t_ns)
               : TUTTI_OK;
}

/* ---- a step ---- */

void tti_device_reduce_begin(tti_device_reduce *r, bool overlapped) {
    r->next_bucket = 0;
    r->overlapped = overlapped;
    r->has_summed = r->has_gathered = false;
    r->status = TUTTI_OK;
}

bool tti_device_reduce_updates(const tti_device_reduce *r) { return r->overlapped && r->update; }

/* True if buckets are summed as they are completed, false if at the end. */
static bool sums_at_once(const tti_device_reduce *r) {
    if (tti_sharded_of(r->x)) return true;
    bool begins_early = r->update ? r->first_joined > 0 : !r->after_shards;
    return r->overlapped && begins_early;
}

/* True if the update adds this bucket between workers. */
static bool is_summed_in_update(const tti_device_reduce *r, int bucket) {
    return tti_device_reduce_updates(r) && bucket >= r->first_joined;
}

bool tti_device_reduce_merges(const tti_device_reduce *r, int w) {
    return sums_at_once(r) && w == tti_setup_of(r->x)->acc.n_micro_groups - 1;
}

/* Copies this worker's partition of the bucket's sum to memory that is not reused in this step. */
static tutti_status keep_own(tti_device_reduce *r, int i, const float *sum) {
    const tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    size_t n = (size_t)setup->n_ranks, which = (size_t)i;
    const size_t *part = setup->share.bounds + which * (n + 1) + setup->rank;
    float *own = tti_sharded_of(x)->own_grads + setup->share.from[which * n + (size_t)setup->rank];
    if (part[0] == part[1]) return TUTTI_OK;
    return r->ops->queues.copy(TTI_QUEUE_COMM, own,
                               sum + (part[0] - setup->desc.plan->buckets[i].first),
                               (part[1] - part[0]) * sizeof *own);
}

/* Rounding values before they are sent and the sum once more moves as many bytes in both directions
 * as f32 partitions do in one, and all workers get the same sum. */
static tutti_status sum_rounded(tti_device_reduce *r, int i, bool overlapped) {
    const tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    const tti_bucket *b = &setup->desc.plan->buckets[i];
    size_t at = r->at ? r->at[i] : b->first;
    TTI_TRY(r->ops->collectives.all_reduce(r->group, at, b->n_elems, overlapped));
    if (!sharded || !sharded->own_grads) return TUTTI_OK;
    return keep_own(r, i, tti_exec_buffer(x, setup->acc.partial_buffer[0]) + at);
}

static tutti_status sum_bucket(tti_device_reduce *r, int i, bool overlapped) {
    const tti_bucket *b = &tti_setup_of(r->x)->desc.plan->buckets[i];
    bool whole = tti_pipe_has_tied(tti_setup_of(r->x)->desc.plan, b->first,
                                   b->n_elems); /* other stages add to this bucket */
    if (tti_exec_has_partitions(tti_setup_of(r->x)) && !whole && is_rounded(tti_setup_of(r->x)))
        return sum_rounded(r, i, overlapped);
    if (tti_exec_has_partitions(tti_setup_of(r->x)) && !whole)
        return r->ops->collectives.reduce_scatter(r->group, (size_t)i, overlapped);
    if (r->compresses) {
        /* The library may also connect for the second message: see sum_next. */
        TTI_TRY(tti_device_compress_begin(r->compress, i, overlapped));
        if (!r->overlapped) TTI_TRY(tti_device_reduce_rest(r));
        if (!r->overlapped) TTI_TRY(tti_device_reduce_barrier(r));
        return tti_device_compress_end(r->compress, i, overlapped);
    }
    bool by_library = r->library && r->algorithms.by_library[i];
    return r->ops->collectives.all_reduce(by_library ? r->library : r->group, b->first, b->n_elems,
                                          overlapped);
}

static tutti_status sum_next(tti_device_reduce *r) {
    const tti_bucket *b = &tti_setup_of(r->x)->desc.plan->buckets[r->next_bucket++];
    TTI_TRY(tti_device_tp_wait(
        tti_tp_of(r->x))); /* waits for the gradients that TP collectives produce */
    if (sums_at_once(r)) {
        /* Merges the bucket, which run_shards leaves to this function. */
        const tti_setup *setup = tti_setup_of(r->x);
        tti_exec_merge(r->x, &setup->acc.micro_groups[setup->acc.n_micro_groups - 1], b->first,
                       b->first + b->n_elems);
        for (int i = 1; setup->desc.fast && i < setup->acc.n_partials; i++)
            setup->desc.backend->accumulate(
                tti_exec_grads_at(r->x, setup->acc.partial_buffer[0], b->first),
                tti_exec_grads_at(r->x, setup->acc.partial_buffer[i], b->first), b->n_elems);
        TTI_TRY(tti_profile_upto(r->x, TTI_ROW_COMPUTE, tti_instr_span(TTI_MERGE), -1));
        if (is_summed_in_update(r, r->next_bucket - 1)) return TUTTI_OK;
        TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    }
    r->has_summed = true;
    bool is_last = r->next_bucket ==
                   tti_setup_of(r->x)->desc.plan->n_buckets; /* the update waits for the last sum */
    /* At its first call for a size the library may allocate memory or connect.  That must not
     * happen while a kernel waits for a peer. */
    bool alone = !r->overlapped && (tti_sharded_of(r->x) || r->library || r->compress);
    if (alone) TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    TTI_TRY(tti_profile_from(r->x, TTI_ROW_COMM));
    TTI_TRY(sum_bucket(r, r->next_bucket - 1, sums_at_once(r) && r->overlapped && !is_last));
    tti_instr_kind kind =
        tti_exec_divides(tti_setup_of(r->x)) ? TTI_REDUCE_SCATTER : TTI_ALL_REDUCE;
    TTI_TRY(tti_profile_upto(r->x, TTI_ROW_COMM, tti_instr_span(kind), -1));
    if (alone) return tti_device_reduce_rest(r);
    return tti_sharded_of(r->x) ? tti_device_reduce_record(r, &r->events[r->next_bucket - 1])
                                : TUTTI_OK;
}

tutti_status tti_device_reduce_record(tti_device_reduce *r, int *place) {
    *place = r->next_event++ % TTI_SUM_EVENTS;
    return r->ops->queues.record_event(TTI_QUEUE_COMM, *place);
}

tutti_status tti_device_reduce_wait_for(tti_device_reduce *r, int bucket) {
    TTI_ASSERT(bucket < r->next_bucket);
    return r->ops->queues.wait_event(TTI_QUEUE_COMPUTE, r->events[bucket]);
}

void tti_device_reduce_after(tti_device_reduce *r, int step) {
    const tti_plan *plan = tti_setup_of(r->x)->desc.plan;
    while (sums_at_once(r) && r->status == TUTTI_OK && r->next_bucket < plan->n_buckets &&
           plan->buckets[r->next_bucket].ready_after <= step)
        r->status = sum_next(r);
}

int tti_device_reduce_n_summed(const tti_device_reduce *r) { return r->next_bucket; }

/* Captured graphs that differ between ranks may run in different orders.  Two of them that each
 * wait for the other would deadlock, so they are serialized. */
static tutti_status order_queues(const tti_device_reduce *r, tti_queue after, tti_queue before) {
    return tti_shard_map_is_even(&tti_setup_of(r->x)->shard_map)
               ? TUTTI_OK
               : r->ops->queues.order(after, before);
}

/* Call before a synchronization of all workers in the compute queue, which overlaps with the
 * sums. */
static tutti_status begin_gather(tti_device_reduce *r) {
    r->has_gathered = true;
    return r->has_summed ? order_queues(r, TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM) : TUTTI_OK;
}

static tutti_status all_gather_words(tti_device_reduce *r, void *words, size_t n, size_t first,
                                     size_t last) {
    TTI_TRY(begin_gather(r));
    return r->ops->collectives.all_gather_words(r->group, words, n, first, last);
}

static tti_device_step_sums step_sums_of(const tti_setup *setup, const tti_step_args *args,
                                         tti_step_report *report, double *sums) {
    return (tti_device_step_sums){.sums = sums,
                                  .args = args,
                                  .report = report,
                                  .n_sums = tti_n_sums(setup),
                                  .n_shards = setup->desc.n_shards,
                                  .first_shard = setup->first_shard,
                                  .last_shard = setup->last_shard,
                                  .rank = setup->rank,
                                  .n_ranks = setup->n_ranks};
}

tutti_status tti_device_reduce_finish(tti_device_reduce *r, const tti_step_args *args,
                                      tti_step_report *report, double *sums) {
    TTI_TRY(r->status);
    if (tti_device_reduce_updates(r)) {
        TTI_ASSERT(r->first_joined == 0 ||
                   r->next_bucket == tti_setup_of(r->x)->desc.plan->n_buckets);
        return TUTTI_OK;
    }
    if (!r->overlapped) TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    if (r->overlapped && r->after_shards)
        TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    while ((!r->overlapped || r->after_shards) &&
           r->next_bucket < tti_setup_of(r->x)->desc.plan->n_buckets)
        TTI_TRY(sum_next(r));
    TTI_ASSERT(r->next_bucket == tti_setup_of(r->x)->desc.plan->n_buckets);
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    size_t n_words = 2 * tti_device_n_shared_sums(setup);
    tti_device_step_sums step_sums = step_sums_of(setup, args, report, sums);
    TTI_TRY(r->ops->collectives.report_sums(&step_sums));
    TTI_TRY(all_gather_words(r, sums, n_words, 0, n_words));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_REPORT), -1));
    TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(tti_profile_upto(r->x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WAIT, "waiting for sums"),
                             -1));
    return r->overlapped ? TUTTI_OK : tti_device_reduce_rest(r);
}

/* True if the update can compute the sums from this bucket on.  Equal on all ranks. */
static tutti_status can_sum_in_update(tti_device_reduce *r, void *update, int bucket, bool *can) {
    const tti_setup *setup = tti_setup_of(r->x);
    size_t first = bucket ? setup->desc.plan->buckets[bucket].first : 0;
    TTI_TRY(r->ops->fusions.can_update(r->group, update, first, can));
    return tti_device_agree(setup, can);
}

/* True if there is a last bucket and all others precede it in the flat arrays. */
static bool is_last_in_memory(const tti_plan *plan) {
    for (int b = 0; b + 1 < plan->n_buckets; b++)
        if (plan->buckets[b].first + plan->buckets[b].n_elems >
            plan->buckets[plan->n_buckets - 1].first)
            return false;
    return plan->n_buckets > 1;
}

tutti_status tti_device_reduce_join_update(tti_device_reduce *r, void *update, tti_str *transport) {
    const tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    bool can = false;
    /* Nothing else may add to gradients or gather between the sums and the update. */
    bool is_plain = !setup->divided && !tti_pipe_of(x) && !tti_offload_of(x) && !setup->desc.server;
    bool has_one_sum = is_plain && !tti_sharded_of(x) && !tti_exec_has_partitions(setup) &&
                       !r->library && !r->compress;
    if (!r->ops->fusions.can_update || !has_one_sum) return TUTTI_OK;
    /* A lost peer would interrupt this update half way. */
    if (tti_setup_of(r->x)->desc.elastic) return TUTTI_OK;
    int bucket = 0;
    TTI_TRY(can_sum_in_update(r, update, bucket, &can));
    if (!can && is_last_in_memory(setup->desc.plan)) {
        bucket = setup->desc.plan->n_buckets - 1;
        TTI_TRY(can_sum_in_update(r, update, bucket, &can));
    }
    if (!can) return TUTTI_OK;
    r->update = update;
    r->first_joined = bucket;
    tti_str_add(transport, bucket ? ", the last bucket in the update" : ", in the update");
    return TUTTI_OK;
}

tutti_status tti_device_reduce_update(tti_device_reduce *r, const tti_step_args *args,
                                      tti_step_report *report, double *sums) {
    tti_device_step_sums step_sums = step_sums_of(tti_setup_of(r->x), args, report, sums);
    size_t first = 0;
    if (r->first_joined > 0) {
        first = tti_setup_of(r->x)->desc.plan->buckets[r->first_joined].first;
        TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
        TTI_TRY(tti_profile_upto(r->x, TTI_ROW_COMPUTE,
                                 tti_span_of(TTI_SPAN_WAIT, "waiting for sums"), -1));
    }
    TTI_TRY(begin_gather(r));
    return r->ops->fusions.update(r->group, r->update, &step_sums, first);
}

tutti_status tti_device_reduce_join(tti_device_reduce *r, const tti_node *node,
                                    const float *const *in, float *const *out, bool *done) {
    *done = false;
    if (!r->ops->collectives.join || !r->overlapped) return TUTTI_OK;
    TTI_TRY(begin_gather(r));
    const tti_setup *setup = tti_setup_of(r->x);
    for (int i = 0; i <= setup->n_ranks; i++)
        r->shard_bounds[i] = tti_shard_map_first(&setup->shard_map, i);
    return r->ops->collectives.join(
        r->group,
        &(tti_device_join){.op = node->op->name,
                           .in = in,
                           .out = out,
                           .n_elems = (size_t)tti_value_n_elems(node->out[0]),
                           .bounds = r->shard_bounds},
        done);
}

tutti_status tti_device_reduce_joins(tti_device_reduce *r, float *parts, size_t n) {
    const tti_setup *setup = tti_setup_of(r->x);
    size_t first = (size_t)setup->first_shard * n, last = (size_t)setup->last_shard * n;
    if (!r->overlapped) TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    TTI_TRY(all_gather_words(r, parts, n * (size_t)setup->desc.n_shards, first, last));
    return r->overlapped ? TUTTI_OK : tti_device_reduce_rest(r);
}

tutti_status tti_device_reduce_words(tti_device_reduce *r, void *words, size_t n) {
    if (!r->overlapped) TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    TTI_TRY(all_gather_words(r, words, n, 0, n));
    return r->overlapped ? TUTTI_OK : tti_device_reduce_rest(r);
}

tutti_status tti_device_reduce_fetch_begin(tti_device_reduce *r) {
    return r->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE);
}

tutti_status tti_device_reduce_fetch(tti_device_reduce *r, int bucket, int source, float *dst,
                                     bool overlapped) {
    r->has_summed = true; /* later gathers also wait for the sums */
    if (r->overlapped && r->has_gathered)
        TTI_TRY(order_queues(r, TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    TTI_TRY(tti_profile_from(r->x, TTI_ROW_COMM));
    TTI_TRY(r->ops->collectives.all_gather(r->group, (size_t)bucket, source, dst, overlapped));
    return tti_profile_upto(r->x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_GATHER), -1);
}

bool tti_device_reduce_gathers_pieces(const tti_device_reduce *r) {
    const tti_device_collective_ops *ops = &r->ops->collectives;
    return ops->gathers_pieces && ops->gathers_pieces(r->group);
}

tutti_status tti_device_reduce_fetch_pieces(tti_device_reduce *r, const tti_device_piece *pieces,
                                            int n, size_t n_words, bool overlapped) {
    r->has_summed = true;
    if (r->overlapped && r->has_gathered)
        TTI_TRY(order_queues(r, TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    TTI_TRY(tti_profile_from(r->x, TTI_ROW_COMM));
    TTI_TRY(r->ops->collectives.all_gather_pieces(r->group, pieces, n, n_words, overlapped));
    return tti_profile_upto(r->x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_GATHER), -1);
}

tutti_status tti_device_reduce_fetched(tti_device_reduce *r, bool overlapped) {
    if (!overlapped) return tti_device_reduce_rest(r);
    int place;
    TTI_TRY(tti_device_reduce_record(r, &place));
    TTI_TRY(r->ops->queues.wait_event(TTI_QUEUE_COMPUTE, place));
    return tti_profile_upto(r->x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_WAIT, "waiting for parameters"), -1);
}

/* A broadcast is a gather in which all partitions belong to the source. */
tutti_status tti_device_reduce_broadcast(tti_device_reduce *r, float *array, int source) {
    const tti_setup *setup = tti_setup_of(r->x);
    const tti_plan *plan = setup->desc.plan;
    TTI_ASSERT(r->whole_bounds);
    if (setup->rank == source)
        TTI_TRY(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->sources[0].data, array,
                                    plan->n_flat * sizeof *array));
    TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    for (int b = 0; b < plan->n_buckets; b++)
        TTI_TRY(r->ops->collectives.all_gather(r->group, (size_t)(source * plan->n_buckets + b), 0,
                                               array + plan->buckets[b].first, false));
    return tti_device_reduce_rest(r);
}

/* All-gathers the hashes into sums, behind the values that all ranks share. */
tutti_status tti_device_reduce_hash(tti_device_reduce *r, const tti_step_report *report,
                                    double *sums) {
    const tti_setup *setup = tti_setup_of(r->x);
    size_t rank = (size_t)setup->rank;
    double *hashes =
        sums + tti_device_n_shared_sums(setup); /* one hash per rank, as the bits of a double */
    TTI_TRY(r->ops->queues.copy(TTI_QUEUE_COMPUTE, hashes + rank, &report->params_hash,
                                sizeof *hashes));
    if (!r->overlapped) TTI_TRY(tti_device_reduce_sync_and_barrier(r));
    TTI_TRY(all_gather_words(r, hashes, 2 * (size_t)setup->n_ranks, 2 * rank, 2 * rank + 2));
    return r->overlapped ? TUTTI_OK : tti_device_reduce_rest(r);
}

tutti_status tti_device_reduce_sync_and_barrier(tti_device_reduce *r) {
    TTI_TRY(r->ops->queues.sync());
    return tutti_comm_barrier(tti_setup_of(r->x)->desc.comm);
}

tutti_status tti_device_reduce_barrier(tti_device_reduce *r) {
    return tutti_comm_barrier(tti_setup_of(r->x)->desc.comm);
}

/* The group that was connected last reports failures of the others. */
tutti_status tti_device_reduce_await(tti_device_reduce *r, int event) {
    void *last = r->compress  ? tti_device_compress_group(r->compress)
                 : r->library ? r->library
                              : r->group;
    return tti_device_late(tti_setup_of(r->x), r->ops->collectives.await(last, event));
}

size_t tti_device_reduce_compress_bytes(const tti_device_reduce *r) {
    return r->compress
               ? tti_device_compress_bytes(&tti_setup_of(r->x)->desc, tti_setup_of(r->x)->n_ranks)
               : 0;
}

size_t tti_device_rounded_bytes(const tti_exec_desc *desc, int n_ranks, const tti_accumulation *acc,
                                const tti_sharded *sharded) {
    const tti_device_ops *ops = desc->backend->device;
    bool host_staged = desc->server || desc->local || desc->mixed;
    size_t n = 0;
    if (!ops || !ops->collectives.connect || n_ranks < 2 || host_staged) return 0;
    if (tti_exec_wire_bytes(desc) == sizeof(float)) return 0;
    int n_partials = desc->fast ? 1 : acc->n_partials;
    for (int k = 0; k < n_partials; k++) {
        bool is_short = sharded && sharded->is_short[acc->partial_buffer[k]];
        n += is_short ? sharded->grads.n_elems : desc->plan->n_flat;
    }
    return n * sizeof(uint16_t);
}

size_t tti_device_reduce_rounded_bytes(const tti_device_reduce *r) {
    const tti_setup *setup = tti_setup_of(r->x);
    return tti_device_rounded_bytes(&setup->desc, setup->n_ranks, &setup->acc,
                                    tti_sharded_of(r->x));
}

double tti_device_reduce_sent(const tti_device_reduce *r, uint64_t step) {
    const tti_setup *setup = tti_setup_of(r->x);
    if (!r->compress) return 0;
    if (step >= (uint64_t)setup->desc.compress_after)
        return tti_compress_sent(&setup->desc, setup->n_ranks);
    return tti_exec_reduce_bytes(setup, setup->desc.plan->n_flat * sizeof(float));
}

bool tti_device_reduce_turns(const tti_device_reduce *r, uint64_t step) {
    return r->compress && !r->compresses &&
           step >= (uint64_t)tti_setup_of(r->x)->desc.compress_after;
}

void tti_device_reduce_turn(tti_device_reduce *r) { r->compresses = true; }

tutti_status tti_device_reduce_rest(tti_device_reduce *r) {
    TTI_TRY(tti_device_reduce_settle(r));
    return r->ops->queues.sync();
}
