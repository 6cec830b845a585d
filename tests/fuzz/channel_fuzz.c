/* channel_fuzz.c - messages that a parameter server receives from workers that are processes: a
 * channel with areas, and their contents. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/channel.h"
#include "ps/server_state.h"

enum { AREA_BYTES = 24 };

/* An accepted message has a valid length and valid numbers. */
static void check_message(tti_wire_message *m, size_t n_bytes) {
    if (tti_wire_check(m, n_bytes) != TUTTI_OK) return;
    TTI_ASSERT(n_bytes <= sizeof *m && n_bytes == tti_wire_bytes(m));
    if (m->kind == TTI_WIRE_COMBINE)
        TTI_ASSERT(m->number[0] >= 0 && m->number[0] <= TTI_COMBINE_VALUES);
    if (m->kind == TTI_WIRE_FAIL || m->kind == TTI_WIRE_LEAVE)
        TTI_ASSERT(memchr(m->more.text, 0, TTI_WIRE_TEXT));
}

/* One message as it would lie in memory. */
static void read_message(const uint8_t *data, size_t size) {
    union {
        tti_wire_message message;
        char bytes[TTI_CHANNEL_BYTES];
    } m;
    memset(&m, 0, sizeof m);
    memcpy(&m, data, TTI_MIN(size, sizeof m));
    check_message(&m.message, TTI_MIN(size, sizeof m));
}

/* A stream of them, from a worker gone mad: it ends. */
static void read_stream(const uint8_t *data, size_t size) {
    static const size_t areas[] = {AREA_BYTES, AREA_BYTES};
    tti_wire_message m;
    int pair[2];
    size_t n_bytes = sizeof m;
    tti_channel *c;
    TTI_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    TTI_ASSERT(tti_channel_over(pair[0], 1, 1000, areas, 2, &c) == TUTTI_OK);
    (void)send(pair[1], data, TTI_MIN(size, (size_t)60000), MSG_DONTWAIT | MSG_NOSIGNAL);
    close(pair[1]);
    for (; tti_channel_recv(c, &m, &n_bytes, 2, 1000) == TUTTI_OK; n_bytes = sizeof m) {
        TTI_ASSERT(n_bytes >= 1 && n_bytes <= sizeof m);
        check_message(&m, n_bytes);
    }
    tti_channel_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_message(data, size);
    read_stream(data, size);
    return 0;
}
