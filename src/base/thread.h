/* thread.h - starts helper threads with all signals blocked; waits with a deadline. */
#ifndef TTI_BASE_THREAD_H
#define TTI_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts run(arg) with every signal blocked, since these are for the program's own threads: Ctrl-C
 * must not land elsewhere.  attr as of pthread_create, or NULL.  0, or the error's number. */
int tti_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                     void *arg);

/* Initializes a condition for tti_cond_wait_until. Free it with pthread_cond_destroy. */
void tti_cond_init(pthread_cond_t *cond);

/* Waits for a signal until end_ns, a time of tti_now_ns, with the mutex held. Returns 0 or
 * ETIMEDOUT; it may also return 0 without a signal, as pthread_cond_timedwait does. */
int tti_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t end_ns);

#endif /* TTI_BASE_THREAD_H */
