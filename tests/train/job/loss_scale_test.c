/* loss_scale_test.c - the scale goes up and down at the steps of PyTorch's rule. */
#include "train/job/loss_scale.h"

#include "golden/golden_loss_scale.h"
#include "t.h"

/* The flags of make_loss_scale.py. */
static bool overflows(int step, double scale) {
    static const int steps[] = {0, 1, 2, 2002, 2003, 4004, 9999, 12000, 30000, 30001};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] == step) return true;
    return step >= 16000 && step < 20000 && scale > 0x1p14;
}

T_CASE(the_dynamic_scale_is_that_of_grad_scaler) {
    T_UNUSED;
    size_t n_rows = sizeof golden_scales / sizeof *golden_scales, row = 0;
    tti_loss_scale s;
    tti_loss_scale_init(&s, 0);
    assert_true(s.scale == 65536);
    for (int step = 0; step < 40000; step++) {
        double before = s.scale;
        tti_loss_scale_step(&s, overflows(step, s.scale));
        bool want = row < n_rows && golden_scales[row].step == step;
        if (want != (s.scale != before)) fail_msg("step %d: %g to %g", step, before, s.scale);
        if (want) T_NEAR(s.scale, ldexp(1, golden_scales[row++].log2), 0);
    }
    T_EQ(row, n_rows);
}

T_CASE(a_fixed_scale_stays) {
    T_UNUSED;
    tti_loss_scale s;
    tti_loss_scale_init(&s, 1000);
    for (int step = 0; step < 5000; step++) tti_loss_scale_step(&s, step % 7 == 0);
    T_NEAR(s.scale, 1000, 0);
    assert_true(tti_loss_scale_is_blameless(&s));
}

/* Lower for what it has done itself; what it cannot help is for others to answer. */
T_CASE(it_answers_for_itself) {
    T_UNUSED;
    tti_loss_scale s, fixed;
    tti_loss_scale_init(&s, 0);
    tti_loss_scale_init(&fixed, 8);
    assert_false(tti_loss_scale_handles(&s, false));
    T_EQ(s.n_good, 1);
    assert_true(tti_loss_scale_handles(&s, true));
    T_NEAR(s.scale, 32768, 0);
    s.scale = 1, s.n_good = 5;
    assert_false(tti_loss_scale_handles(&s, true));
    assert_true(s.scale == 1 && s.n_good == 5);
    assert_false(tti_loss_scale_handles(&fixed, true));
    T_NEAR(fixed.scale, 8, 0);
}

T_CASE(it_stays_a_float) {
    T_UNUSED;
    tti_loss_scale s;
    tti_loss_scale_init(&s, 0);
    s.scale = 0x1p126;
    for (int step = 0; step < 6000; step++) tti_loss_scale_step(&s, false);
    T_NEAR(s.scale, 0x1p127, 0);
}

/* A network that overflows whatever the scale is shows after so many halvings. */
T_CASE(in_the_end_it_is_not_the_scale) {
    T_UNUSED;
    tti_loss_scale s;
    tti_loss_scale_init(&s, 0);
    for (int i = 0; i < 16; i++) {
        assert_false(tti_loss_scale_is_blameless(&s));
        tti_loss_scale_step(&s, true);
    }
    T_NEAR(s.scale, 1, 0);
    assert_true(tti_loss_scale_is_blameless(&s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dynamic_scale_is_that_of_grad_scaler),
        cmocka_unit_test(a_fixed_scale_stays),
        cmocka_unit_test(it_answers_for_itself),
        cmocka_unit_test(it_stays_a_float),
        cmocka_unit_test(in_the_end_it_is_not_the_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
