/* lanes.c - a pool of pinned compute threads with a barrier that spins, then sleeps. */
#include "exec/program/lanes.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/affinity.h"

enum { SPINS = 4000 };

typedef struct lane {
    tti_lanes *lanes;
    pthread_t thread;
    int index, core;
    bool started;
} lane;

struct tti_lanes {
    int n_lanes;
    lane *lane; /* [n_lanes]; lane 0 has no thread */
    void (*init)(void);
    tti_lane_fn fn;
    void *arg;
    bool stop;
    tti_cores callers; /* of the calling thread before it became lane 0; n 0: as they were */
    _Atomic unsigned generation; /* of dispatches; futex */
    _Atomic int n_running;       /* lanes that have not finished; futex of lane 0 */
    _Atomic unsigned phase;      /* of the barrier; futex */
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
static void wait_change(_Atomic unsigned *word, unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
        relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == seen) futex_wait(word, seen);
}

static void finish(tti_lanes *lanes) {
    if (atomic_fetch_sub_explicit(&lanes->n_running, 1, memory_order_acq_rel) == 1)
        futex_wake(&lanes->n_running);
}

static void *run_lane(void *arg) {
    lane *self = arg;
    tti_lanes *lanes = self->lanes;
    tti_core_pin(self->core);
    if (lanes->init) lanes->init();
    unsigned seen = 0;
    for (;;) {
        wait_change(&lanes->generation, seen);
        seen++;
        if (lanes->stop) return NULL;
        lanes->fn(self->index, lanes->arg);
        finish(lanes);
    }
}

tutti_status tti_lanes_create(int n_lanes, const int *cores, void (*init)(void), tti_lanes **out) {
    *out = NULL;
    TTI_ASSERT(n_lanes >= 1);
    tti_lanes *lanes = calloc(1, sizeof *lanes);
    if (lanes) lanes->lane = calloc((size_t)n_lanes, sizeof *lanes->lane);
    if (!lanes || !lanes->lane) {
        free(lanes);
        return tti_fail(TUTTI_E_NOMEM, "lanes: out of memory");
    }
    lanes->n_lanes = n_lanes;
    lanes->init = init;
    for (int i = 0; i < n_lanes; i++)
        lanes->lane[i] = (lane){.lanes = lanes, .index = i, .core = cores ? cores[i] : -1};
    if (cores) tti_cores_allowed(&lanes->callers);
    tti_core_pin(lanes->lane[0].core);
    if (init) init();
    for (int i = 1; i < n_lanes; i++) {
        if (pthread_create(&lanes->lane[i].thread, NULL, run_lane, &lanes->lane[i]) != 0) {
            tti_lanes_destroy(lanes);
            return tti_fail(TUTTI_E_NOMEM, "lanes: cannot start thread %d of %d", i, n_lanes);
        }
        lanes->lane[i].started = true;
    }
    *out = lanes;
    return TUTTI_OK;
}

static void dispatch(tti_lanes *lanes) {
    atomic_store_explicit(&lanes->n_running, lanes->n_lanes - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&lanes->generation, 1, memory_order_release);
    futex_wake(&lanes->generation);
}

void tti_lanes_destroy(tti_lanes *lanes) {
    if (!lanes) return;
    lanes->stop = true;
    dispatch(lanes);
    for (int i = 1; i < lanes->n_lanes; i++)
        if (lanes->lane[i].started) pthread_join(lanes->lane[i].thread, NULL);
    if (lanes->callers.n > 0 && tti_cores_pin(&lanes->callers) != TUTTI_OK) tti_clear_error();
    free(lanes->lane);
    free(lanes);
}

int tti_lanes_count(const tti_lanes *lanes) { return lanes->n_lanes; }

void tti_lanes_run(tti_lanes *lanes, tti_lane_fn fn, void *arg) {
    if (lanes->n_lanes == 1) {
        fn(0, arg);
        return;
    }
    lanes->fn = fn;
    lanes->arg = arg;
    dispatch(lanes);
    fn(0, arg);
    for (int i = 0;; i++) {
        int n = atomic_load_explicit(&lanes->n_running, memory_order_acquire);
        if (n == 0) return;
        if (i < SPINS)
            relax();
        else
            futex_wait(&lanes->n_running, (unsigned)n);
    }
}

void tti_lanes_barrier(tti_lanes *lanes) {
    if (lanes->n_lanes == 1) return;
    unsigned phase = atomic_load_explicit(&lanes->phase, memory_order_acquire);
    int n = atomic_fetch_add_explicit(&lanes->n_arrived, 1, memory_order_acq_rel) + 1;
    if (n < lanes->n_lanes) {
        wait_change(&lanes->phase, phase);
        return;
    }
    atomic_store_explicit(&lanes->n_arrived, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&lanes->phase, 1, memory_order_release);
    futex_wake(&lanes->phase);
}

tti_range tti_lane_range(size_t n, size_t unit, int lane_index, int n_lanes) {
    size_t units = (n + unit - 1) / unit;
    size_t first = units * (size_t)lane_index / (size_t)n_lanes * unit;
    size_t last = units * ((size_t)lane_index + 1) / (size_t)n_lanes * unit;
    return (tti_range){TTI_MIN(first, n), TTI_MIN(last, n)};
}
