/* profile_overlap_test.c - what is hidden by computing, of spans that are made up here. */
#include "train/profile/profile_overlap.h"

#include "t.h"

static const char text[] = "what";

/* A span of each kind is one of labels. */
static const tti_span_label *labels(void) {
    static tti_span_label of[TTI_N_SPAN_KINDS];
    for (int k = 0; k < TTI_N_SPAN_KINDS; k++)
        of[k] = (tti_span_label){.layer = TTI_SPANS_NOTHING, .row = TTI_ROW_COMPUTE, .kind = k};
    return of;
}

static void measure(const tti_profile_span *spans, int64_t n, tti_traffic_time *times) {
    tti_span_label copies[TTI_N_SPAN_KINDS];
    memcpy(copies, labels(), sizeof copies);
    const tti_worker_spans reported = {
        .head = {.n_labels = TTI_N_SPAN_KINDS, .n_spans = n, .n_text = 5},
        .labels = copies,
        .spans = (tti_profile_span *)(uintptr_t)spans,
        .text = (char *)(uintptr_t)text};
    T_OK(tti_traffic_times(&reported, times));
}

/* Kernels 0-10 and 12-20, a wait 10-12: of a collective 8-14 four of six are hidden. */
T_CASE(waits_hide_nothing) {
    T_UNUSED;
    tti_traffic_time times[TTI_N_SPAN_KINDS] = {0};
    const tti_profile_span spans[] = {{TTI_SPAN_WORK, 0, 0, 0, 12, 8},
                                      {TTI_SPAN_WAIT, 0, 0, 0, 10, 2},
                                      {TTI_SPAN_LAYERS, 0, 0, 0, 8, 6},
                                      {TTI_SPAN_WORK, 0, 0, 0, 0, 10}};
    measure(spans, 4, times);
    T_NEAR(times[TTI_SPAN_LAYERS].us, 6, 1e-12);
    T_NEAR(times[TTI_SPAN_LAYERS].hidden_us, 4, 1e-12);
    T_EQ(times[TTI_SPAN_LAYERS].n_spans, 1);
    T_NEAR(times[TTI_SPAN_WORK].us, 0, 1e-12); /* no traffic */
    T_NEAR(times[TTI_SPAN_GRADS].us, 0, 1e-12);
}

/* Time counts once, however many spans lie there; another step's kernels hide it too. */
T_CASE(time_counts_once) {
    T_UNUSED;
    tti_traffic_time times[TTI_N_SPAN_KINDS] = {0};
    const tti_profile_span spans[] = {
        {TTI_SPAN_GRADS, -1, 0, 0, 0, 4}, {TTI_SPAN_GRADS, -1, 0, 0, 2, 4},
        {TTI_SPAN_GRADS, -1, 0, 0, 9, 1}, {TTI_SPAN_WORK, 0, 0, 0, 1, 2},
        {TTI_SPAN_WORK, 1, 1, 0, 2, 3},   {TTI_SPAN_PARAMS, -1, 1, 0, 100, 5}};
    measure(spans, 6, times);
    T_NEAR(times[TTI_SPAN_GRADS].us, 7, 1e-12);
    T_NEAR(times[TTI_SPAN_GRADS].hidden_us, 4, 1e-12);
    T_EQ(times[TTI_SPAN_GRADS].n_spans, 3);
    T_NEAR(times[TTI_SPAN_PARAMS].us, 5, 1e-12);
    T_NEAR(times[TTI_SPAN_PARAMS].hidden_us, 0, 1e-12);
    measure(spans, 6, times); /* of a second worker: added */
    T_NEAR(times[TTI_SPAN_GRADS].us, 14, 1e-12);
}

T_CASE(nothing_is_nothing) {
    T_UNUSED;
    tti_traffic_time times[TTI_N_SPAN_KINDS] = {0};
    measure(NULL, 0, times);
    for (int k = 0; k < TTI_N_SPAN_KINDS; k++) T_NEAR(times[k].us + times[k].hidden_us, 0, 1e-12);
}

T_CASE(kinds_have_names) {
    T_UNUSED;
    assert_string_equal(tti_traffic_name(TTI_SPAN_LAYERS), "TP collectives");
    assert_null(tti_traffic_name(TTI_SPAN_WORK));
    assert_null(tti_traffic_name(TTI_SPAN_WAIT));
    assert_null(tti_traffic_name(TTI_SPAN_OTHER));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_hide_nothing), cmocka_unit_test(time_counts_once),
        cmocka_unit_test(nothing_is_nothing), cmocka_unit_test(kinds_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
