/* dtype_test.c - every 16-bit pattern, and rounding to the nearest. */
#include "base/dtype.h"

#include <float.h>
#include <math.h>

#include "base/error.h"
#include "base/philox.h"
#include "t.h"

T_CASE(table) {
    T_UNUSED;
    T_EQ(tutti_dtype_bytes(TUTTI_BF16), 2);
    T_EQ(tutti_dtype_bytes(TUTTI_I64), 8);
    T_EQ(tutti_dtype_bytes((tutti_dtype)99), 0);
    assert_string_equal(tutti_dtype_text((tutti_dtype)-1), "?");
    for (int i = 0; i < TUTTI_N_DTYPES; i++) {
        tutti_dtype found = TUTTI_N_DTYPES;
        const char *text = tutti_dtype_text((tutti_dtype)i);
        assert_true(tti_dtype_find(text, strlen(text), &found));
        T_EQ(found, i);
    }
    tutti_dtype untouched = TUTTI_U8;
    assert_false(tti_dtype_find("f3", 2, &untouched));
    T_EQ(untouched, TUTTI_U8);
}

T_CASE(n_elems) {
    T_UNUSED;
    T_EQ(tutti_shape_n_elems(&TUTTI_SHAPE(2, 3, 4)), 24);
    T_EQ(tutti_shape_n_elems(&TUTTI_SHAPE(2, 0, 4)), 0);
    T_EQ(tutti_shape_n_elems(&(tutti_shape){0}), 1);
}

T_CASE(every_half_reads_back) {
    T_UNUSED;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = tti_f16_to_f32((uint16_t)h), b = tti_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(tti_f16_to_f32(tti_f32_to_f16(f))));
        else
            T_EQ(tti_f32_to_f16(f), h);
        if (isnan(b))
            assert_true(isnan(tti_bf16_to_f32(tti_f32_to_bf16(b))));
        else
            T_EQ(tti_f32_to_bf16(b), h);
    }
}

T_CASE(known_halves) {
    T_UNUSED;
    T_EQ(tti_f32_to_f16(1.0f), 0x3C00);
    T_EQ(tti_f32_to_f16(65504.0f), 0x7BFF);
    T_EQ(tti_f32_to_f16(65519.0f), 0x7BFF);
    T_EQ(tti_f32_to_f16(65520.0f), 0x7C00); /* ties to even: infinity */
    T_EQ(tti_f32_to_f16(-0x1p-24f), 0x8001);
    T_EQ(tti_f32_to_f16(0x1p-25f), 0);
    T_EQ(tti_f32_to_f16(0x1.002p0f), 0x3C00); /* a tie, down to even */
    T_EQ(tti_f32_to_f16(0x1.006p0f), 0x3C02); /* a tie, up to even */
    T_EQ(tti_f32_to_bf16(0x1.01p0f), 0x3F80); /* a tie, down to even */
    T_EQ(tti_f32_to_bf16(0x1.03p0f), 0x3F82); /* a tie, up to even */
    T_EQ(tti_f32_to_bf16(0x1.8p127f), 0x7F40);
    T_EQ(tti_f32_to_bf16(0x1.fffffep127f), 0x7F80);
}

/* No neighbour of the rounded value is nearer to x. */
T_CASE(nearest) {
    T_UNUSED;
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t bits = tti_philox_draw(1, 0, i).v[0];
        float x;
        memcpy(&x, &bits, sizeof x);
        if (!(fabsf(x) < 65504.0f) || fabsf(x) < 0x1p-13f) continue;
        uint16_t h = tti_f32_to_f16(x);
        float distance = fabsf(tti_f16_to_f32(h) - x);
        assert_true(distance <= fabsf(tti_f16_to_f32((uint16_t)(h + 1)) - x));
        assert_true(distance <= fabsf(tti_f16_to_f32((uint16_t)(h - 1)) - x));
    }
}

T_CASE(elements_of_every_dtype) {
    T_UNUSED;
    for (int d = 0; d < TUTTI_N_DTYPES; d++) {
        _Alignas(8) unsigned char memory[8 * 4] = {0};
        tti_store_elem((tutti_dtype)d, memory, 1, 5.0);
        tti_store_elem((tutti_dtype)d, memory, 2, 200.0);
        T_NEAR(tti_load_elem((tutti_dtype)d, memory, 0), 0.0, 0);
        T_NEAR(tti_load_elem((tutti_dtype)d, memory, 1), 5.0, 0);
        T_NEAR(tti_load_elem((tutti_dtype)d, memory, 2), 200.0, 0);
        T_NEAR(tti_load_elem((tutti_dtype)d, memory, 3), 0.0, 0);
    }
}

T_CASE(what_is_not_finite_is_found_anywhere) {
    T_UNUSED;
    static float x[9000];
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (size_t i = 0; i < TTI_COUNT(x); i++) x[i] = i % 2 ? FLT_MAX : -FLT_TRUE_MIN;
    assert_true(tti_all_finite(x, TTI_COUNT(x)));
    assert_true(tti_all_finite(x, 0));
    for (size_t i = 0; i < TTI_COUNT(x); i += 1799) {
        float good = x[i];
        x[i] = bad[i % TTI_COUNT(bad)];
        assert_false(tti_all_finite(x, TTI_COUNT(x)));
        assert_true(tti_all_finite(x, i));
        x[i] = good;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(n_elems),
        cmocka_unit_test(known_halves),
        cmocka_unit_test(every_half_reads_back),
        cmocka_unit_test(nearest),
        cmocka_unit_test(elements_of_every_dtype),
        cmocka_unit_test(what_is_not_finite_is_found_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
