/* first_params_test.c - what a worker starts from: numbers of the seed, by any number of compute
 * threads. */
#include "exec/workers.h"
#include "ops/init.h"

T_CASE(parameters_start_as_the_seed_says) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_fast, 1 << 20);
    float *want = calloc(plan->n_flat, sizeof *want);
    for (int i = 0; i < plan->n_slots; i++)
        tti_init_param(plan->slots[i].param, 7, want + plan->slots[i].first);
    for (int n_compute_threads = 1; n_compute_threads <= 3; n_compute_threads++) {
        tti_exec *exec = workers_exec(plan, n_compute_threads);
        assert_memory_equal(tti_exec_params(exec), want, plan->n_flat * sizeof *want);
        assert_memory_equal(tti_exec_ema(exec), want, plan->n_flat * sizeof *want);
        for (size_t i = 0; i < plan->n_flat; i++) T_NEAR(tti_exec_state(exec, 0)[i], 0, 0);
        tti_exec_destroy(exec);
    }
    free(want);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_start_as_the_seed_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
