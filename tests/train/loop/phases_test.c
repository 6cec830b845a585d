/* phases_test.c - a worker that saves is waited for, and a batch that does not come ends the run
 * with the rank, the sample and the time. */
#include "train/loop/phases.h"

#include <string.h>

#include <sys/stat.h>
#include "base/clock.h"

#include "base/fault.h"
#include "train/small_job.h"

static tutti_status run_with(const char *faults, tutti_job *job, tutti_train_result *r) {
    T_OK(tti_fault_set(faults));
    tutti_status st = tutti_train(job, NULL, r);
    T_OK(tti_fault_set(NULL));
    tutti_job_destroy(job);
    return st;
}

/* One worker that waits for a batch for a short time, or two workers; 6 steps; then more
 * assignments. */
#define JOB_OF_ONE(...)                                             \
    SMALL_JOB("run.dir=run", "parallel.workers=1", "train.steps=6", \
              "parallel.phase_timeout_ms=1500", __VA_ARGS__)
#define JOB_OF_TWO(...) SMALL_JOB("run.dir=run", "parallel.workers=2", "train.steps=6", __VA_ARGS__)

T_CASE(a_slow_checkpoint_is_waited_for) {
    T_UNUSED;
    tutti_train_result r;
    T_OK(run_with("ckpt.rename:pass_ms=9000@1",
                  JOB_OF_TWO("run.checkpoint_every=3", "parallel.timeout_ms=3000"), &r));
    T_EQ(r.n_steps, 6);
}

T_CASE(and_not_for_ever) {
    T_UNUSED;
    tutti_train_result r;
    tutti_job *job = JOB_OF_TWO("run.checkpoint_every=3", "parallel.timeout_ms=2000",
                                "parallel.phase_timeout_ms=2000");
    T_FAILS(
        run_with("ckpt.rename:pass_ms=45000@1", job, &r), TUTTI_E_TIMEOUT,
        " ms (parallel.phase_timeout_ms=2000) for rank 0, which has been saving a checkpoint for ");
    assert_non_null(strstr(tutti_last_error(), "rank 1 waited "));
    T_EQ(r.exit_code, 6);
}

static tutti_status train_on_slow_data(int timeout_ms, tutti_train_result *r) {
    char fault[48], limit[48], dir[48];
    snprintf(fault, sizeof fault, "loader.read:delay_ms=%d@40", 2 * timeout_ms);
    snprintf(limit, sizeof limit, "parallel.timeout_ms=%d", timeout_ms);
    snprintf(dir, sizeof dir, "run.dir=run-%d", timeout_ms);
    return run_with(fault, JOB_OF_TWO("data.threads=1", limit, dir), r);
}

/* Slower than parallel.timeout_ms, and not stuck.  On a busy machine a worker that computes may be
 * late by more than the short limits. */
T_CASE(slow_data_are_waited_for) {
    T_UNUSED;
    tutti_train_result r;
    tutti_status st = TUTTI_E_TIMEOUT;
    for (int ms = 400; ms <= 10000 && st != TUTTI_OK; ms *= 5) st = train_on_slow_data(ms, &r);
    T_OK(st);
    T_EQ(r.n_steps, 6);
}

static char warning[1000];

static void keep_warning(void *user, const tutti_event *e) {
    (void)user;
    if (e->kind == TUTTI_EVENT_WARNING) snprintf(warning, sizeof warning, "%s", e->text);
}

/* The first delayed read is of the second batch. */
static void miss_a_batch(tutti_job *job) {
    tutti_train_result r;
    int64_t start_ns = tti_now_ns();
    T_FAILS(tutti_train(job, &(tutti_train_desc){.on_event = keep_warning}, &r), TUTTI_E_TIMEOUT,
            " ms for a batch (the limit is 1500 ms): epoch ");
    assert_non_null(
        strstr(tutti_last_error(), "rank 0 (parallel.phase_timeout_ms=1500): loader: "));
    assert_true(tti_now_ns() - start_ns < 30000 * TTI_NS_PER_MS);
    assert_non_null(strstr(warning, "rank 0 has been waiting "));
    assert_non_null(strstr(warning, "reading sample "));
    tutti_job_destroy(job); /* the thread is left in its read */
}

T_CASE(a_batch_that_does_not_come) {
    T_UNUSED;
    T_OK(tti_fault_set("loader.read:delay_ms=60000@40+")); /* and of the cases after it */
    miss_a_batch(JOB_OF_ONE("data.threads=1"));
}

static void write_rows(const char *path, int n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "x,label\n");
    for (int i = 0; i < n; i++) fprintf(file, "%d,%d\n", i % 7, i % 2);
    T_EQ(fclose(file), 0);
}

static void write_table(void) {
    T_EQ(mkdir("table", 0777), 0);
    write_rows("table/train.csv", 140);
    write_rows("table/test.csv", 20);
}

/* Samples of files: a worker without loader threads that draws its samples reads nothing that may
 * block. */
#define TABLE "data.format=csv", "data.dir=table", "data.n_train=0", "data.n_test=0"

T_CASE(and_without_threads) {
    T_UNUSED;
    write_table();
    miss_a_batch(JOB_OF_ONE("data.threads=0", TABLE));
}

/* With a server, and without another worker that waits. */
T_CASE(a_batch_of_an_asynchronous_worker) {
    T_UNUSED;
    tutti_train_result r;
    write_table();
    tutti_job *job = SMALL_JOB("run.dir=run", "parallel.workers=2", "train.steps=6", TABLE,
                               "parallel.mode=fast", "parallel.sync=parameter-server",
                               "parallel.staleness=2", "parallel.phase_timeout_ms=1500");
    T_FAILS(tutti_train(job, NULL, &r), TUTTI_E_TIMEOUT,
            " (parallel.phase_timeout_ms=1500): loader: waited ");
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_slow_checkpoint_is_waited_for),
                                       IN_FOLDER(and_not_for_ever),
                                       IN_FOLDER(slow_data_are_waited_for),
                                       IN_FOLDER(a_batch_that_does_not_come),
                                       IN_FOLDER(and_without_threads),
                                       IN_FOLDER(a_batch_of_an_asynchronous_worker)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
