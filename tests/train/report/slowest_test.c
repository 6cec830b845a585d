/* slowest_test.c - who is named for what: by numbers that are given, and in runs with one worker
 * that is kept by faults. */
#include "train/report/slowest.h"

#include "comm/ranks.h"
#include "exec/worker/worker_state.h"
#include "train/slow_worker.h"

/* ---- the judgement ---- */

typedef struct judged {
    int n_ranks;
    double spent[5][TTI_N_SPENT_PARTS]; /* data, copy, compute, other, wait */
    int rank;
    const char *why;
    double late_share;
} judged;

static const judged cases[] = {
    {2, {{0, 0, 1, 0, 1}, {1, 0, 1, 0, 0}}, 1, "data", 0.5},
    {2, {{0, 0, 2, 0, 0}, {0, 0, 1, 0, 1}}, 0, "compute", 0.5},
    {2, {{0, 0.1, 1, 0, 0.4}, {0, 0.5, 1, 0, 0}}, 1, "copy", 0.4 / 1.5},
    {2, {{0, 0, 1, 0.5, 0}, {0, 0, 1, 0, 0.5}}, 0, "other", 0.5 / 1.5},
    /* more data waited for than the others, but what it is late by is computing */
    {2, {{0.1, 0, 1, 0, 0.5}, {0.2, 0, 1.4, 0, 0}}, 1, "compute", 0.5 / 1.6},
    /* data loading hidden by computing, on devices: no rank is late by it */
    {3, {{0, 0, 1, 0, 0}, {0.5, 0, 0.5, 0, 0}, {0, 0, 1, 0, 0}}, 0, "none", 0},
    /* the median of the others, of an even and an odd number of them */
    {3, {{0, 0, 1, 0, 3}, {0, 0, 3, 0, 1}, {0, 0, 4, 0, 0}}, 2, "compute", 0.5},
    {4, {{0, 0, 4, 0, 0}, {0, 0, 3, 0, 1}, {0, 0, 3, 0, 1}, {0, 0, 1, 0, 3}}, 0, "compute", 0.25},
    {5,
     {{0, 0, 1, 0, 1}, {0, 0, 1, 0, 1}, {1, 0, 1, 0, 0}, {0, 0, 1, 0, 1}, {0, 0, 1, 0, 1}},
     2,
     "data",
     0.5},
    /* hardly, and not at all */
    {2, {{0, 0, 1, 0, 0}, {0, 0, 0.96, 0, 0.04}}, 0, "none", 0.04},
    {2, {{0}, {0}}, 0, "none", 0},
};

T_CASE(who_and_why) {
    T_UNUSED;
    double sorted[5];
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        const judged *c = &cases[i];
        tti_slowest_finding reported;
        tti_slowest_of(c->spent, c->n_ranks, TTI_LATE_SHARE, sorted, &reported);
        assert_true(reported.known);
        T_EQ(reported.rank, c->rank);
        assert_string_equal(reported.why, c->why);
        assert_true(fabs(reported.late_share - c->late_share) < 1e-12);
    }
    tti_slowest_finding alone;
    tti_slowest_of(cases[0].spent, 1, TTI_LATE_SHARE, sorted, &alone);
    assert_false(alone.known);
}

/* Cards of one kind differ by so much: too little for a window, enough for a run. */
T_CASE(what_is_late_by_two_percent_is_named_at_the_end) {
    T_UNUSED;
    const double spent[2][TTI_N_SPENT_PARTS] = {{0, 0, 0.98, 0, 0.02}, {0, 0, 1, 0, 0}};
    double sorted[2];
    tti_slowest_finding window, run;
    tti_slowest_of(spent, 2, TTI_LATE_SHARE, sorted, &window);
    tti_slowest_of(spent, 2, TTI_LATE_OVERALL, sorted, &run);
    assert_string_equal(window.why, "none");
    assert_string_equal(run.why, "compute");
    assert_true(run.rank == 1 && fabs(run.late_share - 0.02) < 1e-12);
}

/* ---- advice ---- */

static tti_slowest judged_run(double (*total)[TTI_N_SPENT_PARTS], int n_ranks, double *sorted) {
    tti_slowest s = {.n_ranks = n_ranks, .total = total};
    tti_slowest_of((const double(*)[TTI_N_SPENT_PARTS])total, n_ranks, TTI_LATE_OVERALL, sorted,
                   &s.overall);
    return s;
}

/* The advice for a run of even parts; "" for none. */
static const char *advice(double (*total)[TTI_N_SPENT_PARTS], int n_shards, bool exact,
                          tti_str *text) {
    double sorted[4];
    tti_shard_map even;
    tti_slowest s = judged_run(total, 4, sorted);
    tti_shard_map_equally(4, n_shards, &even);
    tti_str_free(text);
    *text = (tti_str){0};
    T_OK(tti_slowest_advise(&s, &even, exact, text));
    return text->n_bytes > 0 ? tti_str_text(text) : "";
}

T_CASE(weights_are_advised_where_shards_are_fine_enough) {
    T_UNUSED;
    double total[4][TTI_N_SPENT_PARTS] = {
        {0, 0, 96, 0, 4}, {0, 0, 96, 0, 4}, {0, 0, 96, 0, 4}, {0, 0, 100, 0, 0}};
    tti_str text = {0};
    assert_string_equal(
        advice(total, 128, false, &text),
        "rank 3 computes more slowly than the others; parallel.load_weights=33,32,32,31 would "
        "shorten the computing of a step by 1.0 % of the step");
    assert_non_null(strstr(advice(total, 128, true, &text), "with the same bits; "));
    assert_non_null(strstr(tti_str_text(&text), " partial sums would be added instead of 4"));
    assert_string_equal(advice(total, 64, true, &text), ""); /* a shard is 6 % of a step */
    double other[4][TTI_N_SPENT_PARTS] = {
        {0, 0, 96, 0, 4}, {0, 0, 96, 0, 4}, {0, 0, 96, 0, 4}, {4, 0, 96, 0, 0}};
    assert_string_equal(advice(other, 1024, true, &text), ""); /* data, not computing */
    for (int r = 0; r < 4; r++)
        for (int p = 0; p < TTI_N_SPENT_PARTS; p++) total[r][p] /= 10;
    assert_string_equal(advice(total, 1024, true, &text), ""); /* too short a run */
    tti_str_free(&text);
}

/* ---- when it is gathered, and what of ---- */

/* The times of the other ranks, and the expected findings. */
static const char *gather(tutti_comm *comm, void *arg) {
    int64_t step_ns = *(int64_t *)arg, n_gathered = 0, last = 100, every = 1;
    int rank = tutti_comm_rank(comm), n = tutti_comm_n_ranks(comm);
    tti_exec *x = tti_exec_alloc();
    COMM_TRUE(x);
    tti_tally_of(x)->copied_ns = 5;
    tti_slowest s;
    tti_slowest_init(&s, comm, x, 100);
    tti_exec_waited(x, 1000000);                    /* before the first step */
    int64_t each = TTI_MAX(500000000 / step_ns, 1); /* steps in half a second */
    int64_t last_step = 110 + (each > 1 ? 400 + 2 * each : 0);
    for (int64_t step = 101; step <= last_step; step++) {
        bool late = rank == n - 1;
        tti_exec_spent at;
        /* all of a step: a half is computed or waited for, the other is data of the last rank */
        tti_slowest_add(&s, late ? step_ns / 2 : 0, late ? step_ns / 2 : step_ns, step_ns);
        if (!late) tti_exec_waited(x, step_ns / 2);
        if (!tti_slowest_is_due(&s, step)) continue;
        COMM_TRUE(step - last == every);
        n_gathered++;
        last = step;
        COMM_OK(tti_slowest_gather(&s, step));
        COMM_TRUE(s.every <= 4 * every);
        every = s.every;
        COMM_OK(tti_slowest_pause(&s, &at));
        tti_exec_waited(x, 77 * step_ns); /* of an evaluation */
        tti_tally_of(x)->copied_ns += 99 * step_ns;
        COMM_OK(tti_slowest_go_on(&s, &at));
        if (n_gathered == 1) continue;  /* the first steps are not looked at */
        if (!s.finding.known) continue; /* too short */
        COMM_TRUE(s.finding.rank == n - 1 && strcmp(s.finding.why, "data") == 0);
        COMM_TRUE(fabs(s.finding.late_share - 0.5) < 1e-9);
    }
    COMM_TRUE(s.finding.known);
    COMM_TRUE(s.every == each); /* once it is known how long steps take */
    COMM_TRUE(n_gathered <= (last_step - 100) / each + 8);
    COMM_TRUE(s.overall.known && s.overall.rank == n - 1 && strcmp(s.overall.why, "data") == 0);
    COMM_TRUE(fabs(s.overall.late_share - 0.5) < 1e-9);
    tti_slowest_fini(&s);
    tti_exec_free(x);
    return NULL;
}

T_CASE(sums_of_all_ranks) {
    T_UNUSED;
    static int64_t step_ns[] = {1 << 20, 16 << 20, 1 << 30};
    for (int n = 2; n <= 4; n++)
        for (size_t i = 0; i < TTI_COUNT(step_ns); i++) comm_run(n, gather, &step_ns[i]);
}

T_CASE(alone_and_asynchronous_nothing_is_reported) {
    T_UNUSED;
    tti_slowest s;
    tti_exec_spent at;
    tti_slowest_init(&s, NULL, NULL, 0);
    for (int64_t step = 1; step < 100; step++) {
        tti_slowest_add(&s, 1, 2, 1 << 30);
        assert_false(tti_slowest_is_due(&s, step));
    }
    T_OK(tti_slowest_pause(&s, &at));
    T_OK(tti_slowest_go_on(&s, &at));
    assert_false(s.finding.known || s.overall.known);
    tti_slowest_fini(&s);
}

/* ---- runs ---- */

T_CASE(threads) {
    T_UNUSED;
    SLOW_WORKER(1, "data", "train.data:delay_ms=50@2+,rank=1", "run.dir=data");
    assert_true(slow_worker_is_recorded("data", 1, "data"));
    SLOW_WORKER(0, "compute", "exec.compute:delay_ms=50@2+,rank=0", "run.dir=compute");
    assert_true(slow_worker_is_recorded("compute", 0, "compute"));
}

/* Workers that wait for each other inside of what they compute, or seldom. */
T_CASE(other_ways_to_wait) {
    T_UNUSED;
    static const char slow[] = "exec.compute:delay_ms=50@2+,rank=1";
    SLOW_WORKER(1, "compute", slow, "run.dir=zero", "parallel.zero=3");
    SLOW_WORKER(1, "compute", slow, "run.dir=local", "parallel.sync=local", "parallel.mode=fast",
                "parallel.average_every=2");
    SLOW_WORKER(1, "data", "train.data:delay_ms=50@2+,rank=1", "run.dir=server",
                "parallel.sync=parameter-server");
}

T_CASE(devices) {
    T_UNUSED;
    static const char *const says[] = {"devices=2,peers=1", "devices=2"};
    for (int i = 0; i < 2; i++) {
        char dir[3][32];
        for (int k = 0; k < 3; k++) snprintf(dir[k], sizeof dir[k], "run.dir=device-%d-%d", i, k);
        T_EQ(setenv("TUTTI_TEST_DEVICE", says[i], 1), 0);
        SLOW_WORKER(1, "data", "train.data:delay_ms=50@2+,rank=1", dir[0], "optimizer.name=sgd",
                    "parallel.devices=0,1", "data.resident=no");
        SLOW_WORKER(0, "data", "train.data:delay_ms=50@2+,rank=0", dir[2], "optimizer.name=sgd",
                    "parallel.devices=0,1", "data.resident=yes", "parallel.ahead=2");
        SLOW_WORKER(0, "copy", "device.feed:delay_ms=50@2+,rank=0", dir[1], "optimizer.name=sgd",
                    "parallel.devices=0,1", "data.resident=no");
    }
}

/* The library does not report how long it waits: the steps do. */
T_CASE(devices_by_a_library) {
    T_UNUSED;
    T_EQ(setenv("TUTTI_TEST_DEVICE", "devices=2,peers=1", 1), 0);
    SLOW_WORKER(1, "data", "train.data:delay_ms=50@2+,rank=1", "run.dir=library",
                "optimizer.name=sgd", "parallel.devices=0,1", "data.resident=no",
                "parallel.algorithm=tree");
}

T_CASE(a_device_that_computes_slowly) {
    T_UNUSED;
    T_EQ(setenv("TUTTI_TEST_DEVICE", "devices=2,peers=1,slow=1,delay=25", 1), 0);
    SLOW_WORKER(1, "compute", NULL, "run.dir=slow", "optimizer.name=sgd", "parallel.devices=0,1",
                "data.resident=no");
    T_EQ(unsetenv("TUTTI_TEST_DEVICE"), 0);
}

static void find_advice(void *user, const tutti_event *e) {
    char *advised = user;
    if (e->kind == TUTTI_EVENT_WARNING && e->text && strstr(e->text, "load_weights"))
        snprintf(advised, 512, "%s", e->text);
}

/* The run ends with the weights; the fault waives its least duration. */
T_CASE(a_slow_device_gets_fewer_shards_by_advice) {
    T_UNUSED;
    static const char *const settings[] = {"run.dir=advised",
                                           "optimizer.name=sgd",
                                           "parallel.shards=8",
                                           "parallel.devices=0,1",
                                           "data.resident=no",
                                           "train.steps=20",
                                           NULL};
    char advised[512] = "";
    tutti_train_result r;
    tutti_job *job = slow_worker_job(settings);
    T_EQ(setenv("TUTTI_TEST_DEVICE", "devices=2,peers=1,slow=1,delay=25", 1), 0);
    T_OK(tti_fault_set("slowest.advise:fail"));
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = find_advice, .user = advised}, &r));
    T_OK(tti_fault_set(NULL));
    T_EQ(unsetenv("TUTTI_TEST_DEVICE"), 0);
    tutti_job_destroy(job);
    assert_non_null(strstr(advised, "rank 1 computes more slowly than the others; "));
    assert_non_null(strstr(advised, "parallel.load_weights="));
    assert_null(strstr(advised, "parallel.load_weights=4,4"));
    assert_non_null(strstr(advised, " partial sums would be added instead of "));
}

/* Each worker a process: this program, begun again. */
static char self[512];

static const char *const apart[] = {"parallel.place=processes", "run.dir=apart", NULL};

/* settings: key=value, as many as there are, then NULL. */
static int be_worker(char *const *settings) {
    slow_worker w = {.rank = 1, .why = "data"};
    tutti_train_result r;
    tutti_job *job = slow_worker_job(apart);
    for (int i = 0; settings[i]; i++) tutti_job_set(job, settings[i], "command line");
    tutti_status st =
        tutti_train(job, &(tutti_train_desc){.on_event = slow_worker_look, .user = &w}, &r);
    tutti_job_destroy(job);
    return st == TUTTI_OK ? 0 : r.exit_code;
}

T_CASE(processes) {
    T_UNUSED;
    char *const again[] = {self, (char *)"worker", NULL};
    tutti_train_result r;
    tutti_job *job = slow_worker_job(apart);
    T_EQ(setenv("TUTTI_FAULT", "train.data:delay_ms=50@2+,rank=1", 1), 0);
    T_OK(tutti_train(job, &(tutti_train_desc){.worker_argv = again}, &r));
    T_EQ(unsetenv("TUTTI_FAULT"), 0);
    tutti_job_destroy(job);
    assert_true(slow_worker_is_recorded("apart", 1, "data"));
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return be_worker(argv + 2);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_and_why),
        cmocka_unit_test(what_is_late_by_two_percent_is_named_at_the_end),
        cmocka_unit_test(weights_are_advised_where_shards_are_fine_enough),
        cmocka_unit_test(sums_of_all_ranks),
        cmocka_unit_test(alone_and_asynchronous_nothing_is_reported),
        IN_FOLDER(threads),
        IN_FOLDER(other_ways_to_wait),
        IN_FOLDER(devices),
        IN_FOLDER(devices_by_a_library),
        IN_FOLDER(a_device_that_computes_slowly),
        IN_FOLDER(a_slow_device_gets_fewer_shards_by_advice),
        IN_FOLDER(processes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
