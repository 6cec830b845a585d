/* tcp.h - the link over sockets: addresses, authentication, streams of frames.
 *
 * Rank 0 listens at the address of the job until every rank has connected.  Then each pair of ranks
 * has one connection, and no rank listens any more.  A link of more than TTI_FULL_RANKS ranks is
 * sparse: each rank keeps a port open, on which a thread authenticates callers (port.c), and a pair
 * of ranks connects when it has its first message (reach.c).  Each side of a connection proves that
 * it knows the token of the job (HMAC-SHA256 over fresh nonces of both).  At a "unix:" address,
 * where a token is optional, both sides also check that the other is a process of the same user.
 * Later traffic is neither encrypted nor signed. */
#ifndef TTI_COMM_TCP_H
#define TTI_COMM_TCP_H

#include <poll.h>

#include "base/error.h"
#include "comm/link.h"
#include "comm/sockets.h"

/* ---- hello.c ---- */

/* The first message, from the side that accepted the connection. */
typedef struct tcp_challenge {
    uint64_t magic;
    uint32_t wire, unused;
    unsigned char nonce[TCP_NONCE_BYTES];
} tcp_challenge;

/* The second message, from the side that connected. */
typedef struct tcp_hello {
    uint64_t magic;
    uint32_t wire;
    int32_t rank, to, n_ranks;
    int32_t port; /* port on which the rank listens, at the address from which it connected */
    uint32_t unused;
    char job[128];
    unsigned char nonce[TCP_NONCE_BYTES];
    unsigned char mac[TCP_MAC_BYTES];
} tcp_hello;

/* The third message: the accepting side admits or refuses the caller. */
typedef struct tcp_answer {
    uint64_t magic;
    uint32_t status, unused;
    char text[TCP_TEXT_BYTES];
    unsigned char mac[TCP_MAC_BYTES];
} tcp_answer;

void tti_tcp_challenge(tcp_challenge *out);

/* Checks a challenge.  TUTTI_E_MISMATCH: the accepting side uses another protocol. */
tutti_status tti_tcp_check_challenge(const tcp_challenge *challenge);

void tti_tcp_hello(const tti_link_desc *desc, int to, int port, const tcp_challenge *challenge,
                   tcp_hello *out);

/* Writes the answer to a hello; its status is TUTTI_OK or the reason for refusing the caller.
 * wanted [n_ranks]: ranks that may still connect; NULL: any rank of any job that knows the token,
 * as at a port.  A hello with a wrong token gets an answer without a MAC, so that it reveals
 * nothing about the token. */
void tti_tcp_answer_hello(const tti_link_desc *desc, const bool *wanted,
                          const tcp_challenge *challenge, const tcp_hello *hello, tcp_answer *out);

/* Returns TUTTI_OK or the refusal.  TUTTI_E_CONFIG: the answering process does not know the
 * token. */
tutti_status tti_tcp_check_answer(const tti_link_desc *desc, const tcp_hello *hello,
                                  const tcp_answer *answer);

/* The steps of the handshake on a new connection to rank `to`, for the connecting side. port: the
 * port on which this rank listens, 0: none. */
tutti_status tti_tcp_recv_challenge(int fd, int64_t deadline_ns, tcp_challenge *out);
tutti_status tti_tcp_send_hello(const tti_link_desc *desc, int fd, int to, int port,
                                const tcp_challenge *challenge, int64_t deadline_ns);

/* ---- listener.c ---- */

/* Accepts the wanted ranks, one connection each, until all have connected or the deadline has
 * passed.  Writes fds[r] and places[r], the address at which r listens, both [n_ranks].  Other
 * callers are refused and do not delay the ranks.  A rank that has closed its connection may
 * connect again to rank 0; on other ranks this is an error.  TUTTI_E_TIMEOUT names the missing
 * ranks. where: the address, for messages. */
tutti_status tti_tcp_admit(const tti_link_desc *desc, int listener, bool *wanted, int *fds,
                           tcp_place *places, const char *where, int64_t deadline_ns);

/* The same for a port: authenticates callers of the listener and passes each to take, which owns
 * its descriptor.  Ends when *stop is true, which is read when wake_fd is readable. */
void tti_tcp_serve_port(const tti_link_desc *desc, int listener, int wake_fd,
                        const _Atomic bool *stop,
                        void (*take)(void *arg, const tcp_hello *hello, int fd), void *arg);

/* Writes for messages how long the ranks have waited for each other, if the wait began timeout_ms
 * before the deadline. text: [TTI_WAIT_TEXT_BYTES], which is returned. */
const char *tti_tcp_wait_text(const tti_link_desc *desc, int64_t deadline_ns, char *text);

/* ---- the state of a link ---- */

/* Bytes that were read beyond a message for which no receive is posted yet. */
typedef struct tcp_ahead {
    unsigned char *bytes; /* [room], owned */
    size_t first, last, room;
    bool ended; /* the stream has ended */
    int error;  /* errno of the end; 0: the stream was closed in order */
} tcp_ahead;

/* The connection to a rank. */
typedef struct tcp_peer {
    int rank;
    int fd;                   /* -1: none, or closed */
    unsigned char *in;        /* [TCP_IN_BYTES], owned; NULL: no bytes were read yet */
    size_t in_first, in_last; /* range of in[] that was read and not yet consumed */
    size_t out_header; /* sent bytes of the current message's header; 0: no message is being sent */
    size_t out_alive;  /* sent bytes of a partly sent keep-alive frame; 0: none */
    bool has_header; /* the header of a data frame was read, and the frame waits for its receive */
    uint64_t frame_bytes; /* bytes of that frame */
    uint64_t frame_left;  /* bytes of that frame that were not consumed yet */
    int64_t untaken_ns;   /* time since which no receive was posted; 0: one was posted recently */
    tcp_ahead ahead;      /* the bytes after in[] */
    bool cut;             /* the stream ends in the middle of a message */
    int64_t received_ns;  /* time at which the rank last sent bytes, or connected */
    bool has_left;        /* the rank has announced that it leaves */
    bool gone;            /* the stream has ended */
    int error;            /* errno of the end; 0: in order */
    uint32_t busy_out, busy_in; /* number of the last pass of tcp_test in which a message to or from
                                   this rank was unfinished */
    int64_t refused_ns; /* sparse: time since which the rank refuses connections; 0: it does not */
    int64_t retry_ns;   /* sparse: earliest time of the next attempt to connect */
} tcp_peer;

typedef struct tcp_port tcp_port;

typedef struct tcp_state {
    tti_link_desc desc;
    int resolve_ms;    /* interval for resolving an unknown name again */
    int slack_ms;      /* time after the timeout in which rank 0 reports the missing ranks */
    char where[300];   /* the address, for messages */
    int *global_ranks; /* [n_ranks], owned: for a subgroup, rank numbers for messages: the ranks in
                   the link that was opened; NULL: the same */
    char *token;       /* owned: ranks of a subgroup authenticate again; NULL: none */
    char job[128];     /* distinguishes subgroups */
    tti_rank_place place; /* NULL: not known yet */
    const void *place_arg;
    tcp_peer **peers;     /* [n_peers], owned, by rank: see peer_list.c */
    struct pollfd *polls; /* [cap_peers + 1], owned */
    tcp_peer **polled;    /* [cap_peers], owned: the peers of polls */
    int n_peers, cap_peers;
    uint32_t n_passes; /* number of passes of tcp_test */
    tti_message *batch;
    int n_batch;
    tcp_port
        *port; /* used by a sparse link, shared with its subgroups; NULL: all ranks are connected */
    int64_t keepalive_ns; /* time of the last keep-alive frames of this rank; 0: none */
    int64_t looked_ns;    /* time of the last check for an outage; 0: none */
    int64_t out_until_ns; /* time until which an outage counts; 0: there was none */
    int out_ms;           /* tti_tcp_outage_ms of that outage */
    tutti_status cause;   /* failure reported by another rank */
    char text[TTI_FAILURE_BYTES];
    tutti_status reported; /* failure that this rank reported before it closed its connections */
    char reported_text[TTI_FAILURE_BYTES];
} tcp_state;

/* The number of a rank in messages. */
static inline int tti_tcp_global_rank(const tcp_state *s, int rank) {
    return s->global_ranks ? s->global_ranks[rank] : rank;
}

/* ---- peer_list.c ---- */

/* The peer of a rank; NULL: there is no connection, and no message was started yet. */
tcp_peer *tti_tcp_peer(const tcp_state *s, int rank);
/* The descriptor of its connection; -1: there is none. */
int tti_tcp_fd(const tcp_state *s, int rank);
/* The peer of a rank; creates it if there is none.  NULL: out of memory, with the error text
 * set. */
tcp_peer *tti_tcp_add_peer(tcp_state *s, int rank);
void tti_tcp_free_peers(tcp_state *s);

/* socket.c: takes ownership of fd and makes it the connection to a rank, which survives outages up
 * to the limits of the link.  TUTTI_E_NOMEM. */
tutti_status tti_tcp_adopt(tcp_state *s, int rank, int fd);

/* ---- connect.c ---- */

/* Connects to all peers; in a sparse link only to the neighbors in the tree of ranks. */
tutti_status tti_tcp_connect_ranks(tcp_state *s);

/* The data that the ranks of a subgroup exchange before they connect. */
typedef struct tcp_subgroup {
    tcp_state *whole;
    const bool *with;  /* [n_ranks] */
    tcp_place *places; /* [n_ranks]: addresses at which the lower ranks listen */
    int listener;      /* listener of this rank for the higher ranks; -1: no rank will connect */
} tcp_subgroup;

/* Connects the ranks of a subgroup. */
tutti_status tti_tcp_connect_subgroup(tcp_state *s, const tcp_subgroup *subgroup);

/* ---- port.c ---- */

/* The address at which a rank of a sparse link listens; all bytes 0: unknown. port: for a "unix:"
 * address, the number in its name, which the kernel chose. */
typedef struct tcp_spot {
    uint16_t family, unused;
    uint32_t port, scope;
    unsigned char address[16];
} tcp_spot;

void tti_tcp_spot_of(const tcp_place *place, tcp_spot *out);
/* Converts a spot to an address.  TUTTI_E_MISMATCH: the spot is malformed. */
tutti_status tti_tcp_place_of_spot(const tcp_spot *spot, tcp_place *out);

/* Listens on any port of an address, or at a Unix name that the kernel chooses. *port: the port, or
 * the number in the name.  Returns -1 with errno on failure. */
int tti_tcp_listen_any(const tcp_place *place, int *port);

/* Starts the thread of a port.  Takes ownership of the listener, also on failure, and copies desc.
 * tti_tcp_port_spots returns [n_ranks], zero at first, to be filled by the caller. */
tutti_status tti_tcp_port_open(const tti_link_desc *desc, int listener, tcp_port **out);
tcp_spot *tti_tcp_port_spots(tcp_port *port);
/* Compresses the table once all spots are known: neighboring ranks share an equal address, and each
 * rank takes 8 bytes. tti_tcp_port_spots must not be called afterwards. */
void tti_tcp_port_fold_spots(tcp_port *port);
tcp_spot tti_tcp_port_spot(const tcp_port *port, int rank);
/* Adds an owner; removes one, and the last one closes the port.  NULL is a no-op. */
tcp_port *tti_tcp_port_share(tcp_port *port);
void tti_tcp_port_close(tcp_port *port);

/* Takes a connection that *rank of the link of desc has made to this rank; the caller owns it.
 * Returns -1 if there is none yet. *rank -1: accepts any rank, and sets *rank. */
int tti_tcp_port_take(tcp_port *port, const tti_link_desc *desc, int *rank);

/* Marks the link of desc as ended: ranks that connect for it from now on get the reason. status
 * TUTTI_OK: this rank has left in order, and text is "". */
void tti_tcp_port_end(tcp_port *port, const tti_link_desc *desc, tutti_status status,
                      const char *text);

/* ---- reach.c ---- */

/* Tries to connect to a rank of a sparse link, without waiting for that rank to connect.  Returns
 * TUTTI_OK, connected or not yet.  TUTTI_E_PEER: the rank has ended. */
tutti_status tti_tcp_reach(tcp_state *s, tcp_peer *p);

/* ---- subgroup.c ---- */

tutti_status tti_tcp_split(void *state, const tti_link_subgroup *desc, void **out);

/* ---- link.c ---- */

/* Implement tti_link.check and .close. */
tutti_status tti_tcp_check(void *state, bool left_too);
void tti_tcp_close(void *state, bool in_order);

/* Creates a state without connections: copies desc and the token. */
tutti_status tti_tcp_new(const tti_link_desc *desc, tcp_state **out);

/* Moves n messages within the timeout of the state. */
tutti_status tti_tcp_move(tcp_state *s, tti_message *messages, int n);

/* ---- stream.c ---- */

/* Sends or receives as much of a message as possible without waiting; returns the failure of its
 * peer. */
tutti_status tti_tcp_push(tcp_state *s, tcp_peer *p, tti_message *m);
tutti_status tti_tcp_pull(tcp_state *s, tcp_peer *p, tti_message *m);

/* Handles the control frames of a peer: failure, leave and keep-alive.  After a while also reads
 * the frames behind a message that has no receive. */
tutti_status tti_tcp_handle_control(tcp_state *s, tcp_peer *p);

/* Frees the bytes that were read and not consumed. */
void tti_tcp_drop_bytes(tcp_peer *p);

/* Fails for a rank that is gone: with the failure that another rank reported, else with the error
 * of the connection. */
tutti_status tti_tcp_fail_gone(tcp_state *s, const tcp_peer *gone);

/* While ranks connect: returns TUTTI_OK, or for the first rank that has closed its connection its
 * reported failure, else TUTTI_E_PEER. fds: [n_ranks], -1: none yet. */
tutti_status tti_tcp_check_connected(int n_ranks, const int *fds);

/* While ranks connect: returns TUTTI_E_PEER once desc->stop_fd has reached its end. */
tutti_status tti_tcp_check_stop(const tti_link_desc *desc);

/* Sends the frame without waiting; false if the socket is full or a message is partly sent. */
bool tti_tcp_send_leave(tcp_peer *p);
bool tti_tcp_send_failure(tcp_peer *p, tutti_status status, const char *text);

/* Called repeatedly by a rank that waits: sends keep-alive frames to all peers from time to
 * time. */
void tti_tcp_send_keepalive(tcp_state *s);

#endif /* TTI_COMM_TCP_H */
