/* exec_test.c - a worker as it is made: its shards, its memory. */
#include "exec/workers.h"

T_CASE(memory_is_reported) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_fast, 1 << 20);
    size_t flat = plan->n_flat * sizeof(float);
    tti_exec *exec = workers_exec(plan, 2);
    tti_exec_memory use = tti_exec_memory_use(exec);
    T_EQ(use.params, flat);
    T_EQ(use.states, flat); /* sgd keeps one */
    assert_true(use.grads >= 2 * flat && use.grads <= 5 * flat);
    T_EQ(use.arena, 2 * TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes));
    tti_exec_destroy(exec);
    exec = workers_exec(plan, 100); /* no more compute threads than shards */
    T_EQ(tti_exec_memory_use(exec).grads, WORKERS_SHARDS * flat);
    tti_exec_destroy(exec);
    tti_plan_destroy(plan);
    tti_exec_destroy(NULL);
}

static const char *check_shards(workers *c, tti_exec *exec, int rank) {
    COMM_TRUE(tti_exec_first_shard(exec) == tti_shard_first(rank, c->n_ranks, WORKERS_SHARDS));
    COMM_TRUE(tti_exec_last_shard(exec) == tti_shard_first(rank + 1, c->n_ranks, WORKERS_SHARDS));
    return NULL;
}

T_CASE(shards_are_assigned) {
    T_UNUSED;
    for (int n_ranks = 1; n_ranks <= 5; n_ranks++) {
        workers c = {
            .net = net_mlp, .target = &net_fast, .n_ranks = n_ranks, .n_compute_threads = 1};
        c.fn = check_shards;
        workers_run(&c);
        for (int r = 1; r < n_ranks; r++) /* everybody starts from the same bits */
            assert_memory_equal(c.params[r], c.params[0], c.plan->n_flat * sizeof(float));
        workers_fini(&c);
    }
}

static const char *create_with_two_shards(tutti_comm *comm, void *arg) {
    tti_exec *exec = (tti_exec *)arg;
    COMM_FAILS(tti_exec_create(&(tti_exec_desc){.plan = arg,
                                                .backend = &tti_backend_cpu,
                                                .comm = comm,
                                                .n_shards = 2,
                                                .n_compute_threads = 1},
                               &exec),
               TUTTI_E_INVALID, "exec: 2 shards for 3 ranks");
    COMM_TRUE(!exec);
    return NULL;
}

T_CASE(shards_must_be_a_power_of_two_and_enough) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_mlp, &net_plain, 1 << 20);
    static const int bad[] = {0, -1, 3, 6, 12, INT32_MIN, INT32_MAX, TTI_MAX_SHARDS * 2};
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        tti_exec *exec = (tti_exec *)plan;
        T_FAILS(tti_exec_create(&(tti_exec_desc){.plan = plan,
                                                 .backend = &tti_backend_cpu,
                                                 .n_shards = bad[i],
                                                 .n_compute_threads = 1},
                                &exec),
                TUTTI_E_INVALID, "expected a power of two");
        assert_null(exec);
    }
    comm_run(3, create_with_two_shards, plan);
    tti_plan_destroy(plan);
}

static tutti_graph *net_without_x(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_input(g, "pixels", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 6));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc"));
}

T_CASE(a_graph_needs_its_inputs) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_without_x, &net_plain, 1 << 20);
    tti_exec *exec;
    T_FAILS(
        tti_exec_create(
            &(tti_exec_desc){
                .plan = plan, .backend = &tti_backend_cpu, .n_shards = 1, .n_compute_threads = 1},
            &exec),
        TUTTI_E_INVALID, "exec: the graph needs samples ('x') and the input 'target'");
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_reported),
        cmocka_unit_test(shards_are_assigned),
        cmocka_unit_test(shards_must_be_a_power_of_two_and_enough),
        cmocka_unit_test(a_graph_needs_its_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
