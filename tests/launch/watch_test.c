/* watch_test.c - ranks that hang in an operation, in no operation, or in a wait: the culprit is
 * named with layer and stack, those that wait for it are not, and slow ranks are not accused.  The
 * tests move the clock themselves, so a busy machine does not change what is reported. */
#include "launch/watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "launch/live.h"
#include "t.h"
#include "tutti/launch.h"

enum { N = 3, MIN_MS = 120, LONG_MS = 20000, PHASE_MS = 1000000 };

typedef struct hang_reports {
    int n;
    char last[2000];
} hang_reports;

static void note(void *user, const char *text) {
    hang_reports *t = user;
    t->n++;
    snprintf(t->last, sizeof t->last, "%s", text);
}

static void begin(tti_flight *f, int thread, const char *name, bool waits) {
    tti_flight_begin(f, thread,
                     &(tti_flight_op){.name = name, .step = 7, .waits_for_peers = waits});
}

/* Ranks that are past their first steps, of 1 ms each. */
static tti_flight_memory *ranks(void) {
    tti_flight_memory *m;
    T_OK(tti_flight_create(N, &m));
    for (int r = 0; r < N; r++) {
        tti_flight_enter(tti_flight_of(m, r), NULL);
        for (uint64_t i = 1; i <= 7; i++) tti_flight_commit(tti_flight_of(m, r), i, 1000000);
    }
    return m;
}

/* The clock moves by t_ms, with a look every 20 ms. */
static void look_for(tti_watch *w, int t_ms) {
    for (int i = 0; i * 20 < t_ms; i++) {
        tti_watch_look(w);
        tti_clock_advance_ms(20);
    }
}

/* A look counts little of a time in which the ranks had no core, so the number of looks that it
 * takes depends on the machine. */
static void look_until_reported(tti_watch *w, const hang_reports *t) {
    for (int i = 0; i < 10000 && t->n == 0; i++) look_for(w, 20);
    T_EQ(t->n, 1);
}

static void check(tti_flight_memory *m, const char *culprit, const char *what) {
    hang_reports t = {0};
    tti_watch *w;
    T_OK(tti_watch_create(
        &(tti_watch_desc){.memory = m, .min_ms = MIN_MS, .report = note, .user = &t}, &w));
    look_until_reported(w, &t);
    look_for(w, 3 * MIN_MS);
    T_EQ(t.n, 1); /* once, and only the culprit */
    if (!strstr(t.last, culprit) || !strstr(t.last, what))
        fail_msg("'%s' lacks '%s' or '%s'", t.last, culprit, what);
    for (int r = 0; r < N; r++) tti_flight_commit(tti_flight_of(m, r), 8, 1);
    tti_watch_look(w);
    if (!strstr(t.last, "makes progress again")) fail_msg("%s", t.last);
    tti_watch_destroy(w);
    tti_flight_close(m);
}

T_CASE(a_kernel_hangs) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    tti_flight_name_layer(tti_flight_of(m, 1), 2, "conv2d", "conv2", false);
    begin(tti_flight_of(m, 0), TTI_THREAD_COMM, "all_reduce", true);
    begin(tti_flight_of(m, 1), TTI_THREAD_COMPUTE, "run", false);
    tti_flight_layer(tti_flight_layer_place(tti_flight_of(m, 1), TTI_THREAD_COMPUTE), 2);
    begin(tti_flight_of(m, 2), TTI_THREAD_MAIN, "report", true);
    check(m, "rank 1 (pid", "step 7, run conv2 (conv2d)");
}

T_CASE(a_data_source_hangs) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    begin(tti_flight_of(m, 2), TTI_THREAD_MAIN, "load batch", false);
    begin(tti_flight_of(m, 0), TTI_THREAD_MAIN, "report", true);
    begin(tti_flight_of(m, 1), TTI_THREAD_MAIN, "report", true);
    check(m, "rank 2 (pid", "load batch");
}

T_CASE(a_rank_hangs_in_no_operation) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    begin(tti_flight_of(m, 1), TTI_THREAD_MAIN, "report", true);
    begin(tti_flight_of(m, 2), TTI_THREAD_MAIN, "report", true);
    check(m, "rank 0 (pid", "between operations");
}

T_CASE(all_wait_and_the_last_to_begin_is_named) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    begin(tti_flight_of(m, 0), TTI_THREAD_COMM, "all_reduce", true);
    begin(tti_flight_of(m, 2), TTI_THREAD_COMM, "all_reduce", true);
    tti_clock_advance_ms(2);
    begin(tti_flight_of(m, 1), TTI_THREAD_COMM, "recv", true);
    check(m, "rank 1 (pid", "recv");
}

/* The others reach their limit first. */
T_CASE(the_last_to_begin_is_named_before_it_is_past_its_limit) {
    T_UNUSED;
    hang_reports t = {0};
    tti_watch *w;
    tti_flight_memory *m = ranks();
    T_OK(tti_watch_create(
        &(tti_watch_desc){.memory = m, .min_ms = LONG_MS, .report = note, .user = &t}, &w));
    begin(tti_flight_of(m, 0), TTI_THREAD_COMM, "all_reduce", true);
    begin(tti_flight_of(m, 2), TTI_THREAD_COMM, "all_reduce", true);
    look_for(w, LONG_MS / 4);
    T_EQ(t.n, 0);
    begin(tti_flight_of(m, 1), TTI_THREAD_COMM, "recv", true);
    look_until_reported(w, &t);
    if (!strstr(t.last, "rank 1 (pid")) fail_msg("%s", t.last);
    tti_watch_destroy(w);
    tti_flight_close(m);
}

/* Rank 1 waits for its device, as ranks with several do in each step, and in no call.  The others
 * are in a collective, one since later. */
T_CASE(a_device_hangs_and_the_rank_in_no_call_is_named) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    begin(tti_flight_of(m, 0), TTI_THREAD_COMM, "all_reduce", true);
    tti_flight_in_call(tti_flight_of(m, 0), true);
    begin(tti_flight_of(m, 1), TTI_THREAD_COMPUTE, "wait for device", true);
    tti_clock_advance_ms(2);
    begin(tti_flight_of(m, 2), TTI_THREAD_COMM, "all_reduce", true);
    tti_flight_in_call(tti_flight_of(m, 2), true);
    check(m, "rank 1 (pid", "wait for device");
}

T_CASE(a_layer_that_waits_for_others_is_no_culprit) {
    T_UNUSED;
    tti_flight_memory *m = ranks();
    for (int r = 0; r < N; r++) {
        tti_flight_name_layer(tti_flight_of(m, r), 0, "tp_sum", "", true);
        tti_flight_name_layer(tti_flight_of(m, r), 1, "linear", "fc", false);
        begin(tti_flight_of(m, r), TTI_THREAD_COMPUTE, "run", false);
        tti_flight_layer(tti_flight_layer_place(tti_flight_of(m, r), TTI_THREAD_COMPUTE), r == 2);
    }
    check(m, "rank 2 (pid", "fc (linear)");
}

T_CASE(slow_ranks_are_not_accused) {
    T_UNUSED;
    hang_reports t = {0};
    tti_watch *w;
    tti_flight_memory *m = ranks();
    T_OK(tti_watch_create(&(tti_watch_desc){.memory = m,
                                            .min_ms = MIN_MS,
                                            .first_ms = PHASE_MS,
                                            .phase_ms = PHASE_MS,
                                            .report = note,
                                            .user = &t},
                          &w));
    tti_flight_phase(tti_flight_of(m, 0), "saving a checkpoint"); /* a declared phase */
    tti_flight_enter(tti_flight_of(m, 2), NULL);                  /* before its first step */
    for (int i = 0; i < 15; i++) {                                /* steps of another layer each */
        begin(tti_flight_of(m, 1), TTI_THREAD_COMPUTE, "run", false);
        look_for(w, 20);
    }
    T_EQ(t.n, 0);
    for (uint64_t i = 0; i < 16; i++) /* 5 median steps are longer than the shortest hang */
        tti_flight_commit(tti_flight_of(m, 1), i, 10000 * TTI_NS_PER_MS);
    tti_clock_advance_ms(PHASE_MS); /* of which a look counts a moment, but for a phase all */
    look_for(w, 2 * MIN_MS);
    T_EQ(t.n, 1); /* the phase has passed its own limit, and is only called slow */
    assert_non_null(strstr(t.last, "rank 0 (pid"));
    assert_non_null(strstr(t.last, "is slow: saving a checkpoint"));
    tti_watch_destroy(w);
    tti_flight_close(m);
}

/* The rank is a thread of the process that watches, whose looks read files of /proc. */
T_CASE(a_thread_hangs_in_a_phase) {
    T_UNUSED;
    hang_reports t = {0};
    tti_watch *w;
    tti_flight_memory *m = ranks();
    T_OK(tti_watch_create(
        &(tti_watch_desc){.memory = m, .min_ms = MIN_MS, .report = note, .user = &t}, &w));
    tti_flight_phase(tti_flight_of(m, 2), "evaluating");
    begin(tti_flight_of(m, 2), TTI_THREAD_COMPUTE, "run", false);
    for (int i = 0; i < 1000 && t.n == 0; i++) {
        for (int r = 0; r < 2; r++) tti_flight_commit(tti_flight_of(m, r), 8 + (uint64_t)i, 1);
        look_for(w, 20);
    }
    T_EQ(t.n, 1);
    assert_non_null(strstr(t.last, "is slow: no progress for"));
    assert_non_null(strstr(t.last, "while evaluating, step 7, run"));
    tti_watch_destroy(w);
    tti_flight_close(m);
}

/* It waits for a place as long as the run lasts; the clock jumps to when a phase counts as slow. */
T_CASE(a_spare_is_not_slow) {
    T_UNUSED;
    hang_reports t = {0};
    tti_watch *w;
    tti_flight_memory *m = ranks();
    T_OK(tti_watch_create(
        &(tti_watch_desc){.memory = m, .min_ms = MIN_MS, .report = note, .user = &t}, &w));
    tti_flight_enter(tti_flight_of(m, 1), TTI_FLIGHT_SPARE);
    tti_flight_phase(tti_flight_of(m, 2), "saving a checkpoint");
    tti_watch_look(w);
    for (uint64_t i = 0; i < 3; i++) {
        tti_clock_advance_ms(400000);
        tti_flight_commit(tti_flight_of(m, 0), 8 + i, 1000000);
        tti_watch_look(w);
    }
    T_EQ(t.n, 1);
    assert_non_null(strstr(t.last, "rank 2 (pid")); /* the same phase of a rank is slow */
    tti_watch_destroy(w);
    tti_flight_close(m);
}

/* Two ranks wait for each other; the third process is a spare, or has ended. */
T_CASE(waits_beside_a_spare_or_a_dead_rank) {
    T_UNUSED;
    for (int is_dead = 0; is_dead < 2; is_dead++) {
        hang_reports t = {0};
        tti_watch *w;
        tti_flight_memory *m = ranks();
        fflush(NULL);
        pid_t pid = is_dead ? fork() : -1;
        if (pid <= 0) tti_flight_enter(tti_flight_of(m, 2), is_dead ? NULL : TTI_FLIGHT_SPARE);
        if (pid == 0) _exit(0);
        if (pid > 0) T_EQ(waitpid(pid, NULL, 0), pid);
        T_OK(tti_watch_create(
            &(tti_watch_desc){.memory = m, .min_ms = MIN_MS, .report = note, .user = &t}, &w));
        begin(tti_flight_of(m, 0), TTI_THREAD_COMM, "all_reduce", true);
        tti_clock_advance_ms(2);
        begin(tti_flight_of(m, 1), TTI_THREAD_COMM, "recv", true);
        look_until_reported(w, &t);
        assert_non_null(strstr(t.last, "rank 1 (pid"));
        tti_watch_destroy(w);
        tti_flight_close(m);
    }
}

/* ---- another process, found by its folder ---- */

static void __attribute__((noinline)) hang_here(void) {
    for (volatile bool goes_on = true; goes_on;) tti_sleep_ms(10);
}

static void *hang(void *arg) {
    begin(arg, TTI_THREAD_COMPUTE, "run", false);
    hang_here();
    return NULL;
}

typedef struct trainer {
    const char *folder;
    int ready; /* written to once the process can be found */
    int end;   /* read until its other end is closed */
} trainer;

static int train(const trainer *t) {
    tti_flight_memory *m;
    pthread_t thread;
    char byte = 0;
    if (tti_flight_create(1, &m) != TUTTI_OK) return 1;
    tti_flight *f = tti_flight_of(m, 0);
    tti_flight_enter(f, NULL);
    tti_flight_serve_stacks(f);
    pthread_create(&thread, NULL, hang, f);
    while (!tti_flight_layer_place(f, TTI_THREAD_COMPUTE)) tti_sleep_ms(1);
    if (tti_live_write(t->folder, -1, m) != TUTTI_OK) return 2;
    if (write(t->ready, &byte, 1) != 1) return 3;
    return read(t->end, &byte, 1) == 0 ? 0 : 4;
}

T_CASE(another_process_is_shown) {
    T_UNUSED;
    char folder[] = "/tmp/watch_test_XXXXXX", *text = NULL, byte;
    int ready[2], end[2];
    assert_non_null(mkdtemp(folder));
    T_EQ(pipe(ready), 0);
    T_EQ(pipe(end), 0);
    T_FAILS(tutti_run_ps(folder, &text), TUTTI_E_CONFIG, "no process of this host trains");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(end[1]);
        _exit(train(&(trainer){.folder = folder, .ready = ready[1], .end = end[0]}));
    }
    close(ready[1]);
    T_EQ(read(ready[0], &byte, 1), 1);
    T_OK(tutti_run_ps(folder, &text));
    char shown[32];
    snprintf(shown, sizeof shown, "%7d", (int)pid);
    assert_non_null(strstr(text, shown));
    assert_non_null(strstr(text, "step 7, run"));
    free(text);
    T_OK(tutti_run_stacks(folder, &text));
    for (int i = 0; i < 20 && !strstr(text, "hang_here"); i++) { /* it got no core */
        free(text);
        T_OK(tutti_run_stacks(folder, &text));
    }
    if (!strstr(text, "hang_here")) fail_msg("no stack: %s", text);
    free(text);
    close(ready[0]);
    close(end[0]);
    close(end[1]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    T_FAILS(tutti_run_stacks(folder, &text), TUTTI_E_CONFIG, "no process of this host trains");
    tti_live_remove(folder, -1);
    T_EQ(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_hangs),
        cmocka_unit_test(a_data_source_hangs),
        cmocka_unit_test(a_rank_hangs_in_no_operation),
        cmocka_unit_test(all_wait_and_the_last_to_begin_is_named),
        cmocka_unit_test(the_last_to_begin_is_named_before_it_is_past_its_limit),
        cmocka_unit_test(a_device_hangs_and_the_rank_in_no_call_is_named),
        cmocka_unit_test(a_layer_that_waits_for_others_is_no_culprit),
        cmocka_unit_test(slow_ranks_are_not_accused),
        cmocka_unit_test(a_thread_hangs_in_a_phase),
        cmocka_unit_test(a_spare_is_not_slow),
        cmocka_unit_test(waits_beside_a_spare_or_a_dead_rank),
        cmocka_unit_test(another_process_is_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
