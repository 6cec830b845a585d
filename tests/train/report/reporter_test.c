/* reporter_test.c - the figures: what steps cost, what a window is, what pauses are not, and
 * silence on other ranks. */
#include "train/report/reporter.h"

#include "base/clock.h"
#include "train/small_job.h"

typedef struct heard {
    int n[TUTTI_EVENT_END + 1];
    tutti_event last[TUTTI_EVENT_END + 1];
    char text[TUTTI_EVENT_END + 1][512];
} heard;

static void hear(void *user, const tutti_event *event) {
    heard *h = user;
    h->n[event->kind]++;
    h->last[event->kind] = *event;
    if (event->text) snprintf(h->text[event->kind], sizeof h->text[0], "%s", event->text);
}

typedef struct fixture {
    tutti_job *job;
    const tti_blueprint *b;
    tti_reporter r;
    heard h;
    tutti_train_desc train;
    int64_t begin_ns;
} fixture;

static void begin(fixture *f, const char *assignment, bool active) {
    *f = (fixture){.train = {.on_event = hear}};
    f->train.user = &f->h;
    f->begin_ns = tti_now_ns();
    f->job = SMALL_JOB(assignment);
    T_OK(tti_job_resolve(f->job, 2));
    T_OK(tti_blueprint_create(f->job, &f->b));
    tti_reporter_init(&f->r, tti_now_ns());
    T_OK(tti_reporter_open(&f->r, &f->train, f->b, ".", ".", active));
}

static void end(fixture *f) {
    tti_reporter_close(&f->r);
    tti_blueprint_destroy(f->b);
    tutti_job_destroy(f->job);
}

static char *metrics_text(void) {
    static char text[65536];
    FILE *file = fopen("metrics.jsonl", "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* A step that took t_ms of 32 rows, of which the loader made it wait 1 ms and reducing 2 ms. */
static void step(fixture *f, int64_t number, int64_t t_ms) {
    tti_step_result result = {.loss_sum = 16,
                              .count = 32,
                              .correct = 8,
                              .params_hash = 0xabc,
                              .comm_ns = 2 * TTI_NS_PER_MS};
    tti_batch batch = {.n_rows_global = 32, .wait_ns = TTI_NS_PER_MS};
    f->r.mark_ns = tti_now_ns() - t_ms * TTI_NS_PER_MS;
    T_OK(tti_reporter_step(&f->r, number, 0.5, &result, &batch));
}

/* x is n in t_s, or in as much more as this machine has taken since the test began. */
static void expect_rate(const fixture *f, double x, double n, double t_s) {
    double late_s = (double)(tti_now_ns() - f->begin_ns) / (1000.0 * TTI_NS_PER_MS);
    if (!(x <= n / t_s * (1 + 1e-6) && x >= n / (t_s + late_s) * (1 - 1e-6)))
        fail_msg("%g is not %g in %g s, nor in up to %g s more", x, n, t_s, late_s);
}

T_CASE(figures_of_a_step) {
    T_UNUSED;
    fixture f;
    begin(&f, "run.log_every=1", true);
    const tti_exec_memory memory = {.params = 1,
                                    .states = 2,
                                    .grads = 3,
                                    .arena = 4,
                                    .ema = 6,
                                    .gathered = 7,
                                    .offloaded = 8,
                                    .mailbox = 9};
    T_OK(tti_reporter_start(&f.r, memory, 0));
    assert_non_null(strstr(f.h.text[TUTTI_EVENT_START],
                           "mlp: 6370 parameters, 1 worker (threads), "
                           "4 shards of 8, "));
    step(&f, 1, 1000);
    const tutti_event *e = &f.h.last[TUTTI_EVENT_STEP];
    T_EQ(e->step, 1);
    T_EQ(e->n_steps, 10);
    assert_true(e->loss == 0.5 && e->accuracy == 0.25 && e->lr == 0.5);
    expect_rate(&f, e->samples_per_s, 32, 1);
    expect_rate(&f, 1 / e->eta_s, 1 / 9.0, 1);
    expect_rate(&f, e->wait_share, 0.001, 1);
    expect_rate(&f, e->comm_share, 0.002, 1);
    const char *text = metrics_text();
    assert_non_null(strstr(text,
                           "\"step\":1,\"epoch\":0,\"split\":\"train\",\"loss\":0.5,"
                           "\"accuracy\":0.25,\"lr\":0.5,"));
    assert_non_null(strstr(text, "\"params_hash\":\"0000000000000abc\""));
    assert_non_null(strstr(text, "\"bytes_params\":1,\"bytes_states\":2,\"bytes_grads\":3,"));
    assert_non_null(strstr(text,
                           "\"bytes_activations\":13,\"bytes_ema\":6,"
                           "\"bytes_offloaded\":8,\"bytes_gathered\":7,"));
    step(&f, 6, 1000);
    T_EQ(f.h.last[TUTTI_EVENT_STEP].epoch, 1); /* 5 steps to an epoch */
    end(&f);
}

/* A rank that is hardly late is recorded, but not named. */
T_CASE(the_slowest) {
    T_UNUSED;
    fixture f;
    tti_slowest_finding reported = {0};
    begin(&f, "run.log_every=1", true);
    f.r.slowest = &reported;
    step(&f, 1, 100);
    const tutti_event *e = &f.h.last[TUTTI_EVENT_STEP];
    assert_true(!e->slowest_why && e->slowest_rank == 0 && e->slowest_late_share == 0);
    assert_null(strstr(metrics_text(), "slowest"));
    reported = (tti_slowest_finding){.known = true, .rank = 3, .why = "data", .late_share = 0.125};
    step(&f, 2, 100);
    assert_string_equal(e->slowest_why, "data");
    assert_true(e->slowest_rank == 3 && e->slowest_late_share == 0.125);
    static const char named[] =
        "\"slowest_rank\":3,\"slowest_why\":\"data\",\"slowest_late_share\":0.125";
    assert_non_null(strstr(metrics_text(), named));
    reported =
        (tti_slowest_finding){.known = true, .rank = 2, .why = "none", .late_share = 0.03125};
    step(&f, 3, 100);
    assert_true(!e->slowest_why && e->slowest_late_share == 0.03125);
    static const char even[] =
        "\"slowest_rank\":2,\"slowest_why\":\"none\",\"slowest_late_share\":0.03125";
    assert_non_null(strstr(metrics_text(), even));
    end(&f);
}

/* Of the whole run, in its last record and its result; hardly late: only in the record. */
T_CASE(the_slowest_of_the_run) {
    T_UNUSED;
    static const struct {
        tti_slowest_finding found;
        const char *record;
    } cases[] = {
        {{.known = true, .rank = 1, .why = "compute", .late_share = 0.03125},
         "\"slowest_rank\":1,\"slowest_why\":\"compute\",\"slowest_late_share\":0.03125"},
        {{.known = true, .rank = 1, .why = "none", .late_share = 0.0078125},
         "\"slowest_rank\":1,\"slowest_why\":\"none\",\"slowest_late_share\":0.0078125"},
        {{.known = false}, NULL},
    };
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        fixture f;
        tutti_train_result result = {0};
        begin(&f, "run.log_every=1", true);
        f.r.slowest_overall = &cases[i].found;
        step(&f, 1, 100);
        T_OK(tti_reporter_end(&f.r, 1, 0, 0, &result));
        bool is_late = i == 0;
        assert_true((result.slowest_why != NULL) == is_late);
        assert_true(result.slowest_rank == is_late);
        assert_true(result.slowest_late_share == (is_late ? 0.03125 : 0));
        const char *named = strstr(metrics_text(), "slowest_rank");
        assert_true((named != NULL) == (cases[i].record != NULL));
        if (cases[i].record) assert_non_null(strstr(metrics_text(), cases[i].record));
        end(&f);
        T_EQ(remove("metrics.jsonl"), 0);
    }
}

/* Without run.log_every: the first step, the last one, and about two per second between. */
T_CASE(windows_of_half_a_second) {
    T_UNUSED;
    fixture f;
    begin(&f, "run.log_every=0", true);
    T_OK(tti_reporter_start(&f.r, (tti_exec_memory){0}, 0));
    step(&f, 1, 10);
    T_EQ(f.h.n[TUTTI_EVENT_STEP], 1);
    step(&f, 2, 100);
    step(&f, 3, 100);
    T_EQ(f.h.n[TUTTI_EVENT_STEP], 1);
    step(&f, 4, 400);
    T_EQ(f.h.n[TUTTI_EVENT_STEP], 2);
    expect_rate(&f, f.h.last[TUTTI_EVENT_STEP].samples_per_s, 3 * 32, 0.6);
    expect_rate(&f, f.h.last[TUTTI_EVENT_STEP].wait_share, 0.003, 0.6);
    step(&f, 5, 10);
    T_EQ(f.h.n[TUTTI_EVENT_STEP], 2);
    step(&f, 10, 10);
    T_EQ(f.h.n[TUTTI_EVENT_STEP], 3);
    end(&f);
}

T_CASE(every_third_step_and_the_last) {
    T_UNUSED;
    fixture f;
    begin(&f, "run.log_every=3", true);
    for (int64_t s = 1; s <= 10; s++) {
        step(&f, s, 1);
        T_EQ(f.h.n[TUTTI_EVENT_STEP], s / 3 + (s == 10));
    }
    end(&f);
}

/* Speed is that of training: neither evaluations nor checkpoints count. */
T_CASE(pauses_do_not_count) {
    T_UNUSED;
    fixture f;
    begin(&f, "run.log_every=1", true);
    tti_step_result sums = {.loss_sum = 100, .count = 50, .correct = 40}, r = {.count = 1};
    tti_batch batch = {.n_rows_global = 32};
    tutti_train_result result = {0};
    step(&f, 1, 500);
    T_OK(tti_reporter_eval(&f.r, 1, &(tti_eval_sums){.all = sums, .n_rows = 50}));
    T_EQ(f.h.last[TUTTI_EVENT_EVAL].accuracy == 0.8 && f.h.last[TUTTI_EVENT_EVAL].loss == 2, 1);
    f.r.mark_ns = tti_now_ns() - 2500 * TTI_NS_PER_MS; /* 2.5 s since, 2 of them a checkpoint */
    tti_reporter_pause(&f.r, 2000 * TTI_NS_PER_MS);
    T_OK(tti_reporter_step(&f.r, 2, 1, &r, &batch));
    T_OK(tti_reporter_checkpoint(&f.r, 2));
    assert_string_equal(f.h.text[TUTTI_EVENT_CHECKPOINT], "./checkpoints/step-000000002");
    T_OK(tti_reporter_end(&f.r, 2, 0x123, 0, &result));
    expect_rate(&f, result.samples_per_s, 64, 1);
    expect_rate(&f, f.h.last[TUTTI_EVENT_END].samples_per_s, 64, 1);
    T_EQ(result.n_steps, 2);
    T_EQ(result.params_hash, 0x123);
    T_EQ(result.n_params, 6370);
    assert_true(result.accuracy == 0.8 && result.loss == 2 && result.wall_s > 0);
    assert_true(result.first_step_s > 0 && result.first_step_s <= result.wall_s);
    assert_non_null(strstr(metrics_text(), "\"event\":\"end\""));
    assert_non_null(
        strstr(metrics_text(), "\"stopped\":false,\"params_hash\":\"0000000000000123\""));
    end(&f);
}

/* A run that was stopped has no figures of an evaluation that was not made. */
T_CASE(a_stopped_run_and_a_failed_one) {
    T_UNUSED;
    fixture f;
    tutti_train_result result = {0};
    begin(&f, "run.log_every=1", true);
    T_OK(tti_reporter_end(&f.r, 3, 7, 15, &result));
    T_EQ(result.stop_signal, 15);
    const char *line = strstr(metrics_text(), "\"event\":\"end\"");
    assert_non_null(strstr(line, "\"stopped\":true"));
    assert_null(strstr(line, "accuracy"));
    tti_fail(TUTTI_E_NUMERICS, "step 3: nan in 'fc1'");
    tti_reporter_failed(&f.r, 3, TUTTI_E_NUMERICS);
    assert_string_equal(tutti_last_error(), "step 3: nan in 'fc1'");
    assert_non_null(strstr(metrics_text(), "\"event\":\"failed\""));
    assert_non_null(strstr(metrics_text(), "nan in 'fc1'"));
    T_OK(tti_reporter_warn(&f.r, "careful"));
    assert_string_equal(f.h.text[TUTTI_EVENT_WARNING], "careful");
    assert_non_null(strstr(metrics_text(), "\"text\":\"careful\""));
    end(&f);
}

T_CASE(other_ranks_are_silent) {
    T_UNUSED;
    fixture f;
    tutti_train_result result = {0};
    tti_step_result sums = {.count = 1};
    begin(&f, "run.log_every=1", false);
    T_OK(tti_reporter_start(&f.r, (tti_exec_memory){0}, 0));
    step(&f, 1, 10);
    T_OK(tti_reporter_eval(&f.r, 1, &(tti_eval_sums){.all = sums, .n_rows = 1}));
    T_OK(tti_reporter_checkpoint(&f.r, 1));
    T_OK(tti_reporter_warn(&f.r, "x"));
    T_OK(tti_reporter_end(&f.r, 1, 1, 0, &result));
    tti_reporter_failed(&f.r, 1, TUTTI_E_IO);
    T_EQ(access("metrics.jsonl", F_OK), -1);
    for (int kind = 0; kind <= TUTTI_EVENT_END; kind++) T_EQ(f.h.n[kind], 0);
    T_EQ(result.params_hash, 0);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(figures_of_a_step),
                                       IN_FOLDER(the_slowest),
                                       IN_FOLDER(the_slowest_of_the_run),
                                       IN_FOLDER(windows_of_half_a_second),
                                       IN_FOLDER(every_third_step_and_the_last),
                                       IN_FOLDER(pauses_do_not_count),
                                       IN_FOLDER(a_stopped_run_and_a_failed_one),
                                       IN_FOLDER(other_ranks_are_silent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
