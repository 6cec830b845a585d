/* watch_test.c - a rank that died before anybody watched it is noticed all the same; one that a
 * signal has stopped is, and is killed when it stays so; one that goes on again, or has left, is
 * let alone. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net/net.h"
#include "comm/shm/shm.h"
#include "t.h"

enum { N_CHILDREN = 2, PAUSE_MS = 200, LONG_MS = 60000 };

static int numbers[1 + N_CHILDREN] = {0, 1, 2};

/* Rank 0 is this process, the others are children. */
typedef struct family {
    net_peer peers[1 + N_CHILDREN];
    pid_t pids[1 + N_CHILDREN];
    net_state s;
} family;

static pid_t start_child(void) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    return pid;
}

static void begin(family *f, int n_ranks) {
    static char here[] = "here";
    static char *names[] = {here};
    *f = (family){.s = {.n_ranks = n_ranks,
                        .n_local = n_ranks,
                        .index_of = numbers,
                        .rank_of = numbers,
                        .global_ranks = numbers,
                        .host_names = names,
                        .n_host_names = 1,
                        .stop_fd = -1,
                        .lost = -1}};
    f->s.peers = f->peers;
    f->peers[0].pid = (int32_t)getpid();
    for (int r = 1; r < n_ranks; r++) {
        f->pids[r] = start_child();
        f->peers[r] = (net_peer){.pid = (int32_t)f->pids[r], .host = 0};
    }
    T_OK(tutti_comm_group_create(n_ranks, &f->s.group));
}

/* Until the loss is noticed, or ms later. */
static void wait_for_loss(const family *f, int ms) {
    int64_t deadline_ns = tti_now_ns() + ms * TTI_NS_PER_MS;
    while (tti_net_check_lost(&f->s) == TUTTI_OK && tti_now_ns() < deadline_ns) usleep(1000);
}

/* Until the child has ended, at most ms: by which signal; 0: it has not.  The clock goes at about
 * twice its pace, so that this takes half the time; faster, and each look would come late.  After a
 * pause of this process the watcher starts again to count, and so does this. */
static int wait_for_end(family *f, int rank, int ms) {
    int64_t last_ns = tti_now_ns(), deadline_ns = last_ns + ms * TTI_NS_PER_MS;
    int how = 0;
    while (waitpid(f->pids[rank], &how, WNOHANG) == 0) {
        int64_t now_ns = tti_now_ns();
        if (now_ns - last_ns > PAUSE_MS * TTI_NS_PER_MS) deadline_ns = now_ns + ms * TTI_NS_PER_MS;
        last_ns = now_ns;
        if (now_ns >= deadline_ns) return 0;
        usleep(1000);
        tti_clock_advance_ms(1);
    }
    f->pids[rank] = 0;
    return WTERMSIG(how);
}

static void end(family *f) {
    tti_net_unwatch(&f->s);
    tutti_comm_group_destroy(f->s.group);
    for (int r = 1; r < f->s.n_ranks; r++) {
        if (!f->pids[r]) continue;
        kill(f->pids[r], SIGKILL);
        T_EQ(waitpid(f->pids[r], NULL, 0), f->pids[r]);
    }
}

T_CASE(a_rank_that_was_gone_before) {
    T_UNUSED;
    family f;
    begin(&f, 2);
    kill(f.pids[1], SIGKILL);
    T_EQ(wait_for_end(&f, 1, LONG_MS), SIGKILL);
    T_OK(tti_net_watch(&f.s));
    wait_for_loss(&f, LONG_MS);
    T_FAILS(tti_net_check_lost(&f.s), TUTTI_E_PEER, "on here) died");
    end(&f);
}

/* Such as a batch system makes while it suspends a job; the milliseconds that it took. */
static int64_t stop_for_a_moment(family *f, int rank) {
    int64_t start_ns = tti_now_ns();
    kill(f->pids[rank], SIGSTOP);
    wait_for_loss(f, 200);
    kill(f->pids[rank], SIGCONT);
    return (tti_now_ns() - start_ns) / TTI_NS_PER_MS;
}

T_CASE(a_rank_that_goes_on_again) {
    T_UNUSED;
    for (bool was_short = false; !was_short;) { /* it may not be where much else is to do */
        family f;
        begin(&f, 2);
        T_OK(tti_net_watch(&f.s));
        was_short = stop_for_a_moment(&f, 1) < 450;
        wait_for_loss(&f, 700); /* a rank that stays stopped is lost after 500 */
        if (was_short) T_OK(tti_net_check_lost(&f.s));
        if (was_short) T_EQ(wait_for_end(&f, 1, 0), 0);
        end(&f);
    }
}

/* Other hosts know that the rank is stopped, so it is killed soon; the next case is of a stop that
 * no host reported. */
T_CASE(a_rank_that_is_stopped) {
    T_UNUSED;
    family f;
    begin(&f, 2);
    atomic_store(&f.s.has_reported, true);
    T_OK(tti_net_watch(&f.s));
    kill(f.pids[1], SIGSTOP);
    wait_for_loss(&f, LONG_MS);
    T_FAILS(tti_net_check_lost(&f.s), TUTTI_E_PEER, "on here) was stopped by a signal");
    T_EQ(wait_for_end(&f, 1, LONG_MS), SIGKILL);
    T_FAILS(tti_net_check_lost(&f.s), TUTTI_E_PEER, "on here) was stopped by a signal");
    end(&f);
}

/* The one after it in the circle is looked at then. */
T_CASE(a_rank_that_is_stopped_after_another_has_died) {
    T_UNUSED;
    family f;
    begin(&f, 3);
    T_OK(tti_net_watch(&f.s));
    kill(f.pids[1], SIGKILL);
    wait_for_loss(&f, LONG_MS);
    T_FAILS(tti_net_check_lost(&f.s), TUTTI_E_PEER, "on here) died");
    shm_state whole = {.header = f.s.group->header}, subgroup = {.header = whole.header};
    subgroup.parent = &whole;
    while (tti_shm_cause(&subgroup) == TUTTI_OK) usleep(1000);
    T_FAILS(tti_shm_cause(&subgroup), TUTTI_E_PEER, "on here) died");
    T_OK(tti_shm_reported(&subgroup)); /* by no rank */
    kill(f.pids[2], SIGSTOP);
    T_EQ(wait_for_end(&f, 2, LONG_MS), SIGKILL);
    end(&f);
}

T_CASE(a_rank_that_is_stopped_when_it_has_left) {
    T_UNUSED;
    family f;
    begin(&f, 2);
    atomic_store(&shm_rank_of(f.s.group->header, 1)->left, 1);
    T_OK(tti_net_watch(&f.s));
    kill(f.pids[1], SIGSTOP);
    T_EQ(wait_for_end(&f, 1, 1000), 0); /* a rank that is lost is killed after 800 */
    T_OK(tti_net_check_lost(&f.s));
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_was_gone_before), cmocka_unit_test(a_rank_that_goes_on_again),
        cmocka_unit_test(a_rank_that_is_stopped),
        cmocka_unit_test(a_rank_that_is_stopped_after_another_has_died),
        cmocka_unit_test(a_rank_that_is_stopped_when_it_has_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
