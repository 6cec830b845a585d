/* host_link.h - one connection between two supervisors: messages without waiting.
 *
 * Messages have one size, and a table with numbers of each host follows if it has changed since the
 * last one on the connection.  Bytes that the kernel does not take wait here.
 *
 * Threads: used by the supervisor's thread only. */
#ifndef TTI_LAUNCH_HOST_LINK_H
#define TTI_LAUNCH_HOST_LINK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/patience.h"

enum {
    TTI_HOST_TEXT_BYTES = 512,
    TTI_HOST_PEER_BYTES = 64,
    TTI_MAX_HOST_WORKERS = 4096, /* of one supervisor; as many spares in addition */
    TTI_HOST_LOST_MS = 2000,     /* without a message, a host is lost */
    TTI_HOST_SAY_MS = 200        /* from message to message */
};

typedef enum tti_host_kind {
    TTI_HOST_CHALLENGE, /* by the host that accepts a connection */
    TTI_HOST_HELLO,     /* the answer: node, job, machine, epoch, port */
    TTI_HOST_WELCOME,   /* by the leader: run, and the run folder as text */
    TTI_HOST_REFUSAL,   /* instead: why, as text */
    TTI_HOST_BUSY,      /* instead: it does not lead */
    TTI_HOST_STATUS,    /* to the leader: the state of the workers of a host */
    TTI_HOST_PULSE,     /* by the leader, when there is nothing else */
    TTI_HOST_EPOCH,     /* by the leader: the next epoch begins */
    TTI_HOST_ASK,       /* to the leader: a user of this host asks for another number of workers */
    TTI_HOST_LOST,      /* either way: this connection is given up */
    TTI_HOST_END        /* either way: the run has failed, or this host leaves; why, as text */
} tti_host_kind;

/* Hosts have the same byte order: magic differs if not. */
typedef struct tti_host_message {
    uint64_t magic;
    uint32_t kind; /* tti_host_kind */
    int32_t node;
    uint64_t epoch; /* STATUS: the epoch of the workers; PULSE: the current one; EPOCH: the next */
    int32_t n_members, n_ready, n_spares; /* STATUS */
    int32_t changes;                      /* STATUS: the workers leave their group; PULSE: all
                                             workers leave the group of this epoch */
    int32_t is_done;                      /* STATUS: workers have ended with success; END: only
                                             this host leaves, and the others may continue */
    int32_t first_rank, n_here, n_ranks;  /* EPOCH */
    int32_t n_elsewhere;                  /* PULSE: members on hosts other than the receiver */
    int32_t port;                         /* HELLO: where this host listens; 0: it does not */
    int32_t has_table;                    /* STATUS: members follow; PULSE, EPOCH: a whole table */
    int32_t n_asked;                      /* ASK: workers of all hosts; 0: n_more */
    int32_t n_more;                       /* ASK: replicas more than there shall be, or less */
    int32_t n_starting;                   /* STATUS: workers that are loading, to join */
    int32_t is_patient;                   /* STATUS: a worker that could join waits for others */
    int32_t n_training;                   /* STATUS: members that train; PULSE: those of all hosts,
                                             0: some do not yet */
    unsigned char nonce[32], mac[32], job[32], run[32];
    char machine[256];              /* HELLO: kernels and libraries */
    char text[TTI_HOST_TEXT_BYTES]; /* EPOCH: where rank 0 listens; HELLO: name of the host */
} tti_host_message;

/* Numbers of each host. */
typedef struct tti_host_table {
    int n;
    int32_t *members;                   /* [n], owned: of the epoch */
    int32_t *targets;                   /* [n], owned: workers that it should have */
    char (*peers)[TTI_HOST_PEER_BYTES]; /* [n], owned: where it listens, "ADDRESS:PORT"; "":
                                           unknown */
    uint64_t serial;                    /* changes with the table, and is never 0 */
} tti_host_table;

/* False: there is no memory. */
bool tti_host_table_init(tti_host_table *table, int n);
void tti_host_table_fini(tti_host_table *table);

typedef struct tti_host_link {
    int fd;             /* -1: none */
    bool is_connecting; /* the kernel has not connected it yet */
    bool is_open;       /* both sides have proved who they are */
    int node;           /* of the other side, once it is open */
    unsigned char nonce[32];
    tti_patience patience;
    int64_t silent_ns, said_ns;
    uint64_t said_serial; /* of the table that was sent last; 0: none */
    size_t n_in, n_more;  /* bytes that are there, and those of the table that follows */
    tti_host_message in;
    char *more, *out; /* the table that follows; n_out bytes that wait to be sent; owned */
    size_t n_out;
    char peer[64]; /* address of the other side, for people and for rank 0's host */
} tti_host_link;

/* The link takes fd over. */
void tti_host_link_begin(tti_host_link *link, int fd);
void tti_host_link_close(tti_host_link *link); /* takes one without a descriptor */

/* Fills magic, node and has_table of m, as sending does: before it is signed. */
void tti_host_link_fill(tti_host_message *m, int node);
/* Fills m.  table, which may be NULL, follows a message of that kind if the other
 * side does not have it yet.  False: the connection takes no more. */
bool tti_host_link_send(tti_host_link *link, int node, tti_host_message *m,
                        const tti_host_table *table);
/* Sends bytes that wait; false: as above. */
bool tti_host_link_flush(tti_host_link *link);

/* 1: a whole message is in link->in, and its table in link->more; 0: not yet; -1: the connection
 * has ended, or the message is invalid.  n_hosts: of the table. */
int tti_host_link_receive(tti_host_link *link, int n_hosts);
/* Stores the table of the last message, after which has_table was set: of a STATUS only members. */
void tti_host_link_take_table(const tti_host_link *link, tti_host_table *to);

/* Whether the other side has sent nothing for TTI_HOST_LOST_MS. */
bool tti_host_link_is_silent(tti_host_link *link);

/* The event to wait for. */
struct pollfd tti_host_link_poll_fd(const tti_host_link *link);

#endif /* TTI_LAUNCH_HOST_LINK_H */
