/* peer_hosts.c - divides the order of a sum into leaves of hosts, and lists the actions of each
 * rank.
 *
 * The staging memory of a rank has one area for each partition of which it is an agent, with room
 * for the leaves of its host, followed by one with room for all leaves over its own partition, host
 * by host.
 */
#include "backend/peer_hosts.h"

#include <string.h>

#include "base/sum_leaves.h"

/* ---- the division of the order ---- */

static void list_leaves(const tti_device_peers *p, tti_peer_hosts *h) {
    bool starts[TTI_HOSTS_TERMS] = {false};
    int n_outer[TTI_HOSTS_TERMS] = {0};
    tti_sum_leaves leaves = {.starts = starts, .n_outer = n_outer};
    for (int t = 0; t < p->n_terms; t++)
        tti_sum_leaves_add(&leaves, t, p->hosts[p->terms[t].rank], p->terms[t].n_adds);
    for (int t = 0; t < p->n_terms; t++) {
        int host = p->hosts[p->terms[t].rank];
        if (starts[t])
            h->leaves[h->n_leaves++] =
                (tti_leaf){.first = t, .host = host, .index = h->leaves_of[host]++};
        tti_leaf *leaf = &h->leaves[h->n_leaves - 1];
        leaf->n_terms++;
        leaf->n_adds = n_outer[t];
        h->n_adds[t] = p->terms[t].n_adds - n_outer[t];
    }
}

bool tti_peer_hosts_make(const tti_device_peers *p, size_t longest, tti_peer_hosts *h) {
    bool fits = p->n_ranks <= TTI_HOSTS_RANKS && p->n_terms <= TTI_HOSTS_TERMS;
    *h = (tti_peer_hosts){.rank = p->rank, .n_ranks = p->n_ranks, .longest = longest};
    if (!p->hosts || !fits) return false;
    h->here = p->hosts[p->rank];
    for (int r = 0; r < p->n_ranks; r++) {
        TTI_ASSERT(p->hosts[r] >= 0 && p->hosts[r] < p->n_ranks);
        h->host_of[r] = p->hosts[r];
        h->n_hosts = TTI_MAX(h->n_hosts, p->hosts[r] + 1);
        if (p->hosts[r] == h->here) h->near[h->n_near++] = r;
    }
    if (h->n_hosts == 1 || h->n_hosts == h->n_ranks) return false;
    h->n_terms = p->n_terms;
    list_leaves(p, h);
    return true;
}

/* ---- roles ---- */

int tti_peer_near_index(const tti_peer_hosts *h, int rank) {
    int index = 0;
    for (int r = 0; r < rank; r++) index += h->host_of[r] == h->host_of[rank];
    return index;
}

int tti_peer_agent(const tti_peer_hosts *h, int host, int owner) {
    int ranks[TTI_HOSTS_RANKS], n = 0;
    if (h->host_of[owner] == host) return owner;
    for (int r = 0; r < h->n_ranks; r++)
        if (h->host_of[r] == host) ranks[n++] = r;
    TTI_ASSERT(n > 0);
    return ranks[tti_peer_near_index(h, owner) % n];
}

/* Whether agent, of this host, stands for an owner of another one. */
static bool acts_for(const tti_peer_hosts *h, int agent, int owner) {
    return h->host_of[owner] != h->here && tti_peer_agent(h, h->here, owner) == agent;
}

/* How many of the first owners an agent stands for. */
static size_t n_acted(const tti_peer_hosts *h, int agent, int n_owners) {
    size_t n = 0;
    for (int o = 0; o < n_owners; o++) n += acts_for(h, agent, o);
    return n;
}

/* ---- places in staging ---- */

/* Offset of this host's leaves over the partition of an owner for which this rank is the agent. */
static size_t acted_at(const tti_peer_hosts *h, int owner) {
    return n_acted(h, h->rank, owner) * (size_t)h->leaves_of[h->here] * h->longest;
}

/* Offset of a host's leaves over the own partition. */
static size_t own_at(const tti_peer_hosts *h, int host) {
    size_t n = n_acted(h, h->rank, h->n_ranks) * (size_t)h->leaves_of[h->here];
    for (int i = 0; i < host; i++) n += (size_t)h->leaves_of[i];
    return n * h->longest;
}

size_t tti_peer_hosts_staging(const tti_peer_hosts *h) { return own_at(h, h->n_hosts); }

size_t tti_peer_leaf_at(const tti_peer_hosts *h, int k, size_t n_elems) {
    return own_at(h, h->leaves[k].host) + (size_t)h->leaves[k].index * n_elems;
}

/* A host has terms, so it has a leaf, and for each partition that came back there is room. */
size_t tti_peer_return_at(const tti_peer_hosts *h, int owner) {
    return n_acted(h, tti_peer_agent(h, h->here, owner), owner) * h->longest;
}

/* ---- lists ---- */

int tti_peer_hosts_runs(const tti_peer_hosts *h, const tti_chunk *partitions, tti_peer_run *runs) {
    int n = 0;
    for (int o = 0; o < h->n_ranks; o++) {
        TTI_ASSERT(partitions[o].n_elems <= h->longest);
        if (partitions[o].n_elems == 0) continue;
        if (o == h->rank) runs[n++] = (tti_peer_run){partitions[o], own_at(h, h->here)};
        if (acts_for(h, h->rank, o)) runs[n++] = (tti_peer_run){partitions[o], acted_at(h, o)};
    }
    return n;
}

int tti_peer_hosts_leaves(const tti_peer_hosts *h, const tti_chunk *partitions,
                          tti_peer_message *list) {
    size_t n_mine = partitions[h->rank].n_elems;
    int n = 0;
    for (int o = 0; o < h->n_ranks; o++)
        if (acts_for(h, h->rank, o) && partitions[o].n_elems > 0)
            list[n++] = (tti_peer_message){o, o, true, acted_at(h, o),
                                           (size_t)h->leaves_of[h->here] * partitions[o].n_elems};
    for (int i = 0; i < h->n_hosts && n_mine > 0; i++)
        if (i != h->here)
            list[n++] = (tti_peer_message){tti_peer_agent(h, i, h->rank), h->rank, false,
                                           own_at(h, i), (size_t)h->leaves_of[i] * n_mine};
    return n;
}

int tti_peer_hosts_returns(const tti_peer_hosts *h, const tti_chunk *partitions,
                           tti_peer_message *list) {
    size_t n_mine = partitions[h->rank].n_elems;
    int n = 0;
    for (int i = 0; i < h->n_hosts && n_mine > 0; i++)
        if (i != h->here)
            list[n++] = (tti_peer_message){tti_peer_agent(h, i, h->rank), h->rank, true, 0, n_mine};
    for (int o = 0; o < h->n_ranks; o++)
        if (acts_for(h, h->rank, o) && partitions[o].n_elems > 0)
            list[n++] =
                (tti_peer_message){o, o, false, tti_peer_return_at(h, o), partitions[o].n_elems};
    return n;
}
