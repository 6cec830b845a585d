/* history_test.c - metrics.jsonl read back: whole, continued, damaged and hostile. */
#include "train/report/history.h"

#include "train/small_job.h"

static void write_metrics(const char *text) {
    FILE *file = fopen("metrics.jsonl", "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

#define STEP(n, loss) "{\"event\":\"step\",\"step\":" #n ",\"loss\":" #loss "}\n"
#define START(n) "{\"event\":\"start\",\"step\":" #n ",\"n_steps\":9,\"workers\":2}\n"

/* Steps after the place where a run was continued have not happened. */
T_CASE(a_continued_run) {
    T_UNUSED;
    tti_history h;
    write_metrics(START(0) STEP(1, 4.0) STEP(2, 3.0) STEP(3, 7.0)
                  "{\"event\":\"eval\",\"step\":3,\"loss\":1}\n" START(2) STEP(3, 2.5)
                  "{\"event\":\"end\",\"step\":3,\"stopped\":true,\"wall_s\":2,\"peak_rss\":5}\n");
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_steps, 3);
    T_EQ(h.n_evals, 0);
    assert_true(h.steps[2].loss == 2.5 && h.steps[1].loss == 3.0);
    assert_true(h.workers == 2 && h.planned_steps == 9 && h.peak_rss == 5);
    assert_true(h.ended && h.stopped && h.last_step == 3);
    tti_history_free(&h);
}

T_CASE(damaged_lines) {
    T_UNUSED;
    tti_history h;
    write_metrics("garbage\n\n[1]\n" STEP(1, 1e300) STEP(2, "x") STEP(
        3, null) "{\"event\":\"warning\",\"text\":7}\n{\"event\":\"failed\",\"text\":\"why\"}\n"
                 "{\"event\":5}\n{\"event\":\"step\",\"st");
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_bad_lines, 3);
    T_EQ(h.n_steps, 3);
    for (int i = 0; i < 3; i++) assert_true(h.steps[i].loss == 0);
    T_EQ(h.n_notes, 2);
    assert_true(!h.notes[0].failed && h.notes[1].failed);
    assert_string_equal(h.notes[1].text, "why");
    assert_string_equal(h.backend, "");
    tti_history_free(&h);
}

T_CASE(nothing_and_no_run) {
    T_UNUSED;
    tti_history h;
    T_FAILS(tti_history_read(".", &h), TUTTI_E_CONFIG, "no run there");
    write_metrics("");
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_steps + h.n_evals + h.n_notes, 0);
    tti_history_free(&h);
}

T_CASE(more_warnings_than_are_kept) {
    T_UNUSED;
    tti_history h;
    FILE *file = fopen("metrics.jsonl", "w");
    for (int i = 0; i < 130; i++) fputs("{\"event\":\"warning\",\"text\":\"w\"}\n", file);
    fclose(file);
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_notes, TTI_HISTORY_NOTES);
    T_EQ(h.n_notes_left_out, 30);
    tti_history_free(&h);
}

/* ---- of long runs ---- */

static void write_steps(FILE *file, int first, int last) {
    for (int i = first; i <= last; i++)
        fprintf(file, "{\"event\":\"step\",\"step\":%d,\"loss\":%d}\n", i, 2 * i);
}

/* The first one, one in so many, and the last. */
static void check_steps(const tti_history *h, int each, int last) {
    T_EQ(h->steps_each, each);
    for (int i = 0; i < h->n_steps; i++) {
        int step = TTI_MIN(1 + i * each, last);
        if (fabs(h->steps[i].step - step) > 0 || fabs(h->steps[i].loss - 2 * step) > 0)
            fail_msg("point %d is step %g", i, h->steps[i].step);
    }
    T_EQ(h->n_steps, (last - 1 + each - 1) / each + 1);
    T_EQ((int)h->last_step, last);
}

T_CASE(of_many_steps_some_are_kept) {
    T_UNUSED;
    static const struct {
        int n_steps, each;
    } cases[] = {{TTI_HISTORY_STEPS - 1, 1},
                 {TTI_HISTORY_STEPS, 1},
                 {TTI_HISTORY_STEPS + 1, 2},
                 {TTI_HISTORY_STEPS + 2, 2},
                 {40000, 8},
                 {40001, 8}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tti_history h;
        FILE *file = fopen("metrics.jsonl", "w");
        fputs(START(0), file);
        write_steps(file, 1, cases[i].n_steps);
        fputs("{\"event\":\"eval\",\"step\":7,\"loss\":1}\n", file);
        fclose(file);
        T_OK(tti_history_read(".", &h));
        check_steps(&h, cases[i].each, cases[i].n_steps);
        T_EQ(h.n_evals, 1);
        T_EQ(h.n_bad_lines, 0);
        tti_history_free(&h);
    }
}

/* Lost records are not the last step, and no record is cut in two. */
T_CASE(a_long_run_that_was_continued) {
    T_UNUSED;
    tti_history h;
    FILE *file = fopen("metrics.jsonl", "w");
    fputs(START(0), file);
    write_steps(file, 1, 30003);
    fputs(START(20000), file);
    fclose(file);
    T_OK(tti_history_read(".", &h));
    T_EQ((int)h.last_step, 20000);
    int n_before = h.n_steps;
    assert_true(h.steps[n_before - 1].step <= 20000 && h.steps[n_before - 1].step > 19990);
    tti_history_free(&h);
    file = fopen("metrics.jsonl", "a");
    write_steps(file, 20001, 20003);
    fputs("{\"event\":\"step\",\"step\":20004", file); /* the machine lost power */
    fclose(file);
    T_OK(tti_history_read(".", &h));
    T_EQ((int)h.last_step, 20003);
    T_EQ(h.n_bad_lines, 1);
    assert_true(h.n_steps > n_before && h.n_steps <= n_before + 2);
    for (int i = 1; i < h.n_steps; i++) assert_true(h.steps[i].step > h.steps[i - 1].step);
    tti_history_free(&h);
}

/* Skipped lines are not parsed, or a page would take time in proportion to the run. */
T_CASE(lines_that_are_passed_over_are_not_read) {
    T_UNUSED;
    tti_history h;
    FILE *file = fopen("metrics.jsonl", "w");
    write_steps(file, 1, TTI_HISTORY_STEPS + 1); /* from here on every second one is kept */
    for (int i = 0; i < 1000; i++) fputs("{\"event\":\"step\",not read}\n", file);
    write_steps(file, 9000, 9000); /* the last one is */
    fclose(file);
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_bad_lines, 500);
    tti_history_free(&h);
}

/* Another program may have written the file anew: one in so many all the same, and the last one is
 * the last. */
T_CASE(steps_that_begin_otherwise) {
    T_UNUSED;
    tti_history h;
    FILE *file = fopen("metrics.jsonl", "w");
    for (int i = 1; i <= 20000; i++)
        fprintf(file, "{\"step\":%d,\"loss\":%d,\"event\":\"step\"}\n", i, 2 * i);
    write_steps(file, 20001, 30004);
    fputs("{\"step\":30005,\"loss\":60010,\"event\":\"step\"}\n", file);
    fclose(file);
    T_OK(tti_history_read(".", &h));
    check_steps(&h, 4, 30005);
    tti_history_free(&h);
    file = fopen("metrics.jsonl", "a");
    fputs("{\"step\":30006,\"loss\":60012,\"event\":\"step\"}\n", file);
    fputs("{\"step\":100,\"event\":\"start\"}\n", file);
    fclose(file);
    T_OK(tti_history_read(".", &h));
    T_EQ((int)h.last_step, 100);
    T_NEAR(h.steps[h.n_steps - 1].step, 97, 0);
    tti_history_free(&h);
}

/* Lines that end with a block of reading, around it, and one that is longer than any record. */
T_CASE(lines_across_blocks) {
    T_UNUSED;
    for (int extra = -2; extra <= 2; extra++) {
        tti_history h;
        FILE *file = fopen("metrics.jsonl", "w");
        fprintf(file, "{\"event\":\"warning\",\"text\":\"%0*d\"}\n", (1 << 20) - 40 + extra, 7);
        write_steps(file, 1, 3);
        fprintf(file, "%0*d\n", 3 << 20, 0);
        write_steps(file, 4, 5);
        fclose(file);
        T_OK(tti_history_read(".", &h));
        T_EQ(h.n_notes, 1);
        T_EQ((int)strlen(h.notes[0].text), (1 << 20) - 40 + extra);
        assert_true(h.n_bad_lines >= 1);
        check_steps(&h, 1, 5);
        tti_history_free(&h);
    }
}

#define TIMES(n, spent) \
    "{\"event\":\"times\",\"step\":" #n ",\"compute_s\":[1,2],\"spent_s\":" spent "}\n"

/* A value that is not an array of numbers is ignored; a lost part of a run has no times. */
T_CASE(times_of_ranks) {
    T_UNUSED;
    tti_history h;
    write_metrics(START(0) TIMES(1, "[3,4]") TIMES(2, "[5,6]") TIMES(3, "[7,8]") START(1)
                      TIMES(4, "[1e300,\"x\",-1]") TIMES(5, "7"));
    T_OK(tti_history_read(".", &h));
    T_EQ(h.n_times, 2 + 3);
    for (int i = 0; i < 2; i++) {
        T_EQ(h.times[i].rank, i);
        assert_true(h.times[i].step == 1 && h.times[i].spent == 3 + i);
        assert_true(h.times[i].compute == 1 + i && h.times[i].data == 0);
    }
    for (int i = 2; i < 5; i++) assert_true(h.times[i].step == 4 && h.times[i].spent == 0);
    assert_true(h.times[4].rank == 2 && h.times[4].compute == 0);
    tti_history_free(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_continued_run),
                                       IN_FOLDER(damaged_lines),
                                       IN_FOLDER(nothing_and_no_run),
                                       IN_FOLDER(more_warnings_than_are_kept),
                                       IN_FOLDER(times_of_ranks),
                                       IN_FOLDER(of_many_steps_some_are_kept),
                                       IN_FOLDER(a_long_run_that_was_continued),
                                       IN_FOLDER(lines_that_are_passed_over_are_not_read),
                                       IN_FOLDER(steps_that_begin_otherwise),
                                       IN_FOLDER(lines_across_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
