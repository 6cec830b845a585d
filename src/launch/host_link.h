/* host_link.h - one connection between two supervisors, which sends and receives messages without
 * blocking.
 *
 * All messages have the same size.  A table with numbers of each host follows a message if the
 * table has changed since it was last sent on the connection.  Bytes that the kernel does not
 * accept are buffered here.
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
    TTI_MAX_HOST_WORKERS = 4096, /* workers of one supervisor; as many spares in addition */
    TTI_HOST_LOST_MS = 2000,     /* a host without a message for this time is lost */
    TTI_HOST_SEND_MS = 200       /* interval between messages */
};

typedef enum tti_host_kind {
    TTI_HOST_CHALLENGE, /* from the host that accepts a connection */
    TTI_HOST_HELLO,     /* answer of the caller: node, job, machine, epoch, port */
    TTI_HOST_WELCOME,   /* from the leader: run, and the run folder as text */
    TTI_HOST_REFUSAL,   /* instead of WELCOME: the reason as text */
    TTI_HOST_BUSY,      /* instead of WELCOME: the host is not the leader */
    TTI_HOST_STATUS,    /* to the leader: the state of the workers of a host */
    TTI_HOST_PULSE,     /* from the leader, if there is no other message */
    TTI_HOST_EPOCH,     /* from the leader: the next epoch begins */
    TTI_HOST_ASK,       /* to the leader: a user of this host requests another number of workers */
    TTI_HOST_LOST,      /* in both directions: the sender abandons this connection */
    TTI_HOST_END /* in both directions: the run has failed, or this host leaves; the reason as text
                  */
} tti_host_kind;

/* Hosts must have the same byte order; otherwise magic differs. */
typedef struct tti_host_message {
    uint64_t magic;
    uint32_t kind; /* tti_host_kind */
    int32_t node;
    uint64_t epoch; /* STATUS: the epoch of the workers; PULSE: the current one; EPOCH: the next */
    int32_t n_members, n_ready, n_spares; /* STATUS */
    int32_t changes;                      /* STATUS: the workers leave their group; PULSE: all
                                             workers leave the group of this epoch */
    int32_t is_done; /* STATUS: workers have ended successfully; END: only this host leaves, and the
                        others may continue */
    int32_t first_rank, n_here, n_ranks; /* EPOCH */
    int32_t n_elsewhere;                 /* PULSE: members on hosts other than the receiver */
    int32_t port;                        /* HELLO: port on which this host listens; 0: none */
    int32_t has_table;                   /* STATUS: members follow; PULSE, EPOCH: a whole table */
    int32_t n_asked;                     /* ASK: wanted workers of all hosts; 0: n_more is used */
    int32_t n_more;                      /* ASK: replicas to add, or if negative to remove */
    int32_t n_starting;                  /* STATUS: workers that are loading and will join */
    int32_t is_patient; /* STATUS: a worker that could join waits for others to load */
    int32_t n_training; /* STATUS: members that train; PULSE: training members of all hosts, 0: some
                           do not train yet */
    unsigned char nonce[32], mac[32], job[32], run[32];
    char machine[256];              /* HELLO: kernels and libraries */
    char text[TTI_HOST_TEXT_BYTES]; /* EPOCH: address at which rank 0 listens; HELLO: name of the
                                       host */
} tti_host_message;

/* Numbers of each host. */
typedef struct tti_host_table {
    int n;
    int32_t *members;                   /* [n], owned: members of the epoch */
    int32_t *targets;                   /* [n], owned: wanted number of workers */
    char (*peers)[TTI_HOST_PEER_BYTES]; /* [n], owned: listening address "ADDRESS:PORT"; "": unknown
                                         */
    uint64_t serial;                    /* changes with the table, and is never 0 */
} tti_host_table;

/* Allocates the arrays for n hosts; false: out of memory. */
bool tti_host_table_init(tti_host_table *table, int n);
void tti_host_table_fini(tti_host_table *table);

typedef struct tti_host_link {
    int fd;             /* -1: none */
    bool is_connecting; /* the connection is not established yet */
    bool is_open;       /* both sides are authenticated */
    int node;           /* node of the other side, valid if is_open */
    unsigned char nonce[32];
    tti_patience patience;
    int64_t silent_ns, sent_ns;
    uint64_t sent_serial; /* serial of the table that was sent last; 0: none */
    size_t n_in, n_more;  /* received bytes of the message, and of the table after it */
    tti_host_message in;
    char *more, *out; /* more: the table after the message; out: n_out bytes to send; owned */
    size_t n_out;
    char peer[64]; /* address of the other side, for messages and for the host of rank 0 */
} tti_host_link;

/* Initializes the link, which takes ownership of fd. */
void tti_host_link_begin(tti_host_link *link, int fd);
void tti_host_link_close(tti_host_link *link); /* no-op without a descriptor */

/* Fills magic, node and has_table of m like tti_host_link_send.  Needed before a message is
 * signed. */
void tti_host_link_fill(tti_host_message *m, int node);
/* Fills and queues m. table (may be NULL) is sent after messages of the kinds that include one, if
 * the other side does not have it yet.  False: too many bytes are unsent, out of memory, or the
 * connection has failed. */
bool tti_host_link_send(tti_host_link *link, int node, tti_host_message *m,
                        const tti_host_table *table);
/* Sends buffered bytes; false: the connection has failed. */
bool tti_host_link_flush(tti_host_link *link);

/* Returns 1: a complete message is in link->in, and its table in link->more; 0: not yet; -1: the
 * connection has ended, or the message is invalid. n_hosts: number of hosts in a table. */
int tti_host_link_receive(tti_host_link *link, int n_hosts);
/* Stores the table of the last message, whose has_table was set; for a STATUS only members. */
void tti_host_link_take_table(const tti_host_link *link, tti_host_table *to);

/* True if the other side has sent nothing for TTI_HOST_LOST_MS. */
bool tti_host_link_is_silent(tti_host_link *link);

/* The descriptor and event to poll. */
struct pollfd tti_host_link_poll_fd(const tti_host_link *link);

#endif /* TTI_LAUNCH_HOST_LINK_H */
