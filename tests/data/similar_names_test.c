/* similar_names_test.c - names that look alike are noted, others are not. */
#include "data/similar_names.h"

#include <string.h>

#include "t.h"

typedef struct pair {
    const char *a, *b;
} pair;

static const char *note_of(const char *const *names, int64_t n) {
    static tti_str text;
    tti_str_free(&text);
    tti_note_similar_names(names, n, &text);
    return tti_str_text(&text);
}

T_CASE(alike) {
    T_UNUSED;
    static const pair pairs[] = {
        {"cat", "Cat"},
        {"caf\xC3\xA9", "cafe\xCC\x81"},                          /* one form and the other */
        {"Z\xC3\xBCrich", "zurich"},                              /* with and without an accent */
        {"\xE1\xBA\xBF", "e\xCC\x82\xCC\x81"},                    /* Vietnamese */
        {"\xED\x95\x9C", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"}, /* Korean */
        {"\xEA\xB0\x80", "\xE1\x84\x80\xE1\x85\xA1"},             /* without a final letter */
        {"\xD0\x96\xD1\x83\xD0\xBA", "\xD0\xB6\xD1\x83\xD0\xBA"}, /* Cyrillic case */
        {"cat", "cat\xC2\xA0"},
        {"two words", "two\xC2\xA0 words"},
        {"\xEF\xBB\xBF"
         "dog",
         "dog"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *const names[] = {"other", pairs[i].a, "zebra", pairs[i].b};
        if (!strstr(note_of(names, 4), "differ only in case, accents"))
            fail_msg("no note of '%s' and '%s'", pairs[i].a, pairs[i].b);
        assert_true(tti_names_look_alike(pairs[i].a, pairs[i].b));
        assert_false(tti_names_look_alike(pairs[i].a, "zebra"));
    }
}

T_CASE(not_alike) {
    T_UNUSED;
    static const pair pairs[] = {{"1-11", "11-1"},
                                 {"-1", "1"},
                                 {"a b", "ab"},
                                 {"a_1", "a1"},
                                 {"", " x"},
                                 {"\xE6\x97\xA5", "\xE6\x9C\xAC"},
                                 {"\xED\x95\x9C", "\xED\x95\x98"},
                                 {"\xFF", "\xFE"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *const names[] = {pairs[i].a, pairs[i].b};
        if (*note_of(names, 2)) fail_msg("a note of '%s' and '%s'", pairs[i].a, pairs[i].b);
    }
    assert_string_equal(note_of(NULL, 0), "");
}

T_CASE(one_line_for_all) {
    T_UNUSED;
    static const char *const letters[] = {"a", "B", "b", "A", "c", "C"};
    assert_string_equal(note_of(letters, 6),
                        "the classes 'A' and 'a' (and 2 more pairs) differ only in case, accents, "
                        "blanks or the Unicode form of letters; if they are the same class, give "
                        "them one name\n");
    note_of(NULL, 0); /* frees the text */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(alike), cmocka_unit_test(not_alike),
                                       cmocka_unit_test(one_line_for_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
