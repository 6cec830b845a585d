/* str_test.c - a string grows, is always terminated, and is empty when empty. */
#include "base/str.h"

#include "t.h"

T_CASE(grows) {
    T_UNUSED;
    tti_str str = {0};
    assert_string_equal(tti_str_text(&str), "");
    for (int i = 0; i < 5000; i++) tti_str_printf(&str, "%d,", i % 10);
    T_EQ(str.n_bytes, 10000);
    T_EQ(strlen(tti_str_text(&str)), 10000);
    for (size_t i = 0; i < 10000; i += 2) T_EQ(str.text[i], '0' + (int)(i / 2 % 10));
    assert_false(str.failed);
    tti_str_free(&str);
    assert_null(str.text);
}

T_CASE(bytes_and_clear) {
    T_UNUSED;
    tti_str str = {0};
    tti_str_add(&str, "ab");
    tti_str_add_bytes(&str, "\0c", 2);
    T_EQ(str.n_bytes, 4);
    assert_memory_equal(str.text, "ab\0c", 5);
    tti_str_clear(&str);
    assert_string_equal(tti_str_text(&str), "");
    tti_str_add(&str, "");
    tti_str_add_bytes(&str, NULL, 0);
    T_EQ(str.n_bytes, 0);
    tti_str_free(&str);
}

T_CASE(failure_is_sticky) {
    T_UNUSED;
    tti_str str = {0};
    tti_str_add(&str, "kept");
    str.failed = true; /* as after a failed realloc */
    tti_str_add(&str, "lost");
    tti_str_printf(&str, "%s", "lost");
    assert_string_equal(tti_str_text(&str), "kept");
    tti_str_free(&str);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows),
        cmocka_unit_test(bytes_and_clear),
        cmocka_unit_test(failure_is_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
