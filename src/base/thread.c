/* thread.c - blocks all signals while it starts a thread, which inherits the mask. */
#include "base/thread.h"

#include <signal.h>

int tti_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                     void *arg) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}
