/* clock_test.c - the clock does not go back, and waiting times are rounded up. */
#include "base/clock.h"

#include "t.h"

T_CASE(never_goes_back) {
    T_UNUSED;
    int64_t last = tti_now_ns();
    for (int i = 0; i < 100000; i++) {
        int64_t now = tti_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

T_CASE(sleep_is_not_short) {
    T_UNUSED;
    int64_t t0 = tti_now_ns();
    tti_sleep_ms(5);
    assert_true(tti_now_ns() - t0 >= 5 * TTI_NS_PER_MS);
}

T_CASE(ms_until_rounds_up) {
    T_UNUSED;
    T_EQ(tti_ms_until(tti_now_ns() - 1), 0);
    T_EQ(tti_ms_until(INT64_MAX / 2), 3600000);
    int left_ms = tti_ms_until(tti_now_ns() + 5000 * TTI_NS_PER_MS);
    assert_true(left_ms > 4000 && left_ms <= 5000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_goes_back),
        cmocka_unit_test(sleep_is_not_short),
        cmocka_unit_test(ms_until_rounds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
