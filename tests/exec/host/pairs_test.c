/* pairs_test.c - gradients averaged in pairs of workers: a pair trains as two workers on its
 * shards, and the pairs differ. */
#include "exec/workers.h"

T_CASE(a_pair_trains_as_two_workers) {
    T_UNUSED;
    workers pairs = {.plan = workers_plan(net_wide, "sgd", 1 << 17),
                     .n_ranks = 4,
                     .n_compute_threads = 2,
                     .n_steps = 4,
                     .exec = {.fast = true, .pairs = true}};
    workers two = {.plan = workers_plan(net_wide, "sgd", 1 << 17),
                   .n_ranks = 2,
                   .n_shards = WORKERS_SHARDS / 2,
                   .n_compute_threads = 2,
                   .n_steps = 4,
                   .exec = {.fast = true}};
    workers_run(&pairs);
    workers_run(&two);
    size_t n_bytes = pairs.plan->n_flat * sizeof(float);
    assert_true(workers_distance(&pairs, &two) < 1e-6);
    assert_memory_equal(pairs.params[1], pairs.params[0], n_bytes);
    assert_memory_equal(pairs.params[3], pairs.params[2], n_bytes);
    assert_true(memcmp(pairs.params[2], pairs.params[0], n_bytes) != 0);
    workers_fini(&pairs);
    workers_fini(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_pair_trains_as_two_workers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
