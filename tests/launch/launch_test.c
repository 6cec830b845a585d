/* launch_test.c - the public call: the workers join a communicator; if one ends, the others
 * fail, the last collective is named, and a restart continues or gives up. */
#include "tutti/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "launch/supervised.h"
#include "t.h"
#include "tutti/comm.h"

static char self[4096];

/* ---- the worker program ---- */

/* Sums until rank 2 dies by the signal; 0 steps: one sum of ranks, to be checked. */
static tutti_status run_worker(int n_steps, int sig) {
    tutti_comm *comm;
    TTI_TRY(tutti_worker_join(0, &comm));
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    tutti_status st = TUTTI_OK;
    for (int i = 0; i <= n_steps && st == TUTTI_OK; i++) {
        float x = (float)rank, sum = 0;
        if (i > 0 && i == n_steps && rank == 2) raise(sig);
        st = tutti_comm_all_reduce(comm, &x, &sum, 1, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO);
        float expected = (float)(n_ranks * (n_ranks - 1) / 2);
        if (st == TUTTI_OK && fabsf(sum - expected) > 0) st = TUTTI_E_MISMATCH;
    }
    tutti_comm_destroy(comm);
    return st;
}

/* Fails in the first two starts, having committed a step each time if the argument says so. */
static int run_flapping(const char *commits) {
    int restart = atoi(getenv("TUTTI_RESTART_COUNT"));
    if (strcmp(commits, "commits") == 0) tti_worker_report_step((uint64_t)restart + 1);
    return restart < 3 ? 9 : 0;
}

/* A start that fails: '-' for killed, or the exit code, then the reported step and reason, one
 * letter each, or nothing. */
typedef struct ending {
    int code;
    const char *seen;
} ending;

/* Commits a step in every start; the fourth comes to its end. */
static int run_seen(const ending *of) {
    int restart = atoi(getenv("TUTTI_RESTART_COUNT"));
    tti_worker_report_step((uint64_t)restart + 1);
    if (restart >= 3) return 0;
    if (of[restart].code == '-') raise(SIGKILL);
    if (of[restart].seen)
        tti_worker_report_failure((uint64_t)of[restart].seen[0], of[restart].seen + 1);
    return of[restart].code;
}

static const struct {
    ending of[3];
    int exit_code, n_restarts;
} endings[] = {
    {{{7, "1a"}, {7, "1a"}, {7, "1a"}}, 93, 1},
    {{{3, "1a"}, {3, "1a"}, {3, "1a"}}, 93, 1},
    {{{9, "1a"}, {'-', NULL}, {9, "1a"}}, 93, 2}, /* who was killed says nothing about it */
    {{{7, "1a"}, {7, "2a"}, {7, "2a"}}, 93, 2},
    {{{7, "1a"}, {7, "2a"}, {7, "1a"}}, 0, 3}, /* another step: there was progress */
    {{{7, "1a"}, {7, "1b"}, {7, "1a"}}, 0, 3}, /* another reason */
    {{{7, NULL}, {7, NULL}, {7, NULL}}, 0, 3}, /* of a program that says nothing */
    {{{5, "1a"}, {6, "1a"}, {6, "1a"}}, 0, 3}, /* what comes from outside may go */
    {{{1, "1a"}, {1, "1a"}, {10, "1a"}}, 0, 3},
    {{{2, "1a"}, {0, NULL}, {0, NULL}}, 2, 0},
};

/* Asks its supervisor to stop, and fails when it is asked itself. */
static int run_asking(void) {
    sigset_t asked;
    int sig;
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigprocmask(SIG_BLOCK, &asked, NULL);
    kill(getppid(), SIGTERM);
    return sigwait(&asked, &sig) == 0 ? 9 : 98;
}

static int worker_main(char **argv) {
    if (strcmp(argv[0], "ask") == 0) return run_asking();
    if (strcmp(argv[0], "flap") == 0) return run_flapping(argv[1]);
    if (strcmp(argv[0], "seen") == 0) return run_seen(endings[atoi(argv[1])].of);
    tutti_status st = run_worker(atoi(argv[1]), strcmp(argv[0], "stop") == 0 ? SIGSTOP : SIGKILL);
    if (st != TUTTI_OK) fprintf(stderr, "%s\n", tutti_last_error());
    return tutti_status_exit_code(st);
}

/* ---- the tests ---- */

static int saved_err;
static FILE *err_file;

/* The launcher writes to this process's own standard error: it goes to a file for a while.  It does
 * not wait before it starts again. */
static int begin_case(void **state) {
    T_UNUSED;
    if (tti_fault_set("launch.back_off:fail") != TUTTI_OK) return -1;
    fflush(stderr);
    saved_err = dup(2);
    err_file = tmpfile();
    return !err_file || dup2(fileno(err_file), 2) < 0;
}

static int end_case(void **state) {
    T_UNUSED;
    if (tti_fault_set(NULL) != TUTTI_OK) return -1;
    dup2(saved_err, 2);
    close(saved_err);
    fclose(err_file);
    return 0;
}

static tutti_launch_result launch(tutti_launch_desc *desc, const char *mode, const char *value) {
    char *argv[] = {self, (char *)"worker", (char *)mode, (char *)value, NULL};
    tutti_launch_result result;
    desc->argv = argv;
    T_OK(tutti_launch(desc, &result));
    return result;
}

T_CASE(a_process_that_nobody_started_is_one_rank) {
    T_UNUSED;
    tutti_comm *comm;
    double x = 3;
    T_OK(tutti_worker_join(0, &comm));
    T_EQ(tutti_comm_n_ranks(comm), 1);
    T_OK(tutti_comm_all_reduce(comm, &x, &x, 1, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    T_NEAR(x, 3, 0);
    tutti_comm_destroy(comm);
}

T_CASE(ranks_of_others_are_met) {
    T_UNUSED;
    tutti_comm *comm;
    setenv("RANK", "1", 1), setenv("WORLD_SIZE", "2", 1);
    T_FAILS(tutti_worker_join(100, &comm), TUTTI_E_CONFIG, "MASTER_ADDR is not set");
    assert_null(comm);
    setenv("MASTER_ADDR", "localhost", 1), setenv("MASTER_PORT", "29433", 1);
    T_FAILS(tutti_worker_join(100, &comm), TUTTI_E_TIMEOUT,
            "(parallel.timeout_ms=100) to reach rank 0");
    unsetenv("RANK"), unsetenv("WORLD_SIZE"), unsetenv("MASTER_ADDR"), unsetenv("MASTER_PORT");
}

T_CASE(workers_meet) {
    T_UNUSED;
    tutti_launch_result result = launch(&(tutti_launch_desc){.n_workers = 4}, "sum", "0");
    T_EQ(result.exit_code, 0);
    T_EQ(result.rank, -1);
    T_EQ(result.n_restarts, 0);
    assert_string_equal(result.text, "");
}

static void expect_in_stderr(const char *part) {
    char text[4096];
    ssize_t n = pread(fileno(err_file), text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    if (!strstr(text, part)) fail_msg("no '%s' in '%s'", part, text);
}

T_CASE(a_death_is_reported_to_the_others) {
    T_UNUSED;
    char dir[] = "/tmp/tutti_launch_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/error.json", dir);
    /* A worker that does not hear of it waits for rank 2 until SIGTERM ends it, 15 s later. */
    tutti_launch_desc desc = {.n_workers = 4, .grace_ms = 60000, .error_file = path};
    int64_t t0 = tti_now_ns();
    tutti_launch_result result = launch(&desc, "sum", "10");
    T_EQ(result.exit_code, 5);
    T_EQ(result.rank, 2);
    assert_non_null(strstr(result.text, "killed by signal 9"));
    assert_non_null(strstr(result.text, "after all_reduce(n_elems=1"));
    expect_in_stderr("rank 2 (pid "); /* the survivors say whom they lost */
    assert_true(tti_now_ns() - t0 < 15000 * TTI_NS_PER_MS);
    struct stat info;
    T_EQ(stat(path, &info), 0);
    assert_true(info.st_size > 100);
    unlink(path);
    rmdir(dir);
}

T_CASE(the_cause_is_reported_without_its_file) {
    T_UNUSED;
    tutti_launch_desc desc = {.n_workers = 3, .error_file = "/nowhere/error.json"};
    tutti_launch_result result = launch(&desc, "sum", "10");
    T_EQ(result.exit_code, 5);
    T_EQ(result.rank, 2);
    assert_non_null(strstr(result.text, "killed by signal 9"));
    assert_non_null(strstr(result.text, "; /nowhere/error.json"));
}

T_CASE(a_stopped_rank_is_reported_to_the_others) {
    T_UNUSED;
    tutti_launch_result result = launch(&(tutti_launch_desc){.n_workers = 3}, "stop", "3");
    T_EQ(result.exit_code, 5);
    T_EQ(result.rank, 2);
    assert_non_null(strstr(result.text, "was stopped (signal 19)"));
    expect_in_stderr("was stopped (signal 19)");
}

static int n_notes;

static void note(void *user, const char *text) {
    T_EQ(user == &n_notes, 1);
    assert_non_null(strstr(text, "starting again"));
    n_notes++;
}

T_CASE(restarts_with_progress) {
    T_UNUSED;
    n_notes = 0;
    tutti_launch_desc desc = {
        .n_workers = 2, .grace_ms = 100, .max_restarts = 5, .on_restart = note, .user = &n_notes};
    tutti_launch_result result = launch(&desc, "flap", "commits");
    T_EQ(result.exit_code, 0);
    T_EQ(result.n_restarts, 3);
    T_EQ(n_notes, 3);
}

/* The one case that waits between two starts. */
T_CASE(restarts_run_out) {
    T_UNUSED;
    tutti_launch_desc desc = {.n_workers = 2, .grace_ms = 100, .max_restarts = 1};
    int64_t t0 = tti_now_ns();
    T_OK(tti_fault_set(NULL));
    tutti_launch_result result = launch(&desc, "flap", "commits");
    assert_true(tti_now_ns() - t0 >= 100 * TTI_NS_PER_MS);
    T_EQ(result.exit_code, 9);
    T_EQ(result.n_restarts, 1);
}

T_CASE(who_was_asked_to_stop_does_not_start_again) {
    T_UNUSED;
    tutti_launch_desc desc = {.n_workers = 1, .grace_ms = 100, .max_restarts = 1};
    tutti_launch_result result = launch(&desc, "ask", "");
    T_EQ(result.exit_code, 9);
    T_EQ(result.n_restarts, 0);
}

T_CASE(a_crash_loop_is_ended) {
    T_UNUSED;
    tutti_launch_desc desc = {.n_workers = 2, .grace_ms = 100, .max_restarts = 50};
    tutti_launch_result result = launch(&desc, "flap", "no");
    T_EQ(result.exit_code, 93);
    T_EQ(result.n_restarts, 2);
    assert_non_null(strstr(result.text, "3 starts without a new step"));
    assert_non_null(strstr(result.text, "exited with code 9"));
}

T_CASE(what_comes_again_is_not_tried_a_third_time) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(endings); i++) {
        char which[8];
        snprintf(which, sizeof which, "%zu", i);
        tutti_launch_desc desc = {.n_workers = 2, .grace_ms = 100, .max_restarts = 50};
        tutti_launch_result result = launch(&desc, "seen", which);
        if (result.exit_code != endings[i].exit_code || result.n_restarts != endings[i].n_restarts)
            fail_msg("case %zu: %d after %d restarts: %s", i, result.exit_code, result.n_restarts,
                     result.text);
        if (result.exit_code != 93) continue;
        assert_non_null(strstr(result.text,
                               "2 starts with the same failure in the same step, the "
                               "last: rank "));
        assert_string_equal(strrchr(result.text, ':'), ": a"); /* in the words of the worker */
    }
}

T_CASE(bad_arguments) {
    T_UNUSED;
    tutti_launch_result result = {.exit_code = 77};
    char *argv[] = {(char *)"/nonexistent/program", NULL};
    T_FAILS(tutti_launch(&(tutti_launch_desc){.n_workers = 0, .argv = argv}, &result),
            TUTTI_E_INVALID, "0 workers");
    T_FAILS(tutti_launch(&(tutti_launch_desc){.n_workers = 5000, .argv = argv}, &result),
            TUTTI_E_INVALID, "5000 workers");
    T_FAILS(tutti_launch(&(tutti_launch_desc){.n_workers = 2}, &result), TUTTI_E_INVALID,
            "no program");
    T_FAILS(tutti_launch(&(tutti_launch_desc){.n_workers = 2, .argv = argv}, &result), TUTTI_E_IO,
            "cannot start");
    T_EQ(result.exit_code, 77);
}

T_CASE(the_place_of_a_worker) {
    T_UNUSED;
    tutti_worker_place place;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("TUTTI_COMM_FD", "1", 1);
    T_OK(tutti_worker_detect(&place));
    T_EQ(place.rank, 1);
    T_EQ(place.comm_fd, -1); /* not started by tutti: the variable is a leftover */
    setenv("TUTTI_SUPERVISOR_PID", "1", 1);
    T_OK(tutti_worker_detect(&place));
    T_EQ(place.comm_fd, 1);
    setenv("TUTTI_COMM_FD", "1000", 1);
    T_OK(tutti_worker_detect(&place));
    T_EQ(place.comm_fd, -1); /* not open */
    setenv("RANK", "7", 1);
    T_FAILS(tutti_worker_detect(&place), TUTTI_E_CONFIG, "RANK=7 must be below WORLD_SIZE=2");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("TUTTI_COMM_FD");
    unsetenv("TUTTI_SUPERVISOR_PID");
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return worker_main(argv + 2);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_case, end_case)
    const struct CMUnitTest tests[] = {
        CASE(a_process_that_nobody_started_is_one_rank),
        CASE(ranks_of_others_are_met),
        CASE(workers_meet),
        CASE(a_death_is_reported_to_the_others),
        CASE(the_cause_is_reported_without_its_file),
        CASE(a_stopped_rank_is_reported_to_the_others),
        CASE(restarts_with_progress),
        CASE(restarts_run_out),
        CASE(who_was_asked_to_stop_does_not_start_again),
        CASE(a_crash_loop_is_ended),
        CASE(what_comes_again_is_not_tried_a_third_time),
        CASE(bad_arguments),
        CASE(the_place_of_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
