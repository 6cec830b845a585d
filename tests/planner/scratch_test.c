/* scratch_test.c - scratch memory of kernels: as they report it, or scaled if they were not asked.
 */
#include "planner/scratch.h"

#include "train/small_job.h"

static const double SCRATCH = 4e6, PAPER = 7e5;

/* A micro-batch group of half the costs that took more than its kernels had said. */
static tti_group_cost micro_group_of(double cost_s) {
    return (tti_group_cost){.recompute = "none",
                            .cost_s = cost_s / 2,
                            .s = 1,
                            .hidden_bytes = 5e6,
                            .scratch_bytes = SCRATCH};
}

T_CASE(asked_or_scaled) {
    T_UNUSED;
    const tti_plan known = {0}, other = {0};
    tti_calibration c = {.is_device = true, .n_scratch = 1};
    tti_group_cost micro_group = micro_group_of(2);
    c.scratch[0] = (tti_scratch){&known, 9e6};
    T_NEAR(tti_scratch_bytes(&c, &known, &micro_group, 2), 9e6 + 1e6, 0);
    T_NEAR(tti_scratch_bytes(&c, &other, &micro_group, 2), 2 * 5e6, 0);
    micro_group.hidden_bytes = SCRATCH / 2; /* the allocator's business */
    T_NEAR(tti_scratch_bytes(&c, &known, &micro_group, 2), 9e6, 0);
    micro_group.hidden_bytes = 0;
    c.stored_scratch = PAPER;
    T_NEAR(tti_scratch_bytes(&c, &other, &micro_group, 2), PAPER, 0);
    c.is_device = false;
    T_NEAR(tti_scratch_bytes(&c, &known, &micro_group, 2), 0, 0);
}

static const tti_calibration host = {.flops = 1e9, .bytes = 1e9};

/* A micro-batch group of the whole model says what its kernels take. */
T_CASE(a_whole_model_on_a_host_is_not_asked) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=1");
    const tti_blueprint *b;
    tti_calibration c = host;
    double spent = -1;
    T_OK(tti_job_resolve(job, 1));
    T_OK(tti_blueprint_create(job, &b));
    T_OK(tti_scratch_query_all(b, &c, 1, &spent));
    assert_true(c.n_scratch == 0 && spent == 0);
    T_NEAR(tti_scratch_difference(&c, b, 0, 1, 1), 0, 0);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

/* Each stage once, and the whole one, which a micro-batch group holds on each compute thread. */
T_CASE(parts_on_a_host_are) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.tensor=2", "parallel.pipeline=2", "parallel.workers=4");
    const tti_blueprint *b;
    tti_calibration c = host;
    double spent = -1;
    T_OK(tti_job_resolve(job, 4));
    T_OK(tti_blueprint_create(job, &b));
    T_OK(tti_scratch_query_all(b, &c, 0, &spent));
    T_EQ(c.n_scratch, 0);
    T_OK(tti_scratch_query_all(b, &c, 1, &spent));
    T_EQ(c.n_scratch, 3);
    assert_true(spent > 0 && c.scratch[0].plan == b->plan);
    assert_true(c.scratch[2].plan == tti_blueprint_plan(b, 2));
    c.scratch[0].bytes = 1000, c.scratch[1].bytes = 300, c.scratch[2].bytes = 2000;
    T_NEAR(tti_scratch_difference(&c, b, 0, 4, 2), 4 * 300 - 2 * 1000, 0);
    T_NEAR(tti_scratch_difference(&c, b, 1, 1, 1), 1000, 0);
    c.n_scratch = 2;
    T_NEAR(tti_scratch_difference(&c, b, 1, 1, 1), 0, 0);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_or_scaled),
        cmocka_unit_test(a_whole_model_on_a_host_is_not_asked),
        cmocka_unit_test(parts_on_a_host_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
