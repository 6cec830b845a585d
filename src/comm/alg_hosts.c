/* alg_hosts.c - reduces in two levels: inside each host through shared memory, then between hosts.
 *
 * The largest subtrees of the sum order whose terms all lie on one host ("leaves" here) are added
 * there; the rest of the order is a sum over leaves.  The tree and its additions are those of the
 * direct algorithm, so the bits are the same.  Only leaves are sent between hosts: one for a host
 * with 2^k equal shares, a few otherwise, however many ranks the host has.
 *
 * Each rank owns a partition of the vector.  On every other host one rank, its agent for the
 * partition, adds the leaves and sends them; the owner adds all leaves and sends the result back;
 * owner and agents write it into the dst of every rank of their host.  So only one rank reads and
 * writes a partition of a host's memory, and the sum also works in place.  A reduce-scatter does
 * not send results back. */
#include <stdlib.h>
#include <string.h>

#include "base/sum_leaves.h"
#include "comm/algorithm.h"

enum { HOSTS_BLOCK_BYTES = 4 << 20 };

/* Terms first .. first+n_terms-1 of the order, all on one host. */
typedef struct leaf {
    int first, n_terms, host;
} leaf;

typedef struct levels {
    const tti_work *work;
    tutti_comm *comm;
    tti_term *inner; /* the terms, with the additions inside their leaf only */
    tti_term *outer; /* the leaves, with the additions between leaves */
    leaf *leaves;
    int n_leaves;
    int *leaves_of; /* [n_hosts], owned */
    tutti_dtype wide;
    size_t elem, wide_elem;
    /* Pointers into the comm's scratch memory: */
    const void **srcs;      /* terms of a sum */
    unsigned char **at;     /* [n_hosts]: the leaves of this rank's partition */
    void *sum_scratch;      /* scratch of tti_sum_block */
    unsigned char *widened; /* TTI_SUM_BLOCK elements of each term; only for f16 and bf16 */
    unsigned char *staging; /* leaves to send, received leaves, leaves of this host */
    size_t first, n_elems;  /* the block: elements of the vector, or of each partition */
} levels;

bool tti_has_levels(const tutti_comm *comm) {
    return comm->n_hosts > 1 && comm->n_hosts < comm->n_ranks;
}

bool tti_hosts_can(const tti_work *work) {
    return tti_has_levels(work->comm) && work->comm->transport->near(work->comm->state);
}

/* ---- the division of the order ---- */

/* Sets starts[t] if a leaf begins at term t, and n_outer[t] to the number of additions between
 * hosts after it. */
static void find_leaves(const levels *l, bool *starts, int *n_outer) {
    const tti_sum_order *order = l->work->order;
    tti_sum_leaves leaves = {.starts = starts, .n_outer = n_outer};
    for (int t = 0; t < order->n_terms; t++) {
        const tti_term *term = &order->terms[t];
        tti_sum_leaves_add(&leaves, t, tti_comm_host_of(l->comm, term->rank), term->n_adds);
    }
}

static void list_leaves(levels *l, const bool *starts, const int *n_outer) {
    const tti_sum_order *order = l->work->order;
    for (int t = 0; t < order->n_terms; t++) {
        l->inner[t] = order->terms[t];
        l->inner[t].n_adds -= n_outer[t];
        if (starts[t]) {
            int host = tti_comm_host_of(l->comm, order->terms[t].rank);
            l->outer[l->n_leaves] = (tti_term){.rank = host, .partial = l->leaves_of[host]++};
            l->leaves[l->n_leaves++] = (leaf){t, 0, host};
        }
        l->leaves[l->n_leaves - 1].n_terms++;
        l->outer[l->n_leaves - 1].n_adds = n_outer[t];
    }
}

static void levels_destroy(levels *l) {
    free(l->inner);
    free(l->outer);
    free(l->leaves);
    free(l->leaves_of);
}

static tutti_status levels_create(const tti_work *work, levels *l) {
    size_t n = (size_t)work->order->n_terms;
    *l = (levels){.work = work, .comm = work->comm, .wide = work->dtypes.sum};
    l->elem = tutti_dtype_bytes(work->dtypes.term);
    l->wide_elem = tutti_dtype_bytes(l->wide);
    l->inner = calloc(n, sizeof *l->inner);
    l->outer = calloc(n, sizeof *l->outer);
    l->leaves = calloc(n, sizeof *l->leaves);
    l->leaves_of = calloc((size_t)work->comm->n_hosts, sizeof *l->leaves_of);
    bool *starts = calloc(n, sizeof *starts);
    int *n_outer = calloc(n, sizeof *n_outer);
    bool ok = l->inner && l->outer && l->leaves && l->leaves_of && starts && n_outer;
    if (ok) {
        find_leaves(l, starts, n_outer);
        list_leaves(l, starts, n_outer);
    }
    free(starts);
    free(n_outer);
    if (ok) return TUTTI_OK;
    levels_destroy(l);
    return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for a sum of %zu terms", n);
}

/* ---- assignment of partitions to ranks ---- */

int tti_agent(const tutti_comm *comm, int host, int owner) {
    if (tti_comm_host_of(comm, owner) == host) return owner;
    int first = comm->host_first[host], n = comm->host_first[host + 1] - first;
    return comm->host_ranks[first + owner % n];
}

/* The first element and the length of a rank's partition of the block. */
static size_t partition_first(const levels *l, int rank) {
    const size_t *partition = l->work->bounds ? l->work->bounds + rank : NULL;
    if (partition) return partition[0] + TTI_MIN(l->first, partition[1] - partition[0]);
    return l->first + tti_partition_first(l->n_elems, rank, l->comm->n_ranks);
}

static size_t partition_elems(const levels *l, int rank) {
    const size_t *partition = l->work->bounds ? l->work->bounds + rank : NULL;
    if (!partition) return partition_first(l, rank + 1) - partition_first(l, rank);
    return partition[0] + TTI_MIN(l->first + l->n_elems, partition[1] - partition[0]) -
           partition_first(l, rank);
}

/* Bytes of the leaves of a host for the partition of a rank. */
static size_t leaves_bytes(const levels *l, int host, int owner) {
    return (size_t)l->leaves_of[host] * partition_elems(l, owner) * l->wide_elem;
}

static bool acts_for(const levels *l, int owner) {
    int host = tti_comm_host_of(l->comm, l->comm->rank);
    return owner != l->comm->rank && tti_comm_host_of(l->comm, owner) != host &&
           tti_agent(l->comm, host, owner) == l->comm->rank;
}

/* ---- sums ---- */

/* The dtypes of leaves and of their sums: both are the dtype of partial sums. */
static tti_sum_dtypes carried(const levels *l) { return (tti_sum_dtypes){l->wide, l->wide}; }

/* Writes elements first .. first+n-1 of a leaf, n <= TTI_SUM_BLOCK, to dst in the wide dtype. */
static void sum_leaf_block(const levels *l, const leaf *of, size_t first, size_t n,
                           unsigned char *dst) {
    const tti_work *w = l->work;
    tti_sum_order order = {.terms = l->inner + of->first, .n_terms = of->n_terms};
    for (int t = 0; t < of->n_terms; t++) {
        const tti_term *term = &order.terms[t];
        const char *src = l->comm->transport->view(l->comm->state, term->rank, term->partial);
        if (term->rank != l->comm->rank) tti_count_inside(l->comm, n * l->elem);
        l->srcs[t] = src + first * l->elem;
        if (l->wide == w->dtypes.term) continue;
        unsigned char *wide = l->widened + (size_t)t * TTI_SUM_BLOCK * l->wide_elem;
        tti_widen(w->dtypes.term, l->srcs[t], wide, n);
        l->srcs[t] = wide;
    }
    const void *sum = tti_sum_block(&order, l->srcs, 0, carried(l), w->op, n, l->sum_scratch);
    memcpy(dst, sum, n * l->wide_elem);
}

/* Adds the leaves of this host over the partition of owner, one after the other. */
static void sum_leaves(const levels *l, int owner, unsigned char *dst) {
    int host = tti_comm_host_of(l->comm, l->comm->rank);
    size_t first = partition_first(l, owner), n_partition = partition_elems(l, owner);
    for (int k = 0; k < l->n_leaves; k++) {
        if (l->leaves[k].host != host) continue;
        for (size_t i = 0; i < n_partition; i += TTI_SUM_BLOCK) {
            size_t n = TTI_MIN(n_partition - i, (size_t)TTI_SUM_BLOCK);
            sum_leaf_block(l, &l->leaves[k], first + i, n, dst + i * l->wide_elem);
        }
        dst += n_partition * l->wide_elem;
    }
}

/* Copies n elements of this rank's dst, starting at first, to every other rank of the host. */
static void distribute(const levels *l, size_t first, size_t n) {
    tutti_comm *comm = l->comm;
    const char *src = (const char *)l->work->dst + first * l->elem;
    for (int i = 1; i < comm->n_ranks; i++) {
        int rank = (comm->rank + i) % comm->n_ranks;
        if (tti_comm_host_of(comm, rank) != tti_comm_host_of(comm, comm->rank)) continue;
        char *dst = comm->transport->view(comm->state, rank,
                                          tti_sum_order_n_partials(l->work->order, rank));
        memcpy(dst + first * l->elem, src, n * l->elem);
        tti_count_inside(comm, n * l->elem);
    }
}

/* Adds all leaves of this rank's partition, at[host], into its dst. */
static void sum_hosts(const levels *l, unsigned char *const *at) {
    size_t first = partition_first(l, l->comm->rank),
           n_partition = partition_elems(l, l->comm->rank);
    tti_sum_order order = {.terms = l->outer, .n_terms = l->n_leaves};
    for (int k = 0; k < l->n_leaves; k++)
        l->srcs[k] =
            at[l->outer[k].rank] + (size_t)l->outer[k].partial * n_partition * l->wide_elem;
    for (size_t i = 0; i < n_partition; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(n_partition - i, (size_t)TTI_SUM_BLOCK);
        const void *sum = tti_sum_block(&order, l->srcs, i * l->wide_elem, carried(l), l->work->op,
                                        n, l->sum_scratch);
        tti_sum_result(l->work->dtypes, sum, (char *)l->work->dst + (first + i) * l->elem, n);
    }
}

/* ---- the block ---- */

/* Sends leaves from agents to owners. at[host]: the leaves of this rank's partition. */
static tutti_status gather_leaves(const levels *l, unsigned char **at) {
    tutti_comm *comm = l->comm;
    int here = tti_comm_host_of(comm, comm->rank), n = 0;
    unsigned char *staging = l->staging;
    tti_message *messages = tti_message_list_room(&comm->messages, comm->n_ranks + comm->n_hosts);
    if (!messages) return TUTTI_E_NOMEM;
    for (int p = 0; p < comm->n_ranks; p++) {
        if (!acts_for(l, p)) continue;
        size_t n_bytes = leaves_bytes(l, here, p);
        sum_leaves(l, p, staging);
        messages[n++] = (tti_message){.peer = p, .out = staging, .n_bytes = n_bytes};
        staging += n_bytes;
    }
    for (int h = 0; h < comm->n_hosts; h++) {
        size_t n_bytes = leaves_bytes(l, h, comm->rank);
        at[h] = staging;
        staging += n_bytes;
        if (h == here) continue;
        messages[n++] =
            (tti_message){.peer = tti_agent(comm, h, comm->rank), .in = at[h], .n_bytes = n_bytes};
    }
    sum_leaves(l, comm->rank, at[here]);
    return tti_comm_send_recv(comm, messages, n);
}

/* Sends results from owners to agents; both copy them to the ranks of their hosts. */
static tutti_status gather_results(const levels *l) {
    tutti_comm *comm = l->comm;
    int n = 0;
    tti_message *messages = tti_message_list_room(&comm->messages, comm->n_ranks + comm->n_hosts);
    if (!messages) return TUTTI_E_NOMEM;
    char *dst = l->work->dst;
    for (int h = 0; h < comm->n_hosts; h++)
        if (h != tti_comm_host_of(comm, comm->rank))
            messages[n++] = (tti_message){.peer = tti_agent(comm, h, comm->rank),
                                          .out = dst + partition_first(l, comm->rank) * l->elem,
                                          .n_bytes = partition_elems(l, comm->rank) * l->elem};
    for (int p = 0; p < comm->n_ranks; p++)
        if (acts_for(l, p))
            messages[n++] = (tti_message){.peer = p,
                                          .in = dst + partition_first(l, p) * l->elem,
                                          .n_bytes = partition_elems(l, p) * l->elem};
    TTI_TRY(tti_comm_send_recv(comm, messages, n));
    distribute(l, partition_first(l, comm->rank), partition_elems(l, comm->rank));
    for (int p = 0; p < comm->n_ranks; p++)
        if (acts_for(l, p)) distribute(l, partition_first(l, p), partition_elems(l, p));
    return TUTTI_OK;
}

/* The number of elements of the vector, or of its longest partition. */
static size_t extent(const tti_work *work) {
    size_t n = work->bounds ? 0 : work->n_elems;
    for (int r = 0; work->bounds && r < work->comm->n_ranks; r++)
        n = TTI_MAX(n, work->bounds[r + 1] - work->bounds[r]);
    return n;
}

/* The number of elements of a block of the vector, or of each partition. */
static size_t block_elems(const levels *l) {
    size_t n = HOSTS_BLOCK_BYTES / l->elem;
    return l->work->bounds ? n / (size_t)l->comm->n_ranks : n;
}

/* Allocates tables, summing scratch and the largest staging of a block. */
static tutti_status alloc_scratch(levels *l) {
    tutti_comm *comm = l->comm;
    int here = tti_comm_host_of(comm, comm->rank);
    size_t n_terms = (size_t)l->work->order->n_terms, n_staged = (size_t)l->n_leaves;
    for (int p = 0; p < comm->n_ranks; p++)
        if (acts_for(l, p)) n_staged += (size_t)l->leaves_of[here];
    size_t n_partition = TTI_MIN(block_elems(l), extent(l->work));
    if (!l->work->bounds) n_partition /= (size_t)comm->n_ranks;
    size_t table_bytes = ((n_terms + (size_t)comm->n_hosts) * sizeof(void *) + 63) & ~(size_t)63;
    size_t wide_bytes =
        l->wide == l->work->dtypes.term ? 0 : n_terms * TTI_SUM_BLOCK * l->wide_elem;
    unsigned char *memory =
        tti_comm_scratch(comm, table_bytes + tti_sum_scratch_bytes() + wide_bytes +
                                   n_staged * (n_partition + 128) * l->wide_elem);
    if (!memory) return TUTTI_E_NOMEM;
    l->srcs = (const void **)(void *)memory;
    l->at = (unsigned char **)(void *)memory + n_terms;
    l->sum_scratch = memory + table_bytes;
    l->widened = memory + table_bytes + tti_sum_scratch_bytes();
    l->staging = l->widened + wide_bytes;
    return TUTTI_OK;
}

static tutti_status run_blocks(levels *l) {
    unsigned char **at = l->at;
    size_t n_block = block_elems(l), n_all = extent(l->work);
    for (l->first = 0; l->first < n_all; l->first += n_block) {
        l->n_elems = TTI_MIN(n_block, n_all - l->first);
        TTI_TRY(gather_leaves(l, at));
        sum_hosts(l, at);
        if (!l->work->bounds) TTI_TRY(gather_results(l));
    }
    return l->comm->transport->near_barrier(l->comm->state);
}

tutti_status tti_hosts_reduce(const tti_work *work) {
    levels l;
    TTI_TRY(levels_create(work, &l));
    tutti_status st = alloc_scratch(&l);
    if (st == TUTTI_OK) st = run_blocks(&l);
    levels_destroy(&l);
    return st;
}
