/* type_test.c - types as text and back, and the limits of shapes. */
#include "ir/toy_ops.h"

T_CASE(types_read_back) {
    T_UNUSED;
    static const char *const texts[] = {
        "f32[]",      "i32[0]", "u8[1,2,3,4,5,6,7,8]", "bf16[1099511627776]",
        "f64[3,0,5]", "i64[1]", "f16[16,1,28,28]"};
    for (size_t i = 0; i < TTI_COUNT(texts); i++) {
        const char *at = texts[i];
        tutti_type type;
        char back[128];
        T_OK(tti_type_parse(&at, &type));
        T_EQ(*at, '\0');
        assert_string_equal(tti_type_text(&type, back, sizeof back), texts[i]);
    }
}

T_CASE(parsing_stops_after_the_type) {
    T_UNUSED;
    const char *at = "i32[4,5], f32[]";
    tutti_type type;
    T_OK(tti_type_parse(&at, &type));
    assert_string_equal(at, ", f32[]");
    T_EQ(type.dtype, TUTTI_I32);
    T_EQ(type.shape.n_dims, 2);
    T_EQ(tutti_shape_n_elems(&type.shape), 20);
}

T_CASE(bad_types_are_refused) {
    T_UNUSED;
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "unknown dtype"},
        {"f31[2]", "unknown dtype 'f31'"},
        {"F32[2]", "unknown dtype ''"},
        {"f32", "expected '['"},
        {"f32(2)", "expected '['"},
        {"f32[", "expected a dimension"},
        {"f32[,]", "expected a dimension"},
        {"f32[-1]", "expected a dimension"},
        {"f32[2", "expected ',' or ']'"},
        {"f32[2;3]", "expected ',' or ']'"},
        {"f32[1000000000000000]", "1 to 15 digits"},
        {"f32[1,1,1,1,1,1,1,1,1]", "more than 8 dimensions"},
        {"f32[999999999999999]", "2^40"},
        {"f32[1048577,1048576]", "2^40"},
        {"f32[0,999999999999,999999999999]", "2^40"},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const char *at = rows[i].text;
        tutti_type type = {.dtype = TUTTI_U8};
        T_FAILS(tti_type_parse(&at, &type), TUTTI_E_INVALID, rows[i].error);
        assert_ptr_equal(at, rows[i].text);
        T_EQ(type.dtype, TUTTI_U8); /* untouched */
    }
}

T_CASE(shapes_have_limits) {
    T_UNUSED;
    T_OK(tti_shape_check(&(tutti_shape){0}));
    T_OK(tti_shape_check(&TUTTI_SHAPE(1 << 20, 1 << 20)));
    T_OK(tti_shape_check(&TUTTI_SHAPE(0, 1 << 20, 1 << 20)));
    T_FAILS(tti_shape_check(&TUTTI_SHAPE(1 << 20, 1 << 20, 2)), TUTTI_E_INVALID, "2^40");
    T_FAILS(tti_shape_check(&TUTTI_SHAPE(INT64_MAX, INT64_MAX)), TUTTI_E_INVALID, "2^40");
    T_FAILS(tti_shape_check(&TUTTI_SHAPE(0, INT64_MAX)), TUTTI_E_INVALID, "2^40");
    T_FAILS(tti_shape_check(&TUTTI_SHAPE(3, INT64_MIN)), TUTTI_E_INVALID,
            "dimension 1 is negative");
    T_FAILS(tti_shape_check(&(tutti_shape){.n_dims = 9}), TUTTI_E_INVALID, "9 dimensions, 0 to 8");
    T_FAILS(tti_shape_check(&(tutti_shape){.n_dims = -1}), TUTTI_E_INVALID, "-1 dimensions");
}

T_CASE(shapes_are_compared) {
    T_UNUSED;
    assert_true(tti_shape_equal(&TUTTI_SHAPE(2, 3), &TUTTI_SHAPE(2, 3)));
    assert_false(tti_shape_equal(&TUTTI_SHAPE(2, 3), &TUTTI_SHAPE(3, 2)));
    assert_false(tti_shape_equal(&TUTTI_SHAPE(2, 3), &TUTTI_SHAPE(2, 3, 1)));
    assert_true(tti_shape_equal(&(tutti_shape){0}, &(tutti_shape){.dim = {7}}));
}

T_CASE(values_have_sizes) {
    T_UNUSED;
    tutti_value value = {.type = {TUTTI_F64, TUTTI_SHAPE(2, 3, 4)}};
    T_EQ(tti_value_n_elems(&value), 24);
    T_EQ(tti_value_n_bytes(&value), 192);
    value.type = (tutti_type){TUTTI_U8, {0}};
    T_EQ(tti_value_n_bytes(&value), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_read_back),       cmocka_unit_test(parsing_stops_after_the_type),
        cmocka_unit_test(bad_types_are_refused), cmocka_unit_test(shapes_have_limits),
        cmocka_unit_test(shapes_are_compared),   cmocka_unit_test(values_have_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
