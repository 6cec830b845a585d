/* net.h - ranks of several hosts: shared memory inside each host, a link between hosts.
 *
 * Ranks that can share memory form a "host": a group of the shared-memory transport, which handles
 * their agreements, waits and views of buffers.  Between hosts every rank communicates with every
 * rank of another host through the link.  A rank that fails reports the failure to the group of its
 * host and, through the link, to all other ranks.
 *
 * In a sparse group (tti_link_is_sparse) only the first ranks of hosts exchange agreements, along a
 * tree of the hosts (tree.c).  Failures use the same tree: each rank that receives one reports it
 * to the group of its host and to the ranks to which it is connected.  From other hosts, a rank
 * gets only the progress of the suspects (heartbeat.c). */
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
    NET_HEAD_BYTES = 960, /* bytes of a payload that are sent with its record */
    NET_NAME_BYTES = 128
};

/* The first message of each rank; it has the same size in every version. */
typedef struct net_hello {
    uint64_t magic;
    uint32_t wire;
    int32_t pid;
    uint64_t host_id; /* ranks with equal ids may be able to share memory */
    char version[64];
    char host[NET_NAME_BYTES]; /* for messages */
    unsigned char unused[NET_HELLO_BYTES - 24 - 64 - NET_NAME_BYTES];
} net_hello;

/* The data of a rank that every other rank of a sparse group gets. */
typedef struct net_entry {
    uint64_t host_id;
    int32_t pid;
    char host[60]; /* for messages, truncated */
} net_entry;

/* The record of an agreement, as it is sent. */
typedef struct net_record {
    tti_call call;
    uint32_t inline_bytes;
    uint32_t near; /* every buffer of this host is visible to the ranks of this host */
    unsigned char payload[TTI_INLINE_BYTES]; /* the first NET_HEAD_BYTES are sent with the record */
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

/* The suspects among the ranks of all other hosts; version as in net_page. */
typedef struct net_remote {
    _Atomic uint64_t version, words[NET_SUSPECTS_WORDS];
} net_remote;

/* Another process of this host, which the watcher observes. */
typedef struct net_watched {
    int rank, fd; /* fd: a pidfd, -1: none */
    bool is_gone;
} net_watched;

typedef struct net_heartbeat net_heartbeat;
typedef struct net_tree net_tree;

/* The data that a rank has about another rank. */
typedef struct net_peer {
    int32_t pid;
    int32_t host; /* index of its host's name in host_names; -1: not known yet */
} net_peer;

/* The state of one rank.  Used by one thread at a time, except for the fields of the watcher. */
typedef struct net_state {
    const tti_link *link;
    void *wire;
    int rank, n_ranks, timeout_ms, phase_timeout_ms;
    int *numbers;      /* owned: memory of global_ranks, host_of, first_of, index_of, rank_of */
    int *global_ranks; /* [n_ranks]: rank numbers for messages: ranks in the whole group */
    bool is_subgroup; /* set if this state belongs to a subgroup; then a failure of the parent state
                         is one of this state too */
    uint32_t n_splits; /* number of subgroups that were split from this one */
    net_peer *peers;   /* [n_ranks] */
    char **host_names; /* [n_host_names], owned: without duplicates; a subgroup borrows them */
    int n_host_names;
    uint64_t *host_ids; /* [n_ranks], owned, used while joining: see net_hello */
    int *host_of;       /* [n_ranks]: 0, 1, ... by first rank */
    int *first_of;      /* [n_hosts]: the first rank of each host */
    int n_hosts;
    int *index_of; /* [n_ranks]: index in the group of this host; -1: on another host */
    int *rank_of;  /* [n_local]: the inverse of index_of */
    int n_local;
    tutti_comm_group *group; /* group of this host; NULL if local owns it */
    void *local;             /* its state in the shared-memory transport */
    uint64_t n_agreed;
    net_record *records; /* [2][n_ranks], by parity of the agreement; the entries of other hosts'
                            ranks are used; NULL: the group is sparse */
    bool is_sparse;
    net_tree *tree; /* used by a sparse group over several hosts */
    net_record mine[2];
    bool near;
    _Atomic bool has_reported; /* this rank has reported a failure to the others */
    tti_message_list messages;
    tti_call call;                        /* the call in progress, for messages */
    char failure_text[TTI_FAILURE_BYTES]; /* text of the failure that this rank has reported; else
                                             "" */
    tutti_status failure_status;

    net_page *pages; /* [ranks of the whole group], shared by the ranks of this host; the entries of
                        other hosts' ranks are used. NULL: there is one host, or remote is used */
    net_remote *
        remote; /* used if the whole group is sparse, shared by the ranks of this host; else NULL */
    net_heartbeat *heartbeat; /* used by the first rank of a host; else NULL */

    pthread_t watcher;            /* thread that detects death or stop of this host's ranks */
    int stop_fd;                  /* -1: no watcher */
    _Atomic int lost;             /* rank that died or was stopped, -1: none */
    const char *how_lost;         /* "died"; written before lost is */
    net_watched *watched;         /* [n_local], owned, of the watcher; NULL: none */
    struct pollfd *watched_polls; /* [n_local], owned, used by the watcher */
} net_state;

/* ---- wait.c ---- */

/* Starts messages and waits until they are done. */
tutti_status tti_net_move(net_state *s, tti_message *messages, int n);

/* Implements tti_transport.delay. */
tti_delay tti_net_delay(void *state);

/* Implement tti_transport.find_busy and find_culprit. */
bool tti_net_find_busy(void *state, tti_str *what);
int tti_net_find_culprit(void *state, int blame, tti_str *what);

/* Makes waits inside this host also receive failures from the link. */
void tti_net_listen(net_state *s);

/* Waits until the posted batch is done. */
tutti_status tti_net_wait(net_state *s);

/* Returns st.  If st is a failure, cancels posted messages: the caller may reuse their memory. */
tutti_status tti_net_cancel(const net_state *s, tutti_status st);

/* Implements tti_transport.stream. */
tutti_status tti_net_stream(void *state, tti_message *messages, int n, int wake_fd);

/* Returns TUTTI_OK, or a failure that names the rank of this host that died or was stopped. */
tutti_status tti_net_check_lost(const net_state *s);

/* ---- heartbeat.c ---- */

/* Called by all ranks of the whole group. */
tutti_status tti_net_start_heartbeat(net_state *s);
void tti_net_stop_heartbeat(net_state *s);

/* Called after timeout_ms of s has changed: adapts the interval of the heartbeat. */
void tti_net_pace_heartbeat(net_state *s);

/* Reads the page of a rank of another host, by its rank in the whole group.  False: none has
 * arrived yet. */
bool tti_net_get_page(const net_state *s, int rank, tti_progress *out);

/* Reads the suspects of other hosts, by their ranks in the whole group. s->remote must not be
 * NULL. */
void tti_net_get_suspects(const net_state *s, tti_suspects *out);

/* ---- tree.c: a sparse group ---- */

/* Creates and frees s->tree.  The first is collective over the ranks of the host, which have joined
 * their group. */
tutti_status tti_net_create_tree(net_state *s);
void tti_net_destroy_tree(net_state *s);

/* Agreement and barrier of all ranks, and the payload of one rank. */
tutti_status tti_net_tree_agree(net_state *s, const tti_offer *mine, tti_agreement *out);
tutti_status tti_net_tree_barrier(net_state *s);
const void *tti_net_tree_payload(const net_state *s, int rank);
size_t tti_net_tree_inline_bytes(const net_state *s);

/* Allocates n_bytes of zeroed memory that all ranks of this host share; collective over these
 * ranks. */
tutti_status tti_net_share(net_state *s, size_t n_bytes, void **out);

/* ---- gather.c ---- */

/* Gathers n_bytes at mine from every rank into all [n_ranks][n_bytes] of every rank.  Works before
 * the hosts are known. */
tutti_status tti_net_gather(net_state *s, const void *mine, size_t n_bytes, void *all);

/* ---- join.c ---- */

/* Allocates the arrays of a state whose n_ranks is set. */
tutti_status tti_net_alloc(net_state *s);

tutti_status tti_net_join(const tutti_comm_desc *desc, void **state);
void tti_net_leave(void *state);
void tti_net_fail(void *state, tutti_status status);

/* ---- transport.c ---- */

/* The multi-host transport that a state belongs to. */
const tti_transport *tti_net_transport(const net_state *s);

/* ---- subgroup.c ---- */

tutti_status tti_net_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup);

/* ---- hosts.c ---- */

/* Fills hello with the identity of the host: name, boot, namespaces. */
void tti_net_fill_hello(int rank, net_hello *hello);

/* Checks the hello of another rank and NUL-terminates its strings.  TUTTI_E_MISMATCH: the other
 * rank runs another program or version. */
tutti_status tti_net_check_hello(const net_hello *mine, int my_rank, net_hello *theirs, int rank);

/* Assigns ranks to hosts from all hellos. apart [n_ranks]: ranks that are a host of their own. */
void tti_net_divide(net_state *s, const bool *apart);

/* The name of a rank's host for messages; "": not known yet. */
static inline const char *tti_net_host_name(char *const *host_names, const net_peer *peer) {
    return peer->host < 0 ? "" : host_names[peer->host];
}

/* Creates or opens the group of this host and joins it; collective over all ranks.  If one rank
 * of a host fails, all ranks of that host become separate hosts: apart [n_ranks] is set on every
 * rank. */
tutti_status tti_net_connect_locally(net_state *s, bool *apart);

/* ---- watch.c ---- */

/* Starts a thread that watches the other processes of this host.  The death of a process breaks the
 * group at once; a stop by a signal breaks it within a second.  A process that stays stopped is
 * then killed. */
tutti_status tti_net_watch(net_state *s);
void tti_net_unwatch(net_state *s);

/* Implements tti_transport.break_off. */
void tti_net_break(void *state);

#endif /* TTI_COMM_NET_H */
