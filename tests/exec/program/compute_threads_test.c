/* compute_threads_test.c - dispatches and barriers, many of them; memory is handed over without a
 * lock. */
#include "exec/program/compute_threads.h"
#include "base/affinity.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "t.h"

static _Atomic int n_inits;

static void count_init(void) { atomic_fetch_add(&n_inits, 1); }

typedef struct work {
    tti_compute_threads *compute_threads;
    int n_compute_threads, round;
    int n_asleep; /* times that all others were found asleep */
    int slot[16]; /* plain memory: the compute threads order the accesses, or TSan complains */
    int sum[16];
    bool wrong;
} work;

static void write_own(int compute_thread, void *arg) {
    work *w = arg;
    w->slot[compute_thread] = w->round * 100 + compute_thread;
}

T_CASE(every_compute_thread_runs_once_per_dispatch) {
    T_UNUSED;
    for (int n = 1; n <= 8; n++) {
        tti_compute_threads *compute_threads;
        n_inits = 0;
        T_OK(tti_compute_threads_create(n, NULL, count_init, &compute_threads));
        work w = {.compute_threads = compute_threads, .n_compute_threads = n};
        for (w.round = 1; w.round <= 300; w.round++) {
            tti_compute_threads_run(compute_threads, write_own, &w);
            for (int i = 0; i < n; i++) T_EQ(w.slot[i], w.round * 100 + i);
        }
        tti_compute_threads_destroy(compute_threads);
        T_EQ(n_inits, n);
    }
}

/* Everybody writes, waits, reads what all wrote, waits; many times in one dispatch. */
static void write_and_read(int compute_thread, void *arg) {
    work *w = arg;
    for (int round = 0; round < 200; round++) {
        w->slot[compute_thread] = round + compute_thread;
        tti_compute_threads_barrier(w->compute_threads);
        int sum = 0;
        for (int i = 0; i < w->n_compute_threads; i++) sum += w->slot[i] - i;
        w->sum[compute_thread] += sum == round * w->n_compute_threads;
        tti_compute_threads_barrier(w->compute_threads);
    }
}

T_CASE(a_barrier_keeps_the_compute_threads_together) {
    T_UNUSED;
    for (int n = 1; n <= 5; n++) {
        work w = {.n_compute_threads = n};
        T_OK(tti_compute_threads_create(n, NULL, NULL, &w.compute_threads));
        for (int i = 0; i < 3; i++) tti_compute_threads_run(w.compute_threads, write_and_read, &w);
        for (int i = 0; i < n; i++) T_EQ(w.sum[i], 600);
        tti_compute_threads_destroy(w.compute_threads);
    }
}

/* Slow compute threads: the waiters have gone to sleep. */
static void dawdle(int compute_thread, void *arg) {
    work *w = arg;
    if (compute_thread == w->round % w->n_compute_threads) w->n_asleep += t_wait_asleep();
    tti_compute_threads_barrier(w->compute_threads);
    if (compute_thread == (w->round + 1) % w->n_compute_threads) w->n_asleep += t_wait_asleep();
    w->slot[compute_thread] = w->round;
}

T_CASE(sleepers_are_woken) {
    T_UNUSED;
    work w = {.n_compute_threads = 3};
    T_OK(tti_compute_threads_create(3, NULL, NULL, &w.compute_threads));
    for (w.round = 0; w.round < 6; w.round++) {
        tti_compute_threads_run(w.compute_threads, dawdle, &w);
        for (int i = 0; i < 3; i++) T_EQ(w.slot[i], w.round);
        assert_true(t_wait_asleep()); /* the compute threads, between dispatches */
    }
    T_EQ(w.n_asleep, 12);
    tti_compute_threads_destroy(w.compute_threads);
}

T_CASE(cores_that_are_not_there_do_no_harm) {
    T_UNUSED;
    tti_compute_threads *compute_threads;
    int cores[2] = {-1, 1000};
    T_OK(tti_compute_threads_create(2, cores, NULL, &compute_threads));
    work w = {.compute_threads = compute_threads, .n_compute_threads = 2, .round = 1};
    tti_compute_threads_run(compute_threads, write_own, &w);
    T_EQ(w.slot[1], 101);
    tti_compute_threads_destroy(compute_threads);
    tti_compute_threads_destroy(NULL);
}

T_CASE(ranges_cover_everything_once) {
    T_UNUSED;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 1000, 12345};
    for (size_t s = 0; s < TTI_COUNT(sizes); s++)
        for (int n_compute_threads = 1; n_compute_threads <= 9; n_compute_threads++)
            for (size_t unit = 1; unit <= 16; unit *= 16) {
                size_t next = 0, most = 0;
                for (int compute_thread = 0; compute_thread < n_compute_threads; compute_thread++) {
                    tti_range r =
                        tti_compute_thread_range(sizes[s], unit, compute_thread, n_compute_threads);
                    T_EQ(r.first, next);
                    assert_true(r.first % unit == 0 || r.first == sizes[s]);
                    assert_true(r.last >= r.first);
                    most = TTI_MAX(most, r.last - r.first);
                    next = r.last;
                }
                T_EQ(next, sizes[s]);
                size_t n_units = (sizes[s] + unit - 1) / unit;
                assert_true(most <=
                            (n_units / (size_t)n_compute_threads + 1) * unit); /* and evenly */
            }
}

/* Whoever trains twice in one process must find all cores again. */
T_CASE(the_caller_gets_its_cores_back) {
    T_UNUSED;
    tti_cores before, during, after;
    tti_cores_allowed(&before);
    tti_compute_threads *compute_threads;
    T_OK(tti_compute_threads_create(1, &before.id[before.n - 1], NULL, &compute_threads));
    tti_cores_allowed(&during);
    tti_compute_threads_destroy(compute_threads);
    tti_cores_allowed(&after);
    T_EQ(during.n, 1);
    T_EQ(during.id[0], before.id[before.n - 1]);
    T_EQ(after.n, before.n);
    for (int i = 0; i < before.n; i++) T_EQ(after.id[i], before.id[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_compute_thread_runs_once_per_dispatch),
        cmocka_unit_test(a_barrier_keeps_the_compute_threads_together),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(cores_that_are_not_there_do_no_harm),
        cmocka_unit_test(ranges_cover_everything_once),
        cmocka_unit_test(the_caller_gets_its_cores_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
