/* comm.c - communicators: joining, memory, barrier, and the reductions with their choice of an
 * algorithm.  Calls that only move bytes are in move.c, the sum over shards in shards.c.
 *
 * This file moves no bytes.  To add a transport: write comm/NAME/ with one tti_transport and list
 * it here. */
#include "tutti/comm.h"

#include <stdlib.h>
#include <string.h>

#include "comm/call.h"

/* In order of preference: a desc that names no transport uses the first one that can serve it. */
static const tti_transport *const transports[] = {&tti_transport_shm, &tti_transport_tcp,
                                                  &tti_transport_openmpi, &tti_transport_mpich};

const char *tutti_comm_transport_name(int i) {
    return i >= 0 && i < (int)TTI_COUNT(transports) ? transports[i]->name : NULL;
}

const char *tutti_comm_transport_doc(int i) {
    return i >= 0 && i < (int)TTI_COUNT(transports) ? transports[i]->doc : NULL;
}

static tutti_status find_transport(const tutti_comm_desc *desc, const tti_transport **out) {
    const char *why = NULL;
    for (size_t i = 0; i < TTI_COUNT(transports); i++) {
        const tti_transport *t = transports[i];
        if (desc->transport && strcmp(desc->transport, t->name) != 0) continue;
        const char *refusal = t->refusal(desc);
        if (!refusal) {
            *out = t;
            return TUTTI_OK;
        }
        if (!why) why = refusal; /* the refusal of the preferred transport */
    }
    if (why && desc->transport)
        return tti_fail(TUTTI_E_UNSUPPORTED, "comm_create: transport \"%s\" cannot run: %s",
                        desc->transport, why);
    if (why) return tti_fail(TUTTI_E_UNSUPPORTED, "comm_create: no transport can run: %s", why);
    return tti_fail(TUTTI_E_INVALID,
                    "comm_create: no transport \"%s\"; there is: shm, tcp, mpi-openmpi, mpi-mpich",
                    desc->transport);
}

static tutti_status check_desc(const tutti_comm_desc *desc) {
    if (!desc) return tti_fail(TUTTI_E_INVALID, "comm_create: desc is NULL");
    int most = desc->group ? TTI_MAX_HOST_RANKS : TTI_MAX_RANKS;
    if (desc->n_ranks < 1 || desc->n_ranks > most)
        return tti_fail(TUTTI_E_INVALID, "comm_create: n_ranks must be in 1 .. %d%s, got %d", most,
                        desc->group ? "" : " without a group of one host", desc->n_ranks);
    if (desc->rank < 0 || desc->rank >= desc->n_ranks)
        return tti_fail(TUTTI_E_INVALID, "comm_create: rank must be in 0 .. %d, got %d",
                        desc->n_ranks - 1, desc->rank);
    if (desc->timeout_ms < 0)
        return tti_fail(TUTTI_E_INVALID, "comm_create: timeout_ms must be >= 0, got %d",
                        desc->timeout_ms);
    if (desc->phase_timeout_ms < 0)
        return tti_fail(TUTTI_E_INVALID, "comm_create: phase_timeout_ms must be >= 0, got %d",
                        desc->phase_timeout_ms);
    return TUTTI_OK;
}

/* Completes the creation of comm; the caller destroys comm if this fails. */
static tutti_status join(tutti_comm *comm, tutti_comm_desc *desc) {
    if (!desc->group && desc->n_ranks == 1) {
        TTI_TRY(tutti_comm_group_create(1, &comm->own_group));
        desc->group = comm->own_group;
    }
    TTI_TRY(find_transport(desc, &comm->transport));
    TTI_TRY(comm->transport->join(desc, &comm->state));
    return tti_comm_find_hosts(comm);
}

tutti_status tti_comm_find_hosts(tutti_comm *comm) {
    comm->n_hosts = 1;
    if (!comm->transport->hosts) return TUTTI_OK;
    comm->host_of = calloc((size_t)comm->n_ranks, sizeof *comm->host_of);
    if (!comm->host_of) return tti_fail(TUTTI_E_NOMEM, "comm_create: %d ranks", comm->n_ranks);
    comm->n_hosts = comm->transport->hosts(comm->state, comm->host_of);
    comm->host_ranks = calloc((size_t)comm->n_ranks, sizeof *comm->host_ranks);
    comm->host_first = calloc((size_t)comm->n_hosts + 2, sizeof *comm->host_first);
    if (!comm->host_ranks || !comm->host_first)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: %d ranks", comm->n_ranks);
    /* Counts ranks two entries ahead, so that after the prefix sums each entry is the start of its
     * host. */
    for (int r = 0; r < comm->n_ranks; r++) comm->host_first[comm->host_of[r] + 2]++;
    for (int h = 1; h < comm->n_hosts; h++) comm->host_first[h + 1] += comm->host_first[h];
    for (int r = 0; r < comm->n_ranks; r++)
        comm->host_ranks[comm->host_first[comm->host_of[r] + 1]++] = r;
    return TUTTI_OK;
}

tutti_status tutti_comm_create(const tutti_comm_desc *desc, tutti_comm **out) {
    if (!out) return tti_fail(TUTTI_E_INVALID, "comm_create: out is NULL");
    *out = NULL;
    TTI_TRY(check_desc(desc));
    tutti_comm_desc full = *desc;
    if (full.timeout_ms == 0) full.timeout_ms = 60000;
    full.phase_timeout_ms = TTI_MAX(full.phase_timeout_ms, full.timeout_ms);
    tutti_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return tti_fail(TUTTI_E_NOMEM, "comm_create: %zu bytes", sizeof *comm);
    tti_commons_init(&comm->commons);
    comm->rank = full.rank;
    comm->n_ranks = full.n_ranks;
    comm->timeout_ms = full.timeout_ms;
    comm->phase_timeout_ms = full.phase_timeout_ms;
    tutti_status st = join(comm, &full);
    if (st != TUTTI_OK) {
        tutti_comm_destroy(comm);
        return st;
    }
    *out = comm;
    return TUTTI_OK;
}

void tutti_comm_destroy(tutti_comm *comm) {
    if (!comm) return;
    if (comm->state) comm->transport->leave(comm->state);
    tti_sum_order_free(&comm->by_rank);
    tti_sum_order_free(&comm->by_shard);
    tti_shard_map_free(&comm->assigned);
    tti_commons_fini(&comm->commons);
    tutti_comm_group_destroy(comm->own_group);
    free(comm->scratch);
    free(comm->global_ranks);
    free(comm->host_of);
    free(comm->host_ranks);
    free(comm->host_first);
    tti_message_list_free(&comm->messages);
    free(comm);
}

void tti_comm_keep_group(tutti_comm *comm, tutti_comm_group *group) { comm->own_group = group; }

tutti_status tutti_comm_alloc(tutti_comm *comm, size_t n_bytes, void **out) {
    TTI_TRY(tti_check_comm("comm_alloc", comm));
    if (!out) return tti_fail(TUTTI_E_INVALID, "comm_alloc: out is NULL");
    if (n_bytes > PTRDIFF_MAX / (size_t)TTI_MAX(comm->n_ranks, (int)TTI_MAX_HOST_RANKS) / 2)
        return tti_fail(TUTTI_E_INVALID, "comm_alloc: %zu bytes are too many", n_bytes);
    tti_offer offer = {.call = {.kind = TTI_CALL_ALLOC, .n_elems = n_bytes}};
    tutti_status st = tti_call_begin(comm, &offer, NULL);
    if (st == TUTTI_OK) st = comm->transport->alloc(comm->state, n_bytes, out);
    return tti_call_end(comm, st);
}

tutti_status tutti_comm_barrier(tutti_comm *comm) {
    TTI_TRY(tti_check_comm("barrier", comm));
    tti_offer offer = {.call = {.kind = TTI_CALL_BARRIER}};
    return tti_call_end(comm, tti_call_begin(comm, &offer, NULL));
}

static tutti_status check_reduction(const char *who, const tutti_comm *comm, const tti_work *w) {
    TTI_TRY(tti_check_elems(who, w->n_elems, comm->n_ranks, w->dtypes.term));
    if ((unsigned)w->op >= TUTTI_N_REDUCE_OPS)
        return tti_fail(TUTTI_E_INVALID, "%s: no operation %d", who, (int)w->op);
    return TUTTI_OK;
}

static bool sums_in_agreement(const tti_work *work) {
    return tti_comm_is_large(work->comm) &&
           work->n_elems * tutti_dtype_bytes(work->dtypes.sum) <= TTI_INLINE_BYTES;
}

static tutti_status reduce_in_agreement(tti_work *work, tti_offer *offer) {
    tutti_comm *comm = work->comm;
    tutti_dtype wide = work->dtypes.sum;
    double term[TTI_INLINE_BYTES / sizeof(double)];
    if (wide == work->dtypes.term)
        memcpy(term, work->bufs[0], work->n_elems * tutti_dtype_bytes(wide));
    else
        tti_widen(work->dtypes.term, work->bufs[0], term, work->n_elems);
    offer->inline_data = term;
    offer->inline_bytes = work->n_elems * tutti_dtype_bytes(wide);
    offer->n_sum = work->n_elems;
    offer->wide = wide;
    offer->sum_op = work->op;
    TTI_TRY(tti_call_begin(comm, offer, NULL));
    if (work->n_elems)
        tti_sum_result(work->dtypes, comm->transport->sum(comm->state), work->dst, work->n_elems);
    return TUTTI_OK;
}

/* Adds inside the agreement, along the tree on which the ranks of a large group agree.  This is a
 * separate function because the compiler clears the term buffer, which small groups do not need. */
tutti_status tti_agreement_reduce(tti_work *work, tti_offer *offer, bool *done) {
    *done = sums_in_agreement(work);
    return *done ? reduce_in_agreement(work, offer) : TUTTI_OK;
}

/* Chooses an algorithm by size, from measurements: docs/algorithms.md. */
static tutti_status run_reduce(const tti_work *work, tutti_comm_alg alg) {
    if (alg == TUTTI_ALG_RING) return tti_ring_reduce(work);
    if (alg == TUTTI_ALG_TREE) return tti_tree_reduce(work);
    return tti_direct_reduce(work);
}

/* The tree over the ranks equals the upper part of a tree over their subtrees. */
static tutti_status reduce_large(tti_work *work) {
    tti_shard_map shard_map;
    tti_shard_map_subtrees(work->comm->n_ranks, &shard_map);
    work->shard_map = &shard_map;
    tutti_status st = tti_large_reduce(work);
    work->shard_map = NULL;
    return st;
}

static tutti_status all_reduce(tti_work *work, tutti_comm_alg alg) {
    tutti_comm *comm = work->comm;
    tti_offer offer = {.call = {.kind = TTI_CALL_ALL_REDUCE,
                                .dtype = work->dtypes.term,
                                .op = work->op,
                                .alg = alg,
                                .n_elems = work->n_elems}};
    size_t n_bytes = work->n_elems * tutti_dtype_bytes(work->dtypes.term);
    bool is_inline = n_bytes <= tti_comm_inline_bytes(comm) &&
                     (alg == TUTTI_ALG_AUTO || alg == TUTTI_ALG_DIRECT);
    bool done = false;
    if (is_inline) TTI_TRY(tti_agreement_reduce(work, &offer, &done));
    if (done) return TUTTI_OK;
    if (is_inline) {
        offer.inline_data = work->bufs[0];
        offer.inline_bytes = n_bytes;
    } else {
        offer.bufs[0] = work->bufs[0];
        offer.bufs[1] = work->dst;
        offer.n_bufs = 2;
        offer.buf_bytes = n_bytes;
    }
    TTI_TRY(tti_call_begin(comm, &offer, &work->direct));
    if (work->n_elems == 0) return TUTTI_OK;
    if (!is_inline && work->direct && alg != TUTTI_ALG_RING && tti_comm_is_large(comm))
        return reduce_large(work);
    TTI_TRY(tti_sum_order_ranks_once(comm->n_ranks, &comm->by_rank));
    return is_inline ? tti_inline_reduce(work) : run_reduce(work, alg);
}

tutti_status tutti_comm_all_reduce(tutti_comm *comm, const void *src, void *dst, size_t n_elems,
                                   tutti_dtype dtype, tutti_reduce_op op, tutti_comm_alg alg) {
    TTI_TRY(tti_check_comm("all_reduce", comm));
    tti_work work = {.comm = comm,
                     .order = &comm->by_rank,
                     .bufs = {(void *)(uintptr_t)src},
                     .n_partials = 1,
                     .dst = dst,
                     .n_elems = n_elems,
                     .dtypes = tti_sum_dtypes_of(dtype),
                     .op = op,
                     .keeps_terms = true};
    TTI_TRY(check_reduction("all_reduce", comm, &work));
    if ((unsigned)alg >= TUTTI_N_ALGS)
        return tti_fail(TUTTI_E_INVALID, "all_reduce: no algorithm %d", (int)alg);
    size_t n_bytes = n_elems * tutti_dtype_bytes(dtype);
    TTI_TRY(tti_check_buffers("all_reduce", src, n_bytes, dst, n_bytes));
    return tti_call_end(comm, all_reduce(&work, alg));
}

static tutti_status reduce_scatter(tti_work *work) {
    tti_offer offer = {.call = {.kind = TTI_CALL_REDUCE_SCATTER,
                                .dtype = work->dtypes.term,
                                .op = work->op,
                                .n_elems = work->n_elems},
                       .bufs = {work->bufs[0]},
                       .n_bufs = 1,
                       .buf_bytes = work->n_elems * (size_t)work->comm->n_ranks *
                                    tutti_dtype_bytes(work->dtypes.term)};
    TTI_TRY(tti_sum_order_ranks_once(work->comm->n_ranks, &work->comm->by_rank));
    TTI_TRY(tti_call_begin(work->comm, &offer, &work->direct));
    return work->n_elems == 0 ? TUTTI_OK : tti_direct_reduce_scatter(work);
}

tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, const void *src, void *dst, size_t n_elems,
                                       tutti_dtype dtype, tutti_reduce_op op) {
    TTI_TRY(tti_check_comm("reduce_scatter", comm));
    tti_work work = {.comm = comm,
                     .order = &comm->by_rank,
                     .bufs = {(void *)(uintptr_t)src},
                     .n_partials = 1,
                     .dst = dst,
                     .n_elems = n_elems,
                     .dtypes = tti_sum_dtypes_of(dtype),
                     .op = op};
    TTI_TRY(check_reduction("reduce_scatter", comm, &work));
    size_t n_bytes = n_elems * tutti_dtype_bytes(dtype);
    if (dst != (const char *)src + (size_t)comm->rank * n_bytes || !dst)
        TTI_TRY(tti_check_buffers("reduce_scatter", src, n_bytes * (size_t)comm->n_ranks, dst,
                                  n_bytes));
    if (src == dst && comm->rank != 0 && n_bytes)
        return tti_fail(TUTTI_E_INVALID,
                        "reduce_scatter: dst in place is src + rank*n_elems, not src");
    return tti_call_end(comm, reduce_scatter(&work));
}

tutti_status tti_comm_end_phase(tutti_comm *comm) {
    int whole_ms = comm->timeout_ms;
    tti_comm_set_timeout(comm, comm->phase_timeout_ms);
    tutti_status st = tutti_comm_barrier(comm);
    tti_comm_set_timeout(comm, whole_ms);
    return st;
}
