/* peer_list_test.c - the peers of a link: in the order of their ranks, however they come, and only
 * those that were added. */
#include "comm/tcp/tcp.h"
#include "t.h"

enum { N_RANKS = 65536, N_PEERS = 40 };

T_CASE(peers_are_in_the_order_of_their_ranks) {
    T_UNUSED;
    tcp_state s = {.desc = {.n_ranks = N_RANKS}};
    assert_null(tti_tcp_peer(&s, 0));
    T_EQ(tti_tcp_fd(&s, N_RANKS - 1), -1);
    for (int i = 0; i < N_PEERS; i++) {
        int rank = i * 7919 % N_RANKS;
        tcp_peer *p = tti_tcp_add_peer(&s, rank);
        assert_non_null(p);
        T_EQ(p->rank, rank);
        T_EQ(p->fd, -1);
        p->fd = i;
        assert_ptr_equal(tti_tcp_add_peer(&s, rank), p);
    }
    T_EQ(s.n_peers, N_PEERS);
    for (int i = 1; i < N_PEERS; i++) assert_true(s.peers[i - 1]->rank < s.peers[i]->rank);
    for (int i = 0; i < N_PEERS; i++) T_EQ(tti_tcp_fd(&s, i * 7919 % N_RANKS), i);
    assert_null(tti_tcp_peer(&s, 1));
    assert_null(tti_tcp_peer(&s, N_RANKS - 1));
    tti_tcp_free_peers(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(peers_are_in_the_order_of_their_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
