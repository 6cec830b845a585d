/* pass_cache_test.c - a plan from pass_cache is the plan that all passes would have made. */
#include "passes/pass_cache.h"

#include "passes/nets.h"

enum { N_STAGES = 2 };

static tutti_status make(tti_pass_cache *pass_cache, net_fn net, const tti_target *target,
                         tti_plan **plan) {
    static const tti_attr_arg attrs[] = {{0}};
    bool known = pass_cache && tti_pass_cache_has(pass_cache, 1, target);
    *plan = NULL;
    return tti_plan_create(&(tti_plan_desc){.train = known ? NULL : net(true),
                                            .eval = known ? NULL : net(false),
                                            .target = target,
                                            .optimizer = "sgd",
                                            .optimizer_attrs = attrs,
                                            .bucket_bytes = 1,
                                            .pass_cache = pass_cache,
                                            .number = 1},
                           plan);
}

static void expect_same_program(const tti_program *a, const tti_program *b) {
    tti_str of_a = {0}, of_b = {0};
    tti_graph_print(a->graph, &of_a);
    tti_graph_print(b->graph, &of_b);
    assert_string_equal(tti_str_text(&of_a), tti_str_text(&of_b));
    tti_str_free(&of_a);
    tti_str_free(&of_b);
    T_EQ(a->n_steps, b->n_steps);
    T_EQ(a->arena_bytes, b->arena_bytes);
    T_EQ(a->graph->n_values, b->graph->n_values);
    assert_memory_equal(a->bufs, b->bufs, (size_t)a->graph->n_values * sizeof *a->bufs);
}

static void expect_same_boundaries(const tti_stage_boundaries *a, const tti_stage_boundaries *b) {
    T_EQ(a->n, b->n);
    assert_memory_equal(a->of, b->of, (size_t)a->n * sizeof *a->of);
}

static void expect_same_stages(const tti_stages *a, const tti_stages *b) {
    T_EQ(a != NULL, b != NULL);
    if (!a) return;
    T_EQ(a->stage, b->stage);
    T_EQ(a->is_joined, b->is_joined);
    T_EQ(a->n_tied, b->n_tied);
    for (int i = 0; i < a->n_tied; i++) {
        assert_string_equal(a->tied[i].name, b->tied[i].name);
        T_EQ(a->tied[i].n_stages, b->tied[i].n_stages);
        for (int k = 0; k < a->tied[i].n_stages; k++)
            T_EQ(a->tied[i].stages[k], b->tied[i].stages[k]);
    }
    for (int q = 0; q < tti_stages_n_all_chunks(a); q++) T_NEAR(a->cost[q], b->cost[q], 0);
    expect_same_boundaries(&a->train, &b->train);
    expect_same_boundaries(&a->eval, &b->eval);
}

static void expect_same(tti_pass_cache *pass_cache, net_fn net, const tti_target *target) {
    tti_plan *whole, *drafted;
    T_OK(make(NULL, net, target, &whole));
    T_OK(make(pass_cache, net, target, &drafted));
    expect_same_program(&whole->shard, &drafted->shard);
    expect_same_program(&whole->eval, &drafted->eval);
    expect_same_stages(whole->stages, drafted->stages);
    assert_true(tti_plan_digest(whole) == tti_plan_digest(drafted));
    tti_plan_destroy(whole);
    tti_plan_destroy(drafted);
}

static tutti_graph *net_tied(bool training) { return net_same_ends(training, 0.2); }

static tutti_graph *net_joined(bool training) { return net_blocks(training, true); }

/* Each of them after the others, so that most of it is known: stages, tensor shards, recomputation.
 */
T_CASE(plans_are_as_without_a_cache) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet, net_tied, net_joined};
    static const tti_recompute ways[] = {TTI_RECOMPUTE_NONE, TTI_RECOMPUTE_LIGHT,
                                         TTI_RECOMPUTE_BLOCK};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        tti_pass_cache *pass_cache;
        T_OK(tti_pass_cache_create(&pass_cache));
        for (int n_stages = 1; n_stages <= N_STAGES; n_stages++)
            for (int stage = 0; stage < n_stages; stage++)
                for (size_t k = 0; k < TTI_COUNT(ways); k++) {
                    tti_target target = net_fast;
                    target.n_stages = n_stages, target.stage = stage;
                    target.recompute = ways[k];
                    expect_same(pass_cache, nets[i], &target);
                }
        tti_pass_cache_destroy(pass_cache);
    }
}

static tutti_graph *net_even(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 8, "fc1"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

/* The graph for evaluation is cut as the one for training was. */
T_CASE(tensor_shards_too) {
    T_UNUSED;
    tti_pass_cache *pass_cache;
    T_OK(tti_pass_cache_create(&pass_cache));
    for (int again = 0; again < 2; again++)
        for (int tensor = 0; tensor < 2; tensor++) {
            tti_target target = net_fast;
            target.n_tensor = 2, target.tensor = tensor;
            target.recompute = again ? TTI_RECOMPUTE_LIGHT : TTI_RECOMPUTE_NONE;
            expect_same(pass_cache, net_even, &target);
        }
    tti_pass_cache_destroy(pass_cache);
}

/* The cache answers for another stage without a graph, but not for another number of stages. */
T_CASE(what_is_known) {
    T_UNUSED;
    tti_pass_cache *pass_cache;
    tti_plan *plan;
    tti_target target = net_fast;
    target.n_stages = N_STAGES;
    T_OK(tti_pass_cache_create(&pass_cache));
    assert_false(tti_pass_cache_has(pass_cache, 1, &target));
    T_OK(make(pass_cache, net_lenet, &target, &plan));
    tti_plan_destroy(plan);
    target.stage = 1;
    target.recompute = TTI_RECOMPUTE_BLOCK;
    target.keeps_low_copies = true;
    assert_true(tti_pass_cache_has(pass_cache, 1, &target));
    assert_false(tti_pass_cache_has(pass_cache, 2, &target));
    target.low_precision_residual = true;
    assert_false(tti_pass_cache_has(pass_cache, 1, &target));
    target.low_precision_residual = false, target.n_stages = 1;
    assert_false(tti_pass_cache_has(pass_cache, 1, &target));
    tti_pass_cache_destroy(pass_cache);
}

T_CASE(a_failure_is_kept) {
    T_UNUSED;
    tti_pass_cache *pass_cache;
    tti_plan *plan;
    tti_target target = net_fast;
    target.n_stages = 8;
    T_OK(tti_pass_cache_create(&pass_cache));
    for (target.stage = 0; target.stage < 3; target.stage++) {
        T_EQ(tti_pass_cache_has(pass_cache, 1, &target), target.stage > 0);
        T_FAILS(make(pass_cache, net_mlp, &target, &plan), TUTTI_E_INVALID, "at most 2 stages");
        tti_clear_error();
    }
    tti_pass_cache_destroy(pass_cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_as_without_a_cache),
        cmocka_unit_test(tensor_shards_too),
        cmocka_unit_test(what_is_known),
        cmocka_unit_test(a_failure_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
