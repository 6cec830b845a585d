/* alg_direct.c - each rank reduces one partition of the vector over all ranks, in canonical order.
 *
 * If peers' memory is visible, the owner of a partition reads every term of it in place and writes
 * the result into every rank's dst.  Nothing is staged, each byte is moved once, and reading and
 * writing need no barrier between them.  This also works in place, because no other rank reads the
 * owner's partition.  If memory is not visible, terms are sent, reduced, and sent back, block by
 * block.  If only the ranks of one host see each other, alg_hosts.c uses two levels. */
#include <string.h>

#include "comm/algorithm.h"

enum { MESSAGE_BLOCK_BYTES = 1 << 20 };

/* The addresses of the terms of a sum and of its results. */
typedef struct places {
    const void **srcs; /* one address per term */
    char **dsts;
    int n_dsts;
} places;

/* Sums elements first .. last-1 of the terms and stores them in every dst. */
static void sum_range(const tti_work *work, const places *at, size_t first, size_t last,
                      void *scratch) {
    size_t elem = tutti_dtype_bytes(work->dtypes.term);
    for (size_t i = first; i < last; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(last - i, (size_t)TTI_SUM_BLOCK);
        const void *sum =
            tti_sum_block(work->order, at->srcs, i * elem, work->dtypes, work->op, n, scratch);
        for (int d = 0; d < at->n_dsts; d++)
            if (at->dsts[d] + i * elem != sum) memcpy(at->dsts[d] + i * elem, sum, n * elem);
    }
}

/* Places the pointer tables and the summing scratch one after the other in the comm's scratch. */
static tutti_status places_init(const tti_work *work, places *at, size_t extra_bytes,
                                void **sum_scratch, unsigned char **extra) {
    size_t n_tables = (size_t)work->order->n_terms + (size_t)tutti_comm_n_ranks(work->comm);
    size_t table_bytes = (n_tables * sizeof(void *) + 63) & ~(size_t)63;
    unsigned char *memory =
        tti_comm_scratch(work->comm, table_bytes + tti_sum_scratch_bytes() + extra_bytes);
    if (!memory) return TUTTI_E_NOMEM;
    at->srcs = (const void **)(void *)memory;
    at->dsts = (char **)(void *)memory + work->order->n_terms;
    *sum_scratch = memory + table_bytes;
    if (extra) *extra = memory + table_bytes + tti_sum_scratch_bytes();
    return TUTTI_OK;
}

/* One block of a sum: elements [first, last) of the vector, which are divided over the ranks; or,
 * if bounds give each rank a partition, elements [first, last) of every partition. */
typedef struct block {
    const tti_work *work;
    size_t first, last;
} block;

static size_t block_first(const block *b, int rank) {
    const size_t *partition = b->work->bounds ? b->work->bounds + rank : NULL;
    if (partition) return partition[0] + TTI_MIN(b->first, partition[1] - partition[0]);
    return b->first +
           tti_partition_first(b->last - b->first, rank, tutti_comm_n_ranks(b->work->comm));
}

static size_t block_last(const block *b, int rank) {
    const size_t *partition = b->work->bounds ? b->work->bounds + rank : NULL;
    if (partition) return partition[0] + TTI_MIN(b->last, partition[1] - partition[0]);
    return b->first +
           tti_partition_first(b->last - b->first, rank + 1, tutti_comm_n_ranks(b->work->comm));
}

static tutti_status reduce_viewed(const tti_work *work) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    places at = {.n_dsts = n_ranks};
    void *scratch;
    TTI_TRY(places_init(work, &at, 0, &scratch, NULL));
    for (int t = 0; t < work->order->n_terms; t++)
        at.srcs[t] = tti_comm_view(comm, work->order->terms[t].rank, work->order->terms[t].partial);
    if (work->bounds) at.n_dsts = 1;    /* only this rank gets the result */
    for (int r = 0; r < at.n_dsts; r++) /* own dst first; each rank uses another order */
        at.dsts[r] = tti_comm_view(comm, (rank + r) % n_ranks,
                                   tti_sum_order_n_partials(work->order, (rank + r) % n_ranks));
    block whole = {work, 0, work->n_elems};
    size_t first = block_first(&whole, rank), last = block_last(&whole, rank);
    int n_others = work->order->n_terms - work->n_partials + at.n_dsts - 1;
    tti_count_inside(comm,
                     (last - first) * tutti_dtype_bytes(work->dtypes.term) * (size_t)n_others);
    sum_range(work, &at, first, last, scratch);
    return tti_comm_barrier(comm);
}

/* Sends the partitions of my terms to their owners and receives the terms of my partition into
 * staging. */
static tutti_status send_recv_terms(const tti_work *work, const block *b, places *at,
                                    unsigned char *staging) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t elem = tutti_dtype_bytes(work->dtypes.term), mine = block_first(b, rank);
    size_t n_mine = block_last(b, rank) - mine;
    int n = 0, n_max = work->order->n_terms + work->n_partials * n_ranks;
    tti_message *messages = tti_comm_messages(comm, n_max);
    if (!messages) return TUTTI_E_NOMEM;
    for (int t = 0; t < work->order->n_terms; t++) {
        const tti_term *term = &work->order->terms[t];
        if (term->rank == rank) {
            at->srcs[t] = (char *)work->bufs[term->partial] + mine * elem;
        } else {
            at->srcs[t] = staging;
            messages[n++] =
                (tti_message){.peer = term->rank, .in = staging, .n_bytes = n_mine * elem};
            staging += n_mine * elem;
        }
    }
    for (int i = 1; i < n_ranks; i++) {
        int peer = (rank + i) % n_ranks;
        size_t from = block_first(b, peer), n_bytes = (block_last(b, peer) - from) * elem;
        for (int k = 0; k < work->n_partials; k++)
            messages[n++] = (tti_message){
                .peer = peer, .out = (char *)work->bufs[k] + from * elem, .n_bytes = n_bytes};
    }
    return tti_comm_send_recv(comm, messages, n);
}

/* Sends this rank's partition of dst to all others and receives theirs. */
static tutti_status send_recv_results(const tti_work *work, const block *b) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t elem = tutti_dtype_bytes(work->dtypes.term), mine = block_first(b, rank);
    tti_message *messages = tti_comm_messages(comm, 2 * n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 1; i < n_ranks; i++) {
        int peer = (rank + i) % n_ranks;
        size_t from = block_first(b, peer);
        messages[n++] = (tti_message){.peer = peer,
                                      .out = (char *)work->dst + mine * elem,
                                      .n_bytes = (block_last(b, rank) - mine) * elem};
        messages[n++] = (tti_message){.peer = peer,
                                      .in = (char *)work->dst + from * elem,
                                      .n_bytes = (block_last(b, peer) - from) * elem};
    }
    return tti_comm_send_recv(comm, messages, n);
}

/* The number of elements of the vector, or of its longest partition. */
static size_t extent(const tti_work *work) {
    size_t n = work->bounds ? 0 : work->n_elems;
    for (int r = 0; work->bounds && r < tutti_comm_n_ranks(work->comm); r++)
        n = TTI_MAX(n, work->bounds[r + 1] - work->bounds[r]);
    return n;
}

static tutti_status reduce_by_messages(const tti_work *work) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm);
    size_t elem = tutti_dtype_bytes(work->dtypes.term), n_block = MESSAGE_BLOCK_BYTES / elem;
    size_t n_ranks = (size_t)tutti_comm_n_ranks(comm), n_all = extent(work);
    if (work->bounds) n_block /= n_ranks;
    size_t n_partition = TTI_MIN(n_block, n_all);
    if (!work->bounds) n_partition = n_partition / n_ranks + 64;
    for (size_t i = 0; i < n_all; i += n_block) {
        block b = {work, i, i + TTI_MIN(n_block, n_all - i)};
        places at = {.n_dsts = 1};
        void *scratch;
        unsigned char *staging;
        TTI_TRY(places_init(work, &at, n_partition * elem * (size_t)work->order->n_terms, &scratch,
                            &staging));
        TTI_TRY(send_recv_terms(work, &b, &at, staging));
        size_t mine = block_first(&b, rank);
        at.dsts[0] = (char *)work->dst + mine * elem;
        sum_range(work, &at, 0, block_last(&b, rank) - mine, scratch);
        if (!work->bounds) TTI_TRY(send_recv_results(work, &b));
    }
    return TUTTI_OK;
}

tutti_status tti_direct_reduce(const tti_work *work) {
    if (work->direct) return reduce_viewed(work);
    return tti_hosts_can(work) ? tti_hosts_reduce(work) : reduce_by_messages(work);
}

tutti_status tti_inline_reduce(const tti_work *work) {
    tutti_comm *comm = work->comm;
    size_t n_bytes = work->n_elems * tutti_dtype_bytes(work->dtypes.term);
    places at = {.n_dsts = 1};
    void *scratch;
    TTI_TRY(places_init(work, &at, 0, &scratch, NULL));
    for (int t = 0; t < work->order->n_terms; t++)
        at.srcs[t] = (const char *)tti_comm_payload(comm, work->order->terms[t].rank) +
                     n_bytes * (size_t)work->order->terms[t].partial;
    at.dsts[0] = work->dst;
    sum_range(work, &at, 0, work->n_elems, scratch);
    return TUTTI_OK;
}

/* Exchanges the terms of this rank's partition, block by block; work->n_elems is the length of one
 * partition. */
static tutti_status scatter_by_messages(const tti_work *work) {
    tutti_comm *comm = work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t elem = tutti_dtype_bytes(work->dtypes.term);
    size_t n_block = MESSAGE_BLOCK_BYTES / elem / (size_t)n_ranks;
    tti_message *messages = tti_comm_messages(comm, 2 * n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    for (size_t i = 0; i < work->n_elems; i += n_block) {
        size_t n_bytes = TTI_MIN(n_block, work->n_elems - i) * elem;
        places at = {.n_dsts = 1};
        void *scratch;
        unsigned char *staging;
        TTI_TRY(places_init(work, &at, n_bytes * (size_t)n_ranks, &scratch, &staging));
        int n = 0;
        for (int p = 0; p < n_ranks; p++) {
            char *partition = (char *)work->bufs[0] + ((size_t)p * work->n_elems + i) * elem;
            at.srcs[p] = p == rank ? (void *)partition : staging + (size_t)p * n_bytes;
            if (p == rank) continue;
            messages[n++] = (tti_message){.peer = p, .out = partition, .n_bytes = n_bytes};
            messages[n++] =
                (tti_message){.peer = p, .in = staging + (size_t)p * n_bytes, .n_bytes = n_bytes};
        }
        TTI_TRY(tti_comm_send_recv(comm, messages, n));
        at.dsts[0] = (char *)work->dst + i * elem;
        sum_range(work, &at, 0, n_bytes / elem, scratch);
    }
    return TUTTI_OK;
}

tutti_status tti_direct_reduce_scatter(const tti_work *work) {
    tutti_comm *comm = work->comm;
    int n_ranks = tutti_comm_n_ranks(comm);
    if (!work->direct) return scatter_by_messages(work);
    size_t elem = tutti_dtype_bytes(work->dtypes.term);
    places at = {.n_dsts = 1};
    void *scratch;
    TTI_TRY(places_init(work, &at, 0, &scratch, NULL));
    for (int p = 0; p < n_ranks; p++)
        at.srcs[p] = (const char *)tti_comm_view(comm, p, 0) +
                     (size_t)tutti_comm_rank(comm) * work->n_elems * elem;
    at.dsts[0] = work->dst;
    tti_count_inside(comm, work->n_elems * elem * (size_t)(n_ranks - 1));
    sum_range(work, &at, 0, work->n_elems, scratch);
    return tti_comm_barrier(comm);
}
