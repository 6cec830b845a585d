/* thread.h - starts helper threads with all signals blocked. */
#ifndef TTI_BASE_THREAD_H
#define TTI_BASE_THREAD_H

#include <pthread.h>

/* Starts run(arg) with every signal blocked, since these are for the program's own threads: Ctrl-C
 * must not land elsewhere.  attr as of pthread_create, or NULL.  0, or the error's number. */
int tti_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                     void *arg);

#endif /* TTI_BASE_THREAD_H */
