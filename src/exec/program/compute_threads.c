/* compute_threads.c - a pool of pinned compute threads with a barrier that spins, then sleeps. */
#include "exec/program/compute_threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/affinity.h"

/* Spins before a thread sleeps: on its own core, and on a core that other threads may need. */
enum { SPINS = 4000, SPINS_CROWDED = 200 };

typedef struct compute_thread {
    tti_compute_threads *compute_threads;
    pthread_t thread;
    int index, core;
    bool started;
} compute_thread;

struct tti_compute_threads {
    int n_compute_threads, n_spins;
    compute_thread *compute_thread; /* [n_compute_threads]; compute thread 0 has no thread */
    void (*init)(void);
    tti_compute_thread_fn fn;
    void *arg;
    bool stop;
    tti_cores callers; /* affinity of the calling thread before it became compute thread 0; n 0: not
                          changed */
    _Atomic unsigned generation; /* number of dispatches; futex */
    _Atomic int n_running;  /* compute threads that have not finished; futex of compute thread 0 */
    _Atomic unsigned phase; /* of the barrier; futex */
    _Atomic int n_arrived;
};

static void futex_wait(void *word, unsigned expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(void *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits until *word differs from seen; every change is followed by a wake. */
static void wait_change(int n_spins, _Atomic unsigned *word, unsigned seen) {
    for (int i = 0; i < n_spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
        relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == seen) futex_wait(word, seen);
}

static void *run_compute_thread(void *arg) {
    compute_thread *self = arg;
    tti_compute_threads *compute_threads = self->compute_threads;
    tti_core_pin(self->core);
    if (compute_threads->init) compute_threads->init();
    unsigned seen = 0;
    for (;;) {
        wait_change(compute_threads->n_spins, &compute_threads->generation, seen);
        seen++;
        if (compute_threads->stop) return NULL;
        compute_threads->fn(self->index, compute_threads->arg);
        if (atomic_fetch_sub_explicit(&compute_threads->n_running, 1, memory_order_acq_rel) == 1)
            futex_wake(&compute_threads->n_running);
    }
}

tutti_status tti_compute_threads_create(int n_compute_threads, const int *cores, void (*init)(void),
                                        tti_compute_threads **out) {
    *out = NULL;
    TTI_ASSERT(n_compute_threads >= 1);
    tti_compute_threads *compute_threads = calloc(1, sizeof *compute_threads);
    if (compute_threads)
        compute_threads->compute_thread =
            calloc((size_t)n_compute_threads, sizeof *compute_threads->compute_thread);
    if (!compute_threads || !compute_threads->compute_thread) {
        free(compute_threads);
        return tti_fail(TUTTI_E_NOMEM, "compute threads: out of memory");
    }
    compute_threads->n_compute_threads = n_compute_threads;
    compute_threads->n_spins = cores ? SPINS : SPINS_CROWDED;
    compute_threads->init = init;
    for (int i = 0; i < n_compute_threads; i++)
        compute_threads->compute_thread[i] = (compute_thread){
            .compute_threads = compute_threads, .index = i, .core = cores ? cores[i] : -1};
    if (cores) tti_cores_allowed(&compute_threads->callers);
    tti_core_pin(compute_threads->compute_thread[0].core);
    if (init) init();
    for (int i = 1; i < n_compute_threads; i++) {
        if (pthread_create(&compute_threads->compute_thread[i].thread, NULL, run_compute_thread,
                           &compute_threads->compute_thread[i]) != 0) {
            tti_compute_threads_destroy(compute_threads);
            return tti_fail(TUTTI_E_NOMEM, "compute threads: cannot start thread %d of %d", i,
                            n_compute_threads);
        }
        compute_threads->compute_thread[i].started = true;
    }
    *out = compute_threads;
    return TUTTI_OK;
}

static void dispatch(tti_compute_threads *compute_threads) {
    atomic_store_explicit(&compute_threads->n_running, compute_threads->n_compute_threads - 1,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&compute_threads->generation, 1, memory_order_release);
    futex_wake(&compute_threads->generation);
}

void tti_compute_threads_destroy(tti_compute_threads *compute_threads) {
    if (!compute_threads) return;
    compute_threads->stop = true;
    dispatch(compute_threads);
    for (int i = 1; i < compute_threads->n_compute_threads; i++)
        if (compute_threads->compute_thread[i].started)
            pthread_join(compute_threads->compute_thread[i].thread, NULL);
    if (compute_threads->callers.n > 0 && tti_cores_pin(&compute_threads->callers) != TUTTI_OK)
        tti_clear_error();
    free(compute_threads->compute_thread);
    free(compute_threads);
}

void tti_compute_threads_run(tti_compute_threads *compute_threads, tti_compute_thread_fn fn,
                             void *arg) {
    if (compute_threads->n_compute_threads == 1) {
        fn(0, arg);
        return;
    }
    compute_threads->fn = fn;
    compute_threads->arg = arg;
    dispatch(compute_threads);
    fn(0, arg);
    for (int i = 0;; i++) {
        int n = atomic_load_explicit(&compute_threads->n_running, memory_order_acquire);
        if (n == 0) return;
        if (i < compute_threads->n_spins)
            relax();
        else
            futex_wait(&compute_threads->n_running, (unsigned)n);
    }
}

void tti_compute_threads_barrier(tti_compute_threads *compute_threads) {
    if (compute_threads->n_compute_threads == 1) return;
    unsigned phase = atomic_load_explicit(&compute_threads->phase, memory_order_acquire);
    int n = atomic_fetch_add_explicit(&compute_threads->n_arrived, 1, memory_order_acq_rel) + 1;
    if (n < compute_threads->n_compute_threads) {
        wait_change(compute_threads->n_spins, &compute_threads->phase, phase);
        return;
    }
    atomic_store_explicit(&compute_threads->n_arrived, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&compute_threads->phase, 1, memory_order_release);
    futex_wake(&compute_threads->phase);
}

tti_range tti_compute_thread_range(size_t n, size_t unit, int compute_thread_index,
                                   int n_compute_threads) {
    size_t units = (n + unit - 1) / unit;
    size_t first = units * (size_t)compute_thread_index / (size_t)n_compute_threads * unit;
    size_t last = units * ((size_t)compute_thread_index + 1) / (size_t)n_compute_threads * unit;
    return (tti_range){TTI_MIN(first, n), TTI_MIN(last, n)};
}
