/* scratch_test.c - what kernels want, asked, or scaled where nobody was asked. */
#include "planner/scratch.h"

#include "train/small_job.h"

static const double SCRATCH = 4e6, PAPER = 7e5;

/* A wave of half the costs that took more than its kernels had said. */
static tti_wave wave_of(double cost_s) {
    return (tti_wave){.recompute = "none",
                      .cost_s = cost_s / 2,
                      .s = 1,
                      .hidden_bytes = 5e6,
                      .scratch_bytes = SCRATCH};
}

T_CASE(asked_or_scaled) {
    T_UNUSED;
    const tti_plan known = {0}, other = {0};
    tti_calibration c = {.is_device = true, .n_scratch = 1};
    tti_wave wave = wave_of(2);
    c.scratch[0] = (tti_scratch){&known, 9e6};
    T_NEAR(tti_scratch_bytes(&c, &known, &wave, 2), 9e6 + 1e6, 0);
    T_NEAR(tti_scratch_bytes(&c, &other, &wave, 2), 2 * 5e6, 0);
    wave.hidden_bytes = SCRATCH / 2; /* the allocator's business */
    T_NEAR(tti_scratch_bytes(&c, &known, &wave, 2), 9e6, 0);
    wave.hidden_bytes = 0;
    c.paper_scratch = PAPER;
    T_NEAR(tti_scratch_bytes(&c, &other, &wave, 2), PAPER, 0);
    c.is_device = false;
    T_NEAR(tti_scratch_bytes(&c, &known, &wave, 2), 0, 0);
}

/* Kernels of the host keep theirs to themselves, and nobody opens a device there. */
T_CASE(hosts_are_not_asked) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=1");
    tti_blueprint *b;
    tti_calibration c = {.flops = 1e9, .bytes = 1e9};
    double spent = -1;
    T_OK(tti_job_resolve(job, 1));
    T_OK(tti_blueprint_create(job, &b));
    T_OK(tti_scratch_ask(b, &c, 1, &spent));
    assert_true(c.n_scratch == 0 && spent == 0);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_or_scaled),
        cmocka_unit_test(hosts_are_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
