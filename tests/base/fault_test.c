/* fault_test.c - the syntax of TUTTI_FAULT, and that each fault point acts on it. */
#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"

T_CASE(nothing_without_faults) {
    T_UNUSED;
    T_OK(tti_fault_set(NULL));
    assert_false(TTI_FAULT("a"));
    T_OK(tti_fault_set(""));
    assert_false(TTI_FAULT("a"));
    T_EQ(tti_fault_n_fired(), 0);
}

T_CASE(fails_at_the_point_only) {
    T_UNUSED;
    T_OK(tti_fault_set("file.write:fail=ENOSPC;file.open:fail"));
    assert_false(TTI_FAULT("file.writ"));
    assert_false(TTI_FAULT("file.write2"));
    errno = 0;
    assert_true(TTI_FAULT("file.write"));
    T_EQ(errno, ENOSPC);
    assert_true(TTI_FAULT("file.open"));
    T_EQ(errno, EIO);
    T_EQ(tti_fault_n_fired(), 2);
}

T_CASE(counts_times) {
    T_UNUSED;
    T_OK(tti_fault_set("a:fail@2;b:fail@2+;*:fail@9"));
    const bool a[] = {false, true, false}, b[] = {false, true, true};
    for (int i = 0; i < 3; i++) T_EQ(TTI_FAULT("a"), a[i]);
    for (int i = 0; i < 3; i++) T_EQ(TTI_FAULT("b"), b[i]);
    assert_false(TTI_FAULT("c"));
    assert_false(TTI_FAULT("d"));
    assert_true(TTI_FAULT("e"));
}

T_CASE(rank_and_step) {
    T_UNUSED;
    T_OK(tti_fault_set("x:fail@rank=1,step=10,2"));
    assert_false(TTI_FAULT_AT("x", 0, 10));
    assert_false(TTI_FAULT_AT("x", 1, 9));
    assert_false(TTI_FAULT("x"));
    assert_false(TTI_FAULT_AT("x", 1, 10));
    assert_true(TTI_FAULT_AT("x", 1, 10));
}

T_CASE(refuses_what_it_cannot_understand) {
    T_UNUSED;
    const char *const bad[] = {"a",
                               ":fail",
                               "a:",
                               "a:fial",
                               "a:fail=EFOO",
                               "a:fail@0",
                               "a:fail@",
                               "a:fail@1x",
                               "a:fail@-1",
                               "a:fail@1,",
                               "a:kill=3",
                               "a:delay_ms",
                               "a:delay_ms=x",
                               "a:advance_ms",
                               "a:advance_ms=x",
                               "a:pass_ms",
                               "a:pass_ms=x",
                               "a:fail@rank",
                               "a:fail@rank=",
                               "a:fail;;b",
                               "a:fail@1;b:",
                               "a:fail@step=9999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tti_fault_set(bad[i]) == TUTTI_OK) fail_msg("'%s' was accepted", bad[i]);
        assert_non_null(strstr(tutti_last_error(), "TUTTI_FAULT"));
        assert_false(TTI_FAULT("a"));
    }
    char many[400] = "";
    for (int i = 0; i < 17; i++) strcat(many, "a:fail;");
    T_FAILS(tti_fault_set(many), TUTTI_E_INVALID, "more than 16");
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

T_CASE(delays) {
    T_UNUSED;
    T_OK(tti_fault_set("a:delay_ms=30"));
    int64_t start = now_ms();
    assert_false(TTI_FAULT("a"));
    assert_true(now_ms() - start >= 29);
}

T_CASE(advances_the_clock) {
    T_UNUSED;
    T_OK(tti_fault_set("a:advance_ms=3600000@1"));
    int64_t start_ns = tti_now_ns();
    assert_false(TTI_FAULT("a"));
    assert_true(tti_now_ns() - start_ns >= 3600000 * TTI_NS_PER_MS);
    assert_false(TTI_FAULT("a"));
    assert_true(tti_now_ns() - start_ns < 7200000 * TTI_NS_PER_MS);
}

T_CASE(lets_time_pass) {
    T_UNUSED;
    T_OK(tti_fault_set("a:pass_ms=3000@1"));
    int64_t start_ns = tti_now_ns(), start = now_ms();
    assert_false(TTI_FAULT("a"));
    assert_true(tti_now_ns() - start_ns >= 3000 * TTI_NS_PER_MS);
    assert_true(now_ms() - start >= 199);
    start_ns = tti_now_ns();
    assert_false(TTI_FAULT("a"));
    assert_true(tti_now_ns() - start_ns < 3000 * TTI_NS_PER_MS);
}

/* Passes a point in a child whose environment has the fault, and returns its wait status. */
static int child(const char *faults, int options) {
    pid_t pid = fork();
    if (pid == 0) {
        if (tti_fault_set(faults) != TUTTI_OK) _exit(9);
        _exit(TTI_FAULT("a") ? 1 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, options), pid);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return status;
}

T_CASE(kills_and_stops) {
    T_UNUSED;
    int status = child("a:kill", 0);
    assert_true(WIFSIGNALED(status));
    T_EQ(WTERMSIG(status), SIGKILL);
    status = child("a:stop", WUNTRACED);
    assert_true(WIFSTOPPED(status));
    T_EQ(WSTOPSIG(status), SIGSTOP);
}

/* The first point passed reads the environment, in a fresh process. */
static int in_environment(const char *program, const char *faults) {
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TUTTI_FAULT", faults, 1);
        execl(program, program, "point", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

T_CASE(reads_the_environment) {
    const char *program = *state;
    T_EQ(WEXITSTATUS(in_environment(program, "a:fail=EROFS")), EROFS);
    T_EQ(WEXITSTATUS(in_environment(program, "b:fail")), 0);
}

int main(int argc, char **argv) {
    if (argc > 1) return TTI_FAULT("a") ? errno : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_faults),
        cmocka_unit_test(fails_at_the_point_only),
        cmocka_unit_test(counts_times),
        cmocka_unit_test(rank_and_step),
        cmocka_unit_test(refuses_what_it_cannot_understand),
        cmocka_unit_test(delays),
        cmocka_unit_test(advances_the_clock),
        cmocka_unit_test(lets_time_pass),
        cmocka_unit_test(kills_and_stops),
        cmocka_unit_test_prestate(reads_the_environment, argv[0]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
