/* json_test.c - what is written is JSON (which YAML reads too) and means what was given. */
#include "base/json.h"

#include "base/yaml.h"
#include "t.h"

T_CASE(one_line) {
    T_UNUSED;
    tti_str s = {0};
    tti_json j = tti_json_begin(&s, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "event", "end");
    tti_json_double(&j, "accuracy", 0.991);
    tti_json_int(&j, "step", INT64_MIN);
    tti_json_hex64(&j, "params_hash", 0x12AB);
    tti_json_bool(&j, "ok", true);
    tti_json_null(&j, "none");
    tti_json_array(&j, "dims");
    tti_json_int(&j, NULL, 1);
    tti_json_int(&j, NULL, 28);
    tti_json_end(&j);
    tti_json_object(&j, "empty");
    tti_json_end(&j);
    tti_json_float(&j, "loss", 0.1f);
    tti_json_end(&j);
    assert_string_equal(tti_str_text(&s),
                        "{\"event\":\"end\",\"accuracy\":0.991,\"step\":-9223372036854775808,"
                        "\"params_hash\":\"00000000000012ab\",\"ok\":true,\"none\":null,"
                        "\"dims\":[1,28],\"empty\":{},\"loss\":0.1}");
    tti_str_free(&s);
}

T_CASE(indented) {
    T_UNUSED;
    tti_str s = {0};
    tti_json j = tti_json_begin(&s, 2);
    tti_json_object(&j, NULL);
    tti_json_array(&j, "a");
    tti_json_object(&j, NULL);
    tti_json_int(&j, "b", 1);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_json_array(&j, "c");
    tti_json_end(&j);
    tti_json_end(&j);
    assert_string_equal(tti_str_text(&s),
                        "{\n  \"a\": [\n    {\n      \"b\": 1\n    }\n  ],\n  \"c\": []\n}");
    tti_str_free(&s);
}

T_CASE(every_byte_is_escaped_well) {
    T_UNUSED;
    for (int c = 1; c < 256; c++) {
        char text[] = {'a', (char)c, 'b', 0};
        const char *expected = c < 0x80 ? text : "a\xEF\xBF\xBD\x62";
        tti_arena arena = {0};
        const tti_yaml *root = NULL;
        tti_str s = {0};
        tti_json j = tti_json_begin(&s, 0);
        tti_json_object(&j, NULL);
        tti_json_text(&j, text, text);
        tti_json_end(&j);
        T_OK(tti_yaml_parse(tti_str_text(&s), s.n_bytes, "json", &arena, &root));
        T_EQ(root->kind, TTI_YAML_MAPPING);
        assert_string_equal(root->first->text, expected);
        assert_string_equal(root->first->key->text, expected);
        assert_null(root->first->next);
        for (size_t i = 0; i < s.n_bytes; i++) assert_true((unsigned char)s.text[i] >= 0x20);
        tti_arena_free(&arena);
        tti_str_free(&s);
    }
}

T_CASE(not_numbers_are_null) {
    T_UNUSED;
    tti_str s = {0};
    tti_json j = tti_json_begin(&s, 0);
    tti_json_array(&j, NULL);
    tti_json_double(&j, NULL, (double)NAN);
    tti_json_double(&j, NULL, HUGE_VAL);
    tti_json_float(&j, NULL, -HUGE_VALF);
    tti_json_double(&j, NULL, 1.0 / 3);
    tti_json_float(&j, NULL, 1.0f / 3);
    tti_json_double(&j, NULL, 1e300);
    tti_json_end(&j);
    assert_string_equal(tti_str_text(&s), "[null,null,null,0.3333333333333333,0.33333334,1e+300]");
    tti_str_free(&s);
}

T_CASE(depth) {
    T_UNUSED;
    tti_str s = {0};
    tti_json j = tti_json_begin(&s, 0);
    for (int i = 0; i < TTI_JSON_MAX_DEPTH; i++) tti_json_array(&j, NULL);
    for (int i = 0; i < TTI_JSON_MAX_DEPTH; i++) tti_json_end(&j);
    T_EQ(s.n_bytes, 2 * TTI_JSON_MAX_DEPTH);
    assert_string_equal(tti_str_text(&s) + TTI_JSON_MAX_DEPTH - 1,
                        "[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    tti_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line),
        cmocka_unit_test(indented),
        cmocka_unit_test(every_byte_is_escaped_well),
        cmocka_unit_test(not_numbers_are_null),
        cmocka_unit_test(depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
