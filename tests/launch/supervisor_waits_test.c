/* supervisor_waits_test.c - workers that do not end, and workers that are stopped for a moment.
 *
 * The program starts itself again as worker ("worker MODE"). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "launch/supervisor.h"
#include "t.h"

static char self[4096];

/* A child of the worker, in a process group of its own, stops it for a moment. */
static void stop_for(int t_ms) {
    pid_t me = getpid();
    if (fork() != 0) return;
    setpgid(0, 0);
    kill(me, SIGSTOP);
    tti_sleep_ms(t_ms); /* how long it stays stopped is what is tested */
    kill(me, SIGCONT);
    _exit(0);
}

static int worker_main(int rank, const char *mode) {
    if (strcmp(mode, "fail") == 0 && rank == 0) return 4;
    if (strcmp(mode, "fail") == 0) tti_sleep_ms(20000);
    if (rank == 1) stop_for(150);
    tti_sleep_ms(300); /* outlasts the stop of rank 1 */
    return 0;
}

static tti_supervisor_report run(char *mode, int give_up_ms) {
    char *argv[] = {self, "worker", mode, NULL};
    tti_supervisor_desc desc = {.n_workers = 2,
                                .argv = argv,
                                .grace_ms = 50,
                                .give_up_ms = give_up_ms,
                                .out_fd = STDOUT_FILENO,
                                .err_fd = STDERR_FILENO};
    tti_supervisor_report report;
    T_OK(tti_supervisor_run(&desc, &report));
    return report;
}

/* A process that the kernel does not end, in a frozen cgroup or in state D. */
T_CASE(what_sigkill_does_not_end_is_left) {
    T_UNUSED;
    T_OK(tti_fault_set("supervisor.unkillable:fail@rank=1"));
    tti_supervisor_report report = run("fail", 150);
    T_OK(tti_fault_set(NULL));
    T_EQ(report.exit_code, 4);
    T_EQ(report.n_left, 1);
    assert_non_null(strstr(report.text, "; rank 1 (pid "));
    assert_non_null(strstr(report.text, "has not ended 150 ms after SIGKILL and was abandoned"));
    while (waitpid(-1, NULL, 0) > 0) continue; /* here it ends, and leaves no zombie */
}

/* All processes of a job may be stopped and go on in any order. */
T_CASE(a_short_stop_is_survived) {
    T_UNUSED;
    T_EQ(run("stop", 0).exit_code, 0);
}

int main(int argc, char **argv) {
    if (argc == 3) return worker_main(atoi(getenv("RANK")), argv[2]);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 99;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_sigkill_does_not_end_is_left),
                                       cmocka_unit_test(a_short_stop_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
