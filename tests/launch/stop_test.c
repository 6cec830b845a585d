/* stop_test.c - the first signal sets the flag, the second ends the process, the former handlers
 * come back, and no handler runs on a thread that computes. */
#include "launch/stop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "t.h"

T_CASE(flag_and_restore) {
    T_UNUSED;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_IGN);
    tti_stop stop, second;
    T_OK(tti_stop_shield(&stop));
    T_OK(tti_stop_install(&stop));
    assert_false(tti_stop_requested());
    T_OK(tti_stop_shield(&second));
    T_FAILS(tti_stop_install(&second), TUTTI_E_INVALID, "already");
    tti_stop_remove(&second);
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
    T_OK(tti_stop_shield(&stop));
    T_OK(tti_stop_install(&stop)); /* a new training starts with a clear flag */
    assert_false(tti_stop_requested());
    raise(SIGHUP); /* the terminal has closed */
    T_EQ(tti_stop_signal(), SIGTERM);
    tti_stop_remove(&stop);
    sigaction(SIGHUP, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
}

static bool is_pending(int sig) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, sig);
}

/* The exit code of a child that raises two signals, with so much time between them. */
static int exit_code_after(int first, int second, int apart_ms) {
    pid_t pid = fork();
    if (pid == 0) {
        tti_stop stop;
        if (tti_stop_shield(&stop) != TUTTI_OK || tti_stop_install(&stop) != TUTTI_OK) _exit(1);
        kill(getpid(), first);
        for (int i = 0; i < 5000 && !tti_stop_signal(); i++) tti_sleep_ms(1);
        if (tti_stop_signal() != first) _exit(2);
        tti_clock_advance_ms(apart_ms);
        kill(getpid(), second);
        for (int i = 0; i < 5000 && is_pending(second); i++) tti_sleep_ms(1);
        tti_stop_remove(&stop); /* joins the thread that handles signals */
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

/* ---- who runs the handler ---- */

/* Spins with the stack pointer at the end of page, as oneDNN's AVX matrix product has it at the
 * start of its buffer, until *end. */
#if defined(__x86_64__)
static void compute_with_stack_at(char *top, const atomic_int *end) {
    __asm__ volatile(
        "movq %%rsp, %%rbx\n\t"
        "movq %0, %%rsp\n"
        "1:\n\t"
        "pause\n\t"
        "cmpl $0, (%1)\n\t"
        "je 1b\n\t"
        "movq %%rbx, %%rsp\n\t"
        :
        : "r"(top), "r"(end)
        : "rbx", "memory", "cc");
}

enum { BELOW_BYTES = 64 << 10 };
static atomic_int end_of_work;
static char below[BELOW_BYTES] __attribute__((aligned(64)));

static void *compute(void *arg) {
    (void)arg;
    compute_with_stack_at(below + sizeof below, &end_of_work);
    return NULL;
}

static void *signal_and_end(void *arg) {
    for (int i = 0; i < 20; i++) {
        kill(getpid(), SIGTERM);
        tti_sleep_ms(1);
    }
    atomic_store(&end_of_work, 1);
    return arg;
}

/* A frame of a signal would be written below the stack pointer. */
T_CASE(no_handler_on_a_thread_that_computes) {
    T_UNUSED;
    pthread_t other, sender;
    tti_stop stop;
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getppid());
    setenv("TUTTI_SUPERVISOR_PID", pid, 1); /* further signals do nothing */
    memset(below, 0x5a, sizeof below);
    T_OK(tti_stop_shield(&stop));
    T_OK(tti_stop_install(&stop));
    T_EQ(pthread_create(&other, NULL, compute, NULL), 0);
    T_EQ(tti_thread_start(&sender, NULL, signal_and_end, NULL), 0);
    compute(NULL);
    pthread_join(sender, NULL);
    pthread_join(other, NULL);
    T_EQ(tti_stop_signal(), SIGTERM);
    tti_stop_remove(&stop);
    unsetenv("TUTTI_SUPERVISOR_PID");
    for (size_t i = 0; i < sizeof below; i++) T_EQ(below[i], 0x5a);
}
#endif

/* The signal mask and the handlers of other signals are restored. */
T_CASE(mask_comes_back) {
    T_UNUSED;
    sigset_t before, after;
    tti_stop stop;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    T_OK(tti_stop_shield(&stop));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    T_EQ(sigismember(&after, SIGINT) && sigismember(&after, SIGTERM), 1);
    tti_stop_remove(&stop);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int sig = 1; sig < 32; sig++) T_EQ(sigismember(&before, sig), sigismember(&after, sig));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flag_and_restore),
        cmocka_unit_test(second_signal_ends_at_once),
        cmocka_unit_test(twice_at_once_is_one),
        cmocka_unit_test(a_supervisor_decides_alone),
#if defined(__x86_64__)
        cmocka_unit_test(no_handler_on_a_thread_that_computes),
#endif
        cmocka_unit_test(mask_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
