/* chart_test.c - numbers as people read them, text that stays text, curves of any shape. */
#include "train/report/chart.h"

#include "t.h"

static int n_of(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

T_CASE(numbers) {
    T_UNUSED;
    char text[32];
    assert_string_equal(tti_chart_number(0, text), "0");
    assert_string_equal(tti_chart_number(0.0314159, text), "0.0314");
    assert_string_equal(tti_chart_number(5000, text), "5000");
    assert_string_equal(tti_chart_number(12345, text), "12.3k");
    assert_string_equal(tti_chart_number(-2.5e6, text), "-2500k");
    assert_string_equal(tti_chart_number(25.6e6, text), "25.6M");
    assert_string_equal(tti_chart_bytes(900, text), "900 B");
    assert_string_equal(tti_chart_bytes(1024 * 1024 * 1.5, text), "1.5 MiB");
}

T_CASE(text_stays_text) {
    T_UNUSED;
    tti_str out = {0};
    tti_html_text(&out, "<a href=\"x\">&\x01\xff \xc3\xa9");
    assert_string_equal(tti_str_text(&out), "&#60;a href=&#34;x&#34;&#62;&#38;?? \xc3\xa9");
    tti_str_free(&out);
}

static void draw(const double *x, const double *y, int n, bool log_y, tti_str *out) {
    const tti_series series = {.name = "s", .x = x, .y = y, .n = n};
    tti_str_clear(out);
    tti_chart_draw(
        out,
        &(tti_chart){.title = "t", .unit = "", .series = &series, .n_series = 1, .log_y = log_y});
    assert_false(out->failed);
    assert_null(strstr(out->text, "nan"));
    assert_null(strstr(out->text, "inf"));
    T_EQ(n_of(out->text, "<svg"), 1);
}

T_CASE(curves_of_any_shape) {
    T_UNUSED;
    tti_str out = {0};
    static double x[5000], y[5000];
    for (int i = 0; i < 5000; i++) x[i] = i, y[i] = i % 10;
    draw(x, y, 5000, false, &out);
    T_EQ(n_of(out.text, "L"), 479); /* means of neighbours, no more than pixels */
    draw(x, y, 0, false, &out);
    draw(x, y, 1, false, &out);
    T_EQ(n_of(out.text, "<circle"), 1);
    double large[] = {1e14, 1e14 + 0.01, 1e14}, tiny[] = {1e-300, 1e10, 0.5};
    draw(x, large, 3, false, &out);
    draw(x, tiny, 3, true, &out);
    double zero[] = {0, 0, 0};
    draw(x, zero, 3, true, &out);
    draw(zero, zero, 3, false, &out);
    tti_str_free(&out);
}

T_CASE(areas_fill_up_to_one) {
    T_UNUSED;
    tti_str out = {0};
    double x[] = {1, 2}, a[] = {0.25, 0.25}, b[] = {0.9, 0.75};
    const tti_series series[] = {{.name = "a", .x = x, .y = a, .n = 2},
                                 {.name = "b", .colour = 1, .x = x, .y = b, .n = 2}};
    tti_chart_draw(
        &out,
        &(tti_chart){.title = "t", .unit = "%", .series = series, .n_series = 2, .stacked = true});
    /* The upper area runs along the top, 10, and back along a quarter of 214 above 224. */
    assert_non_null(strstr(out.text, "c1\" d=\"M52.0 10.0L548.0 10.0L548.0 170.5L52.0 170.5Z"));
    tti_str_free(&out);
}

T_CASE(bars_without_what_is_nothing) {
    T_UNUSED;
    tti_str out = {0};
    const char *names[] = {"one", "two", "three"};
    double bytes[] = {1024, 0, 2048};
    tti_chart_bars(&out, "t", names, bytes, 3);
    T_EQ(n_of(out.text, "<rect"), 2);
    assert_null(strstr(out.text, "two"));
    assert_non_null(strstr(out.text, "width=\"290.0\""));
    tti_str_free(&out);
}

T_CASE(stacks_as_long_as_their_parts) {
    T_UNUSED;
    tti_str out = {0};
    const char *parts[] = {"a", "b"};
    const int colours[] = {2, 5};
    const double seconds[] = {3, 1, 0, 2};
    tti_stacks s = {.title = "t",
                    .row = "rank",
                    .parts = parts,
                    .colours = colours,
                    .n_parts = 2,
                    .n_rows = 2,
                    .seconds = seconds};
    tti_chart_stacks(&out, &s);
    T_EQ(n_of(out.text, "<rect"), 3);
    assert_non_null(strstr(out.text, "c2\" x=\"52.0\" y=\"10.0\" width=\"372.0\""));
    assert_non_null(strstr(out.text, "c5\" x=\"424.0\" y=\"10.0\" width=\"124.0\""));
    assert_non_null(strstr(out.text, "<title>rank 0, a: 3 s, 75.0 %</title>"));
    assert_non_null(strstr(out.text, "c5\" x=\"52.0\" y=\"40.0\" width=\"248.0\""));
    tti_str_clear(&out);
    s.seconds = (const double[]){0, 0, 0, 0};
    tti_chart_stacks(&out, &s);
    T_EQ(out.n_bytes, 0);
    tti_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers),
                                       cmocka_unit_test(text_stays_text),
                                       cmocka_unit_test(curves_of_any_shape),
                                       cmocka_unit_test(areas_fill_up_to_one),
                                       cmocka_unit_test(bars_without_what_is_nothing),
                                       cmocka_unit_test(stacks_as_long_as_their_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
