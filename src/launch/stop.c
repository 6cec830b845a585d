/* stop.c - the stop flag, which a minimal signal handler sets.
 *
 * The handler must not run on a thread that computes: oneDNN's AVX matrix product moves the stack
 * pointer to the start of a heap block, so the kernel would write the signal frame over the heap
 * block before it.  Therefore every training thread blocks the signals, and one dedicated thread
 * receives them.  The handler touches only lock-free atomics and calls only clock_gettime() and
 * _exit(), which are async-signal-safe. */
#include "launch/stop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

static atomic_int requested; /* the first signal, 0: none */
static _Atomic int64_t requested_ns;
static atomic_bool installed, supervised;

static void on_signal(int given) {
    int none = 0, sig = given == SIGHUP ? SIGTERM : given;
    int64_t now_ns = tti_now_ns();
    if (atomic_compare_exchange_strong(&requested, &none, sig)) {
        atomic_store(&requested_ns, now_ns);
        return;
    }
    if (atomic_load(&supervised)) return;
    if (now_ns - atomic_load(&requested_ns) >= 100 * TTI_NS_PER_MS) _exit(128 + sig);
}

static const int asked[] = {SIGINT, SIGTERM, SIGHUP};

static bool is_ignored(int sig) {
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

/* ---- the thread that takes the signals ---- */

/* The thread that receives the signals.  It blocks all other signals, which belong to the program's
 * threads. */
static void *handle_signals(void *arg) {
    tti_stop *stop = arg;
    uint64_t n;
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < TTI_COUNT(asked); i++) sigdelset(&others, asked[i]);
    pthread_sigmask(SIG_SETMASK, &others, NULL);
    while (read(stop->end_fd, &n, sizeof n) < 0 && errno == EINTR) continue;
    return NULL;
}

tutti_status tti_stop_shield(tti_stop *stop) {
    stop->installed = false;
    stop->end_fd = eventfd(0, EFD_CLOEXEC);
    if (stop->end_fd < 0) return tti_fail(TUTTI_E_IO, "stop: eventfd: %s", strerror(errno));
    int error = tti_thread_start(&stop->taker, NULL, handle_signals, stop);
    if (error) {
        close(stop->end_fd);
        return tti_fail(TUTTI_E_NOMEM, "stop: cannot start a thread: %s", strerror(error));
    }
    /* A blocked signal stays pending even if it is ignored, so ignored signals are not blocked. */
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < TTI_COUNT(asked); i++)
        if (!is_ignored(asked[i])) sigaddset(&blocked, asked[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &stop->old_mask);
    return TUTTI_OK;
}

/* ---- the handlers ---- */

/* Uses SA_RESTART, so that no read or wait of the program's threads fails with EINTR. */
static int take_over(int sig, struct sigaction *old) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    if (sigaction(sig, NULL, old) != 0) return -1;
    return old->sa_handler == SIG_IGN ? 0 : sigaction(sig, &act, NULL);
}

tutti_status tti_stop_install(tti_stop *stop) {
    if (atomic_exchange(&installed, true))
        return tti_fail(TUTTI_E_INVALID,
                        "stop: another training of this process already handles the signals");
    const char *pid = getenv("TUTTI_SUPERVISOR_PID");
    atomic_store(&supervised, pid && atol(pid) == (long)getppid());
    atomic_store(&requested_ns, INT64_MAX);
    atomic_store(&requested, 0);
    if (take_over(SIGINT, &stop->old_int) == 0 && take_over(SIGTERM, &stop->old_term) == 0 &&
        take_over(SIGHUP, &stop->old_hup) == 0) {
        stop->installed = true;
        return TUTTI_OK;
    }
    atomic_store(&installed, false);
    return tti_fail(TUTTI_E_INTERNAL, "stop: sigaction: %s", strerror(errno));
}

/* Takes a signal that this thread has sent to itself with raise(), which is pending for this thread
 * only.  Returns 0 if there is none. */
static int take_own_signal(void) {
    sigset_t pending, ours;
    bool any = false;
    sigpending(&pending);
    sigemptyset(&ours);
    for (size_t i = 0; i < TTI_COUNT(asked); i++)
        if (sigismember(&pending, asked[i]) && !is_ignored(asked[i])) {
            sigaddset(&ours, asked[i]);
            any = true;
        }
    int sig = any ? sigtimedwait(&ours, NULL, &(struct timespec){0}) : 0;
    return sig > 0 ? sig : 0;
}

void tti_stop_remove(const tti_stop *stop) {
    if (stop->installed) {
        while (take_own_signal())
            continue; /* it has requested the stop already, and must not kill the process now */
        sigaction(SIGINT, &stop->old_int, NULL);
        sigaction(SIGTERM, &stop->old_term, NULL);
        sigaction(SIGHUP, &stop->old_hup, NULL);
        atomic_store(&installed, false);
    }
    uint64_t one = 1;
    while (write(stop->end_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
    pthread_join(stop->taker, NULL);
    close(stop->end_fd);
    pthread_sigmask(SIG_SETMASK, &stop->old_mask, NULL);
}

int tti_stop_signal(void) {
    int sig = atomic_load_explicit(&requested, memory_order_relaxed);
    if (sig || !atomic_load_explicit(&installed, memory_order_relaxed)) return sig;
    sig = take_own_signal();
    if (sig) on_signal(sig);
    return atomic_load_explicit(&requested, memory_order_relaxed);
}

int tti_stop_signal_of_any(void) { return tti_stop_signal() ? tti_stop_signal() : SIGTERM; }

bool tti_stop_requested(void) { return tti_stop_signal() != 0; }
