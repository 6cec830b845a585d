/* rendezvous_fuzz.c - what comes from other hosts and from a launcher: addresses, Slurm's lists,
 * a file of hosts, a
 * hello from who does not know the token, a stream of frames from a peer gone mad. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"
#include "launch/host_file.h"
#include "launch/rendezvous.h"

static void read_texts(const uint8_t *data, size_t size) {
    char text[600], host[64];
    tcp_address address;
    size_t n = TTI_MIN(size, sizeof text - 1);
    memcpy(text, data, n);
    text[n] = '\0';
    if (tti_slurm_first_host(text, host, sizeof host))
        TTI_ASSERT(host[0] && strlen(host) < sizeof host);
    int n_slots = tti_host_file_slots(text, &(tti_host_names){"node-1", "10.0.0.1", true});
    TTI_ASSERT(n_slots >= -1 && n_slots <= 4096);
    if (tti_tcp_parse(text, &address) != TUTTI_OK) return;
    TTI_ASSERT(address.host[0]);
    TTI_ASSERT(address.is_unix || (address.first >= 1 && address.last >= address.first &&
                                   address.last <= 65535 && address.last - address.first < 64));
}

static void judge_hello(const uint8_t *data, size_t size) {
    static const bool wanted[4] = {true, true, true, true};
    tti_link_desc desc = {.rank = 0, .n_ranks = 4, .token = "nobody knows this", .job = "j"};
    tcp_challenge challenge;
    tcp_hello hello;
    tcp_answer answer;
    memset(&hello, 0, sizeof hello);
    memcpy(&hello, data, TTI_MIN(size, sizeof hello));
    tti_tcp_challenge(&challenge);
    tti_tcp_answer_hello(&desc, wanted, &challenge, &hello, &answer);
    TTI_ASSERT(answer.status != TUTTI_OK && memchr(answer.text, 0, sizeof answer.text));
    memset(&answer, 0, sizeof answer);
    memcpy(&answer, data, TTI_MIN(size, sizeof answer));
    TTI_ASSERT(tti_tcp_check_answer(&desc, &hello, &answer) != TUTTI_OK);
}

/* Two receives from a peer whose bytes these are: they end, one way or another. */
static void read_stream(const uint8_t *data, size_t size) {
    int pair[2];
    char a[24], b[10000];
    tti_message messages[2] = {{.peer = 1, .in = a, .n_bytes = sizeof a},
                               {.peer = 1, .in = b, .n_bytes = sizeof b}};
    TTI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    tcp_state s = {.desc = {.rank = 0, .n_ranks = 2}};
    tcp_peer *peer = tti_tcp_add_peer(&s, 1);
    TTI_ASSERT(peer != NULL);
    peer->fd = pair[0];
    (void)send(pair[1], data, TTI_MIN(size, (size_t)60000), MSG_DONTWAIT | MSG_NOSIGNAL);
    close(pair[1]);
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < 2 && st == TUTTI_OK; i++)
        for (int tries = 0; tries < 1000 && st == TUTTI_OK; tries++) {
            if (messages[i].done == messages[i].n_bytes) break;
            st = tti_tcp_pull(&s, peer, &messages[i]);
        }
    TTI_ASSERT(st != TUTTI_OK || messages[1].done == messages[1].n_bytes);
    for (int tries = 0; tries < 10; tries++) (void)tti_tcp_handle_control(&s, peer);
    close(pair[0]);
    tti_tcp_drop_bytes(peer);
    tti_tcp_free_peers(&s);
}

/* The last word of a peer that has hung up while ranks meet: it is gone, whatever it says. */
static void hear_last_word(const uint8_t *data, size_t size) {
    int pair[2];
    TTI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    (void)send(pair[1], data, TTI_MIN(size, (size_t)60000), MSG_DONTWAIT | MSG_NOSIGNAL);
    TTI_ASSERT(tti_tcp_check_connected(1, pair) == TUTTI_OK);
    close(pair[1]);
    TTI_ASSERT(tti_tcp_check_connected(1, pair) == TUTTI_E_PEER);
    close(pair[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_texts(data, size);
    judge_hello(data, size);
    read_stream(data, size);
    hear_last_word(data, size);
    return 0;
}
