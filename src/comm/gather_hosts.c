/* gather_hosts.c - an all-gather in two levels, inside hosts and between them.
 *
 * On every other host one rank, the owner's agent, receives a partition for all ranks of its host.
 * It receives into the stage, which is shared memory of the host, and each rank copies the
 * partition from there.  So a partition is sent once to each host, however many ranks the host has.
 * Partitions of ranks of the same host are read in place. */
#include <string.h>

#include "comm/algorithm.h"

/* The stage of this rank's host: for each rank's partition, the rank that receives it and its
 * slot. */
typedef struct stages {
    tutti_comm *comm;
    const tti_partitions_desc *desc;
    size_t elem, block_bytes; /* block_bytes: bytes of a partition at a time, equal on every host */
    int *taker;               /* [n_ranks] */
    int *slot;                /* [n_ranks] */
    int *n_taken;             /* [n_ranks]: scratch */
} stages;

/* Assigns a receiving rank to each partition on a host.  Returns the largest number of partitions
 * that one rank receives. */
static int list_takers(const stages *s, int host) {
    const tutti_comm *comm = s->comm;
    int *taker = s->taker, *slot = s->slot, *n_taken = s->n_taken, most = 0;
    memset(n_taken, 0, (size_t)comm->n_ranks * sizeof *n_taken);
    for (int p = 0; p < comm->n_ranks; p++) {
        taker[p] = tti_agent(comm, host, p);
        slot[p] = 0;
        if (tti_comm_host_of(comm, p) == host) continue;
        slot[p] = n_taken[taker[p]]++;
        most = TTI_MAX(most, n_taken[taker[p]]);
    }
    return most;
}

static tutti_status plan(tutti_comm *comm, const tti_partitions_desc *desc, stages *s) {
    size_t n = (size_t)comm->n_ranks;
    *s = (stages){.comm = comm, .desc = desc, .elem = tutti_dtype_bytes(desc->dtype)};
    s->taker = (int *)tti_comm_scratch(comm, 3 * n * sizeof *s->taker);
    if (!s->taker) return TUTTI_E_NOMEM;
    s->slot = s->taker + n;
    s->n_taken = s->taker + 2 * n;
    int most = 1;
    for (int h = 0; h < comm->n_hosts; h++) most = TTI_MAX(most, list_takers(s, h));
    (void)list_takers(s, tti_comm_host_of(comm, comm->rank));
    s->block_bytes = TTI_MAX((TTI_STAGE_BYTES / (size_t)most) & ~(size_t)63, (size_t)64);
    return TUTTI_OK;
}

/* A block of the partition of a rank: its offset in src, its offset in the dst of all ranks, and
 * its bytes. */
typedef struct range {
    size_t from, at, n_bytes;
} range;

static range range_of(const stages *s, size_t group, int rank, size_t first) {
    size_t n_ranks = (size_t)s->comm->n_ranks, r = (size_t)rank;
    const size_t *bound = s->desc->bounds + group * (n_ranks + 1) + r;
    size_t from = s->desc->from ? s->desc->from[group * n_ranks + r] : bound[0];
    size_t n_bytes = (bound[1] - bound[0]) * s->elem;
    size_t skipped = TTI_MIN(first, n_bytes);
    return (range){from * s->elem + skipped, bound[0] * s->elem + skipped,
                   TTI_MIN(n_bytes - skipped, s->block_bytes)};
}

/* Sends this rank's block to the agents of the other hosts, and receives the blocks that it
 * stages. */
static tutti_status cross(const stages *s, size_t group, size_t first) {
    tutti_comm *comm = s->comm;
    int here = tti_comm_host_of(comm, comm->rank), n = 0;
    range mine = range_of(s, group, comm->rank, first);
    tti_message *messages = tti_message_list_room(&comm->messages, comm->n_hosts + comm->n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    for (int h = 0; h < comm->n_hosts; h++)
        if (h != here)
            messages[n++] = (tti_message){.peer = tti_agent(comm, h, comm->rank),
                                          .out = (const char *)s->desc->src + mine.from,
                                          .n_bytes = mine.n_bytes};
    for (int p = 0; p < comm->n_ranks; p++)
        if (tti_comm_host_of(comm, p) != here && s->taker[p] == comm->rank)
            messages[n++] =
                (tti_message){.peer = p,
                              .in = (char *)comm->stage + (size_t)s->slot[p] * s->block_bytes,
                              .n_bytes = range_of(s, group, p, first).n_bytes};
    return tti_comm_send_recv(comm, messages, n);
}

/* Copies the blocks of all other ranks into this rank's dst. */
static void take(const stages *s, size_t group, size_t first) {
    tutti_comm *comm = s->comm;
    for (int i = 1; i < comm->n_ranks; i++) {
        int p = (comm->rank + i) % comm->n_ranks;
        range partition = range_of(s, group, p, first);
        bool is_here = tti_comm_host_of(comm, p) == tti_comm_host_of(comm, comm->rank);
        const char *src = comm->transport->view(comm->state, s->taker[p], is_here ? 0 : 1);
        src += is_here ? partition.from : (size_t)s->slot[p] * s->block_bytes;
        if (partition.n_bytes) memcpy((char *)s->desc->dst + partition.at, src, partition.n_bytes);
        if (s->taker[p] != comm->rank) tti_count_inside(comm, partition.n_bytes);
    }
}

static size_t longest(const stages *s, size_t group) {
    const size_t *bounds = s->desc->bounds + group * ((size_t)s->comm->n_ranks + 1);
    size_t n = 0;
    for (int r = 0; r < s->comm->n_ranks; r++) n = TTI_MAX(n, bounds[r + 1] - bounds[r]);
    return n * s->elem;
}

tutti_status tti_hosts_gather(tutti_comm *comm, const tti_partitions_desc *desc) {
    stages s;
    TTI_TRY(plan(comm, desc, &s));
    for (size_t g = 0; g < desc->n_groups; g++) {
        size_t n_bytes = longest(&s, g);
        for (size_t first = 0; first < n_bytes; first += s.block_bytes) {
            TTI_TRY(cross(&s, g, first));
            TTI_TRY(comm->transport->near_barrier(comm->state));
            take(&s, g, first);
            TTI_TRY(comm->transport->near_barrier(
                comm->state)); /* afterwards the stage may be overwritten */
        }
    }
    return TUTTI_OK;
}

void tti_offer_stage(const tutti_comm *comm, tti_offer *offer) {
    if (!tti_has_levels(comm)) return;
    offer->bufs[offer->n_bufs++] = comm->stage;
    offer->last_bytes = TTI_STAGE_BYTES;
}

bool tti_hosts_near(const tutti_comm *comm) {
    return tti_has_levels(comm) && comm->transport->near(comm->state);
}

tutti_status tti_comm_stage(tutti_comm *comm) {
    if (comm->stage || !tti_has_levels(comm)) return TUTTI_OK;
    return tutti_comm_alloc(comm, TTI_STAGE_BYTES, &comm->stage);
}
