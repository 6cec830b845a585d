/* connect_test.c - ranks that connect at an address: strangers that connect, missing ranks, taken
 * ports, and what a rank hears of one that leaves, fails or dies. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/ranks.h"
#include "comm/tcp/tcp.h"

enum { TOKEN_RANKS = 3, LIMIT_MS = 20000, LONG_MS = 60000, MOST_TRIES = 20 };

static char address[64];
static const char *token = "sixteen and more";

/* An address like this one with a port that was free a moment ago; false: there is none here. */
static bool choose_address_like(const char *text) {
    tcp_address any;
    tcp_place place;
    int n;
    T_OK(tti_tcp_parse(text, &any));
    T_OK(tti_tcp_resolve(&any, 0, &place, 1, &n));
    int fd = tti_tcp_listen(&place);
    if (fd < 0) return false;
    place.n_bytes = sizeof place.at;
    T_EQ(getsockname(fd, (struct sockaddr *)&place.at, &place.n_bytes), 0);
    tti_tcp_place_text(&place, address, sizeof address);
    close(fd);
    return true;
}

static void choose_address(void) { assert_true(choose_address_like("127.0.0.1:1")); }

static tutti_comm_desc desc_of(int rank, int n_ranks, int timeout_ms) {
    return (tutti_comm_desc){.transport = "tcp",
                             .rank = rank,
                             .n_ranks = n_ranks,
                             .timeout_ms = timeout_ms,
                             .address = address,
                             .token = token,
                             .job = "a job"};
}

/* The connection alone, with little patience beside its timeout. */
static tutti_status connect_hastily(const tutti_comm_desc *d) {
    tcp_state *s;
    TTI_TRY(tti_tcp_new(&(tti_link_desc){.rank = d->rank,
                                         .n_ranks = d->n_ranks,
                                         .timeout_ms = d->timeout_ms,
                                         .address = d->address,
                                         .token = d->token,
                                         .job = d->job},
                        &s));
    s->resolve_ms = s->slack_ms = 50;
    tutti_status st = tti_tcp_connect_ranks(s);
    tti_tcp_close(s, false);
    return st;
}

static const char *connect_and_add(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    float one = 1;
    tutti_comm_desc desc = desc_of(rank, n_ranks, LIMIT_MS);
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
        t_ranks(n, connect_and_add, NULL);
    }
    if (choose_address_like("[::1]:1")) t_ranks(3, connect_and_add, NULL);
}

/* Raised by a rank or a stranger when it has done what the others wait for. */
static _Atomic int n_done;

static bool await_done(int n) {
    int64_t deadline_ns = tti_now_ns() + LONG_MS * TTI_NS_PER_MS;
    while (n_done < n && tti_now_ns() < deadline_ns) usleep(1000);
    return n_done >= n;
}

/* Connects and says nothing, or nonsense, until rank 0 has connected. */
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
        n_done++;
    }
    while (!*stop) usleep(1000);
    for (int i = 0; i < n_fds; i++) close(fds[i]);
    return NULL;
}

static const char *come_late(int rank, int n_ranks, void *arg) {
    if (rank != 0) COMM_TRUE(await_done(40));
    return connect_and_add(rank, n_ranks, arg);
}

/* One after the other, each heard for 3 s, they would take longer than the ranks' limit. */
T_CASE(strangers_hold_nobody_up) {
    T_UNUSED;
    _Atomic int stop = 0;
    pthread_t thread;
    n_done = 0;
    choose_address();
    T_EQ(pthread_create(&thread, NULL, be_strange, (void *)&stop), 0);
    t_ranks(TOKEN_RANKS, come_late, NULL);
    stop = 1;
    pthread_join(thread, NULL);
}

/* Ranks 0 and 1 of 4: rank 0 reports the missing ranks to both. */
static const char *wait_in_vain(int rank, int n_ranks, void *arg) {
    (void)n_ranks;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, 4, *(const int *)arg);
    COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "for ranks 2, 3");
    COMM_FAILS(tutti_comm_create(&(tutti_comm_desc){.transport = "tcp", .n_ranks = 2}, &comm),
               TUTTI_E_UNSUPPORTED, "no address was given");
    return NULL;
}

T_CASE(missing_ranks_are_named) {
    T_UNUSED;
    choose_address();
    t_ranks_in_vain(2, wait_in_vain);
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(1, 2, 200);
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "to reach rank 0");
    desc.token = NULL;
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_UNSUPPORTED, "no token was given");
    desc.token = "";
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_UNSUPPORTED, "no token was given");
    desc = desc_of(1, 2, 300);
    desc.address = "no-such-host.invalid:5"; /* it may come to be one */
    T_FAILS(connect_hastily(&desc), TUTTI_E_TIMEOUT, "no host 'no-such-host.invalid'");
    desc.rank = 0;
    T_FAILS(connect_hastily(&desc), TUTTI_E_CONFIG, "cannot listen at no-such-host.inv");
}

/* As many as are heard, and none says a word; their places go to a caller that speaks.  arg: the
 * milliseconds until it has connected. */
static const char *wait_behind_the_silent(int rank, int n_ranks, void *arg) {
    enum { N_SILENT = 64 };
    tcp_address a;
    tcp_place place;
    int fds[N_SILENT], n;
    if (rank == 0) return connect_and_add(rank, n_ranks, NULL);
    COMM_OK(tti_tcp_parse(address, &a));
    COMM_OK(tti_tcp_resolve(&a, a.first, &place, 1, &n));
    for (int i = 0; i < N_SILENT;) {
        fds[i] = tti_tcp_connect(&place, tti_now_ns() + 1000 * TTI_NS_PER_MS);
        i += fds[i] >= 0;
    }
    for (int i = 0; i < N_SILENT; i++) { /* until rank 0 has let each speak */
        struct pollfd one = {.fd = fds[i], .events = POLLIN};
        COMM_TRUE(poll(&one, 1, LONG_MS) == 1);
    }
    int64_t start_ns = tti_now_ns();
    const char *failure = connect_and_add(rank, n_ranks, NULL);
    *(int64_t *)arg = (tti_now_ns() - start_ns) / TTI_NS_PER_MS;
    for (int i = 0; i < N_SILENT; i++) close(fds[i]);
    return failure;
}

/* Before the 3 s are over for which a silent caller is heard; on a busy machine not every time. */
T_CASE(the_silent_give_way) {
    T_UNUSED;
    int64_t took_ms = INT64_MAX;
    for (int i = 0; i < MOST_TRIES && took_ms >= 2000; i++) {
        choose_address();
        t_ranks(2, wait_behind_the_silent, &took_ms);
    }
    assert_true(took_ms < 2000);
}

/* Rank 0 lets this one in as rank; returns the connection, -1: refused. */
static int be_let_in(int rank, int n_ranks) {
    tutti_comm_desc d = desc_of(rank, n_ranks, 1000);
    tti_link_desc desc = {.rank = rank, .n_ranks = n_ranks, .token = d.token, .job = d.job};
    int64_t deadline_ns = tti_now_ns() + LONG_MS * TTI_NS_PER_MS;
    tcp_address a;
    tcp_place place;
    tcp_challenge challenge;
    tcp_hello hello;
    tcp_answer answer;
    int n, fd = -1;
    if (tti_tcp_parse(address, &a) || tti_tcp_resolve(&a, a.first, &place, 1, &n)) return -1;
    while (fd < 0 && tti_now_ns() < deadline_ns) fd = tti_tcp_connect(&place, deadline_ns);
    if (fd < 0 || !tti_tcp_read(fd, &challenge, sizeof challenge, deadline_ns)) return -1;
    tti_tcp_hello(&desc, 0, 1, &challenge, &hello); /* port 1 has no listener */
    if (!tti_tcp_write(fd, &hello, sizeof hello, deadline_ns)) return -1;
    if (!tti_tcp_read(fd, &answer, sizeof answer, deadline_ns)) return -1;
    return tti_tcp_check_answer(&desc, &hello, &answer) == TUTTI_OK ? fd : -1;
}

static const char *come_twice(int rank, int n_ranks, void *arg) {
    if (rank == 1) {
        int fd = be_let_in(rank, n_ranks);
        COMM_TRUE(fd >= 0);
        close(fd);
        n_done = 1;
    } else if (rank == 2) {
        COMM_TRUE(await_done(1));
    }
    return connect_and_add(rank, n_ranks, arg);
}

T_CASE(a_rank_that_is_restarted_while_the_others_come) {
    T_UNUSED;
    n_done = 0;
    choose_address();
    t_ranks(3, come_twice, NULL);
}

/* Rank 1 dies after all ranks have connected to rank 0, before rank 2 connects to it. */
static const char *connect_to_a_dead_one(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, LIMIT_MS);
    int64_t start_ns = tti_now_ns();
    char byte;
    if (rank == 1) {
        int fd = be_let_in(rank, n_ranks);
        COMM_TRUE(fd >= 0 && tti_tcp_read(fd, &byte, 1, start_ns + LONG_MS * TTI_NS_PER_MS));
        close(fd);
        return NULL;
    }
    COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_PEER, "died");
    COMM_TRUE(strstr(tutti_last_error(), "rank 1"));
    COMM_TRUE(tti_now_ns() - start_ns < LIMIT_MS * TTI_NS_PER_MS);
    return NULL;
}

T_CASE(a_rank_that_dies_while_the_others_connect) {
    T_UNUSED;
    choose_address();
    t_ranks(3, connect_to_a_dead_one, NULL);
}

/* Rank 0 lets rank 1 in and says nothing more. */
static const char *be_let_in_and_forgotten(int rank, int n_ranks, void *arg) {
    tutti_comm_desc d = desc_of(rank, n_ranks, *(const int *)arg);
    if (rank == 1) {
        COMM_FAILS(connect_hastily(&d), TUTTI_E_TIMEOUT, "let rank 1 in, but did not report");
        return NULL;
    }
    tti_link_desc desc = {.n_ranks = n_ranks, .token = d.token, .job = d.job};
    bool wanted[2] = {false, true};
    int fds[2] = {-1, -1}, n;
    tcp_address a;
    tcp_place places[2];
    COMM_OK(tti_tcp_parse(address, &a));
    COMM_OK(tti_tcp_resolve(&a, a.first, places, 1, &n));
    int listener = tti_tcp_listen(&places[0]);
    int64_t deadline_ns = tti_now_ns() + LONG_MS * TTI_NS_PER_MS;
    COMM_OK(tti_tcp_admit(&desc, listener, wanted, fds, places, "here", deadline_ns));
    while (!tti_tcp_hung_up(fds[1]) && tti_now_ns() < deadline_ns) usleep(1000);
    close(fds[1]);
    close(listener);
    return NULL;
}

T_CASE(a_rank_0_that_falls_silent) {
    T_UNUSED;
    choose_address();
    t_ranks_in_vain(2, be_let_in_and_forgotten);
}

/* Waits until the address has a listener. */
static void await_listener(void) {
    int64_t deadline_ns = tti_now_ns() + LONG_MS * TTI_NS_PER_MS;
    tcp_address a;
    tcp_place place;
    int n, fd = -1;
    if (tti_tcp_parse(address, &a) || tti_tcp_resolve(&a, a.first, &place, 1, &n)) return;
    while (fd < 0 && tti_now_ns() < deadline_ns) {
        fd = tti_tcp_connect(&place, deadline_ns);
        if (fd < 0) usleep(1000);
    }
    if (fd >= 0) close(fd);
}

/* The first port of the range belongs to another job, of people with another token, who are there
 * before the others. */
static const char *share_a_range(int index, int n, void *arg) {
    (void)n;
    tutti_comm *comm;
    char range[80];
    int first = atoi(strrchr(address, ':') + 1);
    tutti_comm_desc desc = desc_of(index ? index - 1 : 0, 2, index ? LIMIT_MS : *(const int *)arg);
    if (index == 0) {
        desc.token = "another of sixteen";
        COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "its token is not");
        return NULL;
    }
    await_listener();
    snprintf(range, sizeof range, "127.0.0.1:%d-%d", first, TTI_MIN(first + 9, 65535));
    desc.address = range;
    COMM_OK(tutti_comm_create(&desc, &comm));
    tutti_comm_destroy(comm);
    return NULL;
}

T_CASE(a_port_of_others_in_the_range) {
    T_UNUSED;
    choose_address();
    t_ranks_in_vain(3, share_a_range);
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
    desc.address = "192.0.2.1:29500"; /* reserved by RFC 5737 */
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_CONFIG, "not an address of this host");
}

static const char *differ_in_token(int rank, int n_ranks, void *arg) {
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, *(const int *)arg);
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
    t_ranks_in_vain(2, differ_in_token);
}

/* The last rank fails outside of a call; the others wait for it in one. */
static const char *hear_of_failure(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, LIMIT_MS);
    COMM_OK(tutti_comm_create(&desc, &comm));
    COMM_OK(tutti_comm_barrier(comm));
    if (rank == n_ranks - 1) {
        COMM_TRUE(await_done(n_ranks - 1));
        tti_comm_abort(comm, "the disk is full");
    } else {
        n_done++;
        COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "failed: the disk is full");
    }
    tutti_comm_destroy(comm);
    return NULL;
}

/* The last rank leaves in order, while the others still want something. */
static const char *hear_of_leaving(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, LIMIT_MS);
    COMM_OK(tutti_comm_create(&desc, &comm));
    COMM_OK(tutti_comm_barrier(comm));
    if (rank != n_ranks - 1) COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "left the group");
    tutti_comm_destroy(comm);
    return NULL;
}

T_CASE(partings) {
    T_UNUSED;
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,b,c", 1), 0);
    n_done = 0;
    choose_address();
    t_ranks(3, hear_of_failure, NULL);
    choose_address();
    t_ranks(2, hear_of_leaving, NULL);
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,a,b", 1), 0);
    n_done = 0;
    choose_address();
    t_ranks(3, hear_of_failure, NULL);
    T_EQ(unsetenv("TUTTI_TEST_HOSTS"), 0);
}

/* Rank 1 has died with unread messages, which are never read.  Returns the milliseconds that the
 * end of rank 0 took. */
static int64_t close_beside_a_dead_one(void) {
    tcp_state *s;
    tcp_address a;
    tcp_place place;
    static char many[1 << 20];
    int n;
    choose_address();
    T_OK(tti_tcp_parse(address, &a));
    T_OK(tti_tcp_resolve(&a, a.first, &place, 1, &n));
    int listener = tti_tcp_listen(&place);
    T_OK(tti_tcp_new(&(tti_link_desc){.n_ranks = 2}, &s));
    int fd = tti_tcp_connect(&place, tti_now_ns() + LONG_MS * TTI_NS_PER_MS);
    int peer = accept(listener, NULL, NULL);
    assert_true(fd >= 0 && peer >= 0);
    T_OK(tti_tcp_adopt(s, 1, fd));
    while (send(fd, many, sizeof many, MSG_NOSIGNAL) > 0) continue; /* till it is full */
    close(peer);
    int64_t start_ns = tti_now_ns();
    tti_tcp_close(s, false);
    int64_t took_ms = (tti_now_ns() - start_ns) / TTI_NS_PER_MS;
    close(listener);
    return took_ms;
}

/* A live one is waited for 1 s; on a busy machine anything may take that long, but not always. */
T_CASE(the_dead_are_not_waited_for) {
    T_UNUSED;
    int64_t took_ms = INT64_MAX;
    for (int i = 0; i < MOST_TRIES && took_ms >= 500; i++) took_ms = close_beside_a_dead_one();
    assert_true(took_ms < 500);
}

static void *close_soon(void *arg) {
    usleep(20000);
    close(*(int *)arg);
    return NULL;
}

/* Rank 0 of 3 waits for both others, or rank 1 calls a rank 0 that is not there. */
T_CASE(a_group_that_ends_while_its_ranks_connect) {
    T_UNUSED;
    for (int rank = 0; rank < 2; rank++) {
        pthread_t closer;
        int ends[2];
        tutti_comm *comm;
        choose_address();
        assert_int_equal(pipe(ends), 0);
        tutti_comm_desc desc = desc_of(rank, 3, LONG_MS);
        desc.stop_fd = &ends[0];
        assert_int_equal(pthread_create(&closer, NULL, close_soon, &ends[1]), 0);
        assert_int_equal(tutti_comm_create(&desc, &comm), TUTTI_E_PEER);
        assert_non_null(
            strstr(tutti_last_error(), "stops waiting for the other ranks: the group has ended"));
        pthread_join(closer, NULL);
        close(ends[0]);
    }
}

/* ---- another user on the same machine ---- */

enum { OTHER_USER = 65534 };

typedef struct squatter {
    pid_t pid;
    int stop; /* closing it ends the process */
} squatter;

/* Takes the first n names of ranks 0, 1 and 2 that can be guessed, in two ways: listening, and only
 * bound. */
static void take_names(int n) {
    tcp_address a;
    tcp_place places[TCP_UNIX_PLACES];
    if (setuid(OTHER_USER) != 0 || tti_tcp_parse(address, &a) != TUTTI_OK) _exit(1);
    for (int rank = 0; rank < 3; rank++) {
        tti_tcp_unix_places(&a, NULL, rank, places);
        for (int i = 0; i < n; i++) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            if (bind(fd, (const struct sockaddr *)&places[i].at, places[i].n_bytes) != 0) _exit(2);
            if (i % 2 == 0 && listen(fd, 8) != 0) _exit(3);
        }
    }
}

static squatter start_squatter(int n_names) {
    int ready[2], stop[2];
    char byte = 0;
    T_EQ(pipe(ready), 0);
    T_EQ(pipe(stop), 0);
    squatter s = {.pid = fork(), .stop = stop[1]};
    if (s.pid == 0) {
        close(stop[1]);
        take_names(n_names);
        if (write(ready[1], &byte, 1) != 1) _exit(4);
        _exit(read(stop[0], &byte, 1) == 0 ? 0 : 5);
    }
    close(ready[1]);
    close(stop[0]);
    T_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return s;
}

static void end_squatter(squatter s) {
    int status;
    close(s.stop);
    T_EQ(waitpid(s.pid, &status, 0), s.pid);
    T_EQ(status, 0);
}

static const char *expect_taken(int rank, int n_ranks, void *arg) {
    (void)arg;
    tutti_comm *comm;
    tutti_comm_desc desc = desc_of(rank, n_ranks, 300);
    if (rank == 0) {
        COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_CONFIG, "set TUTTI_TOKEN");
    } else {
        COMM_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "listens there");
    }
    return NULL;
}

static void connect_with_squatter(const char *with_token, int n_taken,
                                  const char *(*fn)(int, int, void *)) {
    snprintf(address, sizeof address, "unix:tutti-connect-%d", getpid());
    squatter s = start_squatter(n_taken);
    token = with_token;
    t_ranks(3, fn, NULL);
    token = "sixteen and more";
    end_squatter(s);
}

/* With a token no name can be taken beforehand; without one the ranks go on to the next. */
T_CASE(names_taken_by_another_user) {
    T_UNUSED;
    if (geteuid() != 0) skip();
    connect_with_squatter("sixteen and more", TCP_UNIX_PLACES, connect_and_add);
    connect_with_squatter(NULL, TCP_UNIX_PLACES - 1, connect_and_add);
    connect_with_squatter(NULL, TCP_UNIX_PLACES, expect_taken);
}

/* A job of the same user at the same name is no stranger: the second one is refused. */
T_CASE(a_name_taken_by_this_user) {
    T_UNUSED;
    tcp_address a;
    tcp_place places[TCP_UNIX_PLACES];
    snprintf(address, sizeof address, "unix:tutti-connect-%d", getpid());
    T_OK(tti_tcp_parse(address, &a));
    tti_tcp_unix_places(&a, token, 0, places);
    int fd = tti_tcp_listen_unix(places);
    assert_true(fd >= 0);
    tutti_comm_desc desc = desc_of(0, 2, 300);
    T_FAILS(connect_hastily(&desc), TUTTI_E_CONFIG, "another job of this name");
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_a_port),
        cmocka_unit_test(strangers_hold_nobody_up),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(the_silent_give_way),
        cmocka_unit_test(a_rank_that_is_restarted_while_the_others_come),
        cmocka_unit_test(a_rank_that_dies_while_the_others_connect),
        cmocka_unit_test(a_rank_0_that_falls_silent),
        cmocka_unit_test(a_port_of_others_in_the_range),
        cmocka_unit_test(a_taken_port),
        cmocka_unit_test(a_wrong_token),
        cmocka_unit_test(partings),
        cmocka_unit_test(the_dead_are_not_waited_for),
        cmocka_unit_test(a_group_that_ends_while_its_ranks_connect),
        cmocka_unit_test(names_taken_by_another_user),
        cmocka_unit_test(a_name_taken_by_this_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
