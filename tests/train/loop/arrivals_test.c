/* arrivals_test.c - the order of arrival, written and read back, and files that are none. */
#include "train/loop/arrivals.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/small_job.h"

static int64_t every_five(const tti_blueprint *b, int64_t step) {
    (void)b;
    return (step / 5 + 1) * 5;
}

static const tti_blueprint *new_blueprint_in(const char *precision) {
    tutti_job *job = SMALL_JOB("parallel.workers=3", "parallel.devices=cpu", precision);
    const tti_blueprint *b;
    T_OK(tti_job_resolve(job, 2));
    T_OK(tti_blueprint_create(job, &b));
    tutti_job_destroy(job);
    return b;
}

static const tti_blueprint *new_blueprint(void) { return new_blueprint_in("train.precision=f32"); }

/* Ten updates in stretches of five, batches from the last of a stretch to the first. */
static tti_arrival arrival(int64_t step) {
    int64_t first = (step - 1) / 5 * 5;
    return (tti_arrival){.step = step,
                         .batch = 2 * first + 5 - step,
                         .worker = (int32_t)(step % 3),
                         .loss_scale = ldexp(1, (int)(16 - step % 5)),
                         .version = TTI_MAX(first, step - 3)};
}

static void write_updates(const tti_blueprint *b, int64_t first, int64_t last) {
    FILE *file;
    T_OK(tti_arrivals_open(b, ".", &file));
    for (int64_t step = first; step <= last; step++) {
        tti_arrival a = arrival(step);
        T_OK(tti_arrivals_write(b, file, &a));
    }
    T_OK(tti_arrivals_flush(file));
    tti_arrivals_close(file);
}

static void expect_updates(const tti_blueprint *b) {
    bool scaled = tti_blueprint_target(b).loss_scale;
    tti_arrival *got;
    int64_t n;
    T_OK(tti_arrivals_read(b, ".", every_five, &got, &n));
    T_EQ(n, 10);
    for (int64_t i = 0; i < n; i++) {
        tti_arrival a = arrival(i + 1);
        assert_true(got[i].step == a.step && got[i].batch == a.batch && got[i].worker == a.worker &&
                    got[i].version == a.version &&
                    got[i].loss_scale == (scaled ? a.loss_scale : 0));
    }
    free(got);
}

static void write_text(const char *before, const char *text) {
    FILE *file = fopen("arrivals.txt", "w");
    assert_non_null(file);
    fprintf(file, "%s%s", before, text);
    fclose(file);
}

T_CASE(written_and_read) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    write_updates(b, 1, 10);
    expect_updates(b);
    tti_blueprint_destroy(b);
}

T_CASE(with_loss_scales) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint_in("train.precision=f16"), *wide = new_blueprint();
    tti_arrival *got;
    int64_t n;
    write_updates(b, 1, 10);
    expect_updates(b);
    T_FAILS(tti_arrivals_read(wide, ".", every_five, &got, &n), TUTTI_E_CONFIG, "another job");
    static const char *const bad[] = {"1 0 0 0",    "1 0 0 0 ",     "1 0 0 0 0",
                                      "1 0 0 0 -2", "1 0 0 0 1e60", "1 0 0 0 2 2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("tutti arrivals 1 workers 3 batch 32 seed 1 shards 4 scaled\n", bad[i]);
        T_FAILS(tti_arrivals_read(b, ".", every_five, &got, &n), TUTTI_E_CONFIG, ":2: expected");
    }
    tti_blueprint_destroy(wide);
    tti_blueprint_destroy(b);
}

/* The first stretches of a longer run. */
T_CASE(the_first_part_of_a_longer_run) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    write_updates(b, 1, 3000);
    expect_updates(b);
    tti_blueprint_destroy(b);
}

/* Killed after update 7, continued from the checkpoint at 5: 6 and 7 come again. */
T_CASE(continued_from_a_checkpoint) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    write_updates(b, 1, 7);
    write_updates(b, 6, 10);
    expect_updates(b);
    tti_blueprint_destroy(b);
}

/* Killed while a buffer of lines was on its way: the last one ends anywhere. */
T_CASE(continued_after_a_torn_line) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    for (int n_cut = 1; n_cut < 70; n_cut++) {
        struct stat written;
        remove("arrivals.txt");
        write_updates(b, 1, 7);
        T_EQ(stat("arrivals.txt", &written), 0);
        T_EQ(truncate("arrivals.txt", written.st_size > n_cut ? written.st_size - n_cut : 0), 0);
        write_updates(b, n_cut < 10 ? 6 : 1, 10);
        expect_updates(b);
    }
    tti_blueprint_destroy(b);
}

static const char head[] = "tutti arrivals 1 workers 3 batch 32 seed 1 shards 4\n";

static const struct {
    const char *text, *message;
    bool headed;
} bad[] = {
    {"", "arrivals.txt:0: the file is empty", false},
    {"\n", "belongs to another job", false},
    {"tutti arrivals 2 workers 3 batch 32 seed 1 shards 4\n", "belongs to another job", false},
    {"tutti arrivals 1 workers 2 batch 32 seed 1 shards 4\n", "belongs to another job", false},
    {"", "has 0 updates, but this job makes 10; give train.steps=0", true},
    {"1 0 0 0\n2 1 0 0\n", "has 2 updates, but this job makes 10; give train.steps=2", true},
    {"1 0 0\n", "arrivals.txt:2: expected four numbers", true},
    {"1 0 0 0 0\n", "arrivals.txt:2: expected four numbers", true},
    {"1 0 0 x\n", "expected four numbers", true},
    {"1 0 0 -1\n", "expected four numbers", true},
    {"1 0  0\n", "expected four numbers", true},
    {"1 0 0 0\n\n", "arrivals.txt:3: expected four numbers", true},
    {"1 99999999999999999999 0 0\n", "expected four numbers", true},
    {"0 0 0 0\n", "the update before this one is missing", true},
    {"2 0 0 0\n", "the update before this one is missing", true},
    {"1 0 0 0\n3 0 0 0\n", "arrivals.txt:3: the update before this one", true},
    {"1 0 3 0\n", "there is no such worker", true},
    {"1 0 0 1\n", "would be newer than the update", true},
};

static void refuse(const tti_blueprint *b, const char *message) {
    tti_arrival *got;
    int64_t n;
    T_FAILS(tti_arrivals_read(b, ".", every_five, &got, &n), TUTTI_E_CONFIG, message);
    assert_null(got);
}

T_CASE(what_is_no_such_file) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    refuse(b, "it is the folder of an asynchronous run");
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        write_text(bad[i].headed ? head : "", bad[i].text);
        refuse(b, bad[i].message);
    }
    tti_blueprint_destroy(b);
}

/* Each stretch has its batches, each once, and no gradient crosses its begin. */
T_CASE(other_stops) {
    T_UNUSED;
    static const char *const last[] = {"10 9 0 5", "10 5 0 4", "10 4 0 5", "10 10 0 5"};
    const tti_blueprint *b = new_blueprint();
    for (size_t i = 0; i < TTI_COUNT(last); i++) {
        char line[40];
        remove("arrivals.txt");
        write_updates(b, 1, 9);
        FILE *file = fopen("arrivals.txt", "a");
        assert_non_null(file);
        fprintf(file, "%s\n", last[i]);
        fclose(file);
        snprintf(line, sizeof line, "update 10 (batch %c", last[i][3]);
        refuse(b, line);
        refuse(b, "between the stops at 5 and 10");
    }
    tti_blueprint_destroy(b);
}

/* A worker has one batch at a time: who repeats it otherwise would wait for itself. */
T_CASE(two_batches_of_one_worker_at_a_time) {
    T_UNUSED;
    const tti_blueprint *b = new_blueprint();
    write_text(head,
               "1 0 0 0\n2 1 1 0\n3 2 0 1\n4 3 0 2\n5 4 0 4\n6 5 0 5\n7 6 0 6\n8 7 0 7\n"
               "9 8 0 8\n10 9 0 9\n");
    refuse(b, "update 4 of worker 0 is of version 2, from before its update 3");
    tti_blueprint_destroy(b);
}

T_CASE(nowhere_to_write) {
    T_UNUSED;
    FILE *file;
    const tti_blueprint *b = new_blueprint();
    T_FAILS(tti_arrivals_open(b, "missing", &file), TUTTI_E_IO, "missing/arrivals.txt");
    tti_arrivals_close(NULL);
    T_OK(tti_arrivals_flush(NULL));
    tti_blueprint_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(written_and_read),
        IN_FOLDER(with_loss_scales),
        IN_FOLDER(continued_from_a_checkpoint),
        IN_FOLDER(continued_after_a_torn_line),
        IN_FOLDER(what_is_no_such_file),
        IN_FOLDER(other_stops),
        IN_FOLDER(nowhere_to_write),
        IN_FOLDER(the_first_part_of_a_longer_run),
        IN_FOLDER(two_batches_of_one_worker_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
