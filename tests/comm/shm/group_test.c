/* group_test.c - ranks that are real processes (this program again, with arguments), and the ways
 * in which a group fails: missing, killed, leaving and slow ranks, abort, damaged descriptors. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "comm/ranks.h"
#include "comm/subgroup.h"

extern char **environ;

/* ---- a rank as a process: prints nothing, says by its exit code ---- */

enum { CHILD_OK = 0, CHILD_BAD = 1, CHILD_PEER_LOST = 5, CHILD_TIMEOUT_MS = 20000 };

static const char *child_sums(tutti_comm *comm) {
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    const size_t sizes[] = {1, 7, 1000, 50000};
    void *registered;
    float *plain = malloc(50000 * 4);
    COMM_OK(tutti_comm_alloc(comm, 50000 * 4, &registered));
    for (int s = 0; s < 4; s++)
        for (int alg = 0; alg < TUTTI_N_ALGS; alg++)
            for (int where = 0; where < 2; where++) {
                float *x = where ? registered : plain;
                for (size_t i = 0; i < sizes[s]; i++) x[i] = (float)(rank + (int)(i % 9));
                COMM_OK(tutti_comm_all_reduce(comm, x, x, sizes[s], TUTTI_F32, TUTTI_SUM,
                                              (tutti_comm_alg)alg));
                for (size_t i = 0; i < sizes[s]; i++)
                    COMM_TRUE(x[i] ==
                              (float)(n_ranks * (n_ranks - 1) / 2 + n_ranks * (int)(i % 9)));
            }
    free(plain);
    return NULL;
}

/* Sums until something fails. */
static const char *child_forever(tutti_comm *comm) {
    float *x = calloc(200000, 4);
    tutti_status st = TUTTI_OK;
    for (uint64_t step = 0; st == TUTTI_OK; step++) {
        tti_comm_note(comm, step, "sum");
        st = tutti_comm_all_reduce(comm, x, x, step % 2 ? 200000 : 10, TUTTI_F32, TUTTI_SUM,
                                   TUTTI_ALG_AUTO);
    }
    free(x);
    COMM_FAILS(st, TUTTI_E_PEER, "rank 1 was killed");
    return "peer lost";
}

/* Subgroups of two: the first one hears that the whole group has failed; the second one loses
 * rank 3. */
static const char *child_pairs(tutti_comm *comm) {
    tutti_comm *pair;
    tutti_status st = TUTTI_OK;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_comm_split(comm, rank / 2, &pair));
    COMM_OK(tutti_comm_barrier(comm)); /* that the parent sees */
    while (st == TUTTI_OK) st = tutti_comm_barrier(pair);
    COMM_FAILS(st, TUTTI_E_PEER, rank < 2 ? "the end" : "comm: rank 3 (pid ");
    COMM_FAILS(tti_comm_check(pair), TUTTI_E_PEER, rank < 2 ? "the end" : "comm: rank 3 (pid ");
    tutti_comm_destroy(pair);
    return "peer lost";
}

static int child_main(const char *what, int fd, int rank, int n_ranks) {
    tutti_comm_group *group;
    tutti_comm *comm;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no rank behind */
    if (tutti_comm_group_open(fd, &group) != TUTTI_OK) return CHILD_BAD;
    tutti_comm_desc desc = {
        .group = group, .rank = rank, .n_ranks = n_ranks, .timeout_ms = CHILD_TIMEOUT_MS};
    if (tutti_comm_create(&desc, &comm) != TUTTI_OK) return CHILD_BAD;
    if (strcmp(what, "stops") == 0) raise(SIGSTOP);
    const char *failure = strcmp(what, "forever") == 0 ? child_forever(comm)
                          : strcmp(what, "pairs") == 0 ? child_pairs(comm)
                                                       : child_sums(comm);
    tutti_comm_destroy(comm);
    tutti_comm_group_destroy(group);
    if (failure && strcmp(failure, "peer lost") == 0) return CHILD_PEER_LOST;
    if (failure) fprintf(stderr, "rank %d: %s\n", rank, failure);
    return failure ? CHILD_BAD : CHILD_OK;
}

static pid_t start_child(tutti_comm_group *group, const char *what, int rank, int n_ranks) {
    char fd[16], r[16], n[16];
    snprintf(fd, sizeof fd, "%d", 9);
    snprintf(r, sizeof r, "%d", rank);
    snprintf(n, sizeof n, "%d", n_ranks);
    char *argv[] = {"group_test", (char *)(uintptr_t)what, fd, r, n, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, tutti_comm_group_fd(group), 9);
    pid_t pid;
    T_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

T_CASE(processes_sum) {
    T_UNUSED;
    const int rank_counts[] = {1, 2, 3, 4};
    for (int k = 0; k < 4; k++) {
        int n = rank_counts[k], status;
        pid_t pids[4];
        tutti_comm_group *group;
        T_OK(tutti_comm_group_create(n, &group));
        for (int r = 0; r < n; r++) pids[r] = start_child(group, "sums", r, n);
        for (int r = 0; r < n; r++) {
            T_EQ(waitpid(pids[r], &status, 0), pids[r]);
            T_EQ(status, 0);
        }
        tutti_comm_group_destroy(group);
    }
}

/* Kills rank 1 of 3 after some calls; the parent notices and aborts; the others must return. */
static void kill_one(uint64_t n_calls, int64_t *took_ns) {
    pid_t pids[3];
    int status;
    tutti_comm_group *group;
    tti_progress progress = {0};
    T_OK(tutti_comm_group_create(3, &group));
    for (int r = 0; r < 3; r++) pids[r] = start_child(group, "forever", r, 3);
    while (progress.n_calls < n_calls) {
        tti_sleep_ms(1);
        T_OK(tti_comm_group_progress(group, 1, &progress));
    }
    kill(pids[1], SIGKILL);
    T_EQ(waitpid(pids[1], &status, 0), pids[1]);
    int64_t start = tti_now_ns();
    tutti_comm_group_abort(group, 1, "rank 1 was killed by signal 9");
    for (int r = 0; r < 3; r += 2) {
        T_EQ(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status));
        T_EQ(WEXITSTATUS(status), CHILD_PEER_LOST);
    }
    *took_ns = tti_now_ns() - start;
    T_OK(tti_comm_group_progress(group, 1, &progress)); /* the page outlives the rank */
    T_EQ(progress.pid, pids[1]);
    assert_true(progress.joined && !progress.left);
    assert_non_null(strstr(progress.call, "all_reduce(n_elems="));
    T_EQ(strcmp(progress.phase, "sum"), 0);
    tutti_comm_group_destroy(group);
}

T_CASE(killed_process_frees_the_others) {
    T_UNUSED;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        int64_t took;
        kill_one(3 + 20 * (uint64_t)i, &took);
        if (took < best) best = took;
        assert_true(took < CHILD_TIMEOUT_MS * TTI_NS_PER_MS);
    }
    assert_true(best < 500 * TTI_NS_PER_MS); /* the machine may be busy: the best of eight */
}

static void expect_peer_lost(pid_t pid) {
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    T_EQ(WEXITSTATUS(status), CHILD_PEER_LOST);
}

/* Nobody says so: a rank that waits in a subgroup for one that was killed notices it, others
 * continue. */
T_CASE(a_part_hears_of_a_killed_process_by_itself) {
    T_UNUSED;
    pid_t pids[4];
    int status;
    tutti_comm_group *group;
    tti_progress progress = {0};
    T_OK(tutti_comm_group_create(4, &group));
    for (int r = 0; r < 4; r++) pids[r] = start_child(group, "pairs", r, 4);
    for (int r = 0; r < 4; r++) /* one that is still in it would hear of the death there */
        for (bool left = false; !left;
             left = strstr(progress.call, "barrier") && !progress.in_call) {
            tti_sleep_ms(1);
            T_OK(tti_comm_group_progress(group, r, &progress));
        }
    int64_t start = tti_now_ns();
    kill(pids[3], SIGKILL);
    T_EQ(waitpid(pids[3], &status, 0), pids[3]);
    expect_peer_lost(pids[2]);
    assert_true(tti_now_ns() - start < CHILD_TIMEOUT_MS * TTI_NS_PER_MS);
    T_EQ(waitpid(pids[0], &status, WNOHANG), 0);
    T_EQ(waitpid(pids[1], &status, WNOHANG), 0);
    tutti_comm_group_abort(group, -1, "the end");
    expect_peer_lost(pids[0]);
    expect_peer_lost(pids[1]);
    tutti_comm_group_destroy(group);
}

T_CASE(who_is_stopped_is_reported) {
    T_UNUSED;
    tutti_comm_group *group;
    tutti_comm *comm;
    tti_str who = {0}, again = {0};
    char want[96];
    int status;
    T_OK(tutti_comm_group_create(2, &group));
    pid_t pid = start_child(group, "stops", 1, 2);
    T_OK(tutti_comm_create(
        &(tutti_comm_desc){.group = group, .rank = 0, .n_ranks = 2, .timeout_ms = 20000}, &comm));
    T_EQ(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    tti_comm_describe_late(comm, &who);
    snprintf(want, sizeof want, "rank 1 (pid %d), which a signal has stopped", (int)pid);
    assert_string_equal(tti_str_text(&who), want);
    T_EQ(kill(pid, SIGKILL), 0);
    T_EQ(waitpid(pid, &status, 0), pid);
    tti_comm_describe_late(comm, &again);
    assert_string_equal(tti_str_text(&again), "");
    tti_str_free(&who);
    tti_str_free(&again);
    tutti_comm_destroy(comm);
    tutti_comm_group_destroy(group);
}

/* ---- threads ---- */

typedef struct absence {
    atomic_int n_begun, n_given_up; /* ranks other than 1 */
} absence;

/* Stays away while time passes, from when the others sleep in their call until they give up. */
static const char *stay_away(tutti_comm *comm, absence *a) {
    while (a->n_begun < 2) tti_sleep_ms(1);
    COMM_TRUE(t_wait_asleep());
    while (a->n_given_up < 2) comm_let_time_pass(75);
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_TIMEOUT,
               "ms (parallel.timeout_ms=3000) for rank 1");
    return NULL;
}

static const char *missing_rank(tutti_comm *comm, void *arg) {
    absence *a = arg;
    float x[4] = {0};
    COMM_OK(tutti_comm_barrier(comm));
    tti_comm_note(comm, 17, "loading");
    tti_comm_set_timeout(comm, 3000);
    if (tutti_comm_rank(comm) == 1) return stay_away(comm, a);
    a->n_begun++;
    tutti_status st = tutti_comm_all_reduce(comm, x, x, 4, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO);
    a->n_given_up++;
    COMM_FAILS(st, TUTTI_E_TIMEOUT, "all_reduce(n_elems=4, f32, sum, auto)");
    COMM_TRUE(comm_waited_ms() >= 3000);
    COMM_FAILS(st, TUTTI_E_TIMEOUT,
               "ms (parallel.timeout_ms=3000) for rank 1, which is in no call; its last was "
               "barrier() (step 17, loading)");
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_TIMEOUT, "barrier: an earlier call failed");
    return NULL;
}

T_CASE(missing_rank_is_named) {
    T_UNUSED;
    for (int apart = 0; apart < 2; apart++) {
        absence a = {0};
        comm_run_with(3, apart, 0, missing_rank, &a);
    }
}

T_CASE(rank_that_never_joins_is_named) {
    T_UNUSED;
    tutti_comm_group *group;
    tutti_comm *comm;
    T_OK(tutti_comm_group_create(2, &group));
    tutti_comm_desc desc = {.group = group, .n_ranks = 2, .timeout_ms = 50};
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT,
            "ms (parallel.phase_timeout_ms=50) for rank 1, which has not joined");
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_INVALID, "rank 0 has already joined");
    desc.rank = 1; /* late: the group has failed */
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_TIMEOUT, "which has not joined");
    tutti_comm_group_destroy(group);
}

static const char *leaving_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    float x[4] = {0};
    if (tutti_comm_rank(comm) == 1) return NULL;
    COMM_FAILS(tutti_comm_all_reduce(comm, x, x, 4, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_TREE),
               TUTTI_E_PEER, "rank 1, which left the group");
    return NULL;
}

T_CASE(rank_that_left_is_named_at_once) {
    T_UNUSED;
    comm_run(2, leaving_rank, NULL);
}

static const char *aborted_rank(tutti_comm *comm, void *arg) {
    comm_ranks *c = arg;
    float *x = calloc(100000, 4);
    tutti_status st = TUTTI_OK;
    if (tutti_comm_rank(comm) == 2) {
        COMM_TRUE(t_wait_asleep()); /* the others wait for this rank */
        tutti_comm_group_abort(c->group, 2, "rank 2 burns");
        tutti_comm_group_abort(c->group, 1, "this comes second");
    }
    while (st == TUTTI_OK)
        st = tutti_comm_rank(comm) == 0
                 ? tutti_comm_recv(comm, x, 5, TUTTI_F32, 2)
                 : tutti_comm_all_reduce(comm, x, x, 100000, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_RING);
    free(x);
    COMM_FAILS(st, TUTTI_E_PEER, "rank 2 burns");
    return NULL;
}

static const char *abort_rank_main(int rank, int n_ranks, void *arg) {
    return comm_rank_main(rank, n_ranks, arg);
}

T_CASE(abort_ends_every_wait) {
    T_UNUSED;
    comm_ranks c = {.fn = aborted_rank, .timeout_ms = 20000};
    c.arg = &c;
    T_OK(tutti_comm_group_create(3, &c.group));
    int64_t start = tti_now_ns();
    t_ranks(3, abort_rank_main, &c);
    assert_true(tti_now_ns() - start < c.timeout_ms * TTI_NS_PER_MS);
    tti_progress p;
    T_OK(tti_comm_group_progress(c.group, 0, &p));
    assert_true(p.left && p.in_call && p.n_calls == 1);
    T_EQ(strcmp(p.call, "recv(n_elems=5, f32, peer=2)"), 0);
    T_FAILS(tti_comm_group_progress(c.group, 3, &p), TUTTI_E_INVALID, "no rank 3");
    tutti_comm_group_destroy(c.group);
}

/* ---- descriptors ---- */

T_CASE(bad_descriptors_are_refused) {
    T_UNUSED;
    tutti_comm_group *group = (tutti_comm_group *)&state, *other;
    T_FAILS(tutti_comm_group_create(0, &group), TUTTI_E_INVALID, "n_ranks must be");
    assert_null(group);
    T_FAILS(tutti_comm_group_create(4097, &group), TUTTI_E_INVALID, "1 .. 4096, got 4097");
    T_FAILS(tutti_comm_group_open(-1, &group), TUTTI_E_INVALID, "is not a group");
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    T_FAILS(tutti_comm_group_open(fd, &group), TUTTI_E_INVALID, "is not a group");
    close(fd);
    fd = memfd_create("zeros", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    T_EQ(ftruncate(fd, 1 << 20), 0);
    T_FAILS(tutti_comm_group_open(fd, &group), TUTTI_E_INVALID, "is not a group");
    T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    T_FAILS(tutti_comm_group_open(fd, &group), TUTTI_E_INVALID, "is not a group of this version");
    close(fd);
    T_OK(tutti_comm_group_create(2, &group));
    fd = dup(tutti_comm_group_fd(group));
    unsigned damaged = 1000; /* n_ranks, after magic and version */
    T_EQ(pwrite(fd, &damaged, 4, 12), 4);
    T_FAILS(tutti_comm_group_open(fd, &other), TUTTI_E_INVALID, "damaged header (1000 ranks");
    damaged = 2;
    T_EQ(pwrite(fd, &damaged, 4, 12), 4);
    T_EQ(ftruncate(fd, 4096), -1); /* sealed */
    T_OK(tutti_comm_group_open(fd, &other));
    T_EQ(tutti_comm_group_n_ranks(other), 2);
    T_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    tutti_comm_group_destroy(other);
    tutti_comm_group_destroy(group);
    tutti_comm_group_destroy(NULL);
}

/* ---- memory ---- */

static const char *memory_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    void *blocks[20];
    for (int k = 0; k < 20; k++) {
        size_t n_bytes = (size_t)(k * k * 1000);
        COMM_OK(tutti_comm_alloc(comm, n_bytes, &blocks[k]));
        COMM_TRUE((uintptr_t)blocks[k] % 64 == 0);
        for (size_t i = 0; i < n_bytes; i++) COMM_TRUE(((unsigned char *)blocks[k])[i] == 0);
        memset(blocks[k], k + 1, n_bytes);
    }
    COMM_OK(tutti_comm_barrier(comm));
    for (int k = 0; k < 20; k++)
        for (size_t i = 0; i < (size_t)(k * k * 1000); i++)
            COMM_TRUE(((unsigned char *)blocks[k])[i] == k + 1);
    void *none = comm;
    COMM_FAILS(tutti_comm_alloc(comm, (size_t)1 << 49, &none), TUTTI_E_NOMEM, "comm_alloc");
    COMM_TRUE(none == comm);
    return NULL;
}

T_CASE(allocations_are_zeroed_apart_and_aligned) {
    T_UNUSED;
    comm_run(3, memory_rank, NULL);
    comm_run_with(3, true, 0, memory_rank, NULL);
}

int main(int argc, char **argv) {
    if (argc == 5) return child_main(argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_sum),
        cmocka_unit_test(killed_process_frees_the_others),
        cmocka_unit_test(a_part_hears_of_a_killed_process_by_itself),
        cmocka_unit_test(who_is_stopped_is_reported),
        cmocka_unit_test(missing_rank_is_named),
        cmocka_unit_test(rank_that_never_joins_is_named),
        cmocka_unit_test(rank_that_left_is_named_at_once),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(bad_descriptors_are_refused),
        cmocka_unit_test(allocations_are_zeroed_apart_and_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
