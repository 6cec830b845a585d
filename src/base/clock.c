/* clock.c - the monotonic clock in nanoseconds.
 * Dates for people (file names, log lines) are not made here: nothing that is compared or waited
 * for may depend on the wall clock. */
#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/fault.h"

#if TUTTI_FAULTS
static _Atomic int64_t advanced_ns;

void tti_clock_advance_ms(int64_t t_ms) { atomic_fetch_add(&advanced_ns, t_ms * TTI_NS_PER_MS); }
#else
enum { advanced_ns = 0 };
#endif

int64_t tti_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + advanced_ns;
}

int64_t tti_clock_system_ns(int64_t t_ns) { return t_ns - advanced_ns; }

int tti_ms_until(int64_t deadline_ns) {
    int64_t left_ns = deadline_ns - tti_now_ns();
    if (left_ns <= 0) return 0;
    int64_t left_ms = (left_ns + TTI_NS_PER_MS - 1) / TTI_NS_PER_MS;
    return left_ms < 3600000 ? (int)left_ms : 3600000;
}

void tti_sleep_ms(int t_ms) {
    struct timespec t = {.tv_sec = t_ms / 1000, .tv_nsec = (long)(t_ms % 1000) * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) continue;
}
