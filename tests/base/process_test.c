/* process_test.c - a process that runs, is stopped, goes on, and has ended. */
#include "base/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"

T_CASE(states) {
    T_UNUSED;
    int status;
    T_EQ(tti_process_state((int)getpid()), 'R');
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    kill(pid, SIGSTOP);
    T_EQ(waitpid(pid, &status, WUNTRACED), pid);
    T_EQ(tti_process_state((int)pid), 'T');
    kill(pid, SIGCONT);
    T_EQ(waitpid(pid, &status, WCONTINUED), pid);
    assert_int_not_equal(tti_process_state((int)pid), 'T');
    kill(pid, SIGKILL);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(tti_process_state((int)pid), 0);
    T_EQ(tti_process_state(-1), 0);
    T_EQ(tti_thread_state((int)getpid(), (int)getpid()), 'R');
    T_EQ(tti_thread_state((int)getpid(), -1), 0);
    assert_true(tti_process_io((int)getpid()) > 0);
    T_EQ(tti_process_io(-1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
