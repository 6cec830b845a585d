/* plan_test.c - the whole plan: what runs, and two graphs that must agree on their parameters. */
#include "passes/nets.h"

T_CASE(sources_and_views_do_not_run) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_fast, 1 << 20);
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    for (int p = 0; p < 2; p++) {
        int n = 0;
        for (int i = 0; i < programs[p]->graph->n_nodes; i++) {
            const tti_node *node = programs[p]->graph->nodes[i];
            if (node->op->traits & (TTI_SOURCE | TTI_VIEW)) continue;
            assert_ptr_equal(programs[p]->steps[n++], node);
        }
        T_EQ(programs[p]->n_steps, n);
        T_EQ(programs[p]->n_inputs, 2);
    }
    assert_true(plan->eval.n_steps < plan->shard.n_steps);
    tti_plan_destroy(plan);
}

T_CASE(names_are_found) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_plain, 1 << 20);
    int at = tti_plan_find_slot(plan, "fc1.weight");
    assert_string_equal(plan->slots[at].param->name, "fc1.weight");
    T_EQ(tti_plan_find_slot(plan, "fc1"), -1);
    T_EQ(tti_program_input(&plan->shard, "fc1.weight"), -1); /* a parameter */
    T_EQ(tti_program_input(&plan->shard, "y"), -1);
    assert_true(tti_program_input(&plan->eval, "target") >= 0);
    tti_plan_destroy(plan);
}

static tutti_status plan_of(tutti_graph *train, tutti_graph *eval, tti_plan **out) {
    tti_attr_arg none[] = {{0}};
    return tti_plan_create(&(tti_plan_desc){.train = train,
                                            .eval = eval,
                                            .target = &net_plain,
                                            .optimizer = "sgd",
                                            .optimizer_attrs = none,
                                            .bucket_bytes = 1 << 20},
                           out);
}

static tutti_graph *one_layer(bool training, int64_t n_out, const char *name) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), n_out, name);
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

T_CASE(both_graphs_have_the_same_parameters) {
    T_UNUSED;
    tti_plan *plan;
    T_FAILS(plan_of(one_layer(true, 3, "fc"), one_layer(false, 4, "fc"), &plan), TUTTI_E_INVALID,
            "plan: parameter 'fc.weight' differs between training and evaluation");
    assert_null(plan);
    T_FAILS(plan_of(one_layer(true, 3, "fc"), one_layer(false, 3, "fd"), &plan), TUTTI_E_INVALID,
            "plan: parameter 'fd.weight' differs between training and evaluation");
    T_OK(plan_of(one_layer(true, 3, "fc"), NULL, &plan)); /* without evaluation */
    assert_null(plan->eval.graph);
    tti_plan_destroy(plan);
}

T_CASE(failures_of_passes_come_through) {
    T_UNUSED;
    tti_plan *plan;
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "loss_sum", tutti_relu(g, NULL));
    T_FAILS(plan_of(g, net_mlp(false), &plan), TUTTI_E_INVALID, "relu '': input 0 is missing");
    g = tutti_graph_create(true);
    tutti_linear(g, net_x(g), 0, "fc");
    T_FAILS(plan_of(g, net_mlp(false), &plan), TUTTI_E_INVALID, "linear 'fc'");
    g = tutti_graph_create(false);
    tutti_linear(g, net_x(g), 0, "eval_fc");
    T_FAILS(plan_of(net_mlp(true), g, &plan), TUTTI_E_INVALID, "linear 'eval_fc'");
    assert_null(plan);
    tti_plan_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_and_views_do_not_run),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(both_graphs_have_the_same_parameters),
        cmocka_unit_test(failures_of_passes_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
