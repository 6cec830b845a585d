/* width_test.c - columns of characters, and columns of a table that stay straight. */
#include "base/width.h"

#include "t.h"

T_CASE(columns_of_text) {
    T_UNUSED;
    T_EQ(tti_text_width(""), 0);
    T_EQ(tti_text_width("cat"), 3);
    T_EQ(tti_text_width("\xe7\x8c\xab"), 2);             /* a Chinese character */
    T_EQ(tti_text_width("e\xcc\x81t\xc3\xa9"), 3);       /* an accent as a mark, and in one */
    T_EQ(tti_text_width("\xf0\x9f\x90\xb1"), 2);         /* a cat's face */
    T_EQ(tti_text_width("\xed\x95\x9c\xea\xb5\xad"), 4); /* Hangul */
    T_EQ(tti_text_width("\xff\xfe"), 2);                 /* not UTF-8 */
}

T_CASE(columns_of_a_table) {
    T_UNUSED;
    tti_str out = {0};
    tti_str_add_column(&out, "cat", 5);
    tti_str_add(&out, "|");
    tti_str_add_column(&out, "\xe7\x8c\xab", 5);
    tti_str_add(&out, "|");
    tti_str_add_column(&out, "\xe7\x8c\xab\xe7\x8c\xab", -3); /* the second would be cut in half */
    tti_str_add(&out, "|");
    tti_str_add_column(&out, "long name", 4);
    assert_string_equal(tti_str_text(&out), "cat  |\xe7\x8c\xab   | \xe7\x8c\xab|long");
    tti_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_of_text),
                                       cmocka_unit_test(columns_of_a_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
