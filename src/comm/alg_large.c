/* alg_large.c - sums over many ranks of one host, without a list of all ranks on any rank.
 *
 * As in alg_direct.c the owner of a range reads every term of it in place and writes the sum to the
 * ranks that need it.  But only a few ranks own a range, so that ranges are long, and the addresses
 * of terms are computed one after the other.  The additions are those of tti_sum_order_shards. */
#include <string.h>

#include "comm/algorithm.h"

enum { RANGE_ELEMS = TTI_SUM_BLOCK };

static int n_partials_of(const tti_shard_map *shard_map, int rank) {
    tti_partial partials[TTI_MAX_PARTIALS];
    return tti_shard_partials(tti_shard_map_first(shard_map, rank),
                              tti_shard_map_first(shard_map, rank + 1), partials);
}

/* The elements that this rank adds; owners are distributed over the ranks. */
static void find_range(const tti_work *work, size_t *first, size_t *last) {
    int rank = tutti_comm_rank(work->comm), n_ranks = tutti_comm_n_ranks(work->comm);
    *first = *last = 0;
    if (work->bounds) {
        *first = work->bounds[rank], *last = work->bounds[rank + 1];
        return;
    }
    size_t n_ranges = (work->n_elems + RANGE_ELEMS - 1) / RANGE_ELEMS;
    int n_owners = (int)TTI_MIN(n_ranges, (size_t)n_ranks), apart = n_ranks / n_owners;
    if (rank % apart != 0 || rank / apart >= n_owners) return;
    *first = tti_partition_first(work->n_elems, rank / apart, n_owners);
    *last = tti_partition_first(work->n_elems, rank / apart + 1, n_owners);
}

static void store(const tti_work *work, const void *sum, size_t offset, size_t n_bytes) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    for (int i = 0; i < (work->bounds ? 1 : n_ranks); i++) { /* each owner uses another order */
        int to = (rank + i) % n_ranks;
        char *dst = (char *)tti_comm_view(comm, to, n_partials_of(work->shard_map, to)) + offset;
        if (dst != sum) memcpy(dst, sum, n_bytes);
    }
}

static size_t add_terms(const tti_work *work, size_t offset, size_t n_elems, void *scratch) {
    tti_adder adder = tti_adder_begin(work->dtypes, work->op, n_elems, scratch);
    tti_sum_walk walk = tti_sum_walk_begin(work->shard_map);
    size_t n_terms = 0, n_bytes = n_elems * tutti_dtype_bytes(work->dtypes.term);
    for (tti_term t; tti_sum_walk_next(&walk, &t); n_terms++)
        tti_adder_add(&adder, (char *)tti_comm_view(work->comm, t.rank, t.partial) + offset,
                      t.n_adds);
    store(work, tti_adder_end(&adder), offset, n_bytes);
    return n_bytes * n_terms;
}

tutti_status tti_large_reduce(const tti_work *work) {
    size_t first, last, elem = tutti_dtype_bytes(work->dtypes.term), n_read = 0;
    find_range(work, &first, &last);
    if (first < last) {
        void *scratch = tti_comm_scratch(work->comm, tti_sum_scratch_bytes());
        if (!scratch) return TUTTI_E_NOMEM;
        for (size_t i = first; i < last; i += TTI_SUM_BLOCK)
            n_read += add_terms(work, i * elem, TTI_MIN(last - i, (size_t)TTI_SUM_BLOCK), scratch);
        int n_others = work->bounds ? 0 : tutti_comm_n_ranks(work->comm) - 1;
        tti_count_inside(work->comm, n_read + (last - first) * elem * (size_t)n_others);
    }
    return work->keeps_partials ? TUTTI_OK : tti_comm_barrier(work->comm);
}
