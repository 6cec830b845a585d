/* option_print_test.c - YAML, JSON schema and Markdown from a small table. */
#include "base/options/option.h"

#include "base/yaml.h"
#include "t.h"

typedef struct demo {
    int64_t n, bytes;
    char name[TTI_TEXT_MAX], kind[TTI_TEXT_MAX];
    tti_int_list list;
    tti_text_list texts;
    double rate;
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
    {.key = "b.texts",
     .type = TTI_OPTION_TEXT_LIST,
     .offset = offsetof(demo, texts),
     .value = "[x, \"y z\"]",
     .min = 1,
     .help = "Texts"},
    {.key = "b.rate",
     .type = TTI_OPTION_FLOAT,
     .offset = offsetof(demo, rate),
     .value = "auto",
     .min = 0,
     .max = 1,
     .word = "auto",
     .former = "a.speed",
     .help = "Rate"},
};

static const tti_option_group groups[] = {{"a", "First"}, {"b", "Second"}};

static const tti_option_table table = {.rows = rows,
                                       .n_rows = TTI_COUNT(rows),
                                       .groups = groups,
                                       .n_groups = TTI_COUNT(groups),
                                       .n_config_bytes = sizeof(demo)};

T_CASE(yaml) {
    T_UNUSED;
    demo config = {0};
    tti_options o;
    tti_str out = {0};
    T_OK(tti_options_init(&o, &table, &config));
    T_OK(tti_options_load(&o, "b:\n  name: a b\n", 15, "job\nx.yaml"));
    tti_options_assign(&o, "a.n=3", "command line");
    tti_options_print(&o, true, NULL, NULL, &out);
    assert_string_equal(tti_str_text(&out),
                        "a:\n"
                        "  n: 3                                  # command line\n"
                        "b:\n"
                        "  name: \"a b\"                           # job?x.yaml:2\n"
                        "  kind: red                             # default\n"
                        "  list: [1, 2]                          # default\n"
                        "  bytes: 4096                           # default\n"
                        "  texts: [x, \"y z\"]                     # default\n"
                        "  rate: auto                            # default\n");
    tti_str_clear(&out);
    tti_options_print(&o, false, NULL, NULL, &out);
    assert_string_equal(tti_str_text(&out),
                        "a:\n  n: 3\nb:\n  name: \"a b\"\n  kind: red\n  list: [1, 2]\n"
                        "  bytes: 4096\n  texts: [x, \"y z\"]\n  rate: auto\n");
    tti_str_free(&out);
    tti_options_fini(&o);
}

/* The entry of a path such as "a/properties/n/anyOf/0" (JSON is YAML). */
static const tti_yaml *at(const tti_yaml *node, const char *path) {
    while (*path) {
        size_t n = strcspn(path, "/");
        const tti_yaml *item = node->first;
        if (node->kind == TTI_YAML_SEQUENCE)
            for (char i = *path; item && i > '0'; i--) item = item->next;
        else
            while (item && (strncmp(item->key->text, path, n) || item->key->text[n]))
                item = item->next;
        if (!item) fail_msg("no %s", path);
        node = item;
        path += n + (path[n] == '/');
    }
    return node;
}

static int n_children(const tti_yaml *node) {
    int n = 0;
    for (const tti_yaml *item = node->first; item; item = item->next) n++;
    return n;
}

T_CASE(schema) {
    T_UNUSED;
    static const struct {
        const char *path, *text;
    } expected[] = {
        {"additionalProperties", "false"},
        {"properties/a/additionalProperties", "false"},
        {"properties/a/description", "First"},
        {"properties/a/properties/n/default", "auto"},
        {"properties/a/properties/n/description", "Count"},
        {"properties/a/properties/n/anyOf/0/type", "integer"},
        {"properties/a/properties/n/anyOf/0/maximum", "10"},
        {"properties/a/properties/n/anyOf/1/const", "auto"},
        {"properties/a/properties/n/anyOf/2/type", "null"},
        {"properties/b/properties/kind/anyOf/0/enum/1", "green"},
        {"properties/b/properties/list/default/1", "2"},
        {"properties/b/properties/list/anyOf/0/items/maximum", "99"},
        {"properties/b/properties/name/anyOf/0/maxLength", "511"},
        {"properties/b/properties/bytes/default", "4096"},
        {"properties/b/properties/texts/default/1", "y z"},
        {"properties/b/properties/texts/anyOf/0/items/minLength", "1"},
        {"properties/b/properties/rate/default", "auto"},
        {"properties/b/properties/rate/anyOf/1/const", "auto"},
        {"properties/b.kind/$ref", "#/properties/b/properties/kind"},
        {"properties/a/properties/speed/$ref", "#/properties/b/properties/rate"},
        {"properties/a/properties/speed/deprecated", "true"},
        {"properties/a.speed/deprecated", "true"},
    };
    tti_str out = {0};
    tti_arena arena = {0};
    const tti_yaml *root = NULL;
    tti_option_schema(&table, "Demo", &out);
    T_OK(tti_yaml_parse(tti_str_text(&out), out.n_bytes, "schema", &arena, &root));
    T_EQ(n_children(at(root, "properties")), 2 + TTI_COUNT(rows) + 1);
    for (size_t i = 0; i < TTI_COUNT(expected); i++)
        assert_string_equal(at(root, expected[i].path)->text, expected[i].text);
    tti_arena_free(&arena);
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
    assert_non_null(strstr(tti_str_text(&out), "| Rate (deprecated name: `a.speed`) |\n"));
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
