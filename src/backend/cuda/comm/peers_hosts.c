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

static size_t longest_of(const group *g, const tti_chunk *parts) {
    size_t n = 0;
    for (int r = 0; r < g->peers.n_ranks; r++) n = TTI_MAX(n, parts[r].n_elems);
    return n;
}

/* Each of the parts is one of some rank of the host: about so many for each. */
static tutti_status add_leaves(const group *g, int64_t which, const tti_chunk *parts,
                               bool overlapped, cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_run runs[TTI_HOSTS_RANKS];
    tti_peers_leaves leaves = {.n_parts = tti_peer_hosts_runs(h, parts, runs)};
    tti_peers_view view = g->near;
    list_leaves(g, &leaves);
    for (int i = 0; i < leaves.n_parts; i++) {
        leaves.part[i].first = runs[i].part.first;
        leaves.part[i].n_elems = runs[i].part.n_elems;
        leaves.part[i].to = g->staging + runs[i].at;
    }
    for (int t = 0; t < h->n_terms; t++)
        if (view.terms.data[t])
            view.terms.data[t] +=
                tti_peers_shift_of(g, which, g->terms[t].rank, g->terms[t].partial);
    size_t n_each = (size_t)((h->n_ranks + h->n_near - 1) / h->n_near);
    return tti_cuda_check(
        tti_launch_peers_leaves(&view, &leaves, n_each * longest_of(g, parts), overlapped, stream),
        "peers_leaves");
}

/* ---- between hosts ---- */

/* outs: messages of this rank's part; ins [n_ranks]: the destination of each owner's part. */
static tutti_status move_parts(const group *g, const tti_peer_message *list, int n,
                               const float *outs, float *const *ins, cudaStream_t stream) {
    tti_nccl_message messages[TTI_HOSTS_MESSAGES];
    for (int i = 0; i < n; i++)
        messages[i] = (tti_nccl_message){.peer = list[i].peer,
                                         .out = list[i].sends ? outs : NULL,
                                         .in = list[i].sends ? NULL : ins[list[i].owner],
                                         .n_bytes = list[i].n_elems * sizeof(float)};
    return tti_nccl_exchange(g->nccl, messages, n, stream);
}

static tutti_status move_leaves(const group *g, const tti_chunk *parts, cudaStream_t stream) {
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_nccl_message messages[TTI_HOSTS_MESSAGES];
    int n = tti_peer_hosts_leaves(g->hosts, parts, list);
    for (int i = 0; i < n; i++)
        messages[i] = (tti_nccl_message){.peer = list[i].peer,
                                         .out = list[i].sends ? g->staging + list[i].at : NULL,
                                         .in = list[i].sends ? NULL : g->staging + list[i].at,
                                         .n_bytes = list[i].n_elems * sizeof(float)};
    return tti_nccl_exchange(g->nccl, messages, n, stream);
}

/* All leaves over the own part. */
static tutti_status add_hosts(const group *g, float *sum, size_t n, cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peers_terms terms = {.n = h->n_leaves};
    for (int k = 0; k < h->n_leaves; k++) {
        terms.data[k] = g->staging + tti_peer_leaf_at(h, k, n);
        terms.n_adds[k] = (uint8_t)h->leaves[k].n_adds;
    }
    terms.balanced = tti_peers_balanced(terms.n_adds, terms.n);
    return tti_cuda_check(tti_launch_terms_sum(&terms, sum, n, stream), "sum");
}

tutti_status tti_peers_hosts_sum_own(group *g, int64_t which, const tti_chunk *parts,
                                     bool overlapped, cudaStream_t stream) {
    tti_chunk mine = parts[g->peers.rank];
    TTI_TRY(add_leaves(g, which, parts, overlapped, stream));
    TTI_TRY(move_leaves(g, parts, stream));
    return add_hosts(g, tti_peers_sum_of(g, which, mine), mine.n_elems, stream);
}

/* ---- to all ---- */

/* Fetches the data that this host has received. */
static tutti_status fetch_near(const group *g, tti_peers_parts *fetched, size_t longest,
                               bool overlapped, cudaStream_t stream) {
    fetched->n = g->peers.n_ranks;
    fetched->first = (g->peers.rank + 1) % fetched->n;
    return tti_cuda_check(tti_launch_peers_fetch(&g->near, fetched, longest, overlapped, stream),
                          "peers_fetch");
}

tutti_status tti_peers_hosts_sum(group *g, const tti_chunk *parts, bool overlapped,
                                 cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_peers_parts fetched = {0};
    float *sum = g->partials[0], *places[TTI_PEERS_MAX];
    int n = tti_peer_hosts_returns(h, parts, list);
    TTI_TRY(tti_peers_hosts_sum_own(g, TTI_PEERS_WHOLE, parts, overlapped, stream));
    for (int o = 0; o < h->n_ranks; o++) {
        int holder = tti_peer_agent(h, h->here, o);
        places[o] = fetched.part[o].to = sum + parts[o].first;
        fetched.part[o].from = g->near.sum[tti_peer_near_index(h, holder)] + parts[o].first;
        fetched.part[o].n_elems = holder == h->rank ? 0 : parts[o].n_elems;
    }
    TTI_TRY(move_parts(g, list, n, places[h->rank], places, stream));
    return fetch_near(g, &fetched, longest_of(g, parts), overlapped, stream);
}

tutti_status tti_peers_hosts_fetch(group *g, size_t which, int source, float *dst, bool overlapped,
                                   cudaStream_t stream) {
    const tti_peer_hosts *h = g->hosts;
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    tti_peers_parts fetched = {0};
    tti_chunk parts[TTI_PEERS_MAX] = {{0, 0}};
    float *slots[TTI_PEERS_MAX];
    for (int o = 0; o < h->n_ranks; o++) parts[o] = tti_peers_part_of(g, which, o);
    for (int o = 0; o < h->n_ranks; o++) {
        bool is_far = h->host_of[o] != h->here;
        int holder = tti_peer_agent(h, h->here, o);
        size_t at = is_far ? tti_peer_return_at(h, o) : tti_peers_place_of(g, which, source, o);
        slots[o] = g->staging + at;
        fetched.part[o].from = (is_far ? g->near_staging[holder] : g->sources[o][source]) + at;
        fetched.part[o].to = dst + (parts[o].first - parts[0].first);
        bool is_there = fetched.part[o].from == fetched.part[o].to; /* the own part, perhaps */
        fetched.part[o].n_elems = is_there ? 0 : parts[o].n_elems;
    }
    int n = tti_peer_hosts_returns(h, parts, list);
    TTI_TRY(move_parts(g, list, n, fetched.part[h->rank].from, slots, stream));
    return fetch_near(g, &fetched, longest_of(g, parts), overlapped, stream);
}
