/* plateau_test.c - falls where PyTorch's ReduceLROnPlateau does, through any checkpoint. */
#include "train/job/plateau.h"

#include "base/error.h"
#include "golden/optim_schedules.h"
#include "t.h"

static const tti_plateau_desc desc = {
    .lr = 0.4, .gamma = 0.3, .min_lr = 0.02, .threshold = 0.01, .patience = 2, .cooldown = 1};

/* The state is written and read back after each evaluation. */
T_CASE(falls_where_pytorchs_does) {
    T_UNUSED;
    tti_plateau s = tti_plateau_begin();
    tti_lr_desc lr = {.name = "plateau", .lr = 0.4, .plateau = &s};
    double before = 0.4;
    T_EQ(TTI_COUNT(golden_plateau), TTI_COUNT(golden_losses_seen));
    for (size_t i = 0; i < TTI_COUNT(golden_plateau); i++) {
        char text[TTI_PLATEAU_TEXT];
        bool fell = tti_plateau_update(&desc, &s, golden_losses_seen[i]);
        T_NEAR(tti_lr(&lr, (int64_t)i), golden_plateau[i], 1e-15);
        assert_true(fell == (golden_plateau[i] < before));
        before = golden_plateau[i];
        tti_plateau_print(&s, text);
        memset(&s, 0x55, sizeof s);
        T_OK(tti_plateau_read(text, &s));
    }
}

/* A loss that is not a number is no better one, and does not become the best. */
T_CASE(nan_is_not_better) {
    T_UNUSED;
    tti_plateau s = tti_plateau_begin();
    assert_false(tti_plateau_update(&desc, &s, NAN));
    assert_false(tti_plateau_update(&desc, &s, NAN));
    assert_true(tti_plateau_update(&desc, &s, NAN));
    assert_true(isinf(s.best));
    T_NEAR(s.scale, 0.3, 1e-15);
}

T_CASE(a_lowest_rate_is_kept) {
    T_UNUSED;
    tti_plateau s = tti_plateau_begin();
    for (int i = 0; i < 1000; i++) tti_plateau_update(&desc, &s, 1);
    T_NEAR(0.4 * s.scale, 0.02, 1e-15);
}

T_CASE(states_read_back) {
    T_UNUSED;
    static const tti_plateau states[] = {
        {1, INFINITY, 0, 0},
        {0.1, -3.5, 10, 1000000},
        {0, 1e-300, 3, 2},
    };
    for (size_t i = 0; i < TTI_COUNT(states); i++) {
        char text[TTI_PLATEAU_TEXT];
        tti_plateau back;
        tti_plateau_print(&states[i], text);
        T_OK(tti_plateau_read(text, &back));
        assert_memory_equal(&back, &states[i], sizeof back);
    }
}

T_CASE(what_is_no_state) {
    T_UNUSED;
    static const char *const texts[] = {
        "",
        "scale",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=0",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=0 cooldown=0 ",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=0 cooldown=-1",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=-1 cooldown=0",
        "scale=3ff0000000000000 best=7ff0000000000000 bad= 0 cooldown=0",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=00 cooldown=0",
        "scale=3ff0000000000000 best=7ff8000000000000 bad=0 cooldown=0", /* NaN */
        "scale=7ff8000000000000 best=7ff0000000000000 bad=0 cooldown=0",
        "scale=4000000000000000 best=7ff0000000000000 bad=0 cooldown=0", /* 2 */
        "scale=bff0000000000000 best=7ff0000000000000 bad=0 cooldown=0", /* -1 */
        "scale=3FF0000000000000 best=7ff0000000000000 bad=0 cooldown=0",
        "scale=3ff0000000000000 best=7ff0000000000000 bad=99999999999999999999 cooldown=0",
    };
    for (size_t i = 0; i < TTI_COUNT(texts); i++) {
        tti_plateau out = {.n_bad = 77};
        T_FAILS(tti_plateau_read(texts[i], &out), TUTTI_E_CHECKPOINT,
                "is not a state of this schedule");
        T_EQ(out.n_bad, 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(falls_where_pytorchs_does), cmocka_unit_test(nan_is_not_better),
        cmocka_unit_test(a_lowest_rate_is_kept),     cmocka_unit_test(states_read_back),
        cmocka_unit_test(what_is_no_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
