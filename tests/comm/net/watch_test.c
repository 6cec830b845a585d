/* watch_test.c - a rank that died before anybody watched it is noticed all the same; one that a
 * signal has stopped is, and one that goes on again is not. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net/net.h"
#include "t.h"

/* Rank 0 is this process, rank 1 a child. */
typedef struct pair {
    net_hello peers[2];
    net_state s;
} pair;

static void begin(pair *p, pid_t child) {
    *p = (pair){.peers = {{.pid = (int32_t)getpid()}, {.pid = (int32_t)child, .host = "here"}},
                .s = {.n_ranks = 2,
                      .n_local = 2,
                      .index_of = {0, 1},
                      .rank_of = {0, 1},
                      .shown = {0, 1},
                      .stop_fd = -1,
                      .lost = -1}};
    p->s.peers = p->peers;
    T_OK(tutti_comm_group_create(2, &p->s.group));
    T_OK(tti_net_watch(&p->s));
}

/* Until the loss is noticed, or ms later. */
static void wait_for_loss(const pair *p, int ms) {
    int64_t deadline_ns = tti_now_ns() + ms * TTI_NS_PER_MS;
    while (tti_net_check_lost(&p->s) == TUTTI_OK && tti_now_ns() < deadline_ns) usleep(1000);
}

static void end(pair *p) {
    tti_net_unwatch(&p->s);
    tutti_comm_group_destroy(p->s.group);
}

T_CASE(a_rank_that_was_gone_before) {
    T_UNUSED;
    pair p;
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    T_EQ(waitpid(pid, NULL, 0), pid);
    begin(&p, pid);
    wait_for_loss(&p, 5000);
    T_FAILS(tti_net_check_lost(&p.s), TUTTI_E_PEER, "on here) died");
    end(&p);
}

T_CASE(a_rank_that_is_stopped) {
    T_UNUSED;
    pair p;
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    begin(&p, pid);
    kill(pid, SIGSTOP);
    wait_for_loss(&p, 200); /* such as a batch system makes while it suspends a job */
    kill(pid, SIGCONT);
    wait_for_loss(&p, 700);
    T_OK(tti_net_check_lost(&p.s));
    kill(pid, SIGSTOP);
    wait_for_loss(&p, 10000);
    T_FAILS(tti_net_check_lost(&p.s), TUTTI_E_PEER, "on here) was stopped by a signal");
    end(&p);
    kill(pid, SIGKILL);
    T_EQ(waitpid(pid, NULL, 0), pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_that_was_gone_before),
                                       cmocka_unit_test(a_rank_that_is_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
