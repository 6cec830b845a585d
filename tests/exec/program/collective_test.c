/* collective_test.c - workers of a tensor axis train what one worker would have: losses, norms and
 * parameters, alone and with workers that divide the batch. */
#include "exec/program/collective.h"

#include "exec/grid_workers.h"

enum { SIDE_CHANNELS = 8 };

static tutti_graph *blocks(bool training) { return net_blocks_of(SIDE_CHANNELS, training, false); }

static tutti_graph *mlp(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_gelu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_dropout(g, x, 0.3, "drop");
    x = tutti_layer_norm(g, tutti_linear(g, x, 8, "fc2"), NULL, "norm");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
}

/* Classes divide too. */
static tutti_graph *wide(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_linear(g, x, 512, "fc2");
    return net_finish(g, x);
}

static tti_plan *plan_of(net_fn net, int n, int index) {
    return grid_plan(net, &(tti_mesh_at){1, 1, n}, &(tti_mesh_at){0, 0, index}, NULL, 1);
}

static grid run_grid(net_fn net, int n_data, int n_tensor, const tti_plan *whole) {
    grid g = {.size = {n_data, 1, n_tensor}};
    grid_run(&g, net, whole);
    return g;
}

T_CASE(they_train_as_one) {
    T_UNUSED;
    static const net_fn nets[] = {mlp, blocks, wide};
    static const int sizes[][2] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        grid one = run_grid(nets[i], 1, 1, NULL);
        for (size_t s = 0; s < TTI_COUNT(sizes); s++) {
            grid g = run_grid(nets[i], sizes[s][0], sizes[s][1], one.whole);
            grid_expect_near(&g, &one);
            assert_true(g.plans[0]->n_params < one.plans[0]->n_params);
            grid_fini(&g);
        }
        grid_fini(&one);
    }
}

/* The same sums in the same order, whatever comes between: the same bits again. */
T_CASE(they_do_so_again_with_the_same_bits) {
    T_UNUSED;
    tti_plan *whole = plan_of(blocks, 1, 0);
    grid a = run_grid(blocks, 1, 4, whole), b = run_grid(blocks, 2, 4, whole);
    for (int s = 0; s < GRID_STEPS; s++)
        assert_true(a.result[0][s].params_hash == b.result[0][s].params_hash);
    grid_fini(&a);
    grid_fini(&b);
    tti_plan_destroy(whole);
}

/* A shard on each compute thread, and each compute thread has a collective with its like: the bits
 * of one compute thread, also where workers could have unequally many, and in stages. */
T_CASE(compute_threads_exchange_beside_each_other) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}};
    tti_plan *whole = plan_of(blocks, 1, 0);
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        grid one = {.size = sizes[i], .n_compute_threads = 1};
        grid_run(&one, blocks, whole);
        static const grid others[] = {{.n_compute_threads = 4},
                                      {.n_compute_threads = 2, .uneven = true}};
        for (size_t k = 0; k < TTI_COUNT(others); k++) {
            grid g = others[k];
            g.may_differ = true;
            g.size = sizes[i];
            grid_run(&g, blocks, whole);
            for (int s = 0; s <= GRID_STEPS; s++) {
                T_EQ(g.result[0][s].params_hash == one.result[0][s].params_hash, true);
                T_EQ(g.result[0][s].loss_sum == one.result[0][s].loss_sum, true);
            }
            assert_memory_equal(g.params, one.params, whole->n_flat * sizeof *g.params);
            grid_fini(&g);
        }
        grid_fini(&one);
    }
    tti_plan_destroy(whole);
}

T_CASE(a_plan_of_another_axis_is_refused) {
    T_UNUSED;
    tti_plan *plan = plan_of(mlp, 2, 1);
    tti_exec *exec;
    tti_exec_desc desc = {.plan = plan,
                          .backend = &tti_backend_cpu,
                          .n_shards = 1,
                          .n_compute_threads = 1,
                          .seed = 7};
    T_FAILS(tti_exec_create(&desc, &exec), TUTTI_E_INVALID,
            "belongs to worker 1 of 2 of another axis");
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_train_as_one),
        cmocka_unit_test(they_do_so_again_with_the_same_bits),
        cmocka_unit_test(compute_threads_exchange_beside_each_other),
        cmocka_unit_test(a_plan_of_another_axis_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
