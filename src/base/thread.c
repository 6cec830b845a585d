/* thread.c - blocks all signals while it starts a thread, which inherits the mask; conditions by
 * the monotonic clock, since the wall clock may jump. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"

int tti_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                     void *arg) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

void tti_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int tti_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t end_ns) {
    int64_t system_ns = tti_clock_system_ns(end_ns);
    const struct timespec end = {.tv_sec = (time_t)(system_ns / 1000000000),
                                 .tv_nsec = (long)(system_ns % 1000000000)};
    return pthread_cond_timedwait(cond, mutex, &end);
}
