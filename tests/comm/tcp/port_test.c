/* port_test.c - who is found at a port: ranks by their numbers and jobs, the newest call of each;
 * and addresses that go through tables. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/tcp.h"
#include "t.h"

enum { N_RANKS = 3, WAIT_MS = 60000 };

static tti_link_desc desc_of(int rank, const char *token, const char *job) {
    return (tti_link_desc){.rank = rank, .n_ranks = N_RANKS, .token = token, .job = job};
}

/* A port of rank 0, on 127.0.0.1; *place: where it is. */
static tcp_port *open_port(tcp_place *place) {
    tti_link_desc desc = desc_of(0, "a secret", "a job");
    tcp_address any;
    tcp_port *port;
    int n, number;
    T_OK(tti_tcp_parse("127.0.0.1:1", &any));
    T_OK(tti_tcp_resolve(&any, 0, place, 1, &n));
    int listener = tti_tcp_listen_any(place, &number);
    assert_true(listener >= 0);
    tti_tcp_set_port(place, number);
    T_OK(tti_tcp_port_open(&desc, listener, &port));
    return port;
}

/* The connection of a caller that was let in. */
static int call(const tcp_place *place, const tti_link_desc *desc) {
    int64_t deadline_ns = tti_now_ns() + WAIT_MS * TTI_NS_PER_MS;
    tcp_challenge challenge;
    int fd = tti_tcp_connect(place, deadline_ns);
    assert_true(fd >= 0);
    T_OK(tti_tcp_recv_challenge(fd, deadline_ns, &challenge));
    T_OK(tti_tcp_send_hello(desc, fd, 0, 0, &challenge, deadline_ns));
    return fd;
}

/* The caller hears that it was let in before its connection can be taken. */
static int take(tcp_port *port, const tti_link_desc *own, int rank) {
    int64_t deadline_ns = tti_now_ns() + WAIT_MS * TTI_NS_PER_MS;
    int fd = -1;
    while (fd < 0 && tti_now_ns() < deadline_ns) {
        fd = tti_tcp_port_take(port, own, &rank);
        if (fd < 0) tti_sleep_ms(1);
    }
    return fd;
}

static bool is_waiting(tcp_port *port, const tti_link_desc *own, int rank) {
    return tti_tcp_port_take(port, own, &rank) >= 0;
}

/* Whether what is written at one end arrives at the other. */
static void expect_pair(int here, int there) {
    char byte = 7, got = 0;
    T_EQ(write(there, &byte, 1), 1);
    assert_true(tti_tcp_read(here, &got, 1, tti_now_ns() + WAIT_MS * TTI_NS_PER_MS));
    T_EQ(got, 7);
    close(here);
    close(there);
}

T_CASE(by_rank_and_job) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), part = desc_of(0, NULL, "a job/1");
    tti_link_desc one = desc_of(1, "a secret", "a job"), two = desc_of(2, "a secret", "a job");
    tti_link_desc other = desc_of(1, "a secret", "a job/1");
    int fd_two = call(&place, &two), fd_other = call(&place, &other), fd_one = call(&place, &one);
    expect_pair(take(port, &own, 1), fd_one);
    assert_false(is_waiting(port, &own, 1));
    expect_pair(take(port, &part, 1), fd_other);
    expect_pair(take(port, &own, 2), fd_two);
    tti_tcp_port_close(port);
}

/* A rank that got no answer in time has closed its first call. */
T_CASE(the_newest_call) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), one = desc_of(1, "a secret", "a job");
    tti_link_desc two = desc_of(2, "a secret", "a job");
    close(call(&place, &one));
    int again = call(&place, &one), last = call(&place, &two);
    expect_pair(take(port, &own, 2), last); /* then the earlier ones are there too */
    expect_pair(take(port, &own, 1), again);
    assert_false(is_waiting(port, &own, 1));
    tti_tcp_port_close(port);
}

/* A rank that ends answers all that have called it for a link, once each. */
T_CASE(every_caller_of_a_link) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), part = desc_of(0, NULL, "a job/1");
    tti_link_desc one = desc_of(1, "a secret", "a job"), two = desc_of(2, "a secret", "a job");
    tti_link_desc other = desc_of(1, "a secret", "a job/1");
    int fd_two = call(&place, &two), rank = -1;
    close(call(&place, &one));
    int fd_one = call(&place, &one), fd_other = call(&place, &other);
    expect_pair(take(port, &part, 1), fd_other); /* then the earlier ones are there too */
    expect_pair(tti_tcp_port_take(port, &own, &rank), fd_one);
    T_EQ(rank, 1);
    rank = -1;
    expect_pair(tti_tcp_port_take(port, &own, &rank), fd_two);
    T_EQ(rank, 2);
    assert_false(is_waiting(port, &own, -1));
    tti_tcp_port_close(port);
}

/* Ranks that call after a failure hear of it, and those of other links do not. */
T_CASE(callers_of_a_failed_link) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), part = desc_of(0, NULL, "a job/1");
    tti_link_desc one = desc_of(1, "a secret", "a job/1"), other = desc_of(1, "a secret", "a job");
    tcp_state s = {.desc = one};
    char bytes[8];
    tti_message m = {.peer = 0, .in = bytes, .n_bytes = sizeof bytes};
    tti_tcp_port_end(port, &part, TUTTI_E_NUMERICS, "no number");
    int fd = call(&place, &one), fd_other = call(&place, &other);
    expect_pair(take(port, &own, 1), fd_other);
    assert_false(is_waiting(port, &part, 1));
    T_OK(tti_tcp_adopt(&s, 0, fd));
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < WAIT_MS && st == TUTTI_OK; i++) {
        st = tti_tcp_pull(&s, tti_tcp_peer(&s, 0), &m);
        if (st == TUTTI_OK) tti_sleep_ms(1);
    }
    T_EQ(st, TUTTI_E_NUMERICS);
    assert_string_equal(tutti_last_error(), "no number");
    close(fd);
    tti_tcp_drop_bytes(tti_tcp_peer(&s, 0));
    tti_tcp_free_peers(&s);
    tti_tcp_port_close(port);
}

/* Waits until the connection of a caller has ended, in order. */
static void expect_bye(int fd) {
    tcp_state s = {.desc = desc_of(1, NULL, "a job")};
    T_OK(tti_tcp_adopt(&s, 0, fd));
    const tcp_peer *p = tti_tcp_peer(&s, 0);
    for (int i = 0; i < WAIT_MS && !p->gone; i++) {
        T_OK(tti_tcp_check(&s, false));
        tti_sleep_ms(1);
    }
    T_OK(tti_tcp_check(&s, false));
    T_FAILS(tti_tcp_check(&s, true), TUTTI_E_PEER, "rank 0, which left the group");
    close(fd);
    tti_tcp_drop_bytes(tti_tcp_peer(&s, 0));
    tti_tcp_free_peers(&s);
}

/* A rank that leaves in order has not died for a rank whose call it did not take, nor for one that
 * calls later, while another link has the port. */
T_CASE(callers_of_a_rank_that_leaves) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), part = desc_of(0, NULL, "a job/1");
    tti_link_desc one = desc_of(1, "a secret", "a job"), other = desc_of(1, "a secret", "a job/1");
    tcp_state *s;
    T_OK(tti_tcp_new(&own, &s));
    s->port = tti_tcp_port_share(port);
    int early = call(&place, &one), fd_other = call(&place, &other);
    expect_pair(take(port, &part, 1), fd_other); /* then the earlier one is there too */
    tti_tcp_close(s, true);
    expect_bye(early);
    expect_bye(call(&place, &one));
    tti_tcp_port_close(port);
}

T_CASE(strangers) {
    T_UNUSED;
    tcp_place place;
    tcp_port *port = open_port(&place);
    tti_link_desc own = desc_of(0, NULL, "a job"), one = desc_of(1, "another secret", "a job");
    int64_t deadline_ns = tti_now_ns() + WAIT_MS * TTI_NS_PER_MS;
    tcp_challenge challenge;
    int fd = tti_tcp_connect(&place, deadline_ns);
    T_OK(tti_tcp_recv_challenge(fd, deadline_ns, &challenge));
    T_FAILS(tti_tcp_send_hello(&one, fd, 0, 0, &challenge, deadline_ns), TUTTI_E_CONFIG,
            "the token");
    assert_false(is_waiting(port, &own, 1));
    close(fd);
    tti_tcp_port_close(port);
}

T_CASE(addresses_in_tables) {
    T_UNUSED;
    static const char *const texts[] = {"10.1.2.3:4567", "[fe80::1:2]:80"};
    for (size_t i = 0; i < TTI_COUNT(texts); i++) {
        char text[128];
        tcp_address address;
        tcp_place place, back;
        tcp_spot spot;
        int n;
        T_OK(tti_tcp_parse(texts[i], &address));
        if (tti_tcp_resolve(&address, address.first, &place, 1, &n) != TUTTI_OK) continue;
        tti_tcp_spot_of(&place, &spot);
        T_OK(tti_tcp_place_of_spot(&spot, &back));
        assert_string_equal(tti_tcp_place_text(&back, text, sizeof text), texts[i]);
    }
    tcp_place place = {.at.ss_family = AF_UNIX, .n_bytes = sizeof place.at.ss_family};
    tcp_spot spot = {.family = AF_UNIX};
    int number, listener = tti_tcp_listen_any(&place, &number);
    assert_true(listener >= 0);
    spot.port = (uint32_t)number;
    T_OK(tti_tcp_place_of_spot(&spot, &place));
    int fd = tti_tcp_connect(&place, tti_now_ns() + WAIT_MS * TTI_NS_PER_MS);
    assert_true(fd >= 0);
    close(fd);
    close(listener);
    spot.family = 77;
    T_FAILS(tti_tcp_place_of_spot(&spot, &place), TUTTI_E_MISMATCH, "a damaged address");
}

/* Ranks of two hosts, one after the other; and of hosts that alternate, which stay as they are. */
T_CASE(folded_addresses) {
    T_UNUSED;
    enum { N = 10 };
    for (int each = 5; each >= 1; each -= 4) {
        tcp_spot given[N];
        tcp_place place = {.at.ss_family = AF_UNIX, .n_bytes = sizeof place.at.ss_family};
        tti_link_desc desc = {.n_ranks = N};
        tcp_port *port;
        int number, listener = tti_tcp_listen_any(&place, &number);
        assert_true(listener >= 0);
        T_OK(tti_tcp_port_open(&desc, listener, &port));
        for (int r = 0; r < N; r++) {
            given[r] = (tcp_spot){.family = AF_INET, .port = (uint32_t)(100 + r)};
            given[r].address[3] = (unsigned char)(1 + r / each % 2);
            tti_tcp_port_spots(port)[r] = given[r];
        }
        tti_tcp_port_fold_spots(port);
        for (int r = 0; r < N; r++) {
            tcp_spot spot = tti_tcp_port_spot(port, r);
            assert_memory_equal(&spot, &given[r], sizeof spot);
        }
        tti_tcp_port_close(port);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_rank_and_job),
        cmocka_unit_test(the_newest_call),
        cmocka_unit_test(every_caller_of_a_link),
        cmocka_unit_test(callers_of_a_failed_link),
        cmocka_unit_test(callers_of_a_rank_that_leaves),
        cmocka_unit_test(strangers),
        cmocka_unit_test(addresses_in_tables),
        cmocka_unit_test(folded_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
