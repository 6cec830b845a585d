/* trainer_test.c - tutti_train as a C program calls it: a model of its own, workers as threads,
 * events, results, failures.  Processes, signals and kills are tested through the program, in
 * tests/cli. */
#include "tutti/train.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/affinity.h"
#include "train/small_job.h"
#include "tutti/ops.h"

/* With dropout, so that random numbers are part of what must not depend on workers. */
static tutti_value *my_model(tutti_graph *g, tutti_value *x, const void *user) {
    const int64_t *n_hidden = user;
    x = tutti_tanh(g, tutti_linear(g, tutti_flatten(g, x), *n_hidden, "body"));
    return tutti_linear(g, tutti_dropout(g, x, 0.3, "drop"), 10, "head");
}

static tutti_train_result train(const char *a, const char *b, const char *c) {
    static const int64_t n_hidden = 12;
    tutti_train_result result;
    tutti_job *job = SMALL_JOB(a, b, c);
    tutti_job_set_model(job, my_model, &n_hidden);
    T_OK(tutti_train(job, NULL, &result));
    T_EQ(result.exit_code, 0);
    tutti_job_destroy(job);
    return result;
}

T_CASE(a_model_of_ones_own) {
    T_UNUSED;
    tutti_train_result r = train("run.dir=run", "parallel.workers=2", "train.steps=10");
    assert_string_equal(r.run_dir, "run");
    T_EQ(r.n_workers, 2);
    T_EQ(r.n_shards, 4);
    T_EQ(r.n_steps, 10);
    T_EQ(r.n_params, 784 * 12 + 12 + 12 * 10 + 10);
    T_EQ(r.stop_signal, 0);
    assert_true(isfinite(r.loss) && r.loss > 0 && r.accuracy >= 0 && r.accuracy <= 1);
    assert_true(r.samples_per_s > 0 && r.params_hash != 0);
    assert_true(r.first_step_s > 0 && r.wall_s >= r.first_step_s);
    T_EQ(access("run/checkpoints/step-000000010/manifest.json", F_OK), 0);
    T_EQ(access("run/job.yaml", F_OK), 0);
}

static void go_elsewhere(void *user, const tutti_train_progress *p, tutti_train_control *control) {
    (void)user, (void)control;
    if (p->step == 2) T_EQ(chdir("elsewhere"), 0);
}

T_CASE(the_program_may_change_its_folder) {
    static const char *const folders[] = {"run.dir=mine", "run.dir=auto"};
    static const int64_t n_hidden = 12;
    const tutti_train_desc desc = {.on_step = go_elsewhere};
    T_UNUSED;
    T_EQ(mkdir("elsewhere", 0777), 0);
    for (size_t i = 0; i < TTI_COUNT(folders); i++) {
        char path[600];
        tutti_train_result r;
        tutti_job *job = SMALL_JOB(folders[i], "parallel.workers=2", "run.checkpoint_every=4");
        tutti_job_set_model(job, my_model, &n_hidden);
        T_OK(tutti_train(job, &desc, &r));
        T_EQ(chdir(".."), 0);
        tutti_job_destroy(job);
        assert_true(r.run_dir[0] != '/');
        snprintf(path, sizeof path, "%s/checkpoints/step-000000010/manifest.json", r.run_dir);
        T_EQ(access(path, F_OK), 0);
    }
    T_EQ(rmdir("elsewhere"), 0); /* nothing was written there */
}

T_CASE(the_same_bits_from_any_number_of_workers) {
    T_UNUSED;
    static const char *const workers[] = {"parallel.workers=1", "parallel.workers=2",
                                          "parallel.workers=3", "parallel.workers=4"};
    static const char *const algorithms[] = {"parallel.algorithm=direct",
                                             "parallel.algorithm=tree"};
    tutti_train_result one = train("run.dir=auto", workers[0], algorithms[0]);
    assert_string_equal(one.run_dir, "runs/model-1");
    for (int w = 1; w < 4; w++)
        for (int a = 0; a < 2; a++) {
            tutti_train_result r = train("run.dir=auto", workers[w], algorithms[a]);
            T_EQ(r.params_hash == one.params_hash, 1);
            assert_true(r.loss == one.loss && r.accuracy == one.accuracy);
        }
    tutti_train_result other = train("run.dir=auto", workers[0], "train.seed=2");
    T_EQ(other.params_hash == one.params_hash, 0);
}

T_CASE(resumed_with_another_number) {
    T_UNUSED;
    static const int64_t n_hidden = 12;
    tutti_train_result whole = train("run.dir=whole", "parallel.workers=1", "schedule.steps=10");
    train("run.dir=part", "schedule.steps=10", "train.steps=4");
    tutti_job *job = SMALL_JOB("parallel.workers=4", "schedule.steps=10");
    tutti_train_result r;
    tutti_job_set_model(job, my_model, &n_hidden);
    T_OK(tutti_train(job, &(tutti_train_desc){.resume = "part"}, &r));
    T_EQ(r.params_hash == whole.params_hash && r.loss == whole.loss, 1);
    T_EQ(r.n_steps, 10);
    assert_string_equal(r.run_dir, "part");
    tutti_job_destroy(job);
}

/* A run that succeeds leaves no last error, even after errors that it recovered from. */
T_CASE(success_leaves_no_error) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=other", "data.format=idx", "data.dir=nowhere");
    tutti_train_result r;
    T_FAILS(tutti_train(job, NULL, &r), TUTTI_E_DATA, "nowhere");
    tutti_job_destroy(job);
    train("run.dir=run", "parallel.workers=2", "train.steps=1");
    assert_string_equal(tutti_last_error(), "");
    T_EQ(strcmp(tutti_job_find_key("learning_rate"), "optimizer.lr"), 0);
    assert_null(tutti_job_find_key("frobnicate"));
}

/* ---- events ---- */

typedef struct log {
    int n[TUTTI_EVENT_END + 1];
    int64_t last_step;
    bool in_order;
} event_log;

static void note(void *user, const tutti_event *e) {
    event_log *l = user;
    bool few_cores = e->kind == TUTTI_EVENT_WARNING && strstr(e->text, "3 workers share ");
    l->n[few_cores ? TUTTI_EVENT_START : e->kind]++;
    l->in_order &= e->step >= l->last_step;
    l->last_step = e->step;
}

T_CASE(events) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=run", "parallel.workers=3");
    event_log l = {.in_order = true};
    tutti_train_result r;
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = note, .user = &l}, &r));
    T_EQ(l.n[TUTTI_EVENT_START], 1 + (tti_cores_usable() < 3)); /* and that cores are few */
    T_EQ(l.n[TUTTI_EVENT_STEP], 10);
    T_EQ(l.n[TUTTI_EVENT_EVAL], 2);
    T_EQ(l.n[TUTTI_EVENT_CHECKPOINT], 2);
    T_EQ(l.n[TUTTI_EVENT_WARNING], 0);
    T_EQ(l.n[TUTTI_EVENT_END], 1);
    assert_true(l.in_order);
    tutti_job_destroy(job);
}

/* ---- failures ---- */

static void refuse(const char *a, const char *b, const char *resume, tutti_status status,
                   const char *text) {
    tutti_job *job = SMALL_JOB("run.dir=run");
    tutti_train_result r;
    tutti_job_set(job, a, "test");
    tutti_job_set(job, b, "test");
    T_FAILS(tutti_train(job, &(tutti_train_desc){.resume = resume}, &r), status, text);
    T_EQ(r.exit_code, tutti_status_exit_code(status));
    T_EQ(access("run", F_OK), -1); /* nothing half-written */
    tutti_job_destroy(job);
}

T_CASE(what_cannot_start_leaves_nothing) {
    T_UNUSED;
    refuse("parallel.shards=4", "parallel.workers=5", NULL, TUTTI_E_CONFIG, "5 workers for 4");
    refuse("data.format=idx", "data.dir=/nowhere", NULL, TUTTI_E_DATA, "/nowhere");
    refuse("train.seed=1", "train.seed=1", "nothing", TUTTI_E_CONFIG, "no run there");
    refuse("parallel.place=processes", "parallel.workers=2", NULL, TUTTI_E_INVALID, "worker_argv");
}

T_CASE(a_failure_of_all_workers_is_reported_once) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.name=sgd", "optimizer.lr=1000", "train.steps=100",
                               "optimizer.momentum=0.99", "parallel.workers=3", "run.dir=run",
                               "run.checkpoint_every=2", "run.keep=100");
    tutti_train_result r;
    T_FAILS(tutti_train(job, NULL, &r), TUTTI_E_NUMERICS, "not finite");
    T_EQ(r.exit_code, 7);
    T_EQ(access("run/checkpoints/step-000000002", F_OK), 0); /* what was saved stays */
    tutti_job_destroy(job);
}

/* ---- a signal ---- */

static void stop_at_four(void *user, const tutti_event *e) {
    (void)user;
    if (e->kind == TUTTI_EVENT_STEP && e->step == 4) raise(SIGTERM);
}

T_CASE(a_signal_stops_at_a_step) {
    T_UNUSED;
    struct sigaction before, after;
    tutti_job *job = SMALL_JOB("parallel.workers=2", "run.dir=run", "train.steps=100000");
    tutti_train_result r;
    sigaction(SIGTERM, NULL, &before);
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = stop_at_four}, &r));
    sigaction(SIGTERM, NULL, &after);
    assert_true(before.sa_handler == after.sa_handler);
    T_EQ(r.stop_signal, SIGTERM);
    T_EQ(r.exit_code, 143);
    T_EQ(r.n_steps >= 5 && r.n_steps <= 6, 1);
    char path[64];
    snprintf(path, sizeof path, "run/checkpoints/step-%09d", (int)r.n_steps);
    T_EQ(access(path, F_OK), 0);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_model_of_ones_own),
                                       IN_FOLDER(the_program_may_change_its_folder),
                                       IN_FOLDER(the_same_bits_from_any_number_of_workers),
                                       IN_FOLDER(resumed_with_another_number),
                                       IN_FOLDER(success_leaves_no_error),
                                       IN_FOLDER(events),
                                       IN_FOLDER(what_cannot_start_leaves_nothing),
                                       IN_FOLDER(a_failure_of_all_workers_is_reported_once),
                                       IN_FOLDER(a_signal_stops_at_a_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
