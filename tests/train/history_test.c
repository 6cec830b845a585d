/* history_test.c - metrics.jsonl read back: whole, continued, damaged and hostile. */
#include "train/history.h"

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

#define TIMES(n, spent) \
    "{\"event\":\"times\",\"step\":" #n ",\"compute_s\":[1,2],\"spent_s\":" spent "}\n"

/* What is no array of numbers is none; a part of a run that was lost has no times. */
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
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_continued_run), IN_FOLDER(damaged_lines), IN_FOLDER(nothing_and_no_run),
        IN_FOLDER(more_warnings_than_are_kept), IN_FOLDER(times_of_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
