/* tcp.h - the link over sockets: addresses, authentication, streams of frames.
 *
 * Rank 0 listens at the address of the job until every rank has connected, then no rank listens any
 * more: each pair of ranks has one connection.  A link of more than TTI_FULL_RANKS ranks is sparse:
 * each rank keeps a port, where a thread of its own authenticates callers (port.c), and a pair of
 * ranks connects when it has its first message (reach.c).  Each side of a connection proves that it
 * knows the token of the job (HMAC-SHA256 over fresh nonces of both).  At a "unix:" address, where
 * a token is optional, both sides also check that the other is a process of the same user.  Later
 * traffic is neither encrypted nor signed. */
#ifndef TTI_COMM_TCP_H
#define TTI_COMM_TCP_H

#include <poll.h>

#include "base/error.h"
#include "comm/link.h"
#include "comm/sockets.h"

/* ---- hello.c ---- */

/* Sent by the side that accepted. */
typedef struct tcp_challenge {
    uint64_t magic;
    uint32_t wire, unused;
    unsigned char nonce[TCP_NONCE_BYTES];
} tcp_challenge;

/* Sent by the side that connected. */
typedef struct tcp_hello {
    uint64_t magic;
    uint32_t wire;
    int32_t rank, to, n_ranks;
    int32_t port; /* where it listens, on the address from which it connected */
    uint32_t unused;
    char job[128];
    unsigned char nonce[TCP_NONCE_BYTES];
    unsigned char mac[TCP_MAC_BYTES];
} tcp_hello;

/* The verdict of the side that accepted. */
typedef struct tcp_answer {
    uint64_t magic;
    uint32_t status, unused;
    char text[TCP_TEXT_BYTES];
    unsigned char mac[TCP_MAC_BYTES];
} tcp_answer;

void tti_tcp_challenge(tcp_challenge *out);

/* TUTTI_E_MISMATCH: the accepting side uses another protocol. */
tutti_status tti_tcp_check_challenge(const tcp_challenge *challenge);

void tti_tcp_hello(const tti_link_desc *desc, int to, int port, const tcp_challenge *challenge,
                   tcp_hello *out);

/* The answer to a hello; the status is TUTTI_OK or the reason for refusing it. wanted: [n_ranks],
 * ranks that may still connect; NULL: any rank of any job that knows the token, as at a port.  A
 * hello without the token gets an answer without a MAC, which reveals nothing about the token. */
void tti_tcp_judge(const tti_link_desc *desc, const bool *wanted, const tcp_challenge *challenge,
                   const tcp_hello *hello, tcp_answer *out);

/* TUTTI_OK, the refusal, or TUTTI_E_CONFIG: the answering process does not know the token. */
tutti_status tti_tcp_check_answer(const tti_link_desc *desc, const tcp_hello *hello,
                                  const tcp_answer *answer);

/* The parts of a handshake on a new connection to rank `to`, for the side that called.  port: where
 * this rank listens, 0: nowhere. */
tutti_status tti_tcp_hear_challenge(int fd, int64_t deadline_ns, tcp_challenge *out);
tutti_status tti_tcp_prove(const tti_link_desc *desc, int fd, int to, int port,
                           const tcp_challenge *challenge, int64_t deadline_ns);

/* ---- listener.c ---- */

/* Accepts the wanted ranks, one connection each, until all have connected or the deadline has
 * passed: fds[r] and places[r] (where r listens) of each, both [n_ranks].  Strangers are refused
 * and do not delay the others.  A rank that has connected and closed may connect again at rank 0;
 * at others it ends the procedure.  TUTTI_E_TIMEOUT names the missing ranks; where: for messages.
 */
tutti_status tti_tcp_admit(const tti_link_desc *desc, int listener, bool *wanted, int *fds,
                           tcp_place *places, const char *where, int64_t deadline_ns);

/* As tti_tcp_admit for a port: authenticates callers of the listener until *stop, which is looked
 * at when wake_fd can be read, and gives each to take, which owns its descriptor. */
void tti_tcp_attend(const tti_link_desc *desc, int listener, int wake_fd, const _Atomic bool *stop,
                    void (*take)(void *arg, const tcp_hello *hello, int fd), void *arg);

/* For messages: how long the ranks have waited for each other, if that began timeout_ms before the
 * deadline. text: [TTI_WAIT_TEXT_BYTES] */
const char *tti_tcp_met_text(const tti_link_desc *desc, int64_t deadline_ns, char *text);

/* ---- the state of a link ---- */

/* The bytes of a stream that were read ahead of a message without a receive. */
typedef struct tcp_ahead {
    unsigned char *bytes; /* [room], owned */
    size_t first, last, room;
    bool ended; /* the stream has ended */
    int error;  /* with which; 0: in order */
} tcp_ahead;

/* The connection to a rank. */
typedef struct tcp_peer {
    int rank;
    int fd;                   /* -1: none, or closed */
    unsigned char *in;        /* [TCP_IN_BYTES], owned; NULL: nothing was read yet */
    size_t in_first, in_last; /* bytes that were read and not yet consumed */
    size_t out_header;        /* bytes of the current message's header that were sent; 0: between */
    size_t out_alive;         /* bytes of an "I live" that went in part; 0: none did */
    bool has_header;          /* of a frame of data that waits for its receive */
    uint64_t frame_bytes;     /* of that frame */
    uint64_t frame_left;      /* of them, those that were not taken */
    int64_t untaken_ns;       /* since when no receive was posted; 0: one was posted recently */
    tcp_ahead ahead;          /* what follows on in[] */
    bool cut;                 /* its stream ends in the middle of a message */
    int64_t heard_ns;         /* when it last sent bytes, or connected */
    bool bye;                 /* it said that it leaves */
    bool gone;                /* and its stream has ended */
    int error;                /* with which; 0: in order */
    uint32_t busy_out, busy_in; /* the pass of tcp_test in which a message of it is not done */
    int64_t refused_ns;         /* sparse: since when it has refused calls; 0: it has not */
    int64_t retry_ns;           /* sparse: it is not called again before that time */
} tcp_peer;

typedef struct tcp_port tcp_port;

typedef struct tcp_state {
    tti_link_desc desc;
    int resolve_ms; /* interval for resolving an unknown name again */
    int slack_ms;   /* additional time after the timeout, in which rank 0 names the missing ranks */
    char where[300]; /* the address, for texts */
    int *shown;  /* [n_ranks], owned: of a subgroup, each rank's in the link that was opened, which
                    texts call it by; NULL: the same */
    char *token; /* owned: ranks of a subgroup prove it again; NULL: none */
    char job[128];        /* distinguishes subgroups */
    tti_rank_place place; /* NULL: not known yet */
    const void *place_arg;
    tcp_peer **peers;     /* [n_peers], owned, by rank: see peer_list.c */
    struct pollfd *polls; /* [cap_peers + 1], owned */
    tcp_peer **polled;    /* [cap_peers], owned: those of polls */
    int n_peers, cap_peers;
    uint32_t n_passes; /* of tcp_test */
    tti_message *batch;
    int n_batch;
    tcp_port *port;       /* of a sparse link, shared with its subgroups; NULL: all are connected */
    int64_t said_ns;      /* when this rank has said last that it lives; 0: never */
    int64_t looked_ns;    /* when it has looked last for an outage; 0: never */
    int64_t out_until_ns; /* an outage, or its end, is that fresh; 0: there was none */
    int out_ms;           /* of tti_tcp_outage_ms then */
    tutti_status cause;   /* failure that another rank reported */
    char text[TTI_CRY_BYTES];
    tutti_status reported; /* failure that this rank reported before it ended its connections */
    char reported_text[TTI_CRY_BYTES];
} tcp_state;

/* The number of a rank in texts. */
static inline int tti_tcp_shown(const tcp_state *s, int rank) {
    return s->shown ? s->shown[rank] : rank;
}

/* ---- peer_list.c ---- */

/* The peer of a rank; NULL: there is no connection, and there was no message yet. */
tcp_peer *tti_tcp_peer(const tcp_state *s, int rank);
/* The descriptor of its connection; -1: there is none. */
int tti_tcp_fd(const tcp_state *s, int rank);
/* The peer of a rank, a new one where there was none; NULL: out of memory, with the text set. */
tcp_peer *tti_tcp_add_peer(tcp_state *s, int rank);
void tti_tcp_free_peers(tcp_state *s);

/* socket.c: makes fd, which it owns from now on, the connection to a rank, which outlasts outages
 * up to the limits of the link.  TUTTI_E_NOMEM. */
tutti_status tti_tcp_adopt(tcp_state *s, int rank, int fd);

/* ---- connect.c ---- */

/* Fills the peers' descriptors; of a sparse link those of the tree of ranks. */
tutti_status tti_tcp_connect_ranks(tcp_state *s);

/* The data that the ranks of a subgroup exchange before they connect. */
typedef struct tcp_subgroup {
    tcp_state *whole;
    const bool *with;  /* [n_ranks] */
    tcp_place *places; /* [n_ranks]: where those below this one listen */
    int listener;      /* of this one, for those above; -1: none come */
} tcp_subgroup;

/* The same among the ranks of a subgroup. */
tutti_status tti_tcp_connect_subgroup(tcp_state *s, const tcp_subgroup *subgroup);

/* ---- port.c ---- */

/* Where a rank of a sparse link listens; all bytes 0: unknown.  port: of "unix:", the number of its
 * name, which the kernel chose. */
typedef struct tcp_spot {
    uint16_t family, unused;
    uint32_t port, scope;
    unsigned char address[16];
} tcp_spot;

void tti_tcp_spot_of(const tcp_place *place, tcp_spot *out);
/* TUTTI_E_MISMATCH: it is not a spot. */
tutti_status tti_tcp_place_of_spot(const tcp_spot *spot, tcp_place *out);

/* Listens on any port of a place, or at a name that the kernel chooses; *port: its number.  -1 with
 * errno. */
int tti_tcp_listen_any(const tcp_place *place, int *port);

/* Starts the thread of a port.  Takes ownership of the listener, also on failure, and copies what
 * it needs of desc.  spots: [n_ranks], zero at first, to be filled by the caller. */
tutti_status tti_tcp_port_open(const tti_link_desc *desc, int listener, tcp_port **out);
tcp_spot *tti_tcp_port_spots(tcp_port *port);
/* Once all spots are known: keeps each address once for neighboring ranks that have the same, and 8
 * bytes for each rank.  tti_tcp_port_spots must not be called any more. */
void tti_tcp_port_fold_spots(tcp_port *port);
tcp_spot tti_tcp_port_spot(const tcp_port *port, int rank);
/* One more owner; one less, and the last one ends the port.  NULL is a no-op. */
tcp_port *tti_tcp_port_share(tcp_port *port);
void tti_tcp_port_close(tcp_port *port);

/* The connection that *rank of the link of desc has made to this one, which the caller owns; -1:
 * none yet.  *rank -1: any rank, which is set. */
int tti_tcp_port_take(tcp_port *port, const tti_link_desc *desc, int *rank);

/* The link of desc has ended: ranks that call for it from now on receive the reason.  status
 * TUTTI_OK: this rank has left it in order, and text is "". */
void tti_tcp_port_end(tcp_port *port, const tti_link_desc *desc, tutti_status status,
                      const char *text);

/* ---- reach.c ---- */

/* Gets further with the connection to a rank of a sparse link, without waiting for its calls:
 * TUTTI_OK with or without one; TUTTI_E_PEER: it has ended. */
tutti_status tti_tcp_reach(tcp_state *s, tcp_peer *p);

/* ---- subgroup.c ---- */

tutti_status tti_tcp_split(void *state, const tti_link_subgroup *desc, void **out);

/* ---- link.c ---- */

/* tti_link.check and .close */
tutti_status tti_tcp_check(void *state, bool left_too);
void tti_tcp_close(void *state, bool in_order);

/* A state without connections: desc, its limits, its own token, peers. */
tutti_status tti_tcp_new(const tti_link_desc *desc, tcp_state **out);

/* Moves n messages within the timeout of the state. */
tutti_status tti_tcp_move(tcp_state *s, tti_message *messages, int n);

/* ---- stream.c ---- */

/* Moves what can be moved of a message; the failure of its peer. */
tutti_status tti_tcp_push(tcp_state *s, tcp_peer *p, tti_message *m);
tutti_status tti_tcp_pull(tcp_state *s, tcp_peer *p, tti_message *m);

/* Handles what a peer sends besides messages: that it failed, or leaves; after a while also what it
 * sent after a message that has no receive. */
tutti_status tti_tcp_listen_aside(tcp_state *s, tcp_peer *p);

/* Frees the bytes that were read and not consumed. */
void tti_tcp_drop_bytes(tcp_peer *p);

/* The failure of a rank that has gone: what another says of it, else how it went. */
tutti_status tti_tcp_fail_gone(tcp_state *s, const tcp_peer *gone);

/* While ranks connect: TUTTI_OK, or TUTTI_E_PEER or the reported failure of the first rank that has
 * closed. fds: [n_ranks], -1: none yet. */
tutti_status tti_tcp_check_met(int n_ranks, const int *fds);

/* While ranks connect: TUTTI_E_PEER once desc->stop_fd has ended. */
tutti_status tti_tcp_check_stop(const tti_link_desc *desc);

/* Sends one of these without waiting; false if there is no room or a message is under way. */
bool tti_tcp_say_bye(tcp_peer *p);
bool tti_tcp_say_cry(tcp_peer *p, tutti_status status, const char *text);

/* Called again and again by a rank that waits: says now and then to all that it lives. */
void tti_tcp_say_alive(tcp_state *s);

#endif /* TTI_COMM_TCP_H */
