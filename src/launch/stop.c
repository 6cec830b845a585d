/* stop.c - the stop flag, set by a signal handler that does nothing else.
 * The handler may run on any thread, so what it touches is lock-free and atomic; it calls only
 * clock_gettime() and _exit(), which are safe there. */
#include "launch/stop.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

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

static bool is_supervised(void) {
    const char *pid = getenv("TUTTI_SUPERVISOR_PID");
    return pid && atol(pid) == (long)getppid();
}

/* Restart, so that no read or wait of the trainer sees EINTR. */
static int take_over(int sig, struct sigaction *old) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    if (sigaction(sig, NULL, old) != 0) return -1;
    return old->sa_handler == SIG_IGN ? 0 : sigaction(sig, &act, NULL);
}

tutti_status tti_stop_install(tti_stop *stop) {
    if (atomic_exchange(&installed, true))
        return tti_fail(TUTTI_E_INVALID, "stop: the signals are already taken by another training");
    atomic_store(&supervised, is_supervised());
    atomic_store(&requested_ns, INT64_MAX);
    atomic_store(&requested, 0);
    if (take_over(SIGINT, &stop->old_int) == 0 && take_over(SIGTERM, &stop->old_term) == 0 &&
        take_over(SIGHUP, &stop->old_hup) == 0)
        return TUTTI_OK;
    atomic_store(&installed, false);
    return tti_fail(TUTTI_E_INTERNAL, "stop: sigaction: %s", strerror(errno));
}

void tti_stop_remove(const tti_stop *stop) {
    sigaction(SIGINT, &stop->old_int, NULL);
    sigaction(SIGTERM, &stop->old_term, NULL);
    sigaction(SIGHUP, &stop->old_hup, NULL);
    atomic_store(&installed, false);
}

int tti_stop_signal(void) { return atomic_load_explicit(&requested, memory_order_relaxed); }

bool tti_stop_requested(void) { return tti_stop_signal() != 0; }
