/* supervised_test.c - without a supervisor nothing happens, and inherited variables are not
 * believed; that workers die with a supervisor is shown by supervisor_test. */
#include "launch/supervised.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"
#include "tutti/launch.h"

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void clear(void) {
    unsetenv("TUTTI_CONTROL_FD");
    unsetenv("TUTTI_SUPERVISOR_PID");
}

/* NULL: it is not set. */
static void put(const char *name, const char *text) {
    if (text)
        setenv(name, text, 1);
    else
        unsetenv(name);
}

T_CASE(nothing_without_a_supervisor) {
    T_UNUSED;
    clear();
    T_OK(tti_worker_init());
    tti_worker_report_step(1);
    setenv("TUTTI_CONTROL_FD", "nonsense", 1);
    T_OK(tti_worker_init());
    setenv("TUTTI_CONTROL_FD", "99999999999999999999", 1);
    T_OK(tti_worker_init());
    setenv("TUTTI_CONTROL_FD", "0", 1);
    T_OK(tti_worker_init());
    clear();
}

/* By torchrun, or by srun in a job that was put into the queue again; not beside srun. */
T_CASE(a_launcher_that_starts_again) {
    T_UNUSED;
    static const struct {
        const char *torch, *slurm, *step;
        bool again;
    } cases[] = {{NULL, NULL, NULL, false}, {"0", "0", "0", false},   {"1", NULL, NULL, true},
                 {"x", NULL, NULL, false},  {NULL, "2", NULL, false}, {NULL, "2", "0", true}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        put("TORCHELASTIC_RESTART_COUNT", cases[i].torch);
        put("SLURM_RESTART_COUNT", cases[i].slurm);
        put("SLURM_STEP_ID", cases[i].step);
        T_EQ(tti_launcher_restarted(), cases[i].again);
    }
    put("SLURM_RESTART_COUNT", NULL);
    put("SLURM_STEP_ID", NULL);
}

/* A socket of another program is not used, whatever the variables say. */
T_CASE(a_strange_socket_is_left_alone) {
    T_UNUSED;
    int ends[2];
    char byte;
    T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    set_number("TUTTI_CONTROL_FD", ends[1]);
    set_number("TUTTI_SUPERVISOR_PID", (int)getpid() + 1);
    T_OK(tti_worker_init());
    tti_worker_report_step(1);
    T_EQ(fcntl(ends[1], F_GETFD), 0);
    T_EQ(recv(ends[0], &byte, 1, MSG_DONTWAIT), -1);
    close(ends[0]);
    close(ends[1]);
    clear();
}

T_CASE(a_dead_supervisor_is_noticed) {
    T_UNUSED;
    int ends[2];
    T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    set_number("TUTTI_CONTROL_FD", ends[1]);
    set_number("TUTTI_SUPERVISOR_PID", (int)getpid());
    tti_worker_report_step(12);
    tti_control_message m;
    T_EQ(recv(ends[0], &m, sizeof m, MSG_DONTWAIT), (int)sizeof m);
    assert_true(m.magic == TTI_CONTROL_MAGIC && m.step == 12);
    char words[1000] = "bad weather";
    for (int i = 0; i < 2; i++) {
        tti_worker_report_failure(7, words);
        T_EQ(recv(ends[0], &m, sizeof m, MSG_DONTWAIT), (int)sizeof m);
        assert_true(m.magic == TTI_CONTROL_FAILED && m.step == 7);
        T_EQ(strncmp(m.words, words, sizeof m.words - 1), 0);
        T_EQ(strlen(m.words), TTI_MIN(strlen(words), sizeof m.words - 1));
        memset(words, 'x', sizeof words - 1);
    }
    close(ends[0]);
    T_FAILS(tti_worker_init(), TUTTI_E_PEER, "supervisor is gone");
    char *argv[] = {(char *)"true", NULL};
    T_FAILS(tutti_worker_exec(argv), TUTTI_E_PEER, "supervisor is gone");
    tti_worker_report_step(13); /* no SIGPIPE */
    close(ends[1]);
    clear();
}

T_CASE(becomes_a_program) {
    T_UNUSED;
    char *missing[] = {(char *)"/nonexistent/program", NULL};
    T_FAILS(tutti_worker_exec(missing), TUTTI_E_IO, "cannot run '/nonexistent/program'");
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char *)"sh", (char *)"-c", (char *)"exit 7", NULL};
        tutti_status st = tutti_worker_exec(argv);
        _exit((int)st);
    }
    int status;
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(WEXITSTATUS(status), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_a_supervisor),
        cmocka_unit_test(a_launcher_that_starts_again),
        cmocka_unit_test(a_strange_socket_is_left_alone),
        cmocka_unit_test(a_dead_supervisor_is_noticed),
        cmocka_unit_test(becomes_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
