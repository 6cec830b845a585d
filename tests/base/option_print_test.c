/* option_print_test.c - YAML, JSON schema and Markdown from a small table. */
#include <jansson.h>
#include <stdlib.h>

#include "base/option.h"
#include "t.h"

typedef struct demo {
    int64_t n, bytes;
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
     .help = "Count",
     .example = "4"},
    {.key = "b.name",
     .type = TTI_OPTION_TEXT,
     .offset = offsetof(demo, name),
     .value = "x",
     .min = 1,
     .help = "Name"},
    {.key = "b.kind",
     .type = TTI_OPTION_CHOICE,
     .offset = offsetof(demo, kind),
     .value = "red",
     .choices = "red|green",
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

static const tti_option_table table = {rows, TTI_COUNT(rows), groups, TTI_COUNT(groups),
                                       sizeof(demo)};

T_CASE(yaml) {
    T_UNUSED;
    demo config = {0};
    tti_options o;
    tti_str out = {0};
    T_OK(tti_options_init(&o, &table, &config));
    T_OK(tti_options_load(&o, "b:\n  name: a b\n", 15, "job\nx.yaml"));
    tti_options_assign(&o, "a.n=3", "command line");
    tti_options_print(&o, true, &out);
    assert_string_equal(tti_str_text(&out),
                        "a:\n"
                        "  n: 3                                  # command line\n"
                        "b:\n"
                        "  name: \"a b\"                           # job?x.yaml:2\n"
                        "  kind: red                             # default\n"
                        "  list: [1, 2]                          # default\n"
                        "  bytes: 4096                           # default\n");
    tti_str_clear(&out);
    tti_options_print(&o, false, &out);
    assert_string_equal(tti_str_text(&out),
                        "a:\n  n: 3\nb:\n  name: \"a b\"\n  kind: red\n  list: [1, 2]\n"
                        "  bytes: 4096\n");
    tti_str_free(&out);
    tti_options_fini(&o);
}

static json_t *at(json_t *node, const char *a, const char *b) {
    node = json_object_get(node, a);
    return b ? json_object_get(node, b) : node;
}

T_CASE(schema) {
    T_UNUSED;
    tti_str out = {0};
    tti_option_schema(&table, "Demo", &out);
    json_error_t error;
    json_t *root = json_loads(tti_str_text(&out), JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%d: %s", error.line, error.text);
    assert_true(json_is_false(json_object_get(root, "additionalProperties")));
    json_t *properties = json_object_get(root, "properties");
    T_EQ(json_object_size(properties), 2 + TTI_COUNT(rows));
    json_t *n = at(at(properties, "a", "properties"), "n", NULL);
    assert_string_equal(json_string_value(at(n, "default", NULL)), "auto");
    assert_string_equal(json_string_value(at(n, "description", NULL)), "Count");
    json_t *any = at(n, "anyOf", NULL);
    T_EQ(json_array_size(any), 3);
    T_EQ(json_integer_value(at(json_array_get(any, 0), "maximum", NULL)), 10);
    json_t *b = at(properties, "b", "properties");
    T_EQ(json_array_size(at(json_array_get(at(b, "kind", "anyOf"), 0), "enum", NULL)), 2);
    T_EQ(json_integer_value(json_array_get(at(b, "list", "default"), 1)), 2);
    T_EQ(json_integer_value(at(b, "bytes", "default")), 4096);
    assert_string_equal(json_string_value(at(properties, "b.kind", "$ref")),
                        "#/properties/b/properties/kind");
    json_decref(root);
    tti_str_free(&out);
}

T_CASE(reference) {
    T_UNUSED;
    tti_str out = {0};
    tti_option_reference(&table, &out);
    assert_non_null(strstr(tti_str_text(&out),
                           "\n## a\n\nFirst.\n\n| key | value | default | meaning |\n"
                           "|---|---|---|---|\n| `a.n` | an integer from 1 to 10 or auto | `auto` "
                           "| Count, for example `4` |\n\n## b\n"));
    tti_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml),
        cmocka_unit_test(schema),
        cmocka_unit_test(reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
