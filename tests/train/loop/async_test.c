/* async_test.c - where asynchronous workers come together, what a slow one costs them, and how they
 * go on without one; with backup workers too.  The bits are held by tests/cli/server_test.py. */
#include "train/loop/async.h"

#include "base/fault.h"
#include "train/small_job.h"

static tti_blueprint plain(int64_t n_steps, int64_t per_epoch, int64_t checkpoint_every,
                           int64_t eval_every) {
    tti_blueprint b = {.n_steps = n_steps, .steps_per_epoch = per_epoch};
    b.config.run.checkpoint_every = checkpoint_every;
    b.config.train.eval_every = eval_every;
    return b;
}

T_CASE(stops) {
    T_UNUSED;
    tti_blueprint at_end = plain(100, 30, -1, 0), epochs = plain(100, 30, 0, 0),
                  steps = plain(100, 30, 7, 0), both = plain(100, 30, 25, 2);
    T_EQ(tti_async_next_stop(&at_end, 0), 100);
    T_EQ(tti_async_next_stop(&epochs, 0), 30);
    T_EQ(tti_async_next_stop(&epochs, 30), 60);
    T_EQ(tti_async_next_stop(&epochs, 91), 100);
    T_EQ(tti_async_next_stop(&steps, 6), 7);
    T_EQ(tti_async_next_stop(&steps, 98), 100);
    T_EQ(tti_async_next_stop(&both, 49), 50);
    T_EQ(tti_async_next_stop(&both, 50), 60); /* evaluations every second epoch */
    T_EQ(tti_async_next_stop(&both, 60), 75);
}

T_CASE(sums_in_the_order_of_batches) {
    T_UNUSED;
    tti_step_result sums[3] = {{.loss_sum = 1, .count = 2, .correct = 1},
                               {.loss_sum = 0.5, .count = 3},
                               {.loss_sum = 2, .count = 1, .correct = 1}};
    tti_step_result total = {0};
    tti_worker_set members;
    T_OK(tti_async_add_sums(NULL, NULL, sums, 3, &total, &members));
    T_EQ(tti_set_count(&members), TTI_MAX_SERVED);
    assert_true(total.loss_sum == 3.5 && total.count == 6 && total.correct == 2);
}

/* Workers are slow because a fault point delays them.  Where a busy machine takes as long to
 * compute, that says nothing, and they are delayed more: LONGEST times as much is beyond what
 * computing takes anywhere.  A machine that is busy for a while gets a few more tries. */
enum { LONGER = 4, LONGEST = 16, N_TRIES = 6 };

/* Batches per second of workers, of which each needs own_ms for a batch, the last one 5 times. */
static double rate(const char *const *assignments, const char *n_steps, int last, int own_ms) {
    char faults[128];
    tutti_train_result r;
    tutti_job *job = small_job(assignments);
    tutti_job_set(job, n_steps, "test");
    tutti_job_set(job, "run.dir=auto", "test");
    snprintf(faults, sizeof faults, "exec.compute:delay_ms=%d;exec.compute:delay_ms=%d@rank=%d",
             own_ms, 4 * own_ms, last);
    T_OK(tti_fault_set(faults));
    T_OK(tutti_train(job, NULL, &r));
    T_OK(tti_fault_set(NULL));
    tutti_job_destroy(job);
    return r.samples_per_s / 32;
}

/* The others go on beside a slow worker; an all-reduce waits for it with each step.  A batch of the
 * all-reduce is cut into 4, so each of its workers needs a quarter of the time for it. */
T_CASE(a_slow_worker) {
    T_UNUSED;
    static const char *const together[] = {"parallel.workers=4",
                                           "train.epochs=1000",
                                           "run.checkpoint_every=-1",
                                           "train.eval_every=0",
                                           "parallel.devices=cpu",
                                           "data.n_train=320000",
                                           NULL};
    static const char *const apart[] = {"parallel.workers=4",
                                        "train.epochs=1000",
                                        "run.checkpoint_every=-1",
                                        "train.eval_every=0",
                                        "parallel.devices=cpu",
                                        "data.n_train=320000",
                                        "parallel.sync=parameter-server",
                                        "parallel.mode=fast",
                                        "parallel.staleness=unbounded",
                                        NULL};
    const char *bounded[12] = {0};
    for (int i = 0; i < 8; i++) bounded[i] = apart[i];
    bounded[8] = "parallel.staleness=4";
    bool go_on = false;
    for (int try = 0, times = 1; try < N_TRIES && !go_on; try++) {
        double sum = (3 / 0.020 + 1 / 0.100) / times, slowest = 4 / 0.100 / times;
        double reduced = rate(together, "train.steps=12", 3, 5 * times);
        double unbounded = rate(apart, "train.steps=72", 3, 20 * times);
        double four = rate(bounded, "train.steps=72", 3, 20 * times);
        print_message(
            "batches/s: all-reduce %.1f (%.0f %% of 4 as the slowest), unbounded %.1f "
            "(%.0f %% of the sum), staleness 4 %.1f (%.0f %%)\n",
            reduced, 100 * reduced / slowest, unbounded, 100 * unbounded / sum, four,
            100 * four / sum);
        assert_true(reduced <= 1.02 * slowest);
        go_on = unbounded >= 2 * reduced && four >= 2 * reduced;
        times = TTI_MIN(times * LONGER, LONGEST);
    }
    assert_true(go_on);
}

/* Copies of a model whose workers divide it, of which the last one is slow: an all-reduce cuts a
 * batch into 3. */
T_CASE(a_slow_copy) {
    T_UNUSED;
    const char *assignments[12] = {"parallel.workers=6", "parallel.pipeline=2",
                                   "train.epochs=1000",  "run.checkpoint_every=-1",
                                   "train.eval_every=0", "parallel.devices=cpu"};
    bool go_on = false;
    for (int try = 0, times = 1; try < N_TRIES && !go_on; try++) {
        double sum = (2 / 0.030 + 1 / 0.150) / times, slowest = 3 / 0.150 / times;
        for (int i = 6; i < 9; i++) assignments[i] = NULL;
        double reduced = rate(assignments, "train.steps=10", 2, 10 * times);
        assignments[6] = "parallel.sync=parameter-server";
        assignments[7] = "parallel.mode=fast";
        assignments[8] = "parallel.staleness=4";
        double apart = rate(assignments, "train.steps=72", 2, 30 * times);
        print_message(
            "batches/s: all-reduce %.1f (%.0f %% of 3 as the slowest), staleness 4 %.1f "
            "(%.0f %% of the sum)\n",
            reduced, 100 * reduced / slowest, apart, 100 * apart / sum);
        assert_true(reduced <= 1.02 * slowest);
        go_on = apart >= 2 * reduced;
        times = TTI_MIN(times * LONGER, LONGEST);
    }
    assert_true(go_on);
}

/* A run's reports of workers that left. */
typedef struct seen {
    int n_warnings;
    char warning[512];
} seen;

static void hear(void *user, const tutti_event *event) {
    seen *t = user;
    if (event->kind != TUTTI_EVENT_WARNING || strstr(event->text, " share ")) return;
    t->n_warnings++;
    snprintf(t->warning, sizeof t->warning, "%s", event->text);
}

/* 3 workers under these faults, or replicas of a model under this layout (NULL: whole). */
static tutti_status train_divided(const char *faults, const char *way, const char *layout,
                                  tutti_train_result *r, seen *t) {
    *t = (seen){0};
    tutti_job *job = SMALL_JOB("parallel.workers=3", "parallel.devices=cpu", "train.steps=60",
                               "parallel.sync=parameter-server", "parallel.mode=fast",
                               "parallel.staleness=unbounded");
    if (strstr(way, "backup")) tutti_job_set(job, "parallel.staleness=0", "test");
    tutti_job_set(job, way, "test");
    static const char *const divided[] = {"parallel.workers=6", "parallel.shards=8"};
    for (size_t i = 0; i < TTI_COUNT(divided) && layout; i++)
        tutti_job_set(job, divided[i], "test");
    if (layout) tutti_job_set(job, layout, "test");
    T_OK(tti_fault_set(faults));
    tutti_status st = tutti_train(job, &(tutti_train_desc){.on_event = hear, .user = t}, r);
    T_OK(tti_fault_set(NULL));
    tutti_job_destroy(job);
    return st;
}

static tutti_status train_with(const char *faults, const char *way, tutti_train_result *r,
                               seen *t) {
    return train_divided(faults, way, NULL, r, t);
}

static const char *const asynchronous[] = {"parallel.staleness=unbounded", "parallel.staleness=1"};

/* The first failure is reported; all other workers end at once. */
T_CASE(a_worker_that_is_needed_fails) {
    T_UNUSED;
    tutti_train_result r;
    seen t;
    tutti_status st = train_with("exec.compute:fail@rank=2,5", "parallel.staleness=0", &r, &t);
    T_EQ(st, TUTTI_E_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "worker 2 cannot compute"));
    T_EQ(t.n_warnings, 0);
}

/* Another worker computes its batch, and rank 0 reports, whichever worker leaves. */
T_CASE(a_worker_leaves) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(asynchronous); i++)
        for (int w = 0; w < 3; w++) {
            tutti_train_result r;
            seen t;
            char faults[96], text[64];
            snprintf(faults, sizeof faults, "exec.compute:delay_ms=4;exec.compute:fail@rank=%d,1",
                     w);
            snprintf(text, sizeof text, "worker %d left after ", w);
            T_OK(train_with(faults, asynchronous[i], &r, &t));
            T_EQ(r.n_steps, 60);
            T_EQ(t.n_warnings, 1);
            assert_non_null(strstr(t.warning, text));
        }
}

/* Any worker may fail, over any transport; rank 0 owns the parameters, and the others compute all
 * of its batches. */
T_CASE(a_copy_leaves_as_a_whole) {
    T_UNUSED;
    static const char *const layouts[] = {"parallel.pipeline=2", "parallel.tensor=2"};
    static const char *const ways[] = {"parallel.staleness=unbounded", "parallel.staleness=1",
                                       "parallel.backup_workers=1"};
    tutti_train_result r;
    seen t;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++)
        for (size_t k = 0; k < TTI_COUNT(ways); k++) {
            T_OK(train_divided("exec.compute:delay_ms=2;exec.compute:fail@rank=2,3", ways[k],
                               layouts[i], &r, &t));
            T_EQ(r.n_steps, 60);
            T_EQ(t.n_warnings, 1);
            assert_non_null(strstr(t.warning, "replica 2 left after "));
            const char *rank = strstr(t.warning, ": rank ");
            assert_true(rank && (rank[7] == '4' || rank[7] == '5'));
            assert_non_null(strstr(rank + 8, " failed: exec: worker 2 cannot compute"));
        }
    T_EQ(train_divided("exec.compute:fail@rank=0,3", ways[0], layouts[0], &r, &t),
         TUTTI_E_INTERNAL);
    T_EQ(t.n_warnings, 0);
}

/* A replay applies the same updates by the same workers; the one that left has no more. */
T_CASE(a_run_that_one_left_comes_again) {
    T_UNUSED;
    tutti_train_result first, again;
    seen t;
    T_OK(train_with("exec.compute:delay_ms=4;exec.compute:fail@rank=1,2", "run.dir=left", &first,
                    &t));
    T_EQ(t.n_warnings, 1);
    T_OK(train_with(NULL, "parallel.replay=left", &again, &t));
    assert_true(again.params_hash == first.params_hash);
    T_EQ(t.n_warnings, 0);
}

/* The failures are far enough apart that no worker fails with the batch of a failed one. */
T_CASE(all_but_one_leave) {
    T_UNUSED;
    tutti_train_result r;
    seen t;
    for (size_t i = 0; i < TTI_COUNT(asynchronous); i++) {
        T_OK(train_with("exec.compute:delay_ms=2;exec.compute:fail@3;exec.compute:fail@58",
                        asynchronous[i], &r, &t));
        T_EQ(r.n_steps, 60);
        T_EQ(t.n_warnings, 2);
        tutti_status st = train_with("exec.compute:fail@2+", asynchronous[i], &r, &t);
        T_EQ(st, TUTTI_E_INTERNAL);
        assert_non_null(strstr(tutti_last_error(), "cannot compute"));
    }
}

/* It is the batch then, and not the workers. */
T_CASE(a_batch_that_two_cannot_compute) {
    T_UNUSED;
    tutti_train_result r;
    seen t;
    for (size_t i = 0; i < TTI_COUNT(asynchronous); i++) {
        tutti_status st = train_with("exec.compute:fail@step=20", asynchronous[i], &r, &t);
        T_EQ(st, TUTTI_E_INTERNAL);
        assert_true(t.n_warnings <= 1);
    }
}

/* A step does without the slowest of 4, and so takes no longer than the others need. */
T_CASE(backup_workers) {
    T_UNUSED;
    const char *backed[] = {"parallel.workers=4",
                            "train.epochs=1000",
                            "run.checkpoint_every=-1",
                            "train.eval_every=0",
                            "parallel.devices=cpu",
                            "data.n_train=320000",
                            "parallel.sync=parameter-server",
                            "parallel.mode=fast",
                            "parallel.backup_workers=1",
                            NULL};
    bool go_on = false;
    for (int try = 0, times = 1; try < N_TRIES && !go_on; try++) {
        backed[8] = "parallel.backup_workers=1";
        double others = 1 / 0.020 / times;
        double got = rate(backed, "train.steps=20", 3, 20 * times) * 4 / 3;
        backed[8] = "parallel.backup_workers=0";
        double waiting = rate(backed, "train.steps=5", 3, 20 * times);
        print_message("steps/s: %.1f (%.0f %% of what the other three could do), all wait %.1f\n",
                      got, 100 * got / others, waiting);
        go_on = got >= 2 * waiting;
        times = TTI_MIN(times * LONGER, LONGEST);
    }
    assert_true(go_on);
}

T_CASE(late_ones_are_counted) {
    T_UNUSED;
    tutti_train_result r;
    seen t;
    T_OK(train_with("exec.compute:delay_ms=2;exec.compute:delay_ms=20@rank=1",
                    "parallel.backup_workers=1", &r, &t));
    T_EQ(r.n_steps, 60);
    assert_true(r.n_dropped >= 1 && r.n_dropped <= 60);
    T_EQ(t.n_warnings, 0);
}

/* As many may leave as a step does without. */
T_CASE(a_backup_worker_leaves) {
    T_UNUSED;
    tutti_train_result r;
    seen t;
    T_OK(train_with("exec.compute:delay_ms=4;exec.compute:fail@rank=0,4",
                    "parallel.backup_workers=1", &r,
                    &t)); /* no worker has computed all steps before */
    T_EQ(r.n_steps, 60);
    T_EQ(t.n_warnings, 1);
    tutti_status st =
        train_with("exec.compute:delay_ms=4;exec.compute:fail@rank=0,4;exec.compute:fail@rank=2,3",
                   "parallel.backup_workers=1", &r, &t);
    T_EQ(st, TUTTI_E_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops),
        cmocka_unit_test(sums_in_the_order_of_batches),
        IN_FOLDER(a_slow_worker),
        IN_FOLDER(a_slow_copy),
        IN_FOLDER(a_worker_that_is_needed_fails),
        IN_FOLDER(a_worker_leaves),
        IN_FOLDER(a_copy_leaves_as_a_whole),
        IN_FOLDER(a_run_that_one_left_comes_again),
        IN_FOLDER(all_but_one_leave),
        IN_FOLDER(a_batch_that_two_cannot_compute),
        IN_FOLDER(backup_workers),
        IN_FOLDER(late_ones_are_counted),
        IN_FOLDER(a_backup_worker_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
