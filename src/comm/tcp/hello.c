/* hello.c - authentication: three messages of fixed size, each checked before its contents are
 * used.
 *
 * The accepting side sends a fresh nonce.  The other side answers with its identity, its own nonce
 * and a MAC over both.  The accepting side proves in its answer that it also knows the token.  A
 * MAC covers the whole message and both nonces, so that no message can be replayed or reflected. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "comm/tcp/tcp.h"

static const uint64_t magic = 0x31706374747554ULL;

_Static_assert(sizeof(tcp_hello) <= sizeof(tcp_answer), "a transcript holds either");

/* The input of a MAC. */
typedef struct transcript {
    char side[8];
    unsigned char theirs[TCP_NONCE_BYTES], ours[TCP_NONCE_BYTES];
    unsigned char message[sizeof(tcp_answer)];
} transcript;

static void make_mac(const tti_link_desc *desc, const char *side, const unsigned char *theirs,
                     const unsigned char *ours, const void *message, size_t n_bytes,
                     unsigned char *mac) {
    transcript t;
    memset(&t, 0, sizeof t);
    snprintf(t.side, sizeof t.side, "%s", side);
    memcpy(t.theirs, theirs, sizeof t.theirs);
    memcpy(t.ours, ours, sizeof t.ours);
    memcpy(t.message, message, n_bytes);
    tti_hmac(desc->token ? desc->token : "", &t, sizeof t, mac);
}

static void fill_nonce(unsigned char *nonce) {
    ssize_t got = getrandom(nonce, TCP_NONCE_BYTES, 0);
    TTI_ASSERT(got == TCP_NONCE_BYTES);
}

void tti_tcp_challenge(tcp_challenge *out) {
    memset(out, 0, sizeof *out);
    out->magic = magic;
    out->wire = TCP_WIRE;
    fill_nonce(out->nonce);
}

tutti_status tti_tcp_check_challenge(const tcp_challenge *challenge) {
    if (challenge->magic == magic && challenge->wire == TCP_WIRE) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "the process that listens there is not a rank of tutti, or of another version");
}

static void sign_hello(const tti_link_desc *desc, const unsigned char *nonce, tcp_hello *hello,
                       unsigned char *mac) {
    tcp_hello plain = *hello;
    memset(plain.mac, 0, sizeof plain.mac);
    make_mac(desc, "hello", nonce, plain.nonce, &plain, sizeof plain, mac);
}

void tti_tcp_hello(const tti_link_desc *desc, int to, int port, const tcp_challenge *challenge,
                   tcp_hello *out) {
    memset(out, 0, sizeof *out);
    out->magic = magic;
    out->wire = TCP_WIRE;
    out->rank = desc->rank;
    out->to = to;
    out->n_ranks = desc->n_ranks;
    out->port = port;
    snprintf(out->job, sizeof out->job, "%s", desc->job ? desc->job : "");
    fill_nonce(out->nonce);
    sign_hello(desc, challenge->nonce, out, out->mac);
}

/* Writes the reason for refusing a hello to answer->text and returns its status; Returns TUTTI_OK
 * if it is accepted. *proven: the sender knows the token. */
static tutti_status refuse(const tti_link_desc *desc, const bool *wanted,
                           const tcp_challenge *challenge, tcp_hello *hello, bool *proven,
                           char *text, size_t n_bytes) {
    unsigned char mac[TCP_MAC_BYTES];
    const char *job = desc->job ? desc->job : "";
    text[0] = '\0';
    *proven = false;
    if (hello->magic != magic || hello->wire != TCP_WIRE) {
        snprintf(text, n_bytes, "it speaks another protocol, or is of another version");
        return TUTTI_E_MISMATCH;
    }
    sign_hello(desc, challenge->nonce, hello, mac);
    if (!tti_mac_equal(mac, hello->mac)) {
        snprintf(text, n_bytes, "its token is not that of rank %d", desc->rank);
        return TUTTI_E_CONFIG;
    }
    *proven = true;
    if (!wanted && hello->rank >= 0 && hello->rank < hello->n_ranks) return TUTTI_OK;
    hello->job[sizeof hello->job - 1] = '\0';
    if (strncmp(hello->job, job, sizeof hello->job - 1) != 0) {
        snprintf(text, n_bytes, "it is of job '%.80s', not '%.80s'", hello->job, job);
        return TUTTI_E_MISMATCH;
    }
    if (hello->n_ranks != desc->n_ranks || hello->to != desc->rank || hello->rank < 0 ||
        hello->rank >= desc->n_ranks || hello->rank == desc->rank) {
        snprintf(text, n_bytes, "it is rank %d of %d and looks for rank %d; this is rank %d of %d",
                 hello->rank, hello->n_ranks, hello->to, desc->rank, desc->n_ranks);
        return TUTTI_E_MISMATCH;
    }
    if (wanted && wanted[hello->rank]) return TUTTI_OK;
    snprintf(text, n_bytes, "there is a rank %d already, or it must not connect here", hello->rank);
    return TUTTI_E_MISMATCH;
}

static void sign_answer(const tti_link_desc *desc, const unsigned char *nonce,
                        const tcp_answer *answer, unsigned char *mac) {
    tcp_answer plain = *answer;
    memset(plain.mac, 0, sizeof plain.mac);
    make_mac(desc, "answer", nonce, nonce, &plain, sizeof plain, mac);
}

void tti_tcp_answer_hello(const tti_link_desc *desc, const bool *wanted,
                          const tcp_challenge *challenge, const tcp_hello *hello, tcp_answer *out) {
    tcp_hello copy = *hello;
    memset(out, 0, sizeof *out);
    out->magic = magic;
    bool proven;
    out->status =
        (uint32_t)refuse(desc, wanted, challenge, &copy, &proven, out->text, sizeof out->text);
    if (proven) sign_answer(desc, hello->nonce, out, out->mac);
}

tutti_status tti_tcp_check_answer(const tti_link_desc *desc, const tcp_hello *hello,
                                  const tcp_answer *answer) {
    unsigned char mac[TCP_MAC_BYTES];
    if (answer->magic != magic)
        return tti_fail(TUTTI_E_MISMATCH,
                        "the process that listens there is not rank %d of a job of tutti",
                        hello->to);
    sign_answer(desc, hello->nonce, answer, mac);
    if (!tti_mac_equal(mac, answer->mac))
        return tti_fail(TUTTI_E_CONFIG, "the token of rank %d is not that of rank %d", hello->to,
                        desc->rank);
    if (answer->status == TUTTI_OK) return TUTTI_OK;
    if (answer->status >= TUTTI_N_STATUS) return tti_fail(TUTTI_E_INTERNAL, "a damaged answer");
    return tti_fail((tutti_status)answer->status, "rank %d refused rank %d: %.*s", hello->to,
                    desc->rank, TCP_TEXT_BYTES - 1, answer->text);
}

/* ---- the connecting side ---- */

tutti_status tti_tcp_recv_challenge(int fd, int64_t deadline_ns, tcp_challenge *out) {
    if (!tti_tcp_read(fd, out, sizeof *out, deadline_ns))
        return tti_fail(errno == ETIMEDOUT ? TUTTI_E_TIMEOUT : TUTTI_E_IO,
                        "the process that listens there sends nothing (%s)", strerror(errno));
    return tti_tcp_check_challenge(out);
}

tutti_status tti_tcp_send_hello(const tti_link_desc *desc, int fd, int to, int port,
                                const tcp_challenge *challenge, int64_t deadline_ns) {
    tcp_hello hello;
    tcp_answer answer;
    tti_tcp_hello(desc, to, port, challenge, &hello);
    if (!tti_tcp_write(fd, &hello, sizeof hello, deadline_ns) ||
        !tti_tcp_read(fd, &answer, sizeof answer, deadline_ns))
        return tti_fail(errno == ETIMEDOUT ? TUTTI_E_TIMEOUT : TUTTI_E_IO,
                        "the connection broke (%s)", strerror(errno));
    return tti_tcp_check_answer(desc, &hello, &answer);
}
