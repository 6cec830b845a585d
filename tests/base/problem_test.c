/* problem_test.c - lists of problems: form, limits, clipping. */
#include "base/problem.h"

#include <stdio.h>

#include "t.h"

static int count_lines(const char *text) {
    int n = 1;
    for (; *text; text++) n += *text == '\n';
    return n;
}

T_CASE(none_is_ok) {
    T_UNUSED;
    tti_problems p = {0};
    T_OK(tti_problems_status(&p, TUTTI_E_CONFIG));
    tti_problems_free(&p);
}

T_CASE(form) {
    T_UNUSED;
    tti_problems p = {0};
    tti_problems_add(&p, &(tti_place){"job.yaml", 12, 7}, "%s: wrong", "a.b");
    tti_problems_add(&p, &(tti_place){"command line", 0, 0}, "bad");
    tti_problems_add(&p, &(tti_place){0}, "nowhere");
    T_EQ(tti_problems_status(&p, TUTTI_E_DATA), TUTTI_E_DATA);
    assert_string_equal(tutti_last_error(),
                        "job.yaml:12:7: error: a.b: wrong\n"
                        "command line: error: bad\n"
                        "error: nowhere");
    tti_problems_free(&p);
}

T_CASE(at_most_a_hundred) {
    T_UNUSED;
    tti_problems p = {0};
    for (int i = 0; i < 250; i++) tti_problems_add(&p, &(tti_place){"f", 1, 1}, "n %d", i);
    T_FAILS(tti_problems_status(&p, TUTTI_E_CONFIG), TUTTI_E_CONFIG, "n 99\n... and 150 more");
    T_EQ(count_lines(tutti_last_error()), 101);
    tti_problems_free(&p);
}

T_CASE(long_lists_end_at_a_line) {
    T_UNUSED;
    tti_problems p = {0};
    char word[501];
    memset(word, 'x', 500);
    word[500] = '\0';
    for (int i = 0; i < 30; i++) tti_problems_add(&p, &(tti_place){"f", 1, 1}, "%s", word);
    T_FAILS(tti_problems_status(&p, TUTTI_E_CONFIG), TUTTI_E_CONFIG, "x\n... and ");
    int n_shown = count_lines(tutti_last_error()) - 1;
    char end[32];
    snprintf(end, sizeof end, "\n... and %d more", 30 - n_shown);
    assert_non_null(strstr(tutti_last_error(), end));
    tti_problems_free(&p);
}

T_CASE(clip) {
    T_UNUSED;
    char out[TTI_CLIP], text[400];
    assert_string_equal(tti_clip(out, "a\nb\x1B[1m\xFF\xC3\xA9"), "a?b?[1m?\xC3\xA9");
    for (size_t i = 0; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 3);
    tti_clip(out, text);
    assert_true(strlen(out) < TTI_CLIP);
    T_EQ(strcmp(out + strlen(out) - 5, "\xC3\xA9..."), 0);
    memset(text, 'y', 100);
    text[80] = '\0';
    assert_string_equal(tti_clip(out, text), text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_ok),
        cmocka_unit_test(form),
        cmocka_unit_test(at_most_a_hundred),
        cmocka_unit_test(long_lists_end_at_a_line),
        cmocka_unit_test(clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
