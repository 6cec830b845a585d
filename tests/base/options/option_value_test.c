/* option_value_test.c - each type: what is read, what is refused, and that what is printed reads
 * back to the same value. */
#include "base/options/option_value.h"

#include <stdio.h>

#include "t.h"

typedef struct cell {
    union {
        int64_t i;
        double x;
        bool on;
        char text[TTI_TEXT_MAX];
        tti_int_list list;
        tti_text_list texts;
    };
} cell;

static const tti_option int_row = {
    .key = "a.i", .type = TTI_OPTION_INT, .min = -5, .max = 100, .word = "auto"};
static const tti_option float_row = {
    .key = "a.x", .type = TTI_OPTION_FLOAT, .min = -TTI_NO_LIMIT, .max = TTI_NO_LIMIT};
static const tti_option auto_row = {
    .key = "a.y", .type = TTI_OPTION_FLOAT, .min = 0, .max = 1, .word = "auto"};
static const tti_option words_row = {
    .key = "a.z", .type = TTI_OPTION_FLOAT, .min = 1, .max = 9, .word = "auto|dynamic|none"};
static const tti_option count_row = {
    .key = "a.n", .type = TTI_OPTION_INT, .min = 0, .max = 9, .word = "auto|added|none"};
static const tti_option bool_row = {.key = "a.on", .type = TTI_OPTION_BOOL};
static const tti_option text_row = {.key = "a.text", .type = TTI_OPTION_TEXT};
static const tti_option name_row = {.key = "a.name", .type = TTI_OPTION_TEXT, .min = 1};
static const tti_option choice_row = {
    .key = "a.c", .type = TTI_OPTION_CHOICE, .choices = "sgd|adam|adamw"};
static const tti_option list_row = {
    .key = "a.l", .type = TTI_OPTION_INT_LIST, .min = 0, .max = 1e15};
static const tti_option texts_row = {.key = "a.t", .type = TTI_OPTION_TEXT_LIST, .min = 1};
static const tti_option size_row = {
    .key = "a.s", .type = TTI_OPTION_SIZE, .min = 1, .max = TTI_NO_LIMIT};

static bool read_value(const tti_option *row, const char *text, cell *c) {
    tti_arena arena = {0};
    tti_str why = {0};
    const tti_yaml *node = NULL, *culprit = NULL;
    bool ok = tti_option_node(text, "t", &arena, &node) == TUTTI_OK &&
              tti_option_read(row, node, c, &why, &culprit);
    tti_str_free(&why);
    tti_arena_free(&arena);
    return ok;
}

typedef struct value_row {
    const tti_option *row;
    const char *text;
    const char *yaml; /* as printed; NULL: refused */
} value_row;

static const value_row values[] = {
    {&int_row, "7", "7"},
    {&int_row, "+7", "7"},
    {&int_row, "-5", "-5"},
    {&int_row, "auto", "auto"},
    {&int_row, "'7'", "7"},
    {&int_row, "-1", "auto"}, /* the word stands for -1, where the range has -1 */
    {&int_row, "101", NULL},
    {&int_row, "-6", NULL},
    {&int_row, "Auto", NULL},
    {&int_row, "7.0", NULL},
    {&int_row, "[7]", NULL},
    {&int_row, "{a: 7}", NULL},
    {&int_row, "99999999999999999999", NULL},
    {&int_row, "", NULL},
    {&int_row, "\"\"", NULL},
    {&words_row, "dynamic", "dynamic"}, /* -2, the second of the words */
    {&words_row, "none", "none"},
    {&words_row, "2.5", "2.5"},
    {&words_row, "-2", NULL},
    {&words_row, "dyn", NULL},
    {&words_row, "auto|dynamic", NULL},
    {&count_row, "auto", "auto"},
    {&count_row, "none", "none"},
    {&count_row, "-3", NULL},
    {&float_row, "1e-3", "0.001"},
    {&float_row, "-0.1", "-0.1"},
    {&float_row, "3", "3"},
    {&float_row, "0.30000000000000004", "0.30000000000000004"},
    {&float_row, "1e999", NULL},
    {&float_row, "nan", NULL},
    {&float_row, ".inf", NULL},
    {&float_row, "1,5", NULL},
    {&float_row, "1 000", NULL},
    {&auto_row, "auto", "auto"},
    {&auto_row, "0.5", "0.5"},
    {&auto_row, "-1", NULL},
    {&auto_row, "Auto", NULL},
    {&float_row, "auto", NULL},
    {&bool_row, "true", "true"},
    {&bool_row, "No", "false"},
    {&bool_row, "on", "true"},
    {&bool_row, "OFF", "false"},
    {&bool_row, "y", NULL},
    {&bool_row, "0", NULL},
    {&bool_row, "[true]", NULL},
    {&text_row, "runs/a_1.x", "runs/a_1.x"},
    {&text_row, "\"\"", "\"\""},
    {&text_row, "a b", "\"a b\""},
    {&text_row, "no", "no"},
    {&text_row, "\"null\"", "\"null\""},
    {&text_row, "\"~\"", "\"~\""},
    {&text_row, "a\\b", "\"a\\\\b\""},
    {&text_row, "a\"b", "\"a\\\"b\""},
    {&text_row, "-", "\"-\""},
    {&text_row, "#x: [", "\"#x: [\""},
    {&text_row, "h\xC3\xA9", "\"h\xC3\xA9\""},
    {&text_row, "' x '", "\" x \""},
    {&text_row, "\"a\\nb\"", NULL},
    {&text_row, "a\x01", NULL},
    {&text_row, "a\xFF", NULL},
    {&text_row, "\"\\u0085\"", NULL},
    {&text_row, "[a]", NULL},
    {&name_row, "\"\"", NULL},
    {&name_row, "x", "x"},
    {&choice_row, "adam", "adam"},
    {&choice_row, "adamw", "adamw"},
    {&choice_row, "ada", NULL},
    {&choice_row, "sgd|adam", NULL},
    {&choice_row, "Adam", NULL},
    {&list_row, "[]", "[]"},
    {&list_row, "[1,2 , 3]", "[1, 2, 3]"},
    {&list_row, "5", "[5]"},
    {&list_row, "[1000000000000]", "[1000000000000]"},
    {&list_row, "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
     "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"},
    {&list_row, "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", NULL},
    {&list_row, "[-1]", NULL},
    {&list_row, "[1, [2]]", NULL},
    {&list_row, "[1, ]]", NULL},
    {&list_row, "1,2", NULL},
    {&list_row, "{1: 2}", NULL},
    {&texts_row, "[]", "[]"},
    {&texts_row, "[a, 'b c', \"d, e\"]", "[a, \"b c\", \"d, e\"]"},
    {&texts_row, "[\"*.bias: lr=2\", fc1.*]", "[\"*.bias: lr=2\", \"fc1.*\"]"},
    {&texts_row, "fc1.*", "[\"fc1.*\"]"},
    {&texts_row, "[7, no]", "[7, no]"},
    {&texts_row, "[a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]",
     "[a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]"},
    {&texts_row, "[a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]", NULL},
    {&texts_row, "[\"\"]", NULL},
    {&texts_row, "[a, [b]]", NULL},
    {&texts_row, "[\"a\\nb\"]", NULL},
    {&texts_row, "{a: b}", NULL},
    {&size_row, "64MiB", "67108864"},
    {&size_row, "1k", "1000"},
    {&size_row, "0", NULL},
    {&size_row, "64 MiBs", NULL},
};

static void check_value(const value_row *v) {
    cell c, untouched;
    memset(&c, 0x5A, sizeof c);
    untouched = c;
    tti_str text = {0}, again = {0};
    if (read_value(v->row, v->text, &c) != (v->yaml != NULL)) fail_msg("%s", v->text);
    if (!v->yaml) {
        assert_memory_equal(&c, &untouched, sizeof c);
        return;
    }
    tti_option_format(v->row, &c, true, &text);
    assert_string_equal(tti_str_text(&text), v->yaml);
    cell back;
    if (!read_value(v->row, tti_str_text(&text), &back)) fail_msg("%s", tti_str_text(&text));
    tti_option_format(v->row, &back, true, &again);
    assert_string_equal(tti_str_text(&again), v->yaml);
    tti_str_free(&text);
    tti_str_free(&again);
}

T_CASE(values_read_and_print) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(values); i++) check_value(&values[i]);
}

T_CASE(text_of_the_limit) {
    T_UNUSED;
    cell c;
    char text[TTI_TEXT_MAX + 1];
    memset(text, 'x', sizeof text);
    text[TTI_TEXT_MAX - 1] = '\0';
    assert_true(read_value(&text_row, text, &c));
    assert_string_equal(c.text, text);
    text[TTI_TEXT_MAX - 1] = 'x';
    text[TTI_TEXT_MAX] = '\0';
    assert_false(read_value(&text_row, text, &c));
}

T_CASE(expectations) {
    T_UNUSED;
    static const struct {
        const tti_option *row;
        const char *text;
    } expected[] = {
        {&int_row, "an integer from -5 to 100 or auto"},
        {&float_row, "a number"},
        {&auto_row, "a number from 0 to 1 or auto"},
        {&texts_row, "a list of at most 16 texts"},
        {&bool_row, "true or false"},
        {&text_row, "one line of text of at most 511 bytes"},
        {&name_row, "one line of text of 1 to 511 bytes"},
        {&choice_row, "one of sgd, adam, adamw"},
        {&list_row, "a list of at most 16 integers from 0 to 1000000000000000"},
        {&size_row, "a size such as 64MiB >= 1"},
    };
    for (size_t i = 0; i < TTI_COUNT(expected); i++) {
        tti_str out = {0};
        tti_option_expect(expected[i].row, &out);
        assert_string_equal(tti_str_text(&out), expected[i].text);
        tti_str_free(&out);
    }
}

static bool add_word(const char *word, void *arg) {
    tti_str_printf(arg, "<%s>", word);
    return strcmp(word, "stop") != 0;
}

T_CASE(words) {
    T_UNUSED;
    tti_str out = {0};
    tti_each_word("a|bc|stop|d", add_word, &out);
    tti_each_word("", add_word, &out);
    tti_each_word(NULL, add_word, &out);
    assert_string_equal(tti_str_text(&out), "<a><bc><stop>");
    tti_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_read_and_print),
        cmocka_unit_test(text_of_the_limit),
        cmocka_unit_test(expectations),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
