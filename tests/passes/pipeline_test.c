/* pipeline_test.c - the order of the passes, and the verifier between them. */
#include "passes/nets.h"

T_CASE(passes_stand_in_their_order) {
    T_UNUSED;
    static const char *const names[] = {
        "simplify", "recognize", "tensor", "products", "precision", "assign_stages", "autodiff",
        "split",    "stages",    "layout", "fuse",     "schedule",  "recompute"};
    for (int i = 0; i < (int)TTI_COUNT(names); i++) {
        assert_string_equal(tti_pass_at(i)->name, names[i]);
        assert_true(tti_pass_at(i)->doc[0] && tti_pass_at(i)->run);
    }
    assert_null(tti_pass_at(TTI_COUNT(names)));
    assert_null(tti_pass_at(-1));
}

/* The graph after each pass: only passes up to it have run. */
T_CASE(it_stops_where_it_should) {
    T_UNUSED;
    for (int i = 0; tti_pass_at(i); i++) {
        tutti_graph *g = net_lenet(true);
        T_OK(tti_pipeline_run(&g, &net_fast, tti_pass_at(i)->name));
        T_EQ(tti_graph_output(g, "grad.fc1.weight") != NULL, i >= 6);
        T_EQ(net_count_ops(g, "to_layout") > 0, i >= 9);
        T_EQ(net_count_ops(g, "relu") == 0, i >= 10);
        tutti_graph_destroy(g);
    }
}

/* In runs of some passes each, with the verifier after all of them too. */
T_CASE(it_goes_on_where_it_stopped) {
    T_UNUSED;
    tutti_graph *whole = net_lenet(true), *g = net_lenet(true);
    T_OK(tti_pipeline_run(&whole, &net_fast, NULL));
    T_OK(tti_pipeline_between(&g, &net_fast, NULL, "autodiff"));
    assert_null(tti_graph_output(g, "grad.fc1.weight"));
    T_OK(tti_pipeline_between(&g, &net_fast, "autodiff", "fuse"));
    assert_non_null(tti_graph_output(g, "grad.fc1.weight"));
    assert_true(net_count_ops(g, "relu") > 0);
    T_OK(tti_pipeline_between(&g, &net_fast, "fuse", NULL));
    tti_str a = {0}, b = {0};
    tti_graph_print(whole, &a);
    tti_graph_print(g, &b);
    assert_string_equal(tti_str_text(&a), tti_str_text(&b));
    tti_str_free(&a);
    tti_str_free(&b);
    tutti_graph_destroy(whole);
    tutti_graph_destroy(g);
}

T_CASE(an_unknown_pass_is_an_error) {
    T_UNUSED;
    tutti_graph *g = net_mlp(true);
    T_FAILS(tti_pipeline_run(&g, &net_plain, "polish"), TUTTI_E_INVALID,
            "no pass is called 'polish'");
    tutti_graph_destroy(g);
}

T_CASE(a_failed_graph_is_not_worked_on) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "loss_sum", tutti_matmul(g, net_x(g), net_image(g, 1)));
    T_FAILS(tti_pipeline_run(&g, &net_plain, NULL), TUTTI_E_INVALID, "the name is taken");
    tutti_graph_destroy(g);
}

T_CASE(a_refusal_is_passed_up) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 3, "fc");
    tutti_output(g, "loss_sum", tutti_sum(g, tutti_softmax(g, x, 0), NULL));
    T_FAILS(tti_pipeline_run(&g, &net_plain, NULL), TUTTI_E_UNSUPPORTED, "softmax");
    tutti_graph_destroy(g);
}

/* An op that changes its mind stands for a pass that leaves a broken graph behind. */
static int n_asked, n_honest;

static tutti_status fickle_infer(const tti_node *node, tutti_type *out) {
    out[0] = node->in[0]->type;
    if (n_asked++ >= n_honest) out[0].shape = TUTTI_SHAPE(1);
    return TUTTI_OK;
}

T_CASE(the_verifier_runs_before_and_after) {
    T_UNUSED;
    tti_op fickle = *tti_op_find("tanh");
    fickle.infer = fickle_infer;
    for (int later = 0; later < 2; later++) {
        /* asked when built; before the passes; for the two sweeps of simplify; after it */
        n_asked = 0, n_honest = later ? 4 : 1;
        tutti_graph *g = tutti_graph_create(false);
        tutti_value *x = net_x(g);
        tti_node *node =
            tti_graph_add(g, &(tti_node_desc){.op = &fickle, .name = "f", .in = &x, .n_in = 1});
        tutti_output(g, "y", node->out[0]);
        T_FAILS(tti_pipeline_run(&g, &net_plain, NULL), TUTTI_E_INTERNAL,
                later ? "after pass simplify: verify: node 1 tanh 'f'" : "verify: node 1 tanh 'f'");
        if (!later) assert_null(strstr(tutti_last_error(), "after pass"));
        tutti_graph_destroy(g);
    }
}

T_CASE(a_whole_run_keeps_the_results) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++)
        for (int training = 0; training < 2; training++) {
            tutti_graph *plain = net_all[i](training), *g = net_all[i](training);
            T_OK(tti_pipeline_run(&plain, &net_plain, "autodiff"));
            T_OK(tti_pipeline_run(&g, &net_fast, NULL));
            net_expect_equal(plain, g);
            tutti_graph_destroy(plain);
            tutti_graph_destroy(g);
        }
}

/* The text form of what the passes make, up to the last that may be printed and read back. */
T_CASE(rewritten_graphs_read_back) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *g = net_all[i](true), *back;
        T_OK(tti_pipeline_run(&g, &net_fast, "layout"));
        tti_str first = {0}, second = {0};
        tti_graph_print(g, &first);
        T_OK(tutti_graph_parse(tti_str_text(&first), "text", &back));
        T_OK(tti_graph_verify(back));
        tti_graph_print(back, &second);
        T_EQ(g->n_nodes, back->n_nodes);
        net_expect_equal(g, back);
        tutti_graph *again;
        T_OK(tutti_graph_parse(tti_str_text(&second), "text", &again));
        tti_str third = {0};
        tti_graph_print(again, &third);
        assert_string_equal(tti_str_text(&second), tti_str_text(&third));
        tti_str_free(&first);
        tti_str_free(&second);
        tti_str_free(&third);
        tutti_graph_destroy(g);
        tutti_graph_destroy(back);
        tutti_graph_destroy(again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_stand_in_their_order),
        cmocka_unit_test(it_stops_where_it_should),
        cmocka_unit_test(it_goes_on_where_it_stopped),
        cmocka_unit_test(an_unknown_pass_is_an_error),
        cmocka_unit_test(a_failed_graph_is_not_worked_on),
        cmocka_unit_test(a_refusal_is_passed_up),
        cmocka_unit_test(the_verifier_runs_before_and_after),
        cmocka_unit_test(a_whole_run_keeps_the_results),
        cmocka_unit_test(rewritten_graphs_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
