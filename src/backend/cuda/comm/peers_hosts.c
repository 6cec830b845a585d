/* peers_hosts.c - sums between devices of several hosts: inside each host by kernels over peers'
 * memory, between hosts by NCCL.
 *
 * backend/peer_hosts.h defines which rank adds and sends what; NCCL moves bytes between hosts only.
 * One kernel adds the terms of the host before, another the leaves of all hosts after, both in the
 * order of the tree; the other devices of a host fetch received data from its memory. */
#include "backend/cuda/comm/peers_group.h"

typedef tti_peers_group group;

/* ---- inside the host ---- */

/* The leaves of this host, as the kernel takes them. */
static void list_leaves(const group *g, tti_peers_leaves *out) {
    const tti_peer_hosts *h = g->hosts;
    uint8_t n_adds[TTI_PEERS_TERMS] = {0};
    out->balanced = -1;
    for (int t = 0; t < h->n_terms; t++) n_adds[t] = (uint8_t)h->n_adds[t];
    for (int k = 0; k < h->n_leaves; k++) {
        const tti_leaf *leaf = &h->leaves[k];
        if (leaf->host != h->here) continue;
        int one = leaf->n_terms == 1 ? 1 : tti_peers_balanced(n_adds + leaf->first, leaf->n_terms);
        out->balanced = out->balanced < 0 || out->balanced == one ? one : 0;
        out->first[out->n_leaves] = (uint8_t)leaf->first;
        out->n_terms[out->n_leaves++] = (uint8_t)leaf->n_terms;
    }
}

static size_t longest_of(const group *g, const tti_chunk *partitions) {
    size_t n = 0;
    for (int r = 0; r < g->peers.n_ranks; r++) n = TTI_MAX(n, partitions[r].n_elems);
    return n;
}

/* Each of the partitions is one of some rank of the host: about so many for each. */
static tutti_status add_leaves(const group *g, int64_t which, const tti_chunk *partitions,
                               bool overlapped, cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_run runs[TTI_HOSTS_RANKS];
    tti_peers_leaves leaves = {.n_partitions = tti_peer_hosts_runs(h, partitions, runs)};
    tti_peers_view view = g->near;
    list_leaves(g, &leaves);
    for (int i = 0; i < leaves.n_partitions; i++) {
        leaves.partition[i].first = runs[i].partition.first;
        leaves.partition[i].n_elems = runs[i].partition.n_elems;
        leaves.partition[i].to = g->staging + runs[i].at;
    }
    for (int t = 0; t < h->n_terms; t++)
        if (view.terms.data[t])
            view.terms.data[t] +=
                tti_peers_shift_of(g, which, g->terms[t].rank, g->terms[t].partial);
    size_t n_each = (size_t)((h->n_ranks + h->n_near - 1) / h->n_near);
    return tti_cuda_check(
        tti_launch_peers_leaves(&view, &leaves, n_each * longest_of(g, partitions), overlapped,
                                stream),
        "peers_leaves");
}

/* ---- between hosts ---- */

/* outs: messages of this rank's partition; ins [n_ranks]: the destination of each owner's
 * partition. */
static tutti_status move_partitions(const group *g, const tti_peer_message *list, int n,
                                    const float *outs, float *const *ins, cudaStream_t stream) {
    tti_nccl_message messages[TTI_HOSTS_MESSAGES];
    for (int i = 0; i < n; i++)
        messages[i] = (tti_nccl_message){.peer = list[i].peer,
                                         .out = list[i].sends ? outs : NULL,
                                         .in = list[i].sends ? NULL : ins[list[i].owner],
                                         .n_bytes = list[i].n_elems * sizeof(float)};
    return tti_nccl_send_recv(g->nccl, messages, n, stream);
}

static tutti_status move_leaves(const group *g, const tti_chunk *partitions, cudaStream_t stream) {
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_nccl_message messages[TTI_HOSTS_MESSAGES];
    int n = tti_peer_hosts_leaves(g->hosts, partitions, list);
    for (int i = 0; i < n; i++)
        messages[i] = (tti_nccl_message){.peer = list[i].peer,
                                         .out = list[i].sends ? g->staging + list[i].at : NULL,
                                         .in = list[i].sends ? NULL : g->staging + list[i].at,
                                         .n_bytes = list[i].n_elems * sizeof(float)};
    return tti_nccl_send_recv(g->nccl, messages, n, stream);
}

/* All leaves over the own partition. */
static tutti_status add_hosts(const group *g, float *sum, size_t n, cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peers_terms terms = {.n = h->n_leaves, .rounds = g->is_paired};
    for (int k = 0; k < h->n_leaves; k++) {
        terms.data[k] = g->staging + tti_peer_leaf_at(h, k, n);
        terms.n_adds[k] = (uint8_t)h->leaves[k].n_adds;
    }
    terms.balanced = tti_peers_balanced(terms.n_adds, terms.n);
    return tti_cuda_check(tti_launch_terms_sum(&terms, sum, n, stream), "sum");
}

tutti_status tti_peers_hosts_sum_own(group *g, int64_t which, const tti_chunk *partitions,
                                     bool overlapped, cudaStream_t stream) {
    tti_chunk mine = partitions[g->peers.rank];
    TTI_TRY(add_leaves(g, which, partitions, overlapped, stream));
    TTI_TRY(move_leaves(g, partitions, stream));
    return add_hosts(g, tti_peers_sum_of(g, which, mine), mine.n_elems, stream);
}

/* ---- to all ---- */

/* Fetches the data that this host has received. */
static tutti_status fetch_near(const group *g, tti_peers_partitions *fetched, size_t longest,
                               bool overlapped, cudaStream_t stream) {
    fetched->n = g->peers.n_ranks;
    fetched->first = (g->peers.rank + 1) % fetched->n;
    return tti_cuda_check(tti_launch_peers_fetch(&g->near, fetched, longest, overlapped, stream),
                          "peers_fetch");
}

tutti_status tti_peers_hosts_sum(group *g, const tti_chunk *partitions, bool overlapped,
                                 cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_peers_partitions fetched = {0};
    float *sum = g->sent[0], *places[TTI_PEERS_MAX];
    int n = tti_peer_hosts_returns(h, partitions, list);
    TTI_TRY(tti_peers_hosts_sum_own(g, TTI_PEERS_WHOLE, partitions, overlapped, stream));
    for (int o = 0; o < h->n_ranks; o++) {
        int holder = tti_peer_agent(h, h->here, o);
        places[o] = fetched.partition[o].to = sum + partitions[o].first;
        fetched.partition[o].from =
            g->near.sum[tti_peer_near_index(h, holder)] + partitions[o].first;
        fetched.partition[o].n_elems = holder == h->rank ? 0 : partitions[o].n_elems;
    }
    TTI_TRY(move_partitions(g, list, n, places[h->rank], places, stream));
    return fetch_near(g, &fetched, longest_of(g, partitions), overlapped, stream);
}

tutti_status tti_peers_hosts_fetch(group *g, size_t which, int source, float *dst, bool overlapped,
                                   cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_peers_partitions fetched = {0};
    tti_chunk partitions[TTI_PEERS_MAX] = {{0, 0}};
    float *slots[TTI_PEERS_MAX];
    for (int o = 0; o < h->n_ranks; o++) partitions[o] = tti_peers_partition_of(g, which, o);
    for (int o = 0; o < h->n_ranks; o++) {
        bool is_far = h->host_of[o] != h->here;
        int holder = tti_peer_agent(h, h->here, o);
        size_t at = is_far ? tti_peer_return_at(h, o) : tti_peers_place_of(g, which, source, o);
        slots[o] = g->staging + at;
        fetched.partition[o].from = (is_far ? g->near_staging[holder] : g->sources[o][source]) + at;
        fetched.partition[o].to = dst + (partitions[o].first - partitions[0].first);
        bool is_there =
            fetched.partition[o].from == fetched.partition[o].to; /* the own partition, perhaps */
        fetched.partition[o].n_elems = is_there ? 0 : partitions[o].n_elems;
    }
    int n = tti_peer_hosts_returns(h, partitions, list);
    TTI_TRY(move_partitions(g, list, n, fetched.partition[h->rank].from, slots, stream));
    return fetch_near(g, &fetched, longest_of(g, partitions), overlapped, stream);
}
