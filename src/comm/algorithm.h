/* algorithm.h - a collective in progress, as the algorithm files see it.
 *
 * When an algorithm runs, comm.c has checked the arguments and the ranks have agreed on the call.
 * Each algorithm is one file.  It moves bytes only with the transport's four services.  The order
 * of its additions is either that of tti_sum_order (direct, tree) or its own (ring). */
#ifndef TTI_COMM_ALGORITHM_H
#define TTI_COMM_ALGORITHM_H

#include "base/error.h"
#include "comm/local_sum.h"
#include "comm/partitions.h"
#include "comm/progress.h"
#include "comm/transport.h"

struct tutti_comm {
    const tti_transport *transport;
    void *state; /* state of the transport; NULL until joined */
    tutti_comm_group
        *own_group; /* created for a single rank, or passed to tti_comm_keep_group; NULL: none */
    int rank, n_ranks, timeout_ms, phase_timeout_ms;
    tutti_status broken; /* first failure after which ranks may be in different calls */
    char broken_text[512];
    int *global_ranks; /* [n_ranks] owned, rank numbers in messages: the ranks in the communicator
                       that this one was split from; NULL: its own ranks */
    int *host_of;      /* [n_ranks] owned; NULL: all on host 0 */
    int *host_ranks;   /* [n_ranks] owned: ranks of host 0, ascending, then those of host 1, ... */
    int *host_first;   /* [n_hosts + 1] owned: index of each host's first rank */
    int n_hosts;
    tti_sum_order by_rank;  /* one term per rank; zero: not created yet */
    tti_sum_order by_shard; /* order of the last reduce_shards; n_shards 0: none yet */
    tti_shard_map assigned; /* shard map of by_shard */
    unsigned char *scratch; /* grown on demand, 64-byte aligned                          */
    size_t scratch_bytes;
    tti_message_list messages;
    void *stage; /* TTI_STAGE_BYTES, shared by the ranks of a host; NULL until tti_comm_stage */
    tti_commons commons; /* used if the transport has none */
    tti_comm_bytes moved;
    tti_flight *flight; /* borrowed; records waits inside calls; NULL: no recording */
};

/* A reduction: dst[i] = op over element i of all terms, in the given order. */
typedef struct tti_work {
    tutti_comm *comm;
    const tti_sum_order *order;
    void *bufs[TTI_MAX_BUFS]; /* this rank's terms, by partial sum; then dst at [n_partials] */
    int n_partials;
    void *dst;
    size_t n_elems;
    tti_sum_dtypes dtypes; /* dtypes of the terms and the result, and of the partial sums */
    tutti_reduce_op op;
    bool direct; /* view(rank, partial) works; view(rank, n_partials of rank) is the dst of rank */
    bool keeps_terms;     /* the terms must not be changed (except a term that is dst) */
    const size_t *bounds; /* [n_ranks + 1]: the partition of dst that each rank gets; NULL: every
                             rank gets all of dst */
    bool keeps_partials;  /* see tti_reduce_desc; only in large groups */
    const tti_shard_map *shard_map; /* the shard map of the terms; only in large groups */
} tti_work;

/* The algorithms of all_reduce and reduce_shards. */
tutti_status tti_direct_reduce(const tti_work *work);
tutti_status tti_tree_reduce(const tti_work *work);
tutti_status tti_ring_reduce(const tti_work *work); /* one term per rank only */

/* Reduces inside each host first, then between hosts.  The order and the bits are those of
 * direct. */
tutti_status tti_hosts_reduce(const tti_work *work);

/* Distributes every rank's partitions to all ranks (partitions.h).  Ranks of the owner's host read
 * them directly; on every other host one rank receives them for all.  Call after an agreement in
 * which buffer 0 was src and buffer 1 the stage, and near was true.  Own partitions are not
 * written. */
tutti_status tti_hosts_gather(tutti_comm *comm, const tti_partitions_desc *desc);

/* The agent of a host for the partition of rank owner (alg_hosts.c); on the owner's host, the
 * owner. */
int tti_agent(const tutti_comm *comm, int host, int owner);

/* True if there are several hosts and a host has several ranks.  Then sums and gathers can use two
 * levels. */
bool tti_has_levels(const tutti_comm *comm);

/* Allocates the stage if there is none yet; collective. */
tutti_status tti_comm_stage(tutti_comm *comm);

/* tti_offer_stage adds the stage to the buffers of an offer if tti_has_levels.  After the
 * agreement, tti_hosts_near returns true if tti_hosts_gather can run. */
void tti_offer_stage(const tutti_comm *comm, tti_offer *offer);
bool tti_hosts_near(const tutti_comm *comm);

enum { TTI_STAGE_BYTES = 4 << 20 };

/* True if tti_hosts_reduce can run: several hosts, at least one with several ranks that can view
 * each other's buffers.  Call after the agreement; equal on every rank. */
bool tti_hosts_can(const tti_work *work);

/* Reduces over many ranks of one host whose buffers are visible.  The terms are the partial sums of
 * work->shard_map.  Uses no memory that grows with the number of ranks. */
tutti_status tti_large_reduce(const tti_work *work);

/* Reduces terms that are in the payloads of the last agreement, one partial sum after the other. */
tutti_status tti_inline_reduce(const tti_work *work);

/* Reduces src over all ranks and writes partition `rank`, elements rank*n_elems and on, to dst[0 ..
 * n_elems) of this rank. */
tutti_status tti_direct_reduce_scatter(const tti_work *work);

/* ---- comm.c ---- */

/* Adds one term per rank inside the agreement of a large group, if the terms fit into it.  Uses the
 * call of offer. *done false: they do not fit, and nothing was sent. */
tutti_status tti_agreement_reduce(tti_work *work, tti_offer *offer, bool *done);

/* Fills host_of and n_hosts of a comm that has joined its transport. */
tutti_status tti_comm_find_hosts(tutti_comm *comm);

/* ---- work.c ---- */

/* The first element of partition i when n_elems are divided into n_partitions.  It is a multiple of
 * 64; the last partition may be shorter or empty.  Partition n_partitions starts at n_elems. */
size_t tti_partition_first(size_t n_elems, int i, int n_partitions);

/* Scratch memory of at least n_bytes; the same memory in every call.  NULL: out of memory, with the
 * message set. */
void *tti_comm_scratch(tutti_comm *comm, size_t n_bytes);

/* ---- call.c ---- */

/* True if one host has so many ranks that no rank should access all others. */
bool tti_comm_is_large(const tutti_comm *comm);

/* The host of a rank, and the rank's number in messages. */
int tti_comm_host_of(const tutti_comm *comm, int rank);
int tti_comm_global_rank(const tutti_comm *comm, int rank);

/* True if each rank should have few connections; and the largest payload (transport.h). */
bool tti_comm_is_sparse(const tutti_comm *comm);
size_t tti_comm_inline_bytes(const tutti_comm *comm);

/* The buffer of a rank that the last agreement made visible, and the payload that the rank sent
 * with it. */
void *tti_comm_view(const tutti_comm *comm, int rank, int buf);
const void *tti_comm_payload(const tutti_comm *comm, int rank);

/* The sum of the last agreement of a large group, or the conclusion of rank 0 (conclude.h). */
const void *tti_comm_agreed_sum(const tutti_comm *comm);

/* The objects that the ranks of this process share. */
tti_commons *tti_comm_commons(tutti_comm *comm);

tutti_status tti_comm_barrier(tutti_comm *comm);

/* Passes the call in progress to the transport, for messages about late peers. */
void tti_comm_note_call(tutti_comm *comm, const tti_call *call);

/* Memory for n messages; NULL: out of memory, with the error text set. */
tti_message *tti_comm_messages(tutti_comm *comm, int n);

/* Sends and receives messages, and counts the bytes sent. */
tutti_status tti_comm_send_recv(tutti_comm *comm, tti_message *messages, int n);

/* Counts bytes read from, or written to, memory of other ranks of this host. */
void tti_count_inside(tutti_comm *comm, size_t n_bytes);

#endif /* TTI_COMM_ALGORITHM_H */
