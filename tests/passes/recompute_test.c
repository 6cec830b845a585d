/* recompute_test.c - the same results to the last bit in fewer bytes. */
#include <stdlib.h>

#include "passes/deep_nets.h"

static tutti_graph *scheduled(net_fn net, const tti_target *base, tti_recompute mode,
                              size_t budget) {
    tutti_graph *g = net(true);
    tti_target target = *base;
    target.recompute = mode;
    target.recompute_bytes = budget;
    T_OK(tti_pipeline_run(&g, &target, NULL));
    return g;
}

static size_t peak_of(const tutti_graph *g) {
    size_t n_bytes;
    T_OK(tti_graph_peak_bytes(g, &n_bytes));
    return n_bytes;
}

static void expect_same_bits(const tutti_graph *g, const tutti_graph *other) {
    t_reference *r = net_evaluate(g), *s = net_evaluate(other);
    T_EQ(g->n_outputs, other->n_outputs);
    for (int i = 0; i < g->n_outputs; i++) {
        const tutti_value *a = g->outputs[i].value;
        const tutti_value *b = tti_graph_output(other, g->outputs[i].name);
        size_t n_bytes = (size_t)tti_value_n_elems(a) * sizeof(double);
        assert_memory_equal(t_reference_of(r, a), t_reference_of(s, b), n_bytes);
    }
    t_reference_destroy(r);
    t_reference_destroy(s);
}

T_CASE(the_bits_stay) {
    T_UNUSED;
    static const tti_target *const targets[] = {&net_plain, &net_fast};
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++)
        for (size_t t = 0; t < TTI_COUNT(targets); t++) {
            tutti_graph *none = scheduled(net_deep[n], targets[t], TTI_RECOMPUTE_NONE, 0);
            tutti_graph *block = scheduled(net_deep[n], targets[t], TTI_RECOMPUTE_BLOCK, 0);
            expect_same_bits(none, block);
            assert_true(peak_of(block) <= peak_of(none));
            if (net_deep[n] == net_residual && targets[t]->fuse) /* chains run again too */
                assert_true(net_count_ops(block, "fused") > net_count_ops(none, "fused"));
            tutti_graph_destroy(none);
            tutti_graph_destroy(block);
        }
}

/* Gradients become ready in the same order, so the flat arrays are laid out alike. */
T_CASE(slots_stay_where_they_are) {
    T_UNUSED;
    tti_target block = net_fast;
    block.recompute = TTI_RECOMPUTE_BLOCK;
    tti_plan *a = net_plan(net_chain, &net_fast, 1024), *b = net_plan(net_chain, &block, 1024);
    T_EQ(a->n_slots, b->n_slots);
    assert_true(b->shard.n_steps > a->shard.n_steps);
    for (int i = 0; i < a->n_slots; i++) {
        assert_string_equal(a->slots[i].param->name, b->slots[i].param->name);
        T_EQ(a->slots[i].first, b->slots[i].first);
    }
    tti_plan_destroy(a);
    tti_plan_destroy(b);
}

T_CASE(deep_networks_need_far_less) {
    T_UNUSED;
    static const struct {
        net_fn net;
        double share; /* of the peak without */
    } rows[] = {{net_chain, 0.6}, {net_residual, 0.45}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tutti_graph *none = scheduled(rows[i].net, &net_plain, TTI_RECOMPUTE_NONE, 0);
        tutti_graph *block = scheduled(rows[i].net, &net_plain, TTI_RECOMPUTE_BLOCK, 0);
        assert_true((double)peak_of(block) <= rows[i].share * (double)peak_of(none));
        tutti_graph_destroy(none);
        tutti_graph_destroy(block);
    }
}

/* Nothing runs a third time, and each dropout draws by the key of its layer both times. */
T_CASE(no_node_runs_more_than_twice) {
    T_UNUSED;
    tutti_graph *g = scheduled(net_chain, &net_plain, TTI_RECOMPUTE_BLOCK, 0);
    int n_twice = 0;
    for (int i = 0; i < DEEP_LAYERS; i++) {
        char name[32];
        int n = 0;
        snprintf(name, sizeof name, "drop%d", i);
        const tti_node *first = net_find(g, "dropout", name);
        for (int k = 0; k < g->n_nodes; k++) {
            const tti_node *node = g->nodes[k];
            if (node->op != first->op || strcmp(node->name, name) != 0) continue;
            T_EQ(tti_attr_int(node, "key"), tti_attr_int(first, "key"));
            n++;
        }
        assert_true(n <= 2);
        n_twice += n == 2;
    }
    assert_true(n_twice > DEEP_LAYERS / 2);
    tutti_graph_destroy(g);
}

/* No convolution runs again, and what does saves bytes; without anything light nothing changes. */
T_CASE(light_makes_only_cheap_nodes_again) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++) {
        tutti_graph *none = scheduled(net_deep[n], &net_fast, TTI_RECOMPUTE_NONE, 0);
        tutti_graph *light = scheduled(net_deep[n], &net_fast, TTI_RECOMPUTE_LIGHT, 0);
        expect_same_bits(none, light);
        T_EQ(net_count_ops(light, "conv2d"), net_count_ops(none, "conv2d"));
        if (light->n_nodes > none->n_nodes)
            assert_true(peak_of(light) < peak_of(none));
        else
            T_EQ(peak_of(light), peak_of(none));
        if (net_deep[n] == net_resnet) { /* batch norm, residual and activation, as one node */
            assert_true(net_count_ops(light, "bn_apply") > net_count_ops(none, "bn_apply"));
            assert_true((double)peak_of(light) <= 0.9 * (double)peak_of(none));
        }
        tutti_graph_destroy(none);
        tutti_graph_destroy(light);
    }
}

T_CASE(evaluation_keeps_nothing_anyway) {
    T_UNUSED;
    tti_target target = {.recompute = TTI_RECOMPUTE_BLOCK};
    tutti_graph *g = net_chain(false);
    T_OK(tti_pass_simplify(&g, &target));
    int n_nodes = g->n_nodes;
    T_OK(tti_pass_recompute(&g, &target));
    T_EQ(g->n_nodes, n_nodes);
    tutti_graph_destroy(g);
}

T_CASE(a_budget_is_kept) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++) {
        tutti_graph *none = scheduled(net_deep[n], &net_plain, TTI_RECOMPUTE_NONE, 0);
        tutti_graph *block = scheduled(net_deep[n], &net_plain, TTI_RECOMPUTE_BLOCK, 0);
        size_t high = peak_of(none), low = peak_of(block);
        for (int i = 0; i <= 4; i++) {
            size_t budget = low + (high - low) * (size_t)i / 4;
            tutti_graph *g = scheduled(net_deep[n], &net_plain, TTI_RECOMPUTE_BUDGET, budget);
            assert_true(peak_of(g) <= budget);
            expect_same_bits(none, g);
            if (i == 4) T_EQ(g->n_nodes, none->n_nodes); /* there is room for everything */
            tutti_graph_destroy(g);
        }
        tutti_graph_destroy(none);
        tutti_graph_destroy(block);
    }
}

static double flops_of(const tutti_graph *g) {
    double sum = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        tti_cost cost = {0};
        if (g->nodes[i]->op->cost) g->nodes[i]->op->cost(g->nodes[i], &cost);
        sum += cost.flops;
    }
    return sum;
}

/* Cheap results go first: a little less memory costs no product of matrices. */
T_CASE(cheap_operations_go_first) {
    T_UNUSED;
    tutti_graph *none = scheduled(net_residual, &net_plain, TTI_RECOMPUTE_NONE, 0);
    size_t budget = peak_of(none) * 9 / 10;
    tutti_graph *g = scheduled(net_residual, &net_plain, TTI_RECOMPUTE_BUDGET, budget);
    tutti_graph *block = scheduled(net_residual, &net_plain, TTI_RECOMPUTE_BLOCK, 0);
    T_EQ(net_count_ops(g, "linear"), net_count_ops(none, "linear"));
    assert_true(net_count_ops(g, "gelu") + net_count_ops(g, "sigmoid") > DEEP_LAYERS);
    assert_true(flops_of(g) < flops_of(block));
    tutti_graph_destroy(none);
    tutti_graph_destroy(g);
    tutti_graph_destroy(block);
}

T_CASE(a_budget_that_cannot_be_kept_is_refused) {
    T_UNUSED;
    tutti_graph *g = net_chain(true);
    tti_target target = {.recompute = TTI_RECOMPUTE_BUDGET, .recompute_bytes = 64};
    T_FAILS(tti_pipeline_run(&g, &target, NULL), TUTTI_E_INVALID,
            "cannot be reduced to 64 bytes; give at least ");
    size_t least = (size_t)strtoull(strstr(tutti_last_error(), "at least ") + 9, NULL, 10);
    tutti_graph_destroy(g);
    g = scheduled(net_chain, &net_plain, TTI_RECOMPUTE_BUDGET, least); /* what it says is true */
    assert_true(peak_of(g) <= least);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_stay),
        cmocka_unit_test(slots_stay_where_they_are),
        cmocka_unit_test(deep_networks_need_far_less),
        cmocka_unit_test(no_node_runs_more_than_twice),
        cmocka_unit_test(light_makes_only_cheap_nodes_again),
        cmocka_unit_test(evaluation_keeps_nothing_anyway),
        cmocka_unit_test(a_budget_is_kept),
        cmocka_unit_test(cheap_operations_go_first),
        cmocka_unit_test(a_budget_that_cannot_be_kept_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
