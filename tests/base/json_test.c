/* json_test.c - what is written is JSON (read by jansson) and means what was given. */
#include "base/json.h"

#include <jansson.h>

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
        tti_str s = {0};
        tti_json j = tti_json_begin(&s, 0);
        tti_json_object(&j, NULL);
        tti_json_text(&j, text, text);
        tti_json_end(&j);
        json_error_t error;
        json_t *root = json_loads(tti_str_text(&s), JSON_REJECT_DUPLICATES, &error);
        if (!root) fail_msg("byte %d: %s", c, error.text);
        const char *back = json_string_value(json_object_iter_value(json_object_iter(root)));
        assert_string_equal(back, c < 0x80 ? text
                                           : "a\xEF\xBF\xBD"
                                             "b");
        json_decref(root);
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
    json_t *root = json_loads(tti_str_text(&s), 0, NULL);
    assert_non_null(root);
    json_decref(root);
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
