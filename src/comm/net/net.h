/* net.h - ranks of several hosts: shared memory inside each host, a link between hosts.
 *
 * Ranks that can share memory form a "host": a group of the shared-memory transport, which agrees,
 * waits and shows buffers there.  Between hosts every rank communicates with every rank of another
 * host through the link.  Failures are the same for both: a rank that fails reports it to the group
 * of its host and, by the link, to all other ranks.
 *
 * In a sparse group (tti_link_is_sparse) only the first ranks of hosts agree, along a tree of the
 * hosts (tree.c).  Failures go along that tree too: each rank that hears of one reports it to the
 * group of its host and to the ranks to which it is connected.  A rank knows the progress of the
 * suspects of other hosts only (heartbeat.c). */
#ifndef TTI_COMM_NET_H
#define TTI_COMM_NET_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "comm/link.h"
#include "comm/progress.h"

enum {
    NET_WIRE = 4, /* version of the protocol between ranks */
    NET_HELLO_BYTES = 1024,
    NET_HEAD_BYTES = 960, /* of a payload that go with its record */
    NET_NAME_BYTES = 128
};

/* The first message of each rank; it has the same size in every version. */
typedef struct net_hello {
    uint64_t magic;
    uint32_t wire;
    int32_t pid;
    uint64_t host_id; /* equal: may share memory */
    char version[64];
    char host[NET_NAME_BYTES]; /* for people */
    unsigned char unused[NET_HELLO_BYTES - 24 - 64 - NET_NAME_BYTES];
} net_hello;

/* The data of a rank that every other rank of a sparse group gets. */
typedef struct net_entry {
    uint64_t host_id;
    int32_t pid;
    char host[60]; /* for people, cut to fit */
} net_entry;

/* An agreement's record as it travels. */
typedef struct net_record {
    tti_call call;
    uint32_t inline_bytes;
    uint32_t near;                           /* every buffer of this host can be seen inside it */
    unsigned char payload[TTI_INLINE_BYTES]; /* the first NET_HEAD_BYTES with the record */
} net_record;

enum { NET_RECORD_BYTES = sizeof(tti_call) + 8 + NET_HEAD_BYTES };
_Static_assert((int)NET_RECORD_BYTES == (int)TTI_CALL_BYTES, "see TTI_CALL_BYTES");

enum { NET_PAGE_WORDS = sizeof(tti_progress) / 8, NET_SUSPECTS_WORDS = sizeof(tti_suspects) / 8 };
_Static_assert(sizeof(tti_progress) % 8 == 0, "see net_page");
_Static_assert(sizeof(tti_suspects) % 8 == 0, "see net_remote");

/* The progress of a rank of another host.  version: odd while it is written. */
typedef struct net_page {
    _Atomic uint64_t version, words[NET_PAGE_WORDS];
} net_page;

/* The suspects among the ranks of all other hosts, likewise. */
typedef struct net_remote {
    _Atomic uint64_t version, words[NET_SUSPECTS_WORDS];
} net_remote;

/* Another process of this host, that the watcher looks after. */
typedef struct net_watched {
    int rank, fd; /* fd: a pidfd, -1: there is none */
    bool is_gone;
} net_watched;

typedef struct net_heartbeat net_heartbeat;
typedef struct net_tree net_tree;

/* A rank's knowledge of another rank. */
typedef struct net_peer {
    int32_t pid;
    int32_t host; /* index of its host's name, for people; -1: not known yet */
} net_peer;

/* A rank's side.  Used by one thread at a time, but for the watcher's four fields. */
typedef struct net_state {
    const tti_link *link;
    void *wire;
    int rank, n_ranks, timeout_ms, phase_timeout_ms;
    int *numbers; /* [5][n_ranks], owned: the memory of the five arrays below */
    int *shown;   /* [n_ranks]: what texts call each rank: of a subgroup, its rank in the whole */
    bool is_subgroup;  /* of another state, whose failure is this one's too */
    uint32_t n_splits; /* subgroups that were made of this one */
    net_peer *peers;   /* [n_ranks] */
    char *
        *host_names; /* [n_host_names], owned: the different ones of peers; a subgroup: borrowed */
    int n_host_names;
    uint64_t *host_ids; /* [n_ranks], owned, while joining: equal ones may share memory */
    int *host_of;       /* [n_ranks]: 0, 1, ... by first rank */
    int *first_of;      /* [n_hosts]: the first rank of each host */
    int n_hosts;
    int *index_of; /* [n_ranks]: in the group of this host; -1: of another host */
    int *rank_of;  /* [n_local]: the reverse */
    int n_local;
    tutti_comm_group *group; /* of this host; NULL where local owns it */
    void *local;             /* its state in the shared-memory transport */
    uint64_t n_agreed;
    net_record *records; /* [2][n_ranks], by parity of the agreement; of other hosts' ranks; NULL:
                            the group is sparse */
    bool is_sparse;
    net_tree *tree; /* of a sparse group over several hosts */
    net_record mine[2];
    bool near;
    _Atomic bool cried; /* this rank has reported a failure to the others */
    tti_message_list messages;
    tti_call call;            /* the current one, for texts */
    char said[TTI_CRY_BYTES]; /* the failure, once there is one; else "" */
    tutti_status said_status;

    net_page *pages;    /* [ranks of the whole], shared by the ranks of this host; the entries of
                           ranks of other hosts are used.  NULL: there is one host, or remote */
    net_remote *remote; /* of a sparse whole, shared by the ranks of this host; NULL: none */
    net_heartbeat *heartbeat; /* of the first rank of a host; else NULL */

    pthread_t watcher;    /* of this host's ranks: that they live, and that the next one runs */
    int stop_fd;          /* -1: no watcher */
    _Atomic int lost;     /* rank that died or was stopped, -1: none */
    const char *how_lost; /* "died"; written before lost is */
    net_watched *watched; /* [n_local], owned, of the watcher; NULL: none */
    struct pollfd *watched_polls; /* [n_local], likewise */
} net_state;

/* ---- wait.c ---- */

/* Begins to move messages and waits until they are done. */
tutti_status tti_net_move(net_state *s, tti_message *messages, int n);

/* tti_transport.delay */
tti_delay tti_net_delay(void *state);

/* tti_transport.find_busy, find_culprit */
bool tti_net_find_busy(void *state, tti_str *what);
int tti_net_find_culprit(void *state, int blame, tti_str *what);

/* Receives failures from the link while the ranks of this host wait for each other. */
void tti_net_listen(net_state *s);

/* Waits until the batch that was posted is done. */
tutti_status tti_net_wait(net_state *s);

/* Returns st.  If it is a failure, the memory of messages that were posted is the caller's again.
 */
tutti_status tti_net_give_up(const net_state *s, tutti_status st);

/* tti_transport.stream */
tutti_status tti_net_stream(void *state, tti_message *messages, int n, int wake_fd);

/* TUTTI_OK, or which rank of this host has died or was stopped. */
tutti_status tti_net_check_lost(const net_state *s);

/* ---- heartbeat.c ---- */

/* Called by all ranks of the whole. */
tutti_status tti_net_start_heartbeat(net_state *s);
void tti_net_stop_heartbeat(net_state *s);

/* After timeout_ms of s has changed. */
void tti_net_pace_heartbeat(net_state *s);

/* The page of a rank of another host, by its number in the whole group; false: none has arrived
 * yet. */
bool tti_net_get_page(const net_state *s, int rank, tti_progress *out);

/* The suspects of other hosts, by their numbers in the whole group; there must be a remote. */
void tti_net_get_suspects(const net_state *s, tti_suspects *out);

/* ---- tree.c: a sparse group ---- */

/* Collective over the ranks of the host, after its group was joined. */
tutti_status tti_net_plant_tree(net_state *s);
void tti_net_fell_tree(net_state *s);

/* Agreement and barrier of all ranks, and the payload of one. */
tutti_status tti_net_tree_agree(net_state *s, const tti_offer *mine, tti_agreement *out);
tutti_status tti_net_tree_barrier(net_state *s);
const void *tti_net_tree_payload(const net_state *s, int rank);
size_t tti_net_tree_inline_bytes(const net_state *s);

/* Memory of n_bytes, zero at first, that all ranks of this host see; collective over them. */
tutti_status tti_net_share(net_state *s, size_t n_bytes, void **out);

/* ---- gather.c ---- */

/* Every rank gets n_bytes at mine of each rank: all [n_ranks][n_bytes].  Before hosts are known. */
tutti_status tti_net_gather(net_state *s, const void *mine, size_t n_bytes, void *all);

/* ---- join.c ---- */

/* The arrays of a state with n_ranks. */
tutti_status tti_net_alloc(net_state *s);

tutti_status tti_net_join(const tutti_comm_desc *desc, void **state);
void tti_net_leave(void *state);
void tti_net_fail(void *state, tutti_status status);

/* ---- transport.c ---- */

/* Which of the transports over hosts a state is of. */
const tti_transport *tti_net_transport(const net_state *s);

/* ---- subgroup.c ---- */

tutti_status tti_net_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup);

/* ---- hosts.c ---- */

/* Fills hello with the identity of the host: name, boot, namespaces. */
void tti_net_introduce(int rank, net_hello *hello);

/* TUTTI_E_MISMATCH: the hello of that rank is of another program or version than this rank's own.
 * Terminates texts that came over a network. */
tutti_status tti_net_check_hello(const net_hello *mine, int my_rank, net_hello *theirs, int rank);

/* Assigns ranks to hosts from all hellos; apart: ranks that share memory with no other rank. */
void tti_net_divide(net_state *s, const bool *apart);

/* The name of a rank's host, for people; "": not known yet. */
static inline const char *tti_net_host_name(char *const *host_names, const net_peer *peer) {
    return peer->host < 0 ? "" : host_names[peer->host];
}

/* Makes or opens the group of this host and joins it: collective over the ranks of the host, and a
 * rank that cannot takes all of its host apart (every rank learns: apart, [n_ranks]). */
tutti_status tti_net_connect_locally(net_state *s, bool *apart);

/* ---- watch.c ---- */

/* Watches the other processes of this host: the death of one breaks the group at once; a stop by a
 * signal breaks it within a second.  A process that stays stopped is then killed. */
tutti_status tti_net_watch(net_state *s);
void tti_net_unwatch(net_state *s);

/* tti_transport.break_off */
void tti_net_break(void *state);

#endif /* TTI_COMM_NET_H */
