/* shards.c - the exact sum over virtual shards: checks, agreement, and the choice of the algorithm.
 *
 * The additions are in alg_direct.c and alg_tree.c.  Both follow tti_sum_order_shards, the binary
 * tree over all shards, which does not depend on the shard map. */
#include "comm/shards.h"

#include <string.h>

#include "comm/call.h"
#include "comm/partitions.h"

static tutti_status check_partials(const tutti_comm *comm, const tti_reduce_desc *desc,
                                   const tti_shard_map *shard_map) {
    tti_partial want[TTI_MAX_PARTIALS];
    int first = tti_shard_map_first(shard_map, comm->rank);
    int last = tti_shard_map_first(shard_map, comm->rank + 1);
    int n = tti_shard_partials(first, last, want);
    if (desc->n_partials != n || !desc->partials)
        return tti_fail(TUTTI_E_INVALID,
                        "reduce_shards: rank %d has %d partial sums of shards %d..%d, got %d",
                        comm->rank, n, first, last - 1, desc->n_partials);
    for (int k = 0; k < n; k++) {
        const tti_partial *p = &desc->partials[k];
        if (p->level != want[k].level || p->index != want[k].index)
            return tti_fail(
                TUTTI_E_INVALID,
                "reduce_shards: partial sum %d is level %d index %d, want level %d index %d", k,
                p->level, p->index, want[k].level, want[k].index);
        if (!p->data && desc->n_elems > 0)
            return tti_fail(TUTTI_E_INVALID, "reduce_shards: partial sum %d has no data", k);
    }
    return TUTTI_OK;
}

static tutti_status check_whole(const tutti_comm *comm, const tti_reduce_desc *desc) {
    if (!desc->bounds) return TUTTI_OK;
    if (!desc->digest)
        TTI_TRY(tti_check_bounds("reduce_shards", comm, desc->bounds, 1, desc->n_elems));
    if (desc->bounds[0] == 0 && desc->bounds[comm->n_ranks] == desc->n_elems) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "reduce_shards: partitions from %zu to %zu, want 0 to %zu",
                    desc->bounds[0], desc->bounds[comm->n_ranks], desc->n_elems);
}

/* The shard map of desc, whose array it borrows, or equal runs. */
static tutti_status shard_map_of(const tutti_comm *comm, const tti_reduce_desc *desc,
                                 tti_shard_map *shard_map) {
    if (!desc->shard_map) {
        tti_shard_map_equally(comm->n_ranks, desc->n_shards, shard_map);
        return TUTTI_OK;
    }
    *shard_map = *desc->shard_map;
    return tti_shard_map_check(shard_map, comm->n_ranks, desc->n_shards);
}

static tutti_status check_desc(const tutti_comm *comm, const tti_reduce_desc *desc,
                               tti_shard_map *shard_map) {
    if (!desc) return tti_fail(TUTTI_E_INVALID, "reduce_shards: desc is NULL");
    int v = desc->n_shards;
    if (v < comm->n_ranks || v > TTI_MAX_SHARDS || (v & (v - 1)) != 0)
        return tti_fail(TUTTI_E_INVALID,
                        "reduce_shards: shards must be a power of two in %d .. %d, got %d",
                        comm->n_ranks, TTI_MAX_SHARDS, v);
    if (desc->alg == TUTTI_ALG_RING)
        return tti_fail(
            TUTTI_E_INVALID,
            "reduce_shards: the ring algorithm adds in an order that depends on the number of "
            "workers, so its result cannot be exact; use auto, direct or tree");
    if ((unsigned)desc->alg >= TUTTI_N_ALGS)
        return tti_fail(TUTTI_E_INVALID, "reduce_shards: no algorithm %d", (int)desc->alg);
    TTI_TRY(tti_check_elems("reduce_shards", desc->n_elems, 1, desc->dtype));
    if (desc->rounds && desc->dtype != TUTTI_BF16)
        return tti_fail(TUTTI_E_INVALID, "reduce_shards: only partial sums of bf16 are rounded");
    if (!desc->dst && desc->n_elems > 0)
        return tti_fail(TUTTI_E_INVALID, "reduce_shards: dst is NULL");
    TTI_TRY(check_whole(comm, desc));
    TTI_TRY(shard_map_of(comm, desc, shard_map));
    return check_partials(comm, desc, shard_map);
}

/* The order of the shards over the ranks, cached until the shard map changes. */
static tutti_status order_of(tutti_comm *comm, const tti_shard_map *shard_map) {
    if (comm->by_shard.n_shards > 0 && tti_shard_map_same(&comm->assigned, shard_map))
        return TUTTI_OK;
    tti_sum_order order;
    TTI_TRY(tti_sum_order_shards(shard_map, &order));
    tutti_status st = tti_shard_map_copy(shard_map, &comm->assigned);
    if (st != TUTTI_OK) {
        tti_sum_order_free(&order);
        return st;
    }
    tti_sum_order_free(&comm->by_shard);
    comm->by_shard = order;
    return TUTTI_OK;
}

/* True if the sum is part of the agreement itself; equal on all ranks. */
static bool fits_inline(const tutti_comm *comm, const tti_reduce_desc *desc,
                        const tti_shard_map *shard_map, size_t n_bytes) {
    tti_partial partials[TTI_MAX_PARTIALS];
    size_t most = tti_comm_inline_bytes(comm);
    if (desc->alg == TUTTI_ALG_TREE || n_bytes > most) return false;
    for (int r = 0; r < shard_map->n_ranks; r++) {
        int n = tti_shard_partials(tti_shard_map_first(shard_map, r),
                                   tti_shard_map_first(shard_map, r + 1), partials);
        if ((size_t)n * n_bytes > most) return false;
    }
    return true;
}

/* If each rank has one term, and all terms are subtrees of the same size, then the tree over the
 * ranks is the upper part of the tree over the shards. */
static tutti_status reduce_inside_agreement(tti_work *work, const tti_offer *offer,
                                            const tti_shard_map *shard_map, bool *done) {
    tti_offer own = *offer;
    *done = false;
    return tti_shard_map_is_uniform(shard_map) ? tti_agreement_reduce(work, &own, done) : TUTTI_OK;
}

static tutti_status run(tutti_comm *comm, const tti_reduce_desc *desc,
                        const tti_shard_map *shard_map) {
    size_t n_bytes = desc->n_elems * tutti_dtype_bytes(desc->dtype);
    tti_work work = {.comm = comm,
                     .order = &comm->by_shard,
                     .n_partials = desc->n_partials,
                     .dst = desc->dst,
                     .n_elems = desc->n_elems,
                     .dtypes = tti_sum_dtypes_of(desc->dtype),
                     .op = TUTTI_SUM,
                     .bounds = desc->bounds,
                     .keeps_partials = desc->bounds && desc->keeps_partials,
                     .shard_map = shard_map};
    size_t n_bounds = (size_t)comm->n_ranks + 1;
    bool is_large = tti_comm_is_large(comm), done = false;
    int32_t digest = !desc->bounds  ? 0
                     : desc->digest ? desc->digest
                                    : tti_bounds_digest(desc->bounds, n_bounds);
    if (desc->rounds) work.dtypes.sum = TUTTI_BF16;
    tti_offer offer = {
        .call = {.kind = TTI_CALL_REDUCE_SHARDS,
                 .dtype = desc->dtype,
                 .alg = desc->alg,
                 .op = digest,
                 .peer = desc->n_shards,
                 .shard_map = desc->shard_map ? tti_shard_map_digest(desc->shard_map) : 0,
                 .n_elems = desc->n_elems}};
    unsigned char payload[TTI_INLINE_BYTES];
    bool is_inline = !is_large && fits_inline(comm, desc, shard_map, n_bytes);
    work.bufs[0] = desc->partials[0].data;
    if (is_large) TTI_TRY(reduce_inside_agreement(&work, &offer, shard_map, &done));
    if (done) return TUTTI_OK;
    for (int k = 0; k < desc->n_partials; k++) {
        work.bufs[k] = offer.bufs[k] = desc->partials[k].data;
        if (is_inline && n_bytes)
            memcpy(payload + n_bytes * (size_t)k, desc->partials[k].data, n_bytes);
    }
    if (is_inline) {
        offer.inline_data = payload;
        offer.inline_bytes = n_bytes * (size_t)desc->n_partials;
    } else {
        work.bufs[desc->n_partials] = offer.bufs[desc->n_partials] = desc->dst;
        offer.n_bufs = desc->n_partials + 1;
        offer.buf_bytes = n_bytes;
    }
    TTI_TRY(tti_call_begin(comm, &offer, &work.direct));
    if (desc->n_elems == 0) return TUTTI_OK;
    if (is_large && work.direct) return tti_large_reduce(&work);
    TTI_TRY(order_of(comm, shard_map));
    if (is_inline) return tti_inline_reduce(&work);
    return desc->alg == TUTTI_ALG_TREE ? tti_tree_reduce(&work) : tti_direct_reduce(&work);
}

tutti_status tti_comm_reduce_shards(tutti_comm *comm, const tti_reduce_desc *desc) {
    TTI_TRY(tti_check_comm("reduce_shards", comm));
    tti_shard_map shard_map;
    TTI_TRY(check_desc(comm, desc, &shard_map));
    return tti_call_end(comm, run(comm, desc, &shard_map));
}
