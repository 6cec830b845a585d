/* meet_test.c - ranks that meet at an address: strangers at the door, missing ranks, taken ports,
 * and what a rank hears of one that leaves, fails or dies. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/ranks.h"
#include "comm/tcp/tcp.h"

enum { TOKEN_RANKS = 3 };

static char address[64];

/* An address with a port that was free a moment ago. */
static void choose_address(void) {
    tcp_address any;
    tcp_place place;
    int n;
    T_OK(tti_tcp_parse("127.0.0.1:1", &any));
    T_OK(tti_tcp_resolve(&any, 0, &place, 1, &n));
    int fd = tti_tcp_listen(&place);
    assert_true(fd >= 0);
    place.n_bytes = sizeof place.at;
    T_EQ(getsockname(fd, (struct sockaddr *)&place.at, &place.n_bytes), 0);
    tti_tcp_place_text(&place, address, sizeof address);
    close(fd);
}

static tutti_comm_desc desc_of(int rank, int n_ranks, int timeout_ms) {
    return (tutti_comm_desc){.transport = "tcp",
                             .rank = rank,
                             .n_ranks = n_ranks,
                             .timeout_ms = timeout_ms,
                             .address = address,
                             .token = "sixteen and more",
                             .job = "a job"};
}

static const char *meet_and_add(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    float one = 1;
    tutti_comm_desc desc = desc_of(rank, n_ranks, 20000);
    COMM_OK(tutti_comm_create(&desc, &comm));
    COMM_OK(tutti_comm_all_reduce(comm, &one, &one, 1, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    COMM_TRUE(one == (float)n_ranks);
    tutti_comm_destroy(comm);
    return NULL;
}

T_CASE(through_a_port) {
    T_UNUSED;
    for (int n = 2; n <= 4; n++) {
        choose_address();
        t_ranks(n, meet_and_add, NULL);
    }
}

/* Connects and says nothing, or nonsense, until rank 0 is met. */
static void *be_strange(void *arg) {
    _Atomic int *stop = arg;
    tcp_address a;
    tcp_place place;
    int n, fds[40], n_fds = 0;
    char junk[sizeof(tcp_hello)];
    memset(junk, 0x5a, sizeof junk);
    if (tti_tcp_parse(address, &a) || tti_tcp_resolve(&a, a.first, &place, 1, &n)) return NULL;
    while (!*stop && n_fds < 40) {
        int fd = tti_tcp_connect(&place, tti_now_ns() + 50 * TTI_NS_PER_MS);
        if (fd < 0) {
            usleep(1000);
            continue;
        }
        if (n_fds % 2) (void)tti_tcp_write(fd, junk, sizeof junk, tti_now_ns());
        fds[n_fds++] = fd;
    }
    while (!*stop) usleep(1000);
    for (int i = 0; i < n_fds; i++) close(fds[i]);
    return NULL;
}

static const char *come_late(int rank, int n_ranks, void *arg) {
    if (rank != 0) usleep(300000);
    return meet_and_add(rank, n_ranks, arg);
}

T_CASE(strangers_hold_nobody_up) {
    T_UNUSED;
    _Atomic int stop = 0;
    pthread_t thread;
    choose_address();
    T_EQ(pthread_create(&thread, NULL, be_strange, (void *)&stop), 0);
    int64_t start_ns = tti_now_ns();
    t_ranks(TOKEN_RANKS, come_late, NULL);
    stop = 1;
    pthread_join(thread, NULL);
    assert_true(tti_now_ns() - start_ns < 10000 * TTI_NS_PER_MS);
}

/* Ranks 0 and 1 of 4: both are told who is missing, by rank 0. */
static const char *wait_in_vain(int rank, int n_ranks, void *arg) {
    (void)n_ranks;
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, 4, 500);
    COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "for ranks 2, 3");
    COMM_FAILS(tutti_comm_create(&(tutti_comm_desc){.transport = "tcp", .n_ranks = 2}, &comm),
               TUTTI_E_UNSUPPORTED, "no address was given");
    return NULL;
}

T_CASE(missing_ranks_are_named) {
    T_UNUSED;
    choose_address();
    t_ranks(2, wait_in_vain, NULL);
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(1, 2, 200);
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "to reach rank 0");
    desc.token = NULL;
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_UNSUPPORTED, "no token was given");
}

T_CASE(a_taken_port) {
    T_UNUSED;
    tcp_address a;
    tcp_place place;
    tutti_comm *comm;
    int n;
    choose_address();
    T_OK(tti_tcp_parse(address, &a));
    T_OK(tti_tcp_resolve(&a, a.first, &place, 1, &n));
    int fd = tti_tcp_listen(&place);
    assert_true(fd >= 0);
    tutti_comm_desc desc = desc_of(0, 2, 1000);
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_CONFIG, "the port is taken");
    close(fd);
    desc.address = "192.0.2.1:29500"; /* of nobody: RFC 5737 */
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_CONFIG, "no address of this host");
}

static const char *differ_in_token(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, 1000);
    if (rank == 1) desc.token = "another of sixteen";
    tutti_status st = tutti_comm_create(&desc, &comm);
    if (rank == 1)
        COMM_FAILS(st, TUTTI_E_CONFIG, "the token of rank 0 is not that of rank 1");
    else
        COMM_FAILS(st, TUTTI_E_TIMEOUT, "refused, the last from 127.0.0.1");
    return NULL;
}

T_CASE(a_wrong_token) {
    T_UNUSED;
    choose_address();
    t_ranks(2, differ_in_token, NULL);
}

/* The last rank fails outside of a call; the others wait for it in one. */
static const char *hear_of_failure(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, 20000);
    COMM_OK(tutti_comm_create(&desc, &comm));
    COMM_OK(tutti_comm_barrier(comm));
    int64_t start_ns = tti_now_ns();
    if (rank == n_ranks - 1) {
        usleep(50000);
        tti_comm_abort(comm, "the disk is full");
    } else {
        COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "failed: the disk is full");
        COMM_TRUE(tti_now_ns() - start_ns < 5000 * TTI_NS_PER_MS);
    }
    tutti_comm_destroy(comm);
    return NULL;
}

/* The last rank leaves in order, while the others still want something. */
static const char *hear_of_leaving(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, 20000);
    COMM_OK(tutti_comm_create(&desc, &comm));
    COMM_OK(tutti_comm_barrier(comm));
    if (rank != n_ranks - 1) COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "left the group");
    tutti_comm_destroy(comm);
    return NULL;
}

T_CASE(partings) {
    T_UNUSED;
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,b,c", 1), 0);
    choose_address();
    t_ranks(3, hear_of_failure, NULL);
    choose_address();
    t_ranks(2, hear_of_leaving, NULL);
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,a,b", 1), 0);
    choose_address();
    t_ranks(3, hear_of_failure, NULL);
    T_EQ(unsetenv("TUTTI_TEST_HOSTS"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_a_port),          cmocka_unit_test(strangers_hold_nobody_up),
        cmocka_unit_test(missing_ranks_are_named), cmocka_unit_test(a_taken_port),
        cmocka_unit_test(a_wrong_token),           cmocka_unit_test(partings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
