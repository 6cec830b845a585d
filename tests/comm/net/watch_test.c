/* watch_test.c - a rank that died before anybody watched it is noticed all the same. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net/net.h"
#include "t.h"

T_CASE(a_rank_that_was_gone_before) {
    T_UNUSED;
    net_hello peers[2] = {{.pid = (int32_t)getpid()}, {.host = "here"}};
    net_state s = {.n_ranks = 2,
                   .n_local = 2,
                   .rank_of = {0, 1},
                   .shown = {0, 1},
                   .peers = peers,
                   .stop_fd = -1,
                   .dead = -1};
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    T_EQ(waitpid(pid, NULL, 0), pid);
    peers[1].pid = (int32_t)pid;
    T_OK(tutti_comm_group_create(2, &s.group));
    T_OK(tti_net_watch(&s));
    int64_t deadline_ns = tti_now_ns() + 5000 * TTI_NS_PER_MS;
    while (tti_net_check_dead(&s) == TUTTI_OK && tti_now_ns() < deadline_ns) usleep(1000);
    T_FAILS(tti_net_check_dead(&s), TUTTI_E_PEER, "rank 1 (pid");
    tti_net_unwatch(&s);
    tutti_comm_group_destroy(s.group);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_that_was_gone_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
