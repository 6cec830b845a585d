/* metrics_test.c - whole lines, also with other writers; numbers that JSON cannot express. */
#include "train/report/metrics.h"

#include <fcntl.h>

#include "train/small_job.h"

/* The file as text. */
static char *read_all(const char *path) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return text;
}

T_CASE(a_record_is_a_line) {
    T_UNUSED;
    tti_metrics m;
    T_OK(tti_metrics_open(&m, "."));
    tti_metrics_begin(&m, "step");
    tti_json_int(&m.json, "step", 7);
    tti_json_double(&m.json, "loss", 0.1);
    tti_json_double(&m.json, "bad", NAN);
    tti_json_text(&m.json, "text", "a\n\"b\"\\");
    T_OK(tti_metrics_end(&m));
    tti_metrics_close(&m);
    tti_metrics_close(&m); /* twice is fine */
    const char *text = read_all("metrics.jsonl");
    assert_ptr_equal(strstr(text, "{\"event\":\"step\",\"time\":"), text);
    assert_non_null(strstr(text, "\"step\":7,\"loss\":0.1,\"bad\":null,"));
    assert_non_null(strstr(text, "\"text\":\"a\\n\\\"b\\\"\\\\\"}\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

T_CASE(a_second_part_goes_on) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        tti_metrics m;
        T_OK(tti_metrics_open(&m, "."));
        tti_metrics_begin(&m, i ? "second" : "first");
        T_OK(tti_metrics_end(&m));
        tti_metrics_close(&m);
    }
    const char *text = read_all("metrics.jsonl");
    assert_non_null(strstr(text, "\"first\""));
    assert_true(strstr(text, "\"second\"") > strstr(text, "\"first\""));
}

static void add_record(tti_metrics *m, const char *event, int64_t step) {
    tti_metrics_begin(m, event);
    if (step >= 0) tti_json_int(&m->json, "step", step);
    T_OK(tti_metrics_end(m));
}

/* Steps after the one that a run resumes from go; what has no step, and failures, stay. */
T_CASE(a_resumed_run_repeats_no_step) {
    T_UNUSED;
    tti_metrics m;
    bool had_evaluation;
    T_OK(tti_metrics_open(&m, "."));
    add_record(&m, "start", 0);
    for (int64_t step = 1; step <= 3; step++) add_record(&m, "step", step);
    add_record(&m, "eval", 2);
    add_record(&m, "eval", 3);
    add_record(&m, "warning", -1);
    add_record(&m, "failed", 3);
    T_OK(tti_metrics_rewind(&m, ".", 2, false, &had_evaluation));
    assert_true(had_evaluation);
    add_record(&m, "start", 2);
    const char *text = read_all("metrics.jsonl");
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"step\":3")); at++) n++;
    T_EQ(n, 1); /* of the failure */
    assert_non_null(strstr(text, "\"warning\""));
    n = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) n++;
    T_EQ(n, 7);
    T_OK(tti_metrics_rewind(&m, ".", 2, true, &had_evaluation)); /* the evaluation is repeated */
    assert_true(had_evaluation);
    assert_null(strstr(read_all("metrics.jsonl"), "\"eval\""));
    T_OK(tti_metrics_rewind(&m, ".", 2, true, &had_evaluation));
    assert_false(had_evaluation);
    tti_metrics_close(&m);
}

static const char *write_many(int rank, int n_ranks, void *arg) {
    tti_metrics m;
    (void)n_ranks;
    (void)arg;
    if (tti_metrics_open(&m, ".") != TUTTI_OK) return "cannot open";
    for (int i = 0; i < 200; i++) {
        tti_metrics_begin(&m, "mixed");
        tti_json_int(&m.json, "rank", rank);
        tti_json_text(&m.json, "long", "a long text, so that a record that is torn would show it");
        if (tti_metrics_end(&m) != TUTTI_OK) return "cannot write";
    }
    tti_metrics_close(&m);
    return NULL;
}

T_CASE(lines_of_many_writers_stay_whole) {
    T_UNUSED;
    t_ranks(4, write_many, NULL);
    int n = 0;
    for (char *line = read_all("metrics.jsonl"), *end; *line; line = end + 1, n++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        assert_memory_equal(line, "{\"event\":\"mixed\"", 16);
        assert_memory_equal(end - 14, "ould show it\"}", 14);
    }
    T_EQ(n, 800);
}

T_CASE(failures_are_reported) {
    T_UNUSED;
    tti_metrics m;
    T_FAILS(tti_metrics_open(&m, "nowhere"), TUTTI_E_IO, "nowhere/metrics.jsonl: No such file");
    T_EQ(symlink("elsewhere", "metrics.jsonl"), 0);
    T_FAILS(tti_metrics_open(&m, "."), TUTTI_E_IO, "metrics.jsonl: is a symbolic link");
    T_EQ(access("elsewhere", F_OK), -1);
    T_EQ(unlink("metrics.jsonl"), 0);
    T_OK(tti_metrics_open(&m, "."));
    int full = open("/dev/full", O_WRONLY);
    if (full < 0) skip();
    T_EQ(dup2(full, m.fd), m.fd);
    close(full);
    tti_metrics_begin(&m, "x");
    T_FAILS(tti_metrics_end(&m), TUTTI_E_IO, "metrics.jsonl: No space left");
    tti_metrics_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_record_is_a_line), IN_FOLDER(a_second_part_goes_on),
        IN_FOLDER(a_resumed_run_repeats_no_step), IN_FOLDER(lines_of_many_writers_stay_whole),
        IN_FOLDER(failures_are_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
