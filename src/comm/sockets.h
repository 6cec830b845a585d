/* sockets.h - addresses, sockets that never block, and proofs of a secret, for the link over
 * sockets and for the supervisors of several hosts.  Implemented in comm/tcp. */
#ifndef TTI_COMM_SOCKETS_H
#define TTI_COMM_SOCKETS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

enum {
    TCP_WIRE = 2,
    TCP_NONCE_BYTES = 32,
    TCP_MAC_BYTES = 32,
    TCP_TEXT_BYTES = 256,
    TCP_IN_BYTES = 8192,
    TCP_AHEAD_MS = 100, /* time that a message without a receive waits before the bytes after it are
                           read ahead */
    TCP_AHEAD_BYTES = 64 << 20, /* maximum read ahead per rank */
    TCP_RETRY_MS = 50,
    TCP_RESOLVE_MS = 1000,
    TCP_SLACK_MS = 2000,
    TCP_UNIX_PLACES = 8
};

/* ---- hmac.c ---- */

/* SHA-256 of n_bytes. */
void tti_sha256(const void *bytes, size_t n_bytes, unsigned char out[TCP_MAC_BYTES]);

/* HMAC-SHA256 with a key that ends with NUL. */
void tti_hmac(const char *key, const void *bytes, size_t n_bytes, unsigned char out[TCP_MAC_BYTES]);

/* Compares in constant time, so that the time does not reveal where the MACs differ. */
bool tti_mac_equal(const unsigned char *a, const unsigned char *b);

/* ---- address.c ---- */

typedef struct tcp_address {
    bool is_unix;
    char text[300];  /* as given */
    char host[256];  /* the host, or the name of a "unix:" address */
    int first, last; /* range of ports */
} tcp_address;

/* A socket address for bind and connect. */
typedef struct tcp_place {
    struct sockaddr_storage at;
    socklen_t n_bytes;
} tcp_place;

/* Parses an address.  TUTTI_E_CONFIG: it has none of the forms in tutti/comm.h. */
tutti_status tti_tcp_parse(const char *text, tcp_address *out);

/* Resolves the host and port, or the name of a "unix:" address. *n: number of addresses found, at
 * most n_max.  TUTTI_E_CONFIG: the host name is unknown, or not known yet. */
tutti_status tti_tcp_resolve(const tcp_address *address, int port, tcp_place *out, int n_max,
                             int *n);

/* Changes the port of an address; no-op for "unix:". */
void tti_tcp_set_port(tcp_place *place, int port);

/* The names at which a rank listens for a "unix:" address; it uses the first that no process of
 * another user has taken.  With a token a name is an HMAC, which other users cannot compute and
 * therefore cannot take in advance; NULL or "": the names can be guessed. */
void tti_tcp_unix_places(const tcp_address *address, const char *token, int rank,
                         tcp_place out[TCP_UNIX_PLACES]);

/* Writes the address for messages: "10.0.0.1:29500", "[::1]:80" or "unix:NAME".  Returns buf. */
const char *tti_tcp_place_text(const tcp_place *place, char *buf, size_t n_bytes);

/* ---- socket.c: no function blocks beyond deadline_ns ---- */

/* Creates a listening socket; -1 with errno. */
int tti_tcp_listen(const tcp_place *place);

/* Listens at the first of the places that no process of another user has taken.  -1 with errno:
 * EADDRINUSE if a process of this user listens there, EACCES if others have taken all of them. */
int tti_tcp_listen_unix(const tcp_place places[TCP_UNIX_PLACES]);

/* Connects; returns the descriptor, or -1 with errno. */
int tti_tcp_connect(const tcp_place *place, int64_t deadline_ns);

/* Reads or writes all bytes; false with errno (ETIMEDOUT, or ECONNRESET at the end of the
 * stream). */
bool tti_tcp_read(int fd, void *bytes, size_t n_bytes, int64_t deadline_ns);
bool tti_tcp_write(int fd, const void *bytes, size_t n_bytes, int64_t deadline_ns);

/* True for network errors after which the peer may still be alive: a process that ends resets or
 * closes its connection instead. */
bool tti_tcp_is_cut_off(int error);

/* True if the other end has closed; bytes that it sent can still be read. */
bool tti_tcp_hung_up(int fd);

/* Sets the options of a permanent connection whose waits last timeout_ms: no delay; keep-alive
 * probes of a silent peer; retransmission soon enough after a shorter outage. */
void tti_tcp_tune(int fd, int timeout_ms);

/* Makes the kernel end the connection with ETIMEDOUT when the peer's host has not answered for
 * n_ms. */
void tti_tcp_set_user_timeout(int fd, int64_t n_ms);

/* Returns 0 if the peer's host answers, as far as known.  Otherwise bytes are being retransmitted:
 * returns the time in ms until the next attempt will have been acknowledged. */
int tti_tcp_outage_ms(int fd);

/* The time in ms after the end of an outage of at most timeout_ms by which lost bytes will have
 * been sent again. */
int64_t tti_tcp_resend_ms(int fd, int timeout_ms);

/* True if the other end of a Unix socket is a process of this user. */
bool tti_tcp_same_user(int fd);

#endif /* TTI_COMM_SOCKETS_H */
