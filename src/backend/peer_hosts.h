/* peer_hosts.h - sums between devices of several hosts: what each rank adds inside its host, and
 * what crosses.
 *
 * As in comm/alg_hosts.c: the largest subtrees of the order whose terms all lie on one host
 * ("leaves") are added there, through the memory of its devices; the rest of the order is a sum
 * over leaves, so the bits are the same.  Each partition of a sum has a rank that owns it, and on
 * each other host one that is its agent.  Agents add the leaves of their host over the partition
 * and send them, the owner adds all leaves.  If all ranks need the sum it is sent back to the
 * agents, and the ranks of a host fetch from those of them that have it.
 *
 * Messages lie in memory of each rank called staging, which the ranks of its host can read; offsets
 * and lengths are elements of f32.  Nothing here runs or is allocated: a kind of device executes
 * the lists.  Parts [n_ranks] are those of all ranks, the same on each of them. */
#ifndef TTI_BACKEND_PEER_HOSTS_H
#define TTI_BACKEND_PEER_HOSTS_H

#include "backend/backend.h"
#include "backend/chunk.h"

/* The bounds of a group of devices that sums this way; a larger one is refused, and sums in the
 * memory of hosts. */
enum { TTI_HOSTS_RANKS = 16, TTI_HOSTS_TERMS = 128 };

/* Terms first .. first+n_terms-1 of the order, all of one host, of which it is leaf index; and the
 * following additions between leaves. */
typedef struct tti_leaf {
    int first, n_terms, host, index, n_adds;
} tti_leaf;

typedef struct tti_peer_hosts {
    int rank, n_ranks, n_hosts, here; /* here: the host of rank */
    int host_of[TTI_HOSTS_RANKS];
    int near[TTI_HOSTS_RANKS], n_near;        /* the ranks of this host, rising */
    int leaves_of[TTI_HOSTS_RANKS], n_leaves; /* by host; of all */
    tti_leaf leaves[TTI_HOSTS_TERMS];         /* in order */
    int n_adds[TTI_HOSTS_TERMS], n_terms;     /* after each term, inside its leaf */
    size_t longest;                           /* elements of a partition, at most */
} tti_peer_hosts;

/* False: all ranks are of one host, or none shares its host with another, or they are too many. */
bool tti_peer_hosts_make(const tti_device_peers *peers, size_t longest, tti_peer_hosts *out);

/* Elements of the staging of this rank. */
size_t tti_peer_hosts_staging(const tti_peer_hosts *h);

/* The rank of a host that has to do with the partition of owner: itself on its own host, else its
 * agent.
 */
int tti_peer_agent(const tti_peer_hosts *h, int host, int owner);

/* Index of a rank among those of its host. */
int tti_peer_near_index(const tti_peer_hosts *h, int rank);

/* A partition over which this rank adds the leaves of its host: they go to its staging from at on,
 * one after the other, partition.n_elems each. */
typedef struct tti_peer_run {
    tti_chunk partition;
    size_t at;
} tti_peer_run;

/* Fills runs [TTI_HOSTS_RANKS]; returns how many. */
int tti_peer_hosts_runs(const tti_peer_hosts *h, const tti_chunk *partitions, tti_peer_run *runs);

/* A message of the partition of owner, to peer or from it. */
typedef struct tti_peer_message {
    int peer, owner;
    bool sends;
    size_t at, n_elems;
} tti_peer_message;

enum { TTI_HOSTS_MESSAGES = 2 * TTI_HOSTS_RANKS };

/* Leaves from agents to owners, in the staging of both from at on.  Fills list
 * [TTI_HOSTS_MESSAGES]; returns how many. */
int tti_peer_hosts_leaves(const tti_peer_hosts *h, const tti_chunk *partitions,
                          tti_peer_message *list);

/* Likewise: whole partitions from owners to agents; at: a place for it in the staging of the agent.
 */
int tti_peer_hosts_returns(const tti_peer_hosts *h, const tti_chunk *partitions,
                           tti_peer_message *list);

/* Offset in this rank's staging of leaf k over its own partition, of n_elems elements. */
size_t tti_peer_leaf_at(const tti_peer_hosts *h, int k, size_t n_elems);

/* Offset of another host's owner's partition in the staging of its agent on this host. */
size_t tti_peer_return_at(const tti_peer_hosts *h, int owner);

#endif /* TTI_BACKEND_PEER_HOSTS_H */
