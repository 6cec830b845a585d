/* yaml_test.c - trees, positions, and everything that is refused. */
#include "base/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "t.h"

/* A tree in one line: "text"@line:column, [..], {key: value}; quoted scalars end in q. */
static void print(const tti_yaml *node, tti_str *out) {
    if (node->kind == TTI_YAML_SCALAR) {
        tti_str_printf(out, "%s@%d:%d%s", node->text, node->line, node->column,
                       node->plain ? "" : "q");
        return;
    }
    bool mapping = node->kind == TTI_YAML_MAPPING;
    tti_str_add(out, mapping ? "{" : "[");
    for (const tti_yaml *item = node->first; item; item = item->next) {
        if (item != node->first) tti_str_add(out, " ");
        if (mapping) print(item->key, out), tti_str_add(out, "=");
        print(item, out);
    }
    tti_str_add(out, mapping ? "}" : "]");
}

static void check_tree(const char *text, const char *expected) {
    tti_arena arena = {0};
    tti_str out = {0};
    const tti_yaml *root = NULL;
    T_OK(tti_yaml_parse(text, strlen(text), "f", &arena, &root));
    print(root, &out);
    assert_string_equal(tti_str_text(&out), expected);
    tti_str_free(&out);
    tti_arena_free(&arena);
}

T_CASE(trees) {
    T_UNUSED;
    check_tree("a: 1\nb:\n  c: [x, 'y']\n", "{a@1:1=1@1:4 b@2:1={c@3:3=[x@3:7 y@3:10q]}}");
    check_tree("{a: {b: 2}, c: []}", "{a@1:2={b@1:6=2@1:9} c@1:13=[]}");
    check_tree("- 1\n- \"two\"\n-\n", "[1@1:3 two@2:3q @3:2]");
    check_tree("plain", "plain@1:1");
    check_tree("\xEF\xBB\xBFk: v # note\n", "{k@1:2=v@1:5}");
    check_tree("%YAML 1.2\n---\na: b\n...\n", "{a@3:1=b@3:4}");
    check_tree("\xC3\xA9\xC3\xA9: x", "{\xC3\xA9\xC3\xA9@1:1=x@1:5}");
    check_tree("a: 1\na: 2", "{a@1:1=1@1:4 a@2:1=2@2:4}");
}

static const struct {
    const char *text, *message;
} refused[] = {
    {"", "f:1:1: error: the file is empty"},
    {"# only a note\n", "f:1:1: error: the file is empty"},
    {"a: 1\n---\nb: 2\n", "f:2:1: error: a second document"},
    {"a: &x 1\n", "f:1:4: error: anchors"},
    {"a: &x [1]\n", "f:1:4: error: anchors"},
    {"a: &x {b: 1}\n", "f:1:4: error: anchors"},
    {"a: *x\n", "f:1:4: error: aliases"},
    {"*x : 1\n", "f:1:1: error: aliases"},
    {"<<: {a: 1}\n", "f:1:1: error: merge keys"},
    {"a: !!int 1\n", "f:1:4: error: tags"},
    {"a: !x [1]\n", "f:1:4: error: tags"},
    {"a: !x {b: 1}\n", "f:1:4: error: tags"},
    {"[a]: 1\n", "f:1:1: error: a key must be plain text"},
    {"? {a: b}\n: 1\n", "f:1:3: error: a key must be plain text"},
    {"a: \"x\\0y\"\n", "f:1:4: error: a NUL character"},
    {"a:\n\tb: 1\n", "f:2:1: error: found character that cannot start any token"},
    {"a:\n\tb: 1\n", "this is a tab: indent with spaces"},
    {"a: [1, 2\nb: 3\n", "f:2:2: error: did not find expected ',' or ']'"},
    {"a: [1, 2\nb: 3\n", "(while parsing a flow sequence at 1:4)"},
    {"a: 'open\n", "error: found unexpected end of stream"},
    {"a: 1\n b: 2\n", "f:2:3: error: mapping values are not allowed"},
    {"a: @x\n", "f:1:4: error: found character that cannot start"},
    {"ok: 1\nb: \xFF\n", "f:2:4: error: not UTF-8 text"},
    {"\xC3\xA9: \xC0\x80", "f:1:4: error: not UTF-8 text"},
    {"\xFF\xFE"
     "a",
     "f:1:1: error: not UTF-8 text"},
    {"a: b\nc: \x01\n", "f:2:4: error: control characters are not allowed"},
};

T_CASE(refusals) {
    T_UNUSED;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tti_arena arena = {0};
        const tti_yaml *root = NULL;
        T_FAILS(tti_yaml_parse(refused[i].text, strlen(refused[i].text), "f", &arena, &root),
                TUTTI_E_CONFIG, refused[i].message);
        assert_null(root);
        tti_arena_free(&arena);
    }
}

static tutti_status parse_str(const tti_str *s) {
    tti_arena arena = {0};
    const tti_yaml *root = NULL;
    tutti_status st = tti_yaml_parse(tti_str_text(s), s->n_bytes, "f", &arena, &root);
    tti_arena_free(&arena);
    return st;
}

static tti_str repeat(const char *text, int n) {
    tti_str s = {0};
    for (int i = 0; i < n; i++) tti_str_add(&s, text);
    return s;
}

T_CASE(limits) {
    T_UNUSED;
    tti_str s = repeat("[", TTI_YAML_MAX_DEPTH);
    for (int i = 0; i < TTI_YAML_MAX_DEPTH; i++) tti_str_add(&s, "]");
    T_OK(parse_str(&s));
    tti_str_free(&s);
    s = repeat("[", 100000);
    T_FAILS(parse_str(&s), TUTTI_E_CONFIG, "f:1:65: error: nested too deeply");
    tti_str_free(&s);
    s = repeat("- ", 65);
    T_FAILS(parse_str(&s), TUTTI_E_CONFIG, "nested too deeply");
    tti_str_free(&s);
    s = repeat("- a\n", TTI_YAML_MAX_NODES);
    T_FAILS(parse_str(&s), TUTTI_E_CONFIG, "f:100000:3: error: too many values");
    tti_str_free(&s);
    s = repeat("# 3456789abcdef\n", TTI_YAML_MAX_BYTES / 16);
    tti_str_add(&s, "a");
    T_FAILS(parse_str(&s), TUTTI_E_CONFIG, "larger than 1 MiB");
    tti_str_free(&s);
}

/* Every beginning and every changed byte of a good text: an answer, never a crash. */
T_CASE(cut_and_changed_texts) {
    T_UNUSED;
    static const char text[] = "a: {b: [1, \"x\\n\", 'y']}\nc: |\n  z\n? d\n: - e\n";
    for (size_t n = 0; n < sizeof text; n++) {
        tti_str s = {0};
        tti_str_add_bytes(&s, text, n);
        tutti_status st = parse_str(&s);
        assert_true(st == TUTTI_OK || st == TUTTI_E_CONFIG);
        for (int c = 0; n > 0 && c < 256; c++) {
            s.text[n - 1] = (char)c;
            st = parse_str(&s);
            assert_true(st == TUTTI_OK || st == TUTTI_E_CONFIG);
        }
        tti_str_free(&s);
    }
}

T_CASE(files) {
    T_UNUSED;
    char dir[] = "/tmp/yaml_test_XXXXXX", path[64];
    tti_arena arena = {0};
    const char *text = NULL;
    size_t n_bytes = 0;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    T_FAILS(tti_yaml_read_file(path, &arena, &text, &n_bytes), TUTTI_E_CONFIG, "No such file");
    T_FAILS(tti_yaml_read_file(dir, &arena, &text, &n_bytes), TUTTI_E_CONFIG, "not a regular");
    T_EQ(mkfifo(path, 0600), 0);
    T_FAILS(tti_yaml_read_file(path, &arena, &text, &n_bytes), TUTTI_E_CONFIG, "not a regular");
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("a: 1\n", f);
    fflush(f);
    T_OK(tti_yaml_read_file(path, &arena, &text, &n_bytes));
    T_EQ(n_bytes, 5);
    assert_string_equal(text, "a: 1\n");
    rewind(f);
    fputs(
        "\xEF\xBB\xBF"
        "b: 1\n",
        f); /* as editors on Windows begin it */
    fflush(f);
    T_OK(tti_yaml_read_file(path, &arena, &text, &n_bytes));
    T_EQ(n_bytes, 5);
    assert_string_equal(text, "b: 1\n");
    rewind(f);
    fputs(
        "\xFF\xFE"
        "b",
        f);
    fflush(f);
    T_FAILS(tti_yaml_read_file(path, &arena, &text, &n_bytes), TUTTI_E_CONFIG, "is UTF-16");
    T_EQ(ftruncate(fileno(f), TTI_YAML_MAX_BYTES + 1), 0);
    T_FAILS(tti_yaml_read_file(path, &arena, &text, &n_bytes), TUTTI_E_CONFIG, "larger than");
    fclose(f);
    unlink(path);
    rmdir(dir);
    tti_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),  cmocka_unit_test(refusals),
        cmocka_unit_test(limits), cmocka_unit_test(cut_and_changed_texts),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
