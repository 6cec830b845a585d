/* own_signals.c - blocks the signals that a supervisor reads, and restores them. */
#include "launch/own_signals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/error.h"

/* The last two signals change the number of workers. */
static const int asked[TTI_N_ASKED] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

static pthread_t supervising;

/* The handler may run on another thread of the program, which does not block the signal: forwards
 * it to the supervising thread. */
static void pass_on(int sig) { pthread_kill(supervising, sig); }

/* Ignored signals (nohup, a shell's background job) are not blocked, because a blocked signal is
 * delivered through the descriptor even if it is ignored.  The other signals are blocked in this
 * thread only and may be delivered to any other thread. */
void tti_signals_take(tti_taken_signals *t, bool scales) {
    struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    /* With an inherited SIG_IGN the kernel would discard the exit status of children. */
    struct sigaction child = {.sa_handler = SIG_DFL};
    supervising = pthread_self();
    sigemptyset(&pass.sa_mask);
    sigemptyset(&t->blocked);
    sigaddset(&t->blocked, SIGCHLD);
    sigaddset(&t->blocked, SIGPIPE);
    for (size_t i = 0; i < TTI_COUNT(asked) - (scales ? 0 : 2); i++)
        if (sigaction(asked[i], NULL, &t->old_asked[i]) != 0 ||
            t->old_asked[i].sa_handler != SIG_IGN)
            sigaddset(&t->blocked, asked[i]);
    pthread_sigmask(SIG_BLOCK, &t->blocked, &t->old_mask);
    for (size_t i = 0; i < TTI_COUNT(asked); i++)
        if (sigismember(&t->blocked, asked[i])) sigaction(asked[i], &pass, NULL);
    sigaction(SIGCHLD, &child, &t->old_child);
    sigdelset(&t->blocked, SIGPIPE); /* blocked, but write already reports EPIPE */
}

/* Discards pending signals: a SIGPIPE from the relay's output must not reach the caller, and a
 * repeated stop request is already fulfilled. */
void tti_signals_restore(const tti_taken_signals *t, bool was_stopped) {
    sigset_t answered;
    sigemptyset(&answered);
    if (!sigismember(&t->old_mask, SIGPIPE)) sigaddset(&answered, SIGPIPE);
    for (size_t i = 0; was_stopped && i < TTI_COUNT(asked); i++)
        if (sigismember(&t->blocked, asked[i])) sigaddset(&answered, asked[i]);
    while (sigtimedwait(&answered, NULL, &(struct timespec){0}) > 0) continue;
    for (size_t i = 0; i < TTI_COUNT(asked); i++)
        if (sigismember(&t->blocked, asked[i])) sigaction(asked[i], &t->old_asked[i], NULL);
    pthread_sigmask(SIG_SETMASK, &t->old_mask, NULL);
    sigaction(SIGCHLD, &t->old_child, NULL);
}

static _Atomic int n_counted;

static void count(int sig) { atomic_fetch_add(&n_counted, sig == SIGUSR1 ? 1 : -1); }

void tti_signals_count(tti_taken_signals *t) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    atomic_store(&n_counted, 0);
    sigaction(SIGUSR1, &action, &t->old_asked[3]);
    sigaction(SIGUSR2, &action, &t->old_asked[4]);
}

int tti_signals_counted(void) { return atomic_exchange(&n_counted, 0); }

void tti_signals_uncount(const tti_taken_signals *t) {
    sigaction(SIGUSR1, &t->old_asked[3], NULL);
    sigaction(SIGUSR2, &t->old_asked[4], NULL);
}
