/* lr_schedule_test.c - every schedule against PyTorch's closed forms, with and without warm-up. */
#include "train/job/lr_schedule.h"

#include "base/error.h"
#include "golden/optim_schedules.h"
#include "t.h"

static const double pi = 3.14159265358979323846;

T_CASE(learning_rates_are_pytorchs) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(golden_schedules); i++) {
        const golden_schedule *g = &golden_schedules[i];
        assert_true(g->n >= 24 && g->n <= GOLDEN_CURVE);
        for (int t = 0; t < g->n; t++) {
            double lr = tti_lr(&g->desc, t);
            if (!(fabs(lr - g->lr[t]) <= 1e-12 * fmax(g->lr[t], 1e-4)))
                fail_msg("%s (row %zu), step %d: %.15g, PyTorch %.15g", g->desc.name, i, t, lr,
                         g->lr[t]);
        }
    }
}

/* Every schedule of the table is among the golden ones or, as plateau, has a test of its own. */
T_CASE(every_schedule_is_golden) {
    T_UNUSED;
    for (int k = 0; tti_lr_schedule_at(k); k++) {
        const char *name = tti_lr_schedule_at(k)->name;
        bool found = strcmp(name, "plateau") == 0;
        for (size_t i = 0; i < TTI_COUNT(golden_schedules); i++)
            found = found || strcmp(golden_schedules[i].desc.name, name) == 0;
        if (!found) fail_msg("%s is not tested", name);
        assert_ptr_equal(tti_lr_schedule_find(name), tti_lr_schedule_at(k));
    }
    assert_null(tti_lr_schedule_find("cosin"));
}

/* The curve begins where the warm-up ends, whatever the schedule and the shape. */
T_CASE(warm_up_meets_the_curve) {
    T_UNUSED;
    static const char *const shapes[] = {NULL, "linear", "exponential", "cosine"};
    for (int k = 0; tti_lr_schedule_at(k); k++)
        for (size_t i = 0; i < TTI_COUNT(shapes); i++) {
            tti_lr_desc d = {.name = tti_lr_schedule_at(k)->name,
                             .lr = 2,
                             .warmup_steps = 8,
                             .warmup = shapes[i],
                             .warmup_start = 0.01,
                             .n_steps = 100,
                             .steps_per_epoch = 50,
                             .step_size = 1,
                             .gamma = 0.5,
                             .min_lr = 0.1,
                             .power = 2,
                             .cycle_steps = 10,
                             .rise = 0.5,
                             .div = 10,
                             .final_div = 10,
                             .decay_fraction = 0.5};
            T_NEAR(tti_lr(&d, 7), tti_lr(&d, 8), 1e-15);
            for (int64_t t = 1; t < 8; t++) assert_true(tti_lr(&d, t) > tti_lr(&d, t - 1));
            assert_true(tti_lr(&d, 0) > 0);
        }
}

/* A run keeps the state whatever its schedule; only plateau listens to it. */
T_CASE(only_plateau_has_a_memory) {
    T_UNUSED;
    tti_plateau low = {.scale = 0.25};
    for (int k = 0; tti_lr_schedule_at(k); k++) {
        tti_lr_desc d = {.name = tti_lr_schedule_at(k)->name,
                         .lr = 2,
                         .warmup_steps = 3,
                         .n_steps = 100,
                         .gamma = 0.5,
                         .power = 2,
                         .cycle_steps = 10,
                         .rise = 0.5,
                         .div = 10,
                         .final_div = 10,
                         .decay_fraction = 0.5};
        double factor = strcmp(d.name, "plateau") == 0 ? 0.25 : 1;
        for (int64_t t = 0; t < 10; t++) {
            d.plateau = NULL;
            double without = tti_lr(&d, t);
            d.plateau = &low;
            assert_true(tti_lr(&d, t) == factor * without);
        }
    }
}

/* The job's values arrive in the schedule. */
T_CASE(desc_of_a_job) {
    T_UNUSED;
    static const char *const assignments[] = {"schedule.name=multi_step",
                                              "schedule.milestones=[2, 5]",
                                              "schedule.unit=steps",
                                              "schedule.gamma=0.5",
                                              "schedule.warmup_steps=2",
                                              "schedule.warmup_shape=constant",
                                              "schedule.warmup_start=0.25",
                                              "optimizer.lr=0.1",
                                              "optimizer.scale_lr=linear",
                                              "optimizer.base_batch=64",
                                              "train.batch=128"};
    tutti_job *job;
    T_OK(tutti_job_create(&job));
    for (size_t i = 0; i < TTI_COUNT(assignments); i++) tutti_job_set(job, assignments[i], "test");
    T_OK(tti_job_resolve(job, 1));
    tti_lr_desc d = tti_lr_desc_of(&job->config, 100, 7);
    T_NEAR(tti_lr(&d, 0), 0.25 * 0.2 * 0.5, 1e-15); /* the curve begins after a drop */
    T_NEAR(tti_lr(&d, 2), 0.1, 1e-15);
    T_NEAR(tti_lr(&d, 5), 0.05, 1e-15);
    T_EQ(d.n_steps, 100);
    T_EQ(d.steps_per_epoch, 7);
    T_NEAR(tti_plateau_desc_of(&job->config).lr, 0.2, 1e-15);
    T_EQ(tti_plateau_desc_of(&job->config).patience, 10);
    tutti_job_destroy(job);
}

T_CASE(constant_is_constant) {
    T_UNUSED;
    tti_lr_desc d = {.name = "constant", .lr = 0.3, .n_steps = 10, .steps_per_epoch = 2};
    for (int64_t t = 0; t < 20; t++) assert_true(tti_lr(&d, t) == 0.3);
}

/* Step t of n has lr * (t+1)/n, and the first step after the warm-up has all of it. */
T_CASE(warm_up_is_linear) {
    T_UNUSED;
    const char *const names[] = {"constant", "cosine", "step"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        tti_lr_desc d = {.name = names[i],
                         .lr = 2,
                         .warmup_steps = 8,
                         .n_steps = 100,
                         .steps_per_epoch = 50,
                         .step_size = 1,
                         .gamma = 0.1};
        for (int64_t t = 0; t < 8; t++) assert_true(tti_lr(&d, t) == 2 * (double)(t + 1) / 8);
        assert_true(tti_lr(&d, 8) == 2);
    }
}

/* CosineAnnealingLR(T_max = n_steps - warmup_steps, eta_min). */
T_CASE(cosine_is_pytorchs) {
    T_UNUSED;
    tti_lr_desc d = {.name = "cosine",
                     .lr = 1e-3,
                     .warmup_steps = 20,
                     .n_steps = 120,
                     .steps_per_epoch = 7,
                     .min_lr = 1e-5};
    for (int64_t t = 20; t <= 120; t++) {
        double wanted = 1e-5 + (1e-3 - 1e-5) * (1 + cos(pi * (double)(t - 20) / 100)) / 2;
        T_NEAR(tti_lr(&d, t) * 1e3, wanted * 1e3, 1e-12);
    }
    T_NEAR(tti_lr(&d, 70) * 1e3, 0.505, 1e-12);  /* half way */
    T_NEAR(tti_lr(&d, 120) * 1e5, 1, 1e-12);     /* the end */
    T_NEAR(tti_lr(&d, 1000000) * 1e5, 1, 1e-12); /* and no rise after it */
    for (int64_t t = 21; t < 120; t++) assert_true(tti_lr(&d, t) < tti_lr(&d, t - 1));
}

/* StepLR(step_size, gamma), stepped once per epoch. */
T_CASE(step_is_pytorchs) {
    T_UNUSED;
    tti_lr_desc d = {.name = "step",
                     .lr = 0.1,
                     .n_steps = 100,
                     .steps_per_epoch = 10,
                     .step_size = 3,
                     .gamma = 0.5};
    for (int64_t t = 0; t < 100; t++)
        T_NEAR(tti_lr(&d, t), 0.1 * pow(0.5, (double)(t / 10 / 3)), 1e-15);
    assert_true(tti_lr(&d, 29) == 0.1);
    assert_true(tti_lr(&d, 30) == 0.05);
}

/* Drops stand at the same epochs whatever the warm-up. */
T_CASE(step_counts_the_warm_up) {
    T_UNUSED;
    tti_lr_desc d = {.name = "step",
                     .lr = 1,
                     .warmup_steps = 4,
                     .n_steps = 100,
                     .steps_per_epoch = 10,
                     .step_size = 1,
                     .gamma = 0.1};
    assert_true(tti_lr(&d, 9) == 1);
    T_NEAR(tti_lr(&d, 10), 0.1, 1e-15);
    T_NEAR(tti_lr(&d, 20), 0.01, 1e-15);
}

/* A warm-up as long as the run, or longer, and degenerate lengths divide by nothing. */
T_CASE(extremes_are_finite) {
    T_UNUSED;
    static const double shares[] = {0, 0.01, 0.5, 1};
    for (int k = 0; tti_lr_schedule_at(k); k++)
        for (size_t i = 0; i < TTI_COUNT(shares); i++)
            for (int64_t warmup = 0; warmup < 30; warmup += 10) {
                tti_lr_desc d = {.name = tti_lr_schedule_at(k)->name,
                                 .lr = 1,
                                 .warmup_steps = warmup,
                                 .n_steps = 10,
                                 .gamma = 0.5,
                                 .div = 2,
                                 .final_div = 2,
                                 .rise = shares[i],
                                 .decay_fraction = shares[i]};
                for (int64_t t = 0; t < 40; t++) {
                    double lr = tti_lr(&d, t);
                    assert_true(isfinite(lr) && lr >= 0 && lr <= 1);
                }
            }
}

T_CASE(the_table_is_sorted_and_ends) {
    T_UNUSED;
    int n = 0;
    for (; tti_lr_schedule_at(n); n++) {
        assert_non_null(tti_lr_schedule_at(n)->doc);
        if (n > 0)
            assert_true(strcmp(tti_lr_schedule_at(n - 1)->name, tti_lr_schedule_at(n)->name) < 0);
    }
    assert_true(n >= 3);
    assert_null(tti_lr_schedule_at(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_rates_are_pytorchs),
        cmocka_unit_test(every_schedule_is_golden),
        cmocka_unit_test(warm_up_meets_the_curve),
        cmocka_unit_test(only_plateau_has_a_memory),
        cmocka_unit_test(desc_of_a_job),
        cmocka_unit_test(constant_is_constant),
        cmocka_unit_test(warm_up_is_linear),
        cmocka_unit_test(cosine_is_pytorchs),
        cmocka_unit_test(step_is_pytorchs),
        cmocka_unit_test(step_counts_the_warm_up),
        cmocka_unit_test(extremes_are_finite),
        cmocka_unit_test(the_table_is_sorted_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
