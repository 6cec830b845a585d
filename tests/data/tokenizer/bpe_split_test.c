/* bpe_split_test.c - where GPT-2's pattern cuts; tests/data/tokenizer/tokenizer_gpt2_test.c has
 * many more. */
#include "data/tokenizer/bpe_split.h"

#include "t.h"

T_CASE(words) {
    T_UNUSED;
    static const struct {
        const char *text, *words; /* with | between */
    } cases[] = {
        {"Hello world", "Hello| world"},
        {"it's they'll X'S", "it|'s| they|'ll| X|'|S"},
        {"a  b", "a| | b"},
        {"a \n b", "a| \n| b"},
        {"a\nb", "a|\n|b"},
        {"end  ", "end|  "},
        {"x1y22", "x|1|y|22"},
        {"a, b!? 3.5", "a|,| b|!?| 3|.|5"},
        {" 'tis", " '|tis"},
        {"na\xC3\xAFve e\xCC\x81t", "na\xC3\xAFve| e|\xCC\x81|t"},
        {"1\xC2\xBD \xE2\x85\xA7", "1\xC2\xBD| \xE2\x85\xA7"},
        {"\xC2\xA0x\xE3\x80\x80 y", "\xC2\xA0|x|\xE3\x80\x80| y"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[64] = "";
        const char *at = cases[i].text;
        for (size_t n; *at; at += n) {
            n = tti_bpe_next(at, strlen(at));
            assert_in_range(n, 1, strlen(at));
            if (*found) strcat(found, "|");
            strncat(found, at, n);
        }
        assert_string_equal(found, cases[i].words);
    }
}

T_CASE(not_utf8) {
    T_UNUSED;
    T_EQ(tti_bpe_next("\xFF", 1), 0);
    T_EQ(tti_bpe_next("a\xFF", 2), 1);
    T_EQ(tti_bpe_next(" \xFF", 2), 1);
    T_EQ(tti_bpe_next("\xE6\x97", 2), 0);
}

T_CASE(classes) {
    T_UNUSED;
    T_EQ(tti_classify('a'), TTI_CHAR_LETTER);
    T_EQ(tti_classify('@'), TTI_CHAR_OTHER);
    T_EQ(tti_classify('['), TTI_CHAR_OTHER);
    T_EQ(tti_classify('7'), TTI_CHAR_NUMBER);
    T_EQ(tti_classify(0x1C), TTI_CHAR_OTHER); /* a space for Python's str, not for Unicode */
    T_EQ(tti_classify(0x85), TTI_CHAR_SPACE);
    T_EQ(tti_classify(0x200B), TTI_CHAR_OTHER);
    T_EQ(tti_classify(0x4E2D), TTI_CHAR_LETTER);
    T_EQ(tti_classify(0x1D7D8), TTI_CHAR_NUMBER);
    T_EQ(tti_classify(0x10FFFF), TTI_CHAR_OTHER);
    T_EQ(tti_classify(0x301), TTI_CHAR_OTHER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(not_utf8),
        cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
