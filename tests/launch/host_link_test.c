/* host_link_test.c - messages and tables of any number of hosts between two supervisors, one of
 * which may not read for a while. */
#include "launch/host_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "t.h"

enum { N = 5000 };

static void connect_links(tti_host_link links[2]) {
    int ends[2];
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        tti_host_link_begin(&links[i], ends[i]);
        links[i].is_open = true;
    }
}

/* Sends what waits, until a message is there. */
static void receive(tti_host_link *from, tti_host_link *to, int n_hosts) {
    int got;
    while ((got = tti_host_link_receive(to, n_hosts)) == 0) assert_true(tti_host_link_flush(from));
    T_EQ(got, 1);
}

static void tables_of_many_hosts_arrive_in_parts(void **state) {
    (void)state;
    tti_host_link links[2];
    tti_host_table table, other;
    connect_links(links);
    assert_true(tti_host_table_init(&table, N));
    assert_true(tti_host_table_init(&other, N));
    for (int i = 0; i < N; i++) {
        table.members[i] = i % 4000;
        table.targets[i] = 4096 - i % 4000;
        snprintf(table.peers[i], sizeof table.peers[i], "10.0.0.1:%d", i);
    }
    tti_host_message epoch = {.kind = TTI_HOST_EPOCH, .n_ranks = 1 << 20};
    assert_true(tti_host_link_send(&links[0], 3, &epoch, &table));
    assert_true(links[0].n_out > 0); /* the kernel does not take all of it */
    receive(&links[0], &links[1], N);
    T_EQ(links[1].in.kind, TTI_HOST_EPOCH);
    T_EQ(links[1].in.node, 3);
    T_EQ(links[1].in.n_ranks, 1 << 20);
    assert_true(links[1].in.has_table);
    tti_host_link_take_table(&links[1], &other);
    assert_memory_equal(other.members, table.members, N * sizeof *table.members);
    assert_memory_equal(other.targets, table.targets, N * sizeof *table.targets);
    assert_memory_equal(other.peers, table.peers, N * sizeof *table.peers);
    tti_host_message pulse = {.kind = TTI_HOST_PULSE};
    assert_true(tti_host_link_send(&links[0], 3, &pulse, &table));
    receive(&links[0], &links[1], N);
    assert_false(links[1].in.has_table); /* it is the same */
    table.members[N - 1] = 7;
    table.serial++;
    tti_host_message status = {.kind = TTI_HOST_STATUS, .n_members = 4096};
    assert_true(tti_host_link_send(&links[0], 3, &status, &table));
    receive(&links[0], &links[1], N);
    assert_true(links[1].in.has_table);
    tti_host_link_take_table(&links[1], &other);
    T_EQ(other.members[N - 1], 7);
    for (int i = 0; i < 2; i++) tti_host_link_close(&links[i]);
    tti_host_table_fini(&table);
    tti_host_table_fini(&other);
}

static void a_connection_that_takes_no_more_is_lost(void **state) {
    (void)state;
    tti_host_link links[2];
    int n = 0;
    connect_links(links);
    tti_host_message m = {.kind = TTI_HOST_PULSE};
    while (n < 1 << 20 && tti_host_link_send(&links[0], 0, &m, NULL)) n++;
    assert_true(n > 64 && n < 1 << 20);
    for (int i = 0; i < 2; i++) tti_host_link_close(&links[i]);
}

static void senseless_messages_are_refused(void **state) {
    (void)state;
    tti_host_table table;
    assert_true(tti_host_table_init(&table, 2));
    for (int i = 0; i < 5; i++) {
        tti_host_link links[2];
        connect_links(links);
        tti_host_message m = {.kind = i == 1 ? TTI_HOST_HELLO : TTI_HOST_STATUS};
        table.members[0] = i == 0 ? -1 : 2;
        table.members[1] = i == 2 ? 1 << 20 : 2;
        links[1].is_open = i != 3; /* a table before the other side has proved who it is */
        if (i == 4) m.first_rank = -1;
        table.serial++;
        assert_true(tti_host_link_send(&links[0], 0, &m, &table));
        if (i == 1) { /* has no table, whatever it says */
            T_EQ(tti_host_link_receive(&links[1], 2), 1);
            m.has_table = 1;
            T_EQ(send(links[0].fd, &m, sizeof m, 0), sizeof m);
        }
        T_EQ(tti_host_link_receive(&links[1], 2), -1);
        for (int k = 0; k < 2; k++) tti_host_link_close(&links[k]);
    }
    tti_host_table_fini(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_of_many_hosts_arrive_in_parts),
        cmocka_unit_test(a_connection_that_takes_no_more_is_lost),
        cmocka_unit_test(senseless_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
