/* utf8_test.c - every character round, and every kind of bad byte. */
#include "base/utf8.h"

#include "t.h"

static size_t encode(uint32_t c, char *out) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n_more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out[0] = (char)(0xFF00 >> (n_more + 1) | c >> (6 * n_more));
    for (size_t i = 1; i <= n_more; i++) out[i] = (char)(0x80 | ((c >> (6 * (n_more - i))) & 0x3F));
    return n_more + 1;
}

T_CASE(every_character) {
    T_UNUSED;
    for (uint32_t c = 0; c <= 0x110010; c++) {
        char text[8];
        uint32_t back = 0xFFFFFFFF;
        size_t n = encode(c, text);
        bool valid = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        size_t got = tti_utf8_decode(text, n, &back);
        if (got != (valid ? n : 0) || (valid && back != c)) fail_msg("U+%04X: %zu", c, got);
        if (n > 1 && tti_utf8_decode(text, n - 1, &back) != 0) fail_msg("U+%04X cut", c);
    }
}

T_CASE(bad_bytes) {
    T_UNUSED;
    static const struct {
        const char *text;
        size_t at;
    } rows[] = {
        {"ab\x80", 2},           {"\xC0\xAF", 0}, {"x\xE0\x80\xAF", 1}, {"\xF0\x80\x80\xAF", 0},
        {"\xED\xA0\x80", 0},     {"\xFE", 0},     {"\xC3(", 0},         {"\xE2\x82", 0},
        {"\xF5\x80\x80\x80", 0}, {"good", 4},     {"\xC3\xA9!", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        T_EQ(tti_utf8_check(rows[i].text, strlen(rows[i].text)), rows[i].at);
    T_EQ(tti_utf8_check(NULL, 0), 0);
}

T_CASE(printable) {
    T_UNUSED;
    static const uint32_t no[] = {0, '\t', '\n', 0x1B, 0x7F, 0x85, 0x9F, 0x2028, 0xFEFF, 0xFFFE};
    static const uint32_t yes[] = {' ', 'a', '~', 0xA0, 0xE9, 0x4E2D, 0x1F600};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(tti_utf8_printable(no[i]));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(tti_utf8_printable(yes[i]));
}

T_CASE(marks_of_other_encodings) {
    T_UNUSED;
    assert_string_equal(tti_utf8_other_mark("\xFF\xFE"
                                            "a\0",
                                            4),
                        "UTF-16");
    assert_string_equal(tti_utf8_other_mark("\xFE\xFF", 2), "UTF-16");
    assert_string_equal(tti_utf8_other_mark("\xFF\xFE\0\0"
                                            "a\0\0",
                                            8),
                        "UTF-32");
    assert_string_equal(tti_utf8_other_mark("\0\0\xFE\xFF", 4), "UTF-32");
    assert_null(tti_utf8_other_mark("\xFF", 1));
    assert_null(
        tti_utf8_other_mark("\xEF\xBB\xBF"
                            "a",
                            4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character),
        cmocka_unit_test(bad_bytes),
        cmocka_unit_test(printable),
        cmocka_unit_test(marks_of_other_encodings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
