/* philox_test.c - the known answers of the paper's authors (Random123), and the key helpers. */
#include "base/philox.h"

#include "t.h"

static void check(uint64_t key, uint64_t hi, uint64_t lo, const uint32_t *want) {
    tti_philox got = tti_philox_draw(key, hi, lo);
    for (int i = 0; i < 4; i++) T_EQ(got.v[i], want[i]);
}

T_CASE(known_answers) {
    T_UNUSED;
    check(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check(UINT64_MAX, UINT64_MAX, UINT64_MAX,
          (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u,
          (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

T_CASE(unit_is_below_one) {
    T_UNUSED;
    T_NEAR(tti_philox_unit(0), 0.0, 0);
    assert_true(tti_philox_unit(UINT32_MAX) < 1.0f);
    T_NEAR(tti_philox_unit(0x80000000u), 0.5, 0);
    double sum = 0;
    for (uint64_t i = 0; i < 25000; i++)
        for (int lane = 0; lane < 4; lane++)
            sum += tti_philox_unit(tti_philox_draw(3, 0, i).v[lane]);
    T_NEAR(sum / 100000, 0.5, 0.005); /* 5 standard deviations */
}

/* These decide the initial weights of every model: a change would break old checkpoints' seeds. */
T_CASE(keys_are_fixed) {
    T_UNUSED;
    assert_true(tti_mix64(0, 0) == 0xE220A8397B1DCDAFu);
    assert_true(tti_hash_name("") == 0xCBF29CE484222325u);
    assert_true(tti_hash_name("a") == 0xAF63DC4C8601EC8Cu);
    assert_true(tti_mix64(1, 2) != tti_mix64(2, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(unit_is_below_one),
        cmocka_unit_test(keys_are_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
