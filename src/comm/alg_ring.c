/* alg_ring.c - all-reduce around a ring: W-1 steps of adding, W-1 steps of forwarding.
 *
 * Each rank communicates with two neighbours only.  The additions start at another rank for each
 * partition of the vector, so the bits depend on the number of ranks and on the partitions.
 * Exact mode therefore cannot use this algorithm. f16 and bf16 are sent as f32 until the sum is
 * complete. */
#include "comm/algorithm.h"

enum { RING_BLOCK_BYTES = 1 << 20 };

/* One block of the vector, divided into n_ranks partitions. */
typedef struct ring {
    const tti_work *work;
    size_t first, n_elems;
    tutti_dtype wide;
    size_t elem, wide_elem;
    char *sums;           /* the block in the wide dtype; dst itself if dtype is wide */
    unsigned char *inbox; /* one partition, wide */
    unsigned char *term;  /* one partition of src, wide; unused if dtype is wide */
} ring;

static size_t partition_first(const ring *r, int partition) {
    return tti_partition_first(r->n_elems, partition, tutti_comm_n_ranks(r->work->comm));
}

static size_t partition_elems(const ring *r, int partition) {
    return partition_first(r, partition + 1) - partition_first(r, partition);
}

/* Returns a partition of src in the wide dtype. */
static const void *wide_term(const ring *r, int partition) {
    const char *src =
        (const char *)r->work->bufs[0] + (r->first + partition_first(r, partition)) * r->elem;
    if (r->wide == r->work->dtypes.term) return src;
    tti_widen(r->work->dtypes.term, src, r->term, partition_elems(r, partition));
    return r->term;
}

static tutti_status pass(const ring *r, const void *out, size_t n_out, void *in, size_t n_in) {
    tutti_comm *comm = r->work->comm;
    int rank = tutti_comm_rank(comm);
    int n = tutti_comm_n_ranks(comm);
    tti_message messages[2] = {
        {.peer = (rank + 1) % n, .out = out, .n_bytes = n_out},
        {.peer = (rank + n - 1) % n, .in = in, .n_bytes = n_in},
    };
    return tti_comm_send_recv(comm, messages, 2);
}

/* After step s, partition rank-s-1 holds the terms of s+2 ranks. */
static tutti_status add_around(const ring *r) {
    int n = tutti_comm_n_ranks(r->work->comm), rank = tutti_comm_rank(r->work->comm);
    for (int s = 0; s < n - 1; s++) {
        int give = (rank - s + 2 * n) % n, take = (rank - s - 1 + 2 * n) % n;
        const void *out =
            s == 0 ? wide_term(r, give) : r->sums + partition_first(r, give) * r->wide_elem;
        TTI_TRY(pass(r, out, partition_elems(r, give) * r->wide_elem, r->inbox,
                     partition_elems(r, take) * r->wide_elem));
        tti_combine(r->wide, r->work->op, r->sums + partition_first(r, take) * r->wide_elem,
                    r->inbox, wide_term(r, take), partition_elems(r, take));
    }
    return TUTTI_OK;
}

static tutti_status gather_around(const ring *r) {
    int n = tutti_comm_n_ranks(r->work->comm), rank = tutti_comm_rank(r->work->comm),
        own = (rank + 1) % n;
    char *dst = (char *)r->work->dst + r->first * r->elem;
    tti_narrow(r->work->dtypes.term, r->sums + partition_first(r, own) * r->wide_elem,
               dst + partition_first(r, own) * r->elem, partition_elems(r, own));
    for (int s = 0; s < n - 1; s++) {
        int give = (rank + 1 - s + n) % n, take = (rank - s + n) % n;
        TTI_TRY(pass(r, dst + partition_first(r, give) * r->elem,
                     partition_elems(r, give) * r->elem, dst + partition_first(r, take) * r->elem,
                     partition_elems(r, take) * r->elem));
    }
    return TUTTI_OK;
}

tutti_status tti_ring_reduce(const tti_work *work) {
    tutti_comm *comm = work->comm;
    int n_ranks = tutti_comm_n_ranks(comm);
    ring r = {.work = work, .wide = work->dtypes.sum};
    r.elem = tutti_dtype_bytes(work->dtypes.term);
    r.wide_elem = tutti_dtype_bytes(r.wide);
    if (n_ranks == 1) return tti_direct_reduce(work);
    size_t n_block = RING_BLOCK_BYTES / r.wide_elem;
    size_t part_bytes = (n_block / (size_t)n_ranks + 64) * r.wide_elem;
    unsigned char *scratch = tti_comm_scratch(comm, 2 * part_bytes + n_block * r.wide_elem);
    if (!scratch) return TUTTI_E_NOMEM;
    r.inbox = scratch;
    r.term = scratch + part_bytes;
    for (r.first = 0; r.first < work->n_elems; r.first += n_block) {
        r.n_elems = TTI_MIN(n_block, work->n_elems - r.first);
        r.sums = r.wide == work->dtypes.term ? (char *)work->dst + r.first * r.elem
                                             : (char *)scratch + 2 * part_bytes;
        TTI_TRY(add_around(&r));
        TTI_TRY(gather_around(&r));
    }
    return TUTTI_OK;
}
