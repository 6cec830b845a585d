/* channel_test.c - messages with areas, on one host and between hosts; ends that go, and bytes that
 * are no message. */
#include "comm/channel.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/ranks.h"
#include "comm/subgroup.h"
#include "forked.h"

enum { N_ROUNDS = 50, N_INTS = 5000, A = 1, B = 2 };

static const size_t areas[] = {N_INTS * sizeof(int), 3 * sizeof(int), 0};

/* The root sends each its number and both areas; they come back with one added. */
static const char *serve_all(tti_channel *const *channels, int root, int n_ranks) {
    for (int round = 0; round < N_ROUNDS; round++)
        for (int r = 0; r < n_ranks; r++) {
            if (r == root) continue;
            int *a = tti_channel_area(channels[r], 0), *b = tti_channel_area(channels[r], 1);
            int said = 100 * round + r, heard[TTI_CHANNEL_BYTES / sizeof(int)];
            size_t n_bytes = sizeof heard;
            a[0] = a[N_INTS - 1] = b[2] = said;
            COMM_OK(tti_channel_send(channels[r], &said, sizeof said, A | B));
            COMM_OK(tti_channel_recv(channels[r], heard, &n_bytes, A, 20000));
            COMM_TRUE(n_bytes == 2 * sizeof(int) && heard[0] == said && heard[1] == round);
            COMM_TRUE(a[0] == said + 1 && a[N_INTS - 1] == said + 1 && b[2] == said);
        }
    return NULL;
}

static const char *answer_all(tti_channel *c, int rank) {
    int *a = tti_channel_area(c, 0), *b = tti_channel_area(c, 1);
    COMM_TRUE(a[1] == 0 && b[0] == 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        int heard[TTI_CHANNEL_BYTES / sizeof(int)];
        size_t n_bytes = sizeof heard;
        COMM_OK(tti_channel_recv(c, heard, &n_bytes, A | B, TTI_NO_TIMEOUT));
        COMM_TRUE(n_bytes == sizeof(int) && heard[0] == 100 * round + rank);
        COMM_TRUE(a[0] == heard[0] && a[N_INTS - 1] == heard[0] && b[2] == heard[0]);
        a[0] = a[N_INTS - 1] = heard[0] + 1;
        heard[1] = round;
        COMM_OK(tti_channel_send(c, heard, 2 * sizeof(int), A));
    }
    return NULL;
}

static const char *talk(tutti_comm *comm, void *arg) {
    tti_channel *channels[64];
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    int root = *(const int *)arg;
    COMM_OK(tti_channels_open(comm, root, areas, TTI_COUNT(areas), channels));
    for (int r = 0; r < n_ranks; r++)
        COMM_TRUE((channels[r] != NULL) == ((r == root) != (rank == root)));
    const char *failure =
        rank == root ? serve_all(channels, root, n_ranks) : answer_all(channels[root], rank);
    for (int r = 0; r < n_ranks; r++) tti_channel_close(channels[r]);
    return failure;
}

T_CASE(on_one_host) {
    T_UNUSED;
    comm_run(2, talk, &(int){0});
    comm_run(2, talk, &(int){1});
    comm_run(5, talk, &(int){0});
    comm_run(5, talk, &(int){3});
}

T_CASE(between_hosts) {
    T_UNUSED;
    setenv("TUTTI_TEST_TRANSPORT", "tcp", 1);
    setenv("TUTTI_TEST_HOSTS", "a,a,b,c", 1);
    for (int root = 0; root < 4; root++) comm_run(4, talk, &root);
    setenv("TUTTI_TEST_HOSTS", "a,b", 1);
    comm_run(2, talk, &(int){0});
    unsetenv("TUTTI_TEST_HOSTS");
    unsetenv("TUTTI_TEST_TRANSPORT");
}

/* One that does not open its channels ends the others' opening. */
static const char *one_leaves(tutti_comm *comm, void *arg) {
    tti_channel *channels[64];
    (void)arg;
    if (tutti_comm_rank(comm) == 2) return NULL;
    tutti_status st = tti_channels_open(comm, 0, areas, 1, channels);
    COMM_TRUE(st == TUTTI_E_PEER || st == TUTTI_E_TIMEOUT);
    for (int r = 0; r < 3; r++) COMM_TRUE(!channels[r]);
    return NULL;
}

T_CASE(who_goes_before_is_missed) {
    T_UNUSED;
    comm_run(3, one_leaves, NULL);
}

/* Ranks 1 and 3 of 4 are 0 and 1 of a subgroup, and called as before. */
static const char *talk_in_part(tutti_comm *comm, void *arg) {
    int rank = tutti_comm_rank(comm), byte;
    size_t n_bytes = sizeof byte;
    tti_channel *channels[64];
    tutti_comm *subgroup;
    (void)arg;
    COMM_OK(tti_comm_split(comm, rank % 2, &subgroup));
    COMM_OK(tti_channels_open(subgroup, 0, areas, 1, channels));
    if (rank == 3) tti_channel_end(channels[0]);
    if (rank == 1)
        COMM_FAILS(tti_channel_recv(channels[1], &byte, &n_bytes, 0, 20000), TUTTI_E_PEER,
                   "rank 3 has left");
    if (rank == 1) tti_channel_end(channels[1]);
    if (rank == 3)
        COMM_FAILS(tti_channel_recv(channels[0], &byte, &n_bytes, 0, 20000), TUTTI_E_PEER,
                   "rank 1 has left");
    for (int r = 0; r < 2; r++) tti_channel_close(channels[r]);
    tutti_comm_destroy(subgroup);
    return NULL;
}

T_CASE(ranks_of_a_part_are_called_as_before) {
    T_UNUSED;
    comm_run(4, talk_in_part, NULL);
}

/* ---- over a socket of our own ---- */

static tti_channel *over_socket(int *other) {
    int pair[2];
    tti_channel *c;
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    T_OK(tti_channel_over(pair[0], 3, 20000, areas, TTI_COUNT(areas), &c));
    *other = pair[1];
    return c;
}

/* A message of 4 bytes with these areas, of which so many bytes follow. */
static tutti_status hear(uint32_t magic, uint32_t n_bytes, uint32_t brought, size_t n_follow,
                         unsigned may_bring) {
    static char bytes[TTI_CHANNEL_BYTES], follow[sizeof(int) * N_INTS + 64];
    int other;
    size_t got = 16;
    tti_channel *c = over_socket(&other);
    uint32_t head[4] = {magic, n_bytes, brought, 0};
    T_EQ(write(other, head, sizeof head), sizeof head);
    T_EQ(write(other, follow, n_follow), n_follow);
    close(other);
    tutti_status st = tti_channel_recv(c, bytes, &got, may_bring, 20000);
    if (st == TUTTI_OK) T_EQ(got, n_bytes);
    tti_channel_close(c);
    return st;
}

T_CASE(what_is_no_message) {
    T_UNUSED;
    enum { MAGIC = 0x48435454 };
    T_OK(hear(MAGIC, 4, 0, 4, 0));
    T_OK(hear(MAGIC, 4, B, 4 + 3 * sizeof(int), B));
    T_FAILS(hear(MAGIC + 1, 4, 0, 4, 0), TUTTI_E_MISMATCH, "rank 3 sent an invalid message");
    T_FAILS(hear(MAGIC, 0, 0, 4, 0), TUTTI_E_MISMATCH, "an invalid message");
    T_OK(hear(MAGIC, 16, 0, 16, 0));
    T_FAILS(hear(MAGIC, 17, 0, 17, 0), TUTTI_E_MISMATCH,
            "an invalid message"); /* there is no room */
    T_FAILS(hear(MAGIC, 4, A, 4 + areas[0], B), TUTTI_E_MISMATCH, "an invalid message");
    T_FAILS(hear(MAGIC, 4, 8, 4, ~0u), TUTTI_E_MISMATCH, "an invalid message");
    T_FAILS(hear(MAGIC, 4, 0, 3, 0), TUTTI_E_PEER, "rank 3 has left");
    T_FAILS(hear(MAGIC, 4, A, 4 + areas[0] - 1, A), TUTTI_E_PEER, "rank 3 has left");
}

T_CASE(ends) {
    T_UNUSED;
    char bytes[TTI_CHANNEL_BYTES] = "x";
    size_t n = sizeof bytes;
    int other;
    tti_channel *c = over_socket(&other);
    T_FAILS(tti_channel_recv(c, bytes, &n, 0, 10), TUTTI_E_TIMEOUT, "rank 3 sent nothing for ");
    assert_non_null(strstr(tutti_last_error(), " ms (the limit is 10 ms, by parallel.timeout_ms="));
    tti_channel_stop_receiving(c); /* its own waits are over, and it may still speak */
    T_FAILS(tti_channel_recv(c, bytes, &n, 0, TTI_NO_TIMEOUT), TUTTI_E_PEER, "has left");
    T_OK(tti_channel_send(c, bytes, 1, 0));
    tti_channel_end(c);
    T_FAILS(tti_channel_send(c, bytes, 1, 0), TUTTI_E_PEER, "has left");
    tti_channel_close(c);
    close(other);
    c = over_socket(&other);
    close(other);
    T_FAILS(tti_channel_send(c, bytes, 1, A), TUTTI_E_PEER, "has left");
    tti_channel_close(c);
    tti_channel_close(NULL);
}

/* Nobody reads: what has no room is given up after the time. */
T_CASE(nobody_takes_it) {
    T_UNUSED;
    static const size_t large[] = {64 << 20};
    int pair[2];
    tti_channel *c;
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    T_OK(tti_channel_over(pair[0], 1, 20, large, 1, &c));
    /* How long exactly depends on the load of the machine. */
    T_FAILS(tti_channel_send(c, "x", 1, A), TUTTI_E_TIMEOUT,
            " ms (the limit is 20 ms, by parallel.timeout_ms=20)");
    assert_non_null(strstr(tutti_last_error(), "rank 1 took nothing for "));
    tti_channel_close(c);
    close(pair[1]);
}

static bool set_loopback(bool up) {
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) != 0) return false;
    lo.ifr_flags = (short)(up ? lo.ifr_flags | IFF_UP : lo.ifr_flags & ~IFF_UP);
    bool ok = ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    return ok;
}

/* A connection over a network of its own; -1: there is none. */
static int connect_over_loopback(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&at, &n) == 0 &&
              connect(fd, (struct sockaddr *)&at, n) == 0;
    return ok ? fd : -1;
}

/* The limit of the wait is 22 s, but the network is out for longer than timeout_ms. */
static int wait_through_an_outage(void) {
    enum { TIMEOUT_MS = 200, WAIT_MS = 22000 };
    char bytes[TTI_CHANNEL_BYTES];
    size_t n = sizeof bytes;
    tti_channel *c;
    long long reported_ms;
    if (unshare(CLONE_NEWNET) != 0 || !set_loopback(true)) return FORKED_SKIPPED;
    int fd = connect_over_loopback();
    if (fd < 0 || tti_channel_over(fd, 7, TIMEOUT_MS, areas, 0, &c) != TUTTI_OK) return 1;
    if (!set_loopback(false) || tti_channel_send(c, "x", 1, 0) != TUTTI_OK) return 2;
    int64_t start_ns = tti_now_ns();
    if (tti_channel_recv(c, bytes, &n, 0, WAIT_MS) != TUTTI_E_PEER) return 3;
    long long waited_ms = (tti_now_ns() - start_ns) / TTI_NS_PER_MS;
    const char *reported = strstr(tutti_last_error(), "; waited ");
    if (!strstr(tutti_last_error(), "rank 7 cannot be reached any more (Connection timed out)"))
        return 4;
    if (!reported ||
        sscanf(reported, "; waited %lld ms (parallel.timeout_ms=200)", &reported_ms) != 1)
        return 5;
    if (reported_ms < TIMEOUT_MS || reported_ms > waited_ms || waited_ms >= WAIT_MS) return 6;
    return 0;
}

T_CASE(the_time_of_an_outage_is_reported) {
    T_UNUSED;
    t_forked(wait_through_an_outage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(between_hosts),
        cmocka_unit_test(who_goes_before_is_missed),
        cmocka_unit_test(ranks_of_a_part_are_called_as_before),
        cmocka_unit_test(what_is_no_message),
        cmocka_unit_test(ends),
        cmocka_unit_test(nobody_takes_it),
        cmocka_unit_test(the_time_of_an_outage_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
