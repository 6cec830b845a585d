/* process_test.c - a process that runs, is stopped, goes on, and has ended; and what it read and
 * wrote. */
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
    T_EQ(tti_process_io(-1), 0);
}

T_CASE(io) {
    T_UNUSED;
    int status, fds[2];
    T_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        for (;;) {
            if (write(fds[1], "x", 1) != 1) _exit(1);
            pause();
        }
    char got;
    T_EQ(read(fds[0], &got, 1), 1); /* the child has written */
    assert_true(tti_process_io((int)pid) > 0);
    T_EQ(tti_process_io((int)getpid()),
         0); /* this thread is alone, and its own reads do not count */
    kill(pid, SIGKILL);
    T_EQ(waitpid(pid, &status, 0), pid);
    close(fds[0]);
    close(fds[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states), cmocka_unit_test(io)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
