/* numerics_test.c - what the passes get for what a job says. */
#include "train/job/numerics.h"

#include "train/small_job.h"

static tti_target target_of(const char *precision, const char *scale, const char *recompute) {
    tutti_job *job = SMALL_JOB(precision, scale, recompute);
    tti_target target = {.fuse = true};
    tti_numerics_target(&job->config, &target);
    assert_true(target.fuse);
    tutti_job_destroy(job);
    return target;
}

T_CASE(precision_and_who_needs_a_scale) {
    T_UNUSED;
    static const struct {
        const char *precision, *scale;
        tutti_dtype dtype;
        bool scaled;
        double begins, after_overflow;
    } rows[] = {
        {"train.precision=f32", "train.loss_scale=auto", TUTTI_F32, false, 1, 1},
        {"train.precision=bf16", "train.loss_scale=auto", TUTTI_BF16, false, 1, 1},
        {"train.precision=bf16", "train.loss_scale=128", TUTTI_BF16, true, 128, 128},
        {"train.precision=f16", "train.loss_scale=auto", TUTTI_F16, true, 65536, 32768},
        {"train.precision=f16", "train.loss_scale=1", TUTTI_F16, true, 1, 1},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_loss_scale scale;
        tti_target target = target_of(rows[i].precision, rows[i].scale, "train.recompute=none");
        T_EQ(target.compute_dtype, rows[i].dtype);
        T_EQ(target.loss_scale, rows[i].scaled);
        T_EQ(target.recompute, TTI_RECOMPUTE_NONE);
        tutti_job *job = SMALL_JOB(rows[i].precision, rows[i].scale);
        tti_numerics_loss_scale(&job->config, &scale);
        T_NEAR(scale.scale, rows[i].begins, 0);
        tti_loss_scale_step(&scale, true);
        T_NEAR(scale.scale, rows[i].after_overflow, 0);
        tutti_job_destroy(job);
    }
}

T_CASE(ways_to_recompute) {
    T_UNUSED;
    static const struct {
        const char *text;
        tti_recompute recompute;
        size_t n_bytes;
    } rows[] = {
        {"none", TTI_RECOMPUTE_NONE, 0},
        {"light", TTI_RECOMPUTE_LIGHT, 0},
        {"block", TTI_RECOMPUTE_BLOCK, 0},
        {"1", TTI_RECOMPUTE_BUDGET, 1},
        {"512MiB", TTI_RECOMPUTE_BUDGET, (size_t)512 << 20},
        {"1.5 GB", TTI_RECOMPUTE_BUDGET, 1500000000},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_target target = {0};
        assert_true(tti_numerics_recompute(rows[i].text, &target));
        T_EQ(target.recompute, rows[i].recompute);
        T_EQ(target.recompute_bytes, rows[i].n_bytes);
    }
    static const char *const bad[] = {"", "0", "-1", "blocks", "12 apples", "1e400", "nan"};
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        tti_target target = {.recompute_bytes = 7};
        assert_false(tti_numerics_recompute(bad[i], &target));
        T_EQ(target.recompute_bytes, 7);
    }
    T_EQ(target_of("train.precision=f32", "train.loss_scale=auto", "train.recompute=4KiB")
             .recompute_bytes,
         4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precision_and_who_needs_a_scale),
        cmocka_unit_test(ways_to_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
