/* partitions.c - an all-gather of partitions of different lengths.
 *
 * If peers' memory is visible, each rank reads the partitions of the others, and a barrier ends the
 * call.  Otherwise the transport sends one message for each partition and peer. */
#include "comm/partitions.h"

#include <stdint.h>
#include <string.h>

#include "comm/call.h"

tutti_status tti_check_bounds(const char *who, const tutti_comm *comm, const size_t *bounds,
                              size_t n_groups, size_t n_elems) {
    size_t n = (size_t)tutti_comm_n_ranks(comm) + 1;
    for (size_t g = 0; g < n_groups; g++)
        for (size_t r = 0; r < n; r++) {
            const size_t *bound = &bounds[g * n + r];
            if (*bound <= n_elems && (r == 0 || bound[-1] <= *bound)) continue;
            return tti_fail(TUTTI_E_INVALID,
                            "%s: bound %zu of group %zu is %zu: want ascending numbers up to %zu",
                            who, r, g, *bound, n_elems);
        }
    return TUTTI_OK;
}

/* FNV-1a of the bytes. */
int32_t tti_bounds_digest(const size_t *bounds, size_t n) {
    const unsigned char *bytes = (const unsigned char *)bounds;
    uint32_t digest = 2166136261u;
    for (size_t i = 0; i < n * sizeof *bounds; i++) digest = (digest ^ bytes[i]) * 16777619u;
    return (int32_t)(digest ? digest : 1);
}

/* The offset of a partition, and its bytes. */
typedef struct place {
    size_t at, n_bytes;
} place;

static place place_of(const tutti_comm *comm, const tti_partitions_desc *desc, size_t group,
                      int rank) {
    const size_t *bound = desc->bounds + group * ((size_t)tutti_comm_n_ranks(comm) + 1) + rank;
    size_t elem = tutti_dtype_bytes(desc->dtype);
    return (place){bound[0] * elem, (bound[1] - bound[0]) * elem};
}

/* The offset of a partition in the memory of its rank, in bytes. */
static size_t source_of(const tutti_comm *comm, const tti_partitions_desc *desc, size_t group,
                        int rank) {
    if (!desc->from) return place_of(comm, desc, group, rank).at;
    return desc->from[group * (size_t)tutti_comm_n_ranks(comm) + (size_t)rank] *
           tutti_dtype_bytes(desc->dtype);
}

/* Returns the i-th other rank.  The order differs between ranks, so that not all ranks read from
 * the same one. */
static int nth_peer(const tutti_comm *comm, int i) {
    return (tutti_comm_rank(comm) + i) % tutti_comm_n_ranks(comm);
}

static tutti_status read_partitions(tutti_comm *comm, const tti_partitions_desc *desc) {
    for (int i = 1; i < tutti_comm_n_ranks(comm); i++) {
        const char *theirs = tti_comm_view(comm, nth_peer(comm, i), 0);
        for (size_t g = 0; g < desc->n_groups; g++) {
            place p = place_of(comm, desc, g, nth_peer(comm, i));
            const char *src = theirs + source_of(comm, desc, g, nth_peer(comm, i));
            if (p.n_bytes) memcpy((char *)desc->dst + p.at, src, p.n_bytes);
            tti_count_inside(comm, p.n_bytes);
        }
    }
    return tti_comm_barrier(comm);
}

static tutti_status send_recv_partitions(tutti_comm *comm, const tti_partitions_desc *desc,
                                         size_t group) {
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    tti_message *messages = tti_comm_messages(comm, 2 * n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    place mine = place_of(comm, desc, group, rank);
    const char *src = (const char *)desc->src + source_of(comm, desc, group, rank);
    int n = 0;
    for (int i = 1; i < n_ranks; i++) {
        int peer = nth_peer(comm, i);
        place theirs = place_of(comm, desc, group, peer);
        messages[n++] = (tti_message){.peer = peer, .out = src, .n_bytes = mine.n_bytes};
        messages[n++] = (tti_message){
            .peer = peer, .in = (char *)desc->dst + theirs.at, .n_bytes = theirs.n_bytes};
    }
    return tti_comm_send_recv(comm, messages, n);
}

/* The end of the last partition. */
static size_t extent(const tutti_comm *comm, const tti_partitions_desc *desc) {
    size_t n = 0, n_row = (size_t)tutti_comm_n_ranks(comm) + 1;
    for (size_t g = 0; g < desc->n_groups; g++) n = TTI_MAX(n, desc->bounds[g * n_row + n_row - 1]);
    return n;
}

/* Bytes of src that the partitions of ranks first .. last need. */
static size_t source_bytes(const tutti_comm *comm, const tti_partitions_desc *desc, int first,
                           int last) {
    size_t n = 0;
    for (size_t g = 0; g < desc->n_groups; g++)
        for (int r = first; r <= last; r++)
            n = TTI_MAX(n, source_of(comm, desc, g, r) + place_of(comm, desc, g, r).n_bytes);
    return n;
}

/* Checks that the size of every source does not overflow. */
static tutti_status check_from(const tutti_comm *comm, const tti_partitions_desc *desc,
                               size_t n_elems) {
    size_t n = desc->n_groups * (size_t)tutti_comm_n_ranks(comm);
    for (size_t i = 0; desc->from && i < n; i++)
        if (desc->from[i] > PTRDIFF_MAX / tutti_dtype_bytes(desc->dtype) - n_elems)
            return tti_fail(TUTTI_E_INVALID, "gather_partitions: a partition begins at element %zu",
                            desc->from[i]);
    return TUTTI_OK;
}

static tutti_status gather(tutti_comm *comm, const tti_partitions_desc *desc, size_t n_elems) {
    int n_ranks = tutti_comm_n_ranks(comm);
    size_t n_bounds = desc->n_groups * ((size_t)n_ranks + 1);
    tti_offer offer = {.call = {.kind = TTI_CALL_GATHER_PARTITIONS,
                                .dtype = desc->dtype,
                                .op = tti_bounds_digest(desc->bounds, n_bounds),
                                .n_elems = n_elems},
                       .bufs = {(void *)(uintptr_t)desc->src},
                       .n_bufs = 1,
                       .buf_bytes = source_bytes(comm, desc, 0, n_ranks - 1)};
    bool direct;
    tti_offer_stage(comm, &offer);
    TTI_TRY(tti_call_begin(comm, &offer, &direct));
    if (direct) return read_partitions(comm, desc);
    if (tti_hosts_near(comm)) return tti_hosts_gather(comm, desc);
    for (size_t g = 0; g < desc->n_groups; g++) TTI_TRY(send_recv_partitions(comm, desc, g));
    return TUTTI_OK;
}

tutti_status tti_comm_gather_partitions(tutti_comm *comm, const tti_partitions_desc *desc) {
    TTI_TRY(tti_check_comm("gather_partitions", comm));
    int rank = tutti_comm_rank(comm);
    if (!desc->bounds) return tti_fail(TUTTI_E_INVALID, "gather_partitions: bounds is NULL");
    size_t n_elems = extent(comm, desc);
    TTI_TRY(tti_check_elems("gather_partitions", n_elems, 1, desc->dtype));
    TTI_TRY(tti_check_bounds("gather_partitions", comm, desc->bounds, desc->n_groups, n_elems));
    TTI_TRY(check_from(comm, desc, n_elems));
    size_t n_bytes = n_elems * tutti_dtype_bytes(desc->dtype);
    size_t src_bytes = source_bytes(comm, desc, rank, rank);
    TTI_TRY(tti_check_buffers("gather_partitions", desc->src, src_bytes, desc->dst, n_bytes));
    TTI_TRY(tti_comm_stage(comm));
    return tti_call_end(comm, gather(comm, desc, n_elems));
}
