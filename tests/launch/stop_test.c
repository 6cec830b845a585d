/* stop_test.c - the first signal sets the flag, the second ends the process, and the former
 * handlers come back. */
#include "launch/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"

T_CASE(flag_and_restore) {
    T_UNUSED;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_IGN);
    tti_stop stop, second;
    T_OK(tti_stop_install(&stop));
    assert_false(tti_stop_requested());
    T_FAILS(tti_stop_install(&second), TUTTI_E_INVALID, "already");
    raise(SIGTERM); /* was ignored, stays ignored */
    assert_false(tti_stop_requested());
    raise(SIGINT);
    assert_true(tti_stop_requested());
    T_EQ(tti_stop_signal(), SIGINT);
    tti_stop_remove(&stop);
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    T_OK(tti_stop_install(&stop)); /* a new training starts with a clear flag */
    assert_false(tti_stop_requested());
    raise(SIGHUP); /* the terminal has closed */
    T_EQ(tti_stop_signal(), SIGTERM);
    tti_stop_remove(&stop);
    sigaction(SIGHUP, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
}

/* The exit code of a child that raises the two signals. */
static int exit_code_after(int first, int second, int apart_ms) {
    pid_t pid = fork();
    if (pid == 0) {
        tti_stop stop;
        if (tti_stop_install(&stop) != TUTTI_OK) _exit(1);
        raise(first);
        if (tti_stop_signal() != first) _exit(2);
        tti_sleep_ms(apart_ms);
        raise(second);
        _exit(3);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

T_CASE(second_signal_ends_at_once) {
    T_UNUSED;
    T_EQ(exit_code_after(SIGINT, SIGINT, 110), 130);
    T_EQ(exit_code_after(SIGTERM, SIGTERM, 110), 143);
    T_EQ(exit_code_after(SIGTERM, SIGINT, 110), 130);
}

T_CASE(twice_at_once_is_one) {
    T_UNUSED;
    T_EQ(exit_code_after(SIGTERM, SIGTERM, 0), 3);
}

T_CASE(a_supervisor_decides_alone) {
    T_UNUSED;
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("TUTTI_SUPERVISOR_PID", pid, 1);
    T_EQ(exit_code_after(SIGTERM, SIGTERM, 110), 3);
    setenv("TUTTI_SUPERVISOR_PID", "1", 1);
    T_EQ(exit_code_after(SIGTERM, SIGTERM, 110), 143);
    unsetenv("TUTTI_SUPERVISOR_PID");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flag_and_restore),
        cmocka_unit_test(second_signal_ends_at_once),
        cmocka_unit_test(twice_at_once_is_one),
        cmocka_unit_test(a_supervisor_decides_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
