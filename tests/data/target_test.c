/* target_test.c - values as targets: what is kept of them, and their mean and deviation at any
 * size. */
#include "data/target.h"

#include "t.h"

T_CASE(values_are_kept) {
    T_UNUSED;
    int32_t y = 0;
    static const double values[] = {0, -0.0, 1, -1.5, 1.0 / 3, 500, -500, 1e-7};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_true(tti_target_encode(values[i], &y));
        assert_true(y % 2 == 0); /* never the -1 of a missing row */
        T_NEAR(tti_target_decode(y), values[i], 0x1p-22);
    }
    assert_false(tti_target_encode(500.1, &y));
    assert_false(tti_target_encode(-INFINITY, &y));
    assert_false(tti_target_encode(NAN, &y));
}

T_CASE(mean_and_deviation_at_any_size) {
    T_UNUSED;
    static const double sizes[] = {1, 1e-300, 1e-170, 1e-9, 1e12, 1e150, 1e200, 1e300};
    double mean, std;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const double values[] = {1 * sizes[i], 3 * sizes[i], 1 * sizes[i], 3 * sizes[i]};
        tti_target_measure(values, 4, &mean, &std);
        T_NEAR(mean / sizes[i], 2, 1e-14);
        T_NEAR(std / sizes[i], 1, 1e-14);
    }
    tti_target_measure((double[]){1e12, 1e12 + 2}, 2, &mean, &std);
    assert_true(mean == 1e12 + 1 && std == 1);
    tti_target_measure((double[]){0.1, 0.1, 0.1}, 3, &mean, &std);
    assert_true(mean == 0.1 && std == 0);
    tti_target_measure((double[]){1.7e308, 1.7e308, -1}, 3, &mean, &std);
    assert_false(isfinite(mean) && isfinite(std));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_kept),
        cmocka_unit_test(mean_and_deviation_at_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
