/* thread.c - a thread inherits the mask of the one that starts it. */
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
