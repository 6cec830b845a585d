/* braces_test.c - brace expansion, good and bad. */
#include "data/files/braces.h"

#include <stdlib.h>

#include "base/error.h"
#include "t.h"

static void expand(const char *pattern, const char *const *wanted, size_t n_wanted) {
    char **text;
    size_t n;
    T_OK(tti_expand_braces(pattern, &text, &n));
    T_EQ(n, n_wanted);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(text[i], wanted[i]);
        free(text[i]);
    }
    free(text);
}

T_CASE(expansions) {
    T_UNUSED;
    expand("plain.tar", (const char *[]){"plain.tar"}, 1);
    expand("x-{008..010}.tar", (const char *[]){"x-008.tar", "x-009.tar", "x-010.tar"}, 3);
    expand("{a,b}/{1..2}", (const char *[]){"a/1", "a/2", "b/1", "b/2"}, 4);
    expand("{a,}x", (const char *[]){"ax", "x"}, 2);
    expand("{7..7}", (const char *[]){"7"}, 1);
}

T_CASE(bad_patterns) {
    T_UNUSED;
    static const char *const bad[] = {
        "{",     "}",     "a{b",    "a}b",     "{{a,b}}", "{a}",           "{}",
        "{1..}", "{..2}", "{2..1}", "{1..2x}", "{-1..2}", "{1..99999999}", "{0..999}{0..999}"};
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        char **text = NULL;
        size_t n;
        T_FAILS(tti_expand_braces(bad[i], &text, &n), TUTTI_E_INVALID, "braces: ");
        assert_null(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expansions),
        cmocka_unit_test(bad_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
