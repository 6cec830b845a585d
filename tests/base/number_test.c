/* number_test.c - numbers as text and back, in any locale. */
#include "base/number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "base/philox.h"
#include "t.h"

T_CASE(ints) {
    T_UNUSED;
    static const struct {
        const char *text;
        tti_number form;
        int64_t x;
    } rows[] = {
        {"0", TTI_NUMBER_OK, 0},
        {"-0", TTI_NUMBER_OK, 0},
        {"+7", TTI_NUMBER_OK, 7},
        {"-12", TTI_NUMBER_OK, -12},
        {"9223372036854775807", TTI_NUMBER_OK, INT64_MAX},
        {"-9223372036854775808", TTI_NUMBER_OK, INT64_MIN},
        {"9223372036854775808", TTI_NUMBER_RANGE, 0},
        {"-9223372036854775809", TTI_NUMBER_RANGE, 0},
        {"", TTI_NUMBER_MALFORMED, 0},
        {"-", TTI_NUMBER_MALFORMED, 0},
        {" 1", TTI_NUMBER_MALFORMED, 0},
        {"1 ", TTI_NUMBER_MALFORMED, 0},
        {"010", TTI_NUMBER_MALFORMED, 0},
        {"0x10", TTI_NUMBER_MALFORMED, 0},
        {"1e3", TTI_NUMBER_MALFORMED, 0},
        {"1.0", TTI_NUMBER_MALFORMED, 0},
        {"1_000", TTI_NUMBER_MALFORMED, 0},
        {"--1", TTI_NUMBER_MALFORMED, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t x = 77;
        T_EQ(tti_parse_int(rows[i].text, &x), rows[i].form);
        assert_true(x == (rows[i].form == TTI_NUMBER_OK ? rows[i].x : 77));
    }
}

static const struct {
    const char *text;
    tti_number form;
    double x;
} doubles[] = {
    {"1e-4", TTI_NUMBER_OK, 1e-4},      {"-.5", TTI_NUMBER_OK, -0.5},
    {"2.", TTI_NUMBER_OK, 2},           {"3E+2", TTI_NUMBER_OK, 300},
    {"0.1307", TTI_NUMBER_OK, 0.1307},  {"1e-999", TTI_NUMBER_TINY, 0},
    {"0e-999", TTI_NUMBER_OK, 0},       {"-0.00e5", TTI_NUMBER_OK, 0},
    {"-.001e-999", TTI_NUMBER_TINY, 0}, {"5e-324", TTI_NUMBER_OK, 0x1p-1074},
    {"1e999", TTI_NUMBER_RANGE, 0},     {"1e-4x", TTI_NUMBER_MALFORMED, 0},
    {"1,5", TTI_NUMBER_MALFORMED, 0},   {"0x1p3", TTI_NUMBER_MALFORMED, 0},
    {"inf", TTI_NUMBER_MALFORMED, 0},   {"nan", TTI_NUMBER_MALFORMED, 0},
    {".", TTI_NUMBER_MALFORMED, 0},     {"e5", TTI_NUMBER_MALFORMED, 0},
    {"1e", TTI_NUMBER_MALFORMED, 0},    {"1e+", TTI_NUMBER_MALFORMED, 0},
    {"1.5.2", TTI_NUMBER_MALFORMED, 0}, {"", TTI_NUMBER_MALFORMED, 0},
};

static void check_doubles(void) {
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        double x = 77;
        T_EQ(tti_parse_double(doubles[i].text, &x), doubles[i].form);
        assert_true(x == (doubles[i].form == TTI_NUMBER_OK ? doubles[i].x : 77));
    }
}

T_CASE(floats_parse) {
    T_UNUSED;
    static const struct {
        const char *text;
        tti_number form;
    } rows[] = {{"0", TTI_NUMBER_OK},         {"-0.0", TTI_NUMBER_OK},
                {"1.2e-38", TTI_NUMBER_OK},   {"-3.4e38", TTI_NUMBER_OK},
                {"1.1e-38", TTI_NUMBER_TINY}, {"-1e-50", TTI_NUMBER_TINY},
                {"1e-400", TTI_NUMBER_TINY},  {"3.5e38", TTI_NUMBER_RANGE},
                {"1e400", TTI_NUMBER_RANGE},  {"1e-4x", TTI_NUMBER_MALFORMED},
                {"0e-400", TTI_NUMBER_OK},    {"", TTI_NUMBER_MALFORMED}};
    double x;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        T_EQ(tti_parse_float(rows[i].text, &x), rows[i].form);
    T_EQ(tti_parse_float("0.1", &x), TTI_NUMBER_OK);
    assert_true(x == 0.1); /* not rounded to a float */
}

T_CASE(doubles_parse) {
    T_UNUSED;
    check_doubles();
}

/* A thread that computes takes denormals as 0: they are read as in any other. */
T_CASE(denormals_of_a_thread_that_computes) {
    T_UNUSED;
#ifdef __SSE2__
    static const char *const texts[] = {"1e-310", "5e-324", "1e-400", "0e-400"};
    tti_number forms[4], as_floats[4];
    double x;
    unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8040u);
    for (int i = 0; i < 4; i++) {
        forms[i] = tti_parse_double(texts[i], &x);
        as_floats[i] = tti_parse_float(texts[i], &x);
    }
    _mm_setcsr(control);
    for (int i = 0; i < 4; i++) {
        T_EQ(forms[i], i == 2 ? TTI_NUMBER_TINY : TTI_NUMBER_OK);
        T_EQ(as_floats[i], i < 3 ? TTI_NUMBER_TINY : TTI_NUMBER_OK);
    }
#endif
}

T_CASE(locale_changes_nothing) {
    T_UNUSED;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    char text[TTI_NUMBER_TEXT];
    size_t i = 0;
    while (i < 3 && !setlocale(LC_ALL, names[i])) i++;
    check_doubles();
    assert_string_equal(tti_format_double(text, 0.25), "0.25");
    assert_string_equal(tti_format_float(text, 1.5f), "1.5");
    setlocale(LC_ALL, "C");
}

T_CASE(bytes) {
    T_UNUSED;
    int64_t x = 0;
    T_EQ(tti_parse_bytes("4096", &x), TTI_NUMBER_OK);
    T_EQ(x, 4096);
    T_EQ(tti_parse_bytes("64MiB", &x), TTI_NUMBER_OK);
    T_EQ(x, 64 << 20);
    T_EQ(tti_parse_bytes("1.5 GB", &x), TTI_NUMBER_OK);
    T_EQ(x, 1500000000);
    T_EQ(tti_parse_bytes("2k", &x), TTI_NUMBER_OK);
    T_EQ(x, 2000);
    T_EQ(tti_parse_bytes("1e30G", &x), TTI_NUMBER_RANGE);
    T_EQ(tti_parse_bytes("1e-12GB", &x), TTI_NUMBER_TINY);
    T_EQ(tti_parse_bytes("1e-400GB", &x), TTI_NUMBER_TINY);
    T_EQ(tti_parse_bytes("64MiBs", &x), TTI_NUMBER_MALFORMED);
    T_EQ(tti_parse_bytes("MiB", &x), TTI_NUMBER_MALFORMED);
    T_EQ(tti_parse_bytes("1.5", &x), TTI_NUMBER_MALFORMED);
    T_EQ(x, 2000);
}

T_CASE(formats_are_short) {
    T_UNUSED;
    char text[TTI_NUMBER_TEXT];
    assert_string_equal(tti_format_double(text, 0.1), "0.1");
    assert_string_equal(tti_format_double(text, 1.0 / 3), "0.3333333333333333");
    assert_string_equal(tti_format_double(text, -0.0), "-0");
    assert_string_equal(tti_format_double(text, (double)NAN), "nan");
    assert_string_equal(tti_format_double(text, -HUGE_VAL), "-inf");
    assert_string_equal(tti_format_float(text, 0.1f), "0.1");
    assert_string_equal(tti_format_float(text, 1.0f / 3), "0.33333334");
}

T_CASE(any_bits_read_back) {
    T_UNUSED;
    char text[TTI_NUMBER_TEXT];
    for (uint64_t i = 0; i < 20000; i++) {
        tti_philox r = tti_philox_draw(1, 2, i);
        double x, y = 0;
        float f, g;
        memcpy(&x, r.v, sizeof x);
        memcpy(&f, &r.v[2], sizeof f);
        if (isfinite(x)) {
            T_EQ(tti_parse_double(tti_format_double(text, x), &y), TTI_NUMBER_OK);
            assert_memory_equal(&x, &y, sizeof x);
        }
        if (isfinite(f)) {
            g = strtof(tti_format_float(text, f), NULL);
            assert_memory_equal(&f, &g, sizeof f);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ints),
        cmocka_unit_test(floats_parse),
        cmocka_unit_test(doubles_parse),
        cmocka_unit_test(denormals_of_a_thread_that_computes),
        cmocka_unit_test(locale_changes_nothing),
        cmocka_unit_test(bytes),
        cmocka_unit_test(formats_are_short),
        cmocka_unit_test(any_bits_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
