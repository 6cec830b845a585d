/* compute_threads.h - the threads of one worker that compute shards in parallel.
 *
 * Thread 0 is the calling thread. The others persist and are pinned, so that a dispatch costs a
 * wake-up instead of a new thread. Destroy restores the affinity of the caller. A waiting thread
 * spins for some microseconds and then sleeps; pinned threads spin longer, because nothing else
 * uses their cores. */
#ifndef TTI_EXEC_COMPUTE_THREADS_H
#define TTI_EXEC_COMPUTE_THREADS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct tti_compute_threads tti_compute_threads;
typedef void (*tti_compute_thread_fn)(int compute_thread, void *arg);

/* n_compute_threads >= 1. cores [n_compute_threads]: the core of each thread, NULL: not pinned.
 * init runs once on every thread (NULL: nothing).  On success *out is owned by the caller. */
tutti_status tti_compute_threads_create(int n_compute_threads, const int *cores, void (*init)(void),
                                        tti_compute_threads **out);
void tti_compute_threads_destroy(tti_compute_threads *compute_threads);

/* Runs fn(compute thread, arg) on every compute thread and returns when all are done. */
void tti_compute_threads_run(tti_compute_threads *compute_threads, tti_compute_thread_fn fn,
                             void *arg);

/* Inside fn: returns when every compute thread has called it. */
void tti_compute_threads_barrier(tti_compute_threads *compute_threads);

/* The items first .. last-1, of n, for compute thread i of n_compute_threads, in multiples of
 * unit. */
typedef struct tti_range {
    size_t first, last;
} tti_range;
tti_range tti_compute_thread_range(size_t n, size_t unit, int compute_thread,
                                   int n_compute_threads);

#endif /* TTI_EXEC_COMPUTE_THREADS_H */
