/* option_test.c - the engine on a small table: values in, origins, problems, suggestions. */
#include "base/options/option.h"

#include <stdio.h>

#include "t.h"

typedef struct demo {
    int64_t n, bytes;
    double x;
    bool on;
    char name[TTI_TEXT_MAX], kind[TTI_TEXT_MAX];
    tti_int_list list;
} demo;

static const tti_option rows[] = {
    {.key = "a.n",
     .type = TTI_OPTION_INT,
     .offset = offsetof(demo, n),
     .value = "auto",
     .min = 1,
     .max = 10,
     .word = "auto",
     .help = "Count"},
    {.key = "a.x",
     .type = TTI_OPTION_FLOAT,
     .offset = offsetof(demo, x),
     .value = "0.5",
     .min = 0,
     .max = TTI_NO_LIMIT,
     .former = "b.factor",
     .also = "ratio|share",
     .help = "Ratio"},
    {.key = "a.on",
     .type = TTI_OPTION_BOOL,
     .offset = offsetof(demo, on),
     .value = "false",
     .help = "Switch"},
    {.key = "b.name",
     .type = TTI_OPTION_TEXT,
     .offset = offsetof(demo, name),
     .value = "none",
     .min = 1,
     .joins = true,
     .help = "Name"},
    {.key = "b.kind",
     .type = TTI_OPTION_CHOICE,
     .offset = offsetof(demo, kind),
     .value = "red",
     .choices = "red|green|blue",
     .alias = "lime=green",
     .old_choice = "blue",
     .instead = "b.name=sky",
     .help = "Kind"},
    {.key = "b.list",
     .type = TTI_OPTION_INT_LIST,
     .offset = offsetof(demo, list),
     .value = "[1, 2]",
     .min = 0,
     .max = 99,
     .help = "List"},
    {.key = "b.bytes",
     .type = TTI_OPTION_SIZE,
     .offset = offsetof(demo, bytes),
     .value = "4KiB",
     .min = 1,
     .max = TTI_NO_LIMIT,
     .help = "Size"},
};

static const tti_option_group groups[] = {{"a", "First"}, {"b", "Second"}};

static const tti_option_table table = {.rows = rows,
                                       .n_rows = TTI_COUNT(rows),
                                       .groups = groups,
                                       .n_groups = TTI_COUNT(groups),
                                       .n_config_bytes = sizeof(demo)};

typedef struct fixture {
    demo config;
    tti_options o;
} fixture;

static void begin(fixture *f) {
    *f = (fixture){0};
    T_OK(tti_options_init(&f->o, &table, &f->config));
}

static void load(fixture *f, const char *text) {
    T_OK(tti_options_load(&f->o, text, strlen(text), "job.yaml"));
}

/* Asserts the problems, all of them, and ends the fixture. */
static void expect_problems(fixture *f, const char *text) {
    T_EQ(tti_options_check(&f->o), *text ? TUTTI_E_CONFIG : TUTTI_OK);
    if (*text) assert_string_equal(tutti_last_error(), text);
    tti_options_fini(&f->o);
}

/* A list and a mapping become the text that stands for them; an alias becomes its choice. */
T_CASE(other_forms_of_a_value) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "b: {name: [x y, z], kind: lime}");
    assert_string_equal(f.config.name, "x y, z");
    assert_string_equal(f.config.kind, "green");
    load(&f, "b:\n  name:\n    zip: category\n    a:b: ignore\n");
    assert_string_equal(f.config.name, "zip: category, a:b: ignore");
    tti_options_assign(&f.o, "b.name=[p, \"q\"]", "command line");
    assert_string_equal(f.config.name, "p, q");
    tti_options_assign(&f.o, "b.name={p:q, r: s}", "command line");
    assert_string_equal(f.config.name, "p:q, r: s");
    load(&f, "b.name: {\"a,b\": c}");
    tti_options_assign(&f.o, "b.name=[[1], 2]", "command line");
    tti_options_assign(&f.o, "b.kind=LIME", "command line");
    expect_problems(
        &f,
        "job.yaml:1:10: error: b.name: expected one line of text of 1 to 511 bytes, or a list or "
        "keys and values that contain no commas, got \"a,b\"\n"
        "command line: error: b.name: expected one line of text of 1 to 511 bytes, or a list or "
        "keys and values that contain no commas, got a list of 1\n"
        "command line: error: b.kind: expected one of red, green, blue, got \"LIME\" (did you "
        "mean \"green\"?)");
}

T_CASE(defaults) {
    T_UNUSED;
    fixture f;
    begin(&f);
    T_EQ(f.config.n, -1);
    T_EQ(f.config.bytes, 4096);
    assert_true(f.config.x == 0.5);
    assert_false(f.config.on);
    assert_string_equal(f.config.name, "none");
    T_EQ(f.config.list.n, 2);
    assert_null(tti_options_state(&f.o, "a.n")->place.source);
    assert_null(tti_options_state(&f.o, "a.nn"));
    assert_null(tti_options_state(&f.o, "a"));
    expect_problems(&f, "");
}

T_CASE(yaml_then_assignments) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "a: {n: 3, x: 1e-4, on: yes}\nb.name: no\nb:\n  kind: blue\n  list: [7]\n");
    T_EQ(f.config.n, 3);
    assert_true(f.config.x == 1e-4);
    assert_true(f.config.on);
    assert_string_equal(f.config.name, "no");
    T_EQ(f.config.list.v[0], 7);
    T_EQ(tti_options_state(&f.o, "b.kind")->place.line, 4);
    tti_options_assign(&f.o, "a.n=10", "command line");
    tti_options_assign(&f.o, "--a.n=9", "command line");
    tti_options_assign(&f.o, "b.list=[1, 2, 3]", "command line");
    tti_options_assign(&f.o, "b.name=  x: #y  ", "command line");
    tti_options_assign(&f.o, "b.bytes=1.5 GB", "command line");
    T_EQ(f.config.n, 9);
    T_EQ(f.config.list.n, 3);
    T_EQ(f.config.bytes, 1500000000);
    assert_string_equal(f.config.name, "x: #y");
    assert_string_equal(tti_options_state(&f.o, "a.n")->place.source, "command line");
    tti_options_assign(&f.o, "b.list=5", "command line");
    T_EQ(f.config.list.n, 1);
    tti_options_assign(&f.o, "b.name='it''s'", "command line");
    assert_string_equal(f.config.name, "it's");
    tti_options_assign(&f.o, "b={kind: green, name: \"null\"}", "command line");
    assert_string_equal(f.config.kind, "green");
    assert_string_equal(f.config.name, "null");
    expect_problems(&f, "");
}

T_CASE(null_resets) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "a: {n: 3, x: 9}\nb: null\n");
    load(&f, "a.x: ~\nb:\n");
    tti_options_assign(&f.o, "a.n=null", "command line");
    T_EQ(f.config.n, -1);
    assert_true(f.config.x == 0.5);
    assert_null(tti_options_state(&f.o, "a.n")->place.source);
    expect_problems(&f, "");
}

T_CASE(later_files_win_and_are_no_duplicates) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "a.n: 3\n");
    load(&f, "a.n: 4\n");
    T_EQ(f.config.n, 4);
    tti_options_assign(&f.o, "a.n=5", "command line");
    load(&f, "a: {x: 1}\n");
    T_EQ(f.config.n, 5);
    expect_problems(&f, "");
}

T_CASE(all_problems_at_once) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f,
         "a:\n  n: 11\n  nn: 1\n  x: 1e-4x\n  on: 1\nb: {kind: gren, list: [1, 100], n: 2}\n"
         "a.x: 1\nratio: 2\na: {x: 2}\nc: {d: 1}\nb.bytes:\n");
    tti_options_assign(&f.o, "b.name=", "command line");
    tti_options_assign(&f.o, "nothing", "command line");
    tti_options_assign(&f.o, "=1", "command line");
    tti_options_assign(&f.o, "b.list=[1", "command line");
    tti_options_assign(&f.o, "a=3", "command line");
    T_EQ(f.config.n, -1);
    expect_problems(
        &f,
        "job.yaml:2:6: error: a.n: expected an integer from 1 to 10 or auto, got \"11\"\n"
        "job.yaml:3:3: error: a.nn: unknown key (did you mean \"on\"?)\n"
        "job.yaml:4:6: error: a.x: expected a number >= 0, got \"1e-4x\"\n"
        "job.yaml:5:7: error: a.on: expected true or false, got \"1\"\n"
        "job.yaml:6:11: error: b.kind: expected one of red, green, blue, got \"gren\" (did you "
        "mean \"green\"?)\n"
        "job.yaml:6:27: error: b.list: expected a list of at most 16 integers from 0 to 99, got "
        "\"100\"\n"
        "job.yaml:6:33: error: b.n: unknown key (did you mean \"a.n\"?)\n"
        "job.yaml:7:1: error: a.x: given twice (first at line 4, column 3)\n"
        "job.yaml:8:1: error: ratio: unknown key (did you mean \"a.x\"?)\n"
        "job.yaml:9:1: error: a: given twice (first at line 1, column 1)\n"
        "job.yaml:10:1: error: c: unknown key\n"
        "job.yaml:11:9: error: b.bytes: the value is missing (null means the default, \"\" "
        "an empty text)\n"
        "command line: error: b.name: the value is missing (null means the default, \"\" "
        "an empty text)\n"
        "command line: error: \"nothing\": expected key=value\n"
        "command line: error: \"=1\": expected key=value\n"
        "command line: error: b.list: did not find expected ',' or ']' (while parsing a flow "
        "sequence at 1:1)\n"
        "command line: error: a: a group takes keys and values, got \"3\"");
}

T_CASE(problems_of_the_program) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "a:\n  n: 3\n");
    tti_options_put(&f.o, "a.x", "0.25", "auto, 2 cores");
    assert_true(f.config.x == 0.25);
    tti_options_problem(&f.o, "a.n", "%d is odd", 3);
    tti_options_problem(&f.o, "a.on", "is off");
    expect_problems(&f, "job.yaml:2:6: error: a.n: 3 is odd\nerror: a.on: is off");
}

T_CASE(thousands_of_problems) {
    T_UNUSED;
    fixture f;
    tti_str text = {0};
    begin(&f);
    for (int i = 0; i < 40000; i++) tti_str_printf(&text, "k%d: 1\n", i);
    load(&f, tti_str_text(&text));
    tti_str_free(&text);
    T_FAILS(tti_options_check(&f.o), TUTTI_E_CONFIG, "\n... and ");
    tti_options_fini(&f.o);
}

T_CASE(get) {
    T_UNUSED;
    fixture f;
    begin(&f);
    assert_string_equal(tti_options_get(&f.o, "a.n"), "auto");
    assert_string_equal(tti_options_get(&f.o, "b.list"), "[1, 2]");
    assert_string_equal(tti_options_get(&f.o, "b.bytes"), "4096");
    assert_string_equal(tti_options_get(&f.o, "a.on"), "false");
    tti_options_assign(&f.o, "b.name=\"a b\"", "test");
    assert_string_equal(tti_options_get(&f.o, "b.name"), "a b");
    assert_null(tti_options_get(&f.o, "b"));
    expect_problems(&f, "");
}

/* A deprecated value is accepted, and is reported with what to give in its place. */
T_CASE(old_choice) {
    T_UNUSED;
    fixture f;
    begin(&f);
    load(&f, "b:\n  kind: green\n");
    assert_string_equal(tti_str_text(&f.o.warnings), "");
    load(&f, "b:\n  kind: blue\n");
    assert_string_equal(f.config.kind, "blue");
    assert_string_equal(tti_str_text(&f.o.warnings),
                        "job.yaml:2:9: b.kind=blue is deprecated; give b.name=sky");
    expect_problems(&f, "");
}

/* A deprecated name gives the key its value, and is reported once. */
T_CASE(former_name) {
    T_UNUSED;
    static const char again[] =
        "command line: error: b.factor: a.x is also given, and both are "
        "the same key; keep only a.x";
    fixture f;
    begin(&f);
    assert_string_equal(tti_str_text(&f.o.warnings), "");
    load(&f, "a:\n  n: 3\nb:\n  factor: 2\n");
    assert_true(f.config.x == 2);
    tti_options_assign(&f.o, "--b.factor=3", "command line");
    assert_true(f.config.x == 3);
    assert_string_equal(tti_options_get(&f.o, "b.factor"), "3");
    assert_string_equal(tti_str_text(&f.o.warnings), "job.yaml:4:3: b.factor is now called a.x");
    tti_options_assign(&f.o, "a.x=4", "another source");
    tti_options_put(&f.o, "a.x", "5", "the program");
    assert_true(f.config.x == 5);
    assert_string_equal(tti_option_table_find(&table, "b.factor"), "a.x");
    assert_string_equal(tti_option_table_find(&table, "factr"), "a.x");
    tti_options_assign(&f.o, "a.x=6", "command line");
    tti_options_assign(&f.o, "b.factor=7", "command line");
    expect_problems(&f, again);
    begin(&f);
    load(&f, "b.factor: x\na.x: 1\n");
    expect_problems(&f,
                    "job.yaml:1:11: error: a.x: expected a number >= 0, got \"x\"\n"
                    "job.yaml:2:1: error: a.x: b.factor is also given, and both are the same "
                    "key; keep only a.x");
}

T_CASE(keep_and_restore) {
    T_UNUSED;
    fixture f;
    tti_options_kept kept;
    tti_str before = {0}, after = {0};
    begin(&f);
    tti_options_assign(&f.o, "a.n=3", "first");
    tti_options_print(&f.o, true, NULL, NULL, &before);
    T_OK(tti_options_keep(&f.o, &kept));
    tti_options_assign(&f.o, "a.n=4", "second");
    tti_options_assign(&f.o, "b.list=[7]", "second");
    tti_options_put(&f.o, "a.on", "true", "second");
    tti_options_restore(&f.o, &kept);
    tti_options_print(&f.o, true, NULL, NULL, &after);
    assert_string_equal(tti_str_text(&before), tti_str_text(&after));
    tti_options_restore(&f.o, &kept); /* once */
    assert_string_equal(tti_options_get(&f.o, "a.n"), "3");
    tti_str_free(&before);
    tti_str_free(&after);
    expect_problems(&f, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_forms_of_a_value),
        cmocka_unit_test(defaults),
        cmocka_unit_test(yaml_then_assignments),
        cmocka_unit_test(null_resets),
        cmocka_unit_test(later_files_win_and_are_no_duplicates),
        cmocka_unit_test(all_problems_at_once),
        cmocka_unit_test(problems_of_the_program),
        cmocka_unit_test(thousands_of_problems),
        cmocka_unit_test(get),
        cmocka_unit_test(old_choice),
        cmocka_unit_test(former_name),
        cmocka_unit_test(keep_and_restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
