/* report_test.c - the page of a run: what is on it, that it stands alone, and hostile texts. */
#include "train/report/report.h"

#include "train/page.h"
#include "train/small_job.h"
#include "tutti/eval.h"
#include "tutti/train.h"

T_CASE(of_a_run_with_images) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=run", "parallel.workers=2");
    tutti_train_result r;
    T_OK(tutti_train(job, NULL, &r));
    const char *page = page_of("run/report.html");
    T_EQ(n_of(page, "<figure>"), 7);
    assert_non_null(strstr(page, "<title>rank 0, computing: "));
    assert_non_null(strstr(page, "<title>rank 1, computing: "));
    assert_null(strstr(page, "<title>rank 2"));
    assert_non_null(strstr(page, "2 workers, 4 shards"));
    assert_non_null(strstr(page, "10 / 10"));
    assert_non_null(strstr(page, "of 50 test images were misclassified"));
    int n_wrong = 50 - (int)(r.accuracy * 50 + 0.5);
    T_EQ(n_of(page, "data:image/bmp;base64,Qk"), TTI_MIN(n_wrong, (int)TTI_MAX_MISTAKES));
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "<script"));
    tutti_job_destroy(job);
}

/* Mistakes need the data and a checkpoint; the curves do not. */
T_CASE(of_what_is_left) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=run");
    tutti_train_result r;
    T_OK(tutti_train(job, NULL, &r));
    T_EQ(system("rm -rf run/checkpoints/* run/report.html"), 0);
    T_OK(tutti_report(job, "run"));
    const char *page = page_of("run/report.html");
    T_EQ(n_of(page, "<figure>"), 7);
    assert_null(strstr(page, "Mistakes"));
    T_FAILS(tutti_report(job, "nowhere"), TUTTI_E_CONFIG, "no run there");
    tutti_job_destroy(job);
}

T_CASE(of_hostile_texts) {
    T_UNUSED;
    FILE *file = fopen("metrics.jsonl", "w");
    fputs(
        "{\"event\":\"start\",\"backend\":\"<b>x\",\"version\":\"&\"}\n"
        "{\"event\":\"warning\",\"text\":\"<script>alert(1)</script>\"}\n"
        "{\"event\":\"failed\",\"text\":\"nan\"}\n",
        file);
    fclose(file);
    file = fopen("job.yaml", "w");
    fputs("a: </pre><script>", file);
    fclose(file);
    T_OK(tti_report_write(".", NULL));
    const char *page = page_of("report.html");
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<b>x"));
    assert_non_null(strstr(page, "<p class=\"failed\">nan</p>"));
    assert_non_null(strstr(page, "<p>failed &middot;"));
}

/* The shortest of the ranks' reduce times is the cost, the rest is waiting. */
T_CASE(times_of_all_ranks) {
    T_UNUSED;
    FILE *file = fopen("metrics.jsonl", "w");
    fputs(
        "{\"event\":\"start\"}\n"
        "{\"event\":\"times\",\"step\":1,\"data_s\":[1,0],\"compute_s\":[6,4],"
        "\"comm_s\":[1,4],\"update_s\":[1,1],\"spent_s\":[10,10]}\n"
        "{\"event\":\"times\",\"step\":2,\"data_s\":[0,0],\"compute_s\":[4,6],"
        "\"comm_s\":[5,3],\"update_s\":[1,1],\"spent_s\":[10,10]}\n",
        file);
    fclose(file);
    T_OK(tti_report_write(".", NULL));
    const char *page = page_of("report.html");
    assert_non_null(strstr(page, "<title>rank 0, computing: 10 s, 50.0 %</title>"));
    assert_non_null(strstr(page, "<title>rank 0, reducing: 4 s, 20.0 %</title>"));
    assert_non_null(strstr(page, "<title>rank 0, waiting for workers: 2 s, 10.0 %</title>"));
    assert_non_null(strstr(page, "<title>rank 0, waiting for data: 1 s, 5.0 %</title>"));
    assert_non_null(strstr(page, "<title>rank 0, other: 1 s, 5.0 %</title>"));
    assert_non_null(strstr(page, "<title>rank 1, waiting for workers: 3 s, 15.0 %</title>"));
    assert_null(strstr(page, "rank 1, waiting for data"));
}

/* Steps 1 .. n, in a file that is filled up with nothing to so many bytes. */
static void write_run(int n, off_t n_bytes) {
    FILE *file = fopen("metrics.jsonl", "w");
    fputs("{\"event\":\"start\",\"n_steps\":9}\n", file);
    for (int i = 1; i <= n; i++) fprintf(file, "{\"event\":\"step\",\"step\":%d,\"loss\":1}\n", i);
    fflush(file);
    if (n_bytes > 0) T_EQ(ftruncate(fileno(file), n_bytes), 0);
    fclose(file);
}

T_CASE(of_more_steps_than_are_drawn) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        write_run(i ? 20000 : 5000, 0);
        T_OK(tti_report_write(".", NULL));
        const char *page = page_of("report.html");
        assert_non_null(strstr(page, i ? "20000 / 9" : "5000 / 9"));
        T_EQ(n_of(page, "The training curves show one of every 4 records."), i);
    }
}

/* A stop request ends the reading soon. */
T_CASE(of_a_run_that_is_stopped) {
    T_UNUSED;
    write_run(3, 0);
    T_OK(tti_report_when_stopped("."));
    assert_non_null(strstr(page_of("report.html"), "3 / 9"));
    write_run(4, (off_t)300 << 20);
    T_FAILS(tti_report_when_stopped("."), TUTTI_E_UNSUPPORTED,
            "metrics.jsonl has 314 MB; tutti report . writes it");
    assert_non_null(strstr(page_of("report.html"), "3 / 9"));
    T_OK(tti_report_write(".", NULL));
    assert_non_null(strstr(page_of("report.html"), "4 / 9"));
}

/* The surest mistakes first, as many as fit, all of them counted. */
T_CASE(mistakes_in_order) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=run");
    tutti_train_result r;
    tti_predictor *p;
    tti_mistakes m;
    T_OK(tutti_train(job, NULL, &r));
    T_OK(tti_predictor_open_with_test(job, "run", NULL, NULL, &p));
    T_OK(tti_mistakes_find(p, 60000, &m));
    T_EQ(m.n_seen, 50);
    T_EQ(m.n_wrong, 50 - (int)(r.accuracy * 50 + 0.5));
    T_EQ(m.n, TTI_MIN(m.n_wrong, TTI_MAX_MISTAKES));
    for (int i = 0; i < m.n; i++) {
        assert_true(m.found[i].label != m.found[i].predicted && m.found[i].h == 28);
        assert_true(i == 0 || m.found[i].probability <= m.found[i - 1].probability);
    }
    tti_mistakes_free(&m);
    tti_predictor_close(p);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(of_a_run_with_images),    IN_FOLDER(of_what_is_left),
        IN_FOLDER(of_hostile_texts),        IN_FOLDER(mistakes_in_order),
        IN_FOLDER(times_of_all_ranks),      IN_FOLDER(of_more_steps_than_are_drawn),
        IN_FOLDER(of_a_run_that_is_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
