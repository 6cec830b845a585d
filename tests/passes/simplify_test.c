/* simplify_test.c - what goes: dead nodes, twins, identities; what must stay. */
#include "passes/nets.h"

T_CASE(dead_nodes_go_and_sources_stay) {
    T_UNUSED;
    tutti_graph *g = net_mlp(true);
    tutti_tanh(g, tutti_relu(g, tti_graph_find_source(g, "x")->out[0]));
    tutti_param(g, "spare", &TUTTI_SHAPE(3), NULL, true);
    tutti_input(g, "spare_input", TUTTI_F32, &TUTTI_SHAPE(3));
    tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(3), 1);
    T_OK(tti_pass_simplify(&g, &net_plain));
    T_OK(tti_graph_verify(g));
    T_EQ(net_count_ops(g, "tanh"), 0);
    T_EQ(net_count_ops(g, "relu"), 1);
    T_EQ(net_count_ops(g, "constant"), 0);
    assert_non_null(tti_graph_find_source(g, "spare"));
    assert_non_null(tti_graph_find_source(g, "spare_input"));
    tutti_graph *fresh = net_mlp(true);
    T_EQ(g->n_nodes, fresh->n_nodes + 2);
    tutti_graph_destroy(fresh);
    tutti_graph_destroy(g);
}

T_CASE(twins_become_one) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g);
    tutti_value *a = tutti_tanh(g, tutti_affine(g, x, 2, 1));
    tutti_value *b = tutti_tanh(g, tutti_affine(g, x, 2, 1));
    tutti_value *other = tutti_tanh(g, tutti_affine(g, x, 2, 1.5)); /* another attribute */
    tutti_output(g, "y", tutti_sub(g, tutti_add(g, a, b), other));
    T_OK(tti_pass_simplify(&g, &net_plain));
    T_EQ(net_count_ops(g, "affine"), 2);
    T_EQ(net_count_ops(g, "tanh"), 2);
    const tti_node *add = net_find(g, "add", "");
    assert_ptr_equal(add->in[0], add->in[1]);
    tutti_graph_destroy(g);
}

T_CASE(dropout_twins_of_other_names_differ) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g);
    tutti_output(g, "y",
                 tutti_add(g, tutti_dropout(g, x, 0.5, "d1"), tutti_dropout(g, x, 0.5, "d2")));
    T_OK(tti_pass_simplify(&g, &net_plain));
    T_EQ(net_count_ops(g, "dropout"), 2);
    tutti_graph_destroy(g);
}

T_CASE(outputs_that_are_sources_become_copies) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = net_x(g);
    tutti_shape shape = tutti_value_type(x).shape;
    tutti_output(g, "same", x);
    tutti_output(g, "view", tutti_reshape(g, x, &TUTTI_SHAPE(tutti_shape_n_elems(&shape))));
    tutti_output(g, "kept", tutti_dropout(g, x, 0.5, "d")); /* an identity outside of training */
    tutti_output(g, "weight", tutti_param(g, "w", &TUTTI_SHAPE(3), NULL, true));
    tutti_output(g, "whole", tutti_input(g, "ids", TUTTI_I32, &TUTTI_SHAPE(3)));
    tutti_output(g, "made", tutti_tanh(g, x));
    T_OK(tti_pass_simplify(&g, &net_plain));
    T_OK(tti_graph_verify(g));
    T_EQ(net_count_ops(g, "affine"), 4);
    T_EQ(net_count_ops(g, "concat"), 1);
    T_EQ(net_count_ops(g, "tanh"), 1);
    tutti_graph_destroy(g);
}

T_CASE(outputs_are_never_merged) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g);
    tutti_output(g, "grad.a", tutti_tanh(g, x));
    tutti_output(g, "grad.b", tutti_tanh(g, x));
    T_OK(tti_pass_simplify(&g, &net_plain));
    assert_ptr_not_equal(tti_graph_output(g, "grad.a"), tti_graph_output(g, "grad.b"));
    tutti_graph_destroy(g);
}

/* Two layers on shared weights with biases of their own: the nodes that make both gradients are
 * twins, of which the second result alone is an output. */
T_CASE(second_outputs_are_never_merged) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(NET_CLASSES, 6), &init, true), *x = net_x(g);
    tutti_value *b[2] = {tutti_param(g, "b0", &TUTTI_SHAPE(NET_CLASSES), &init, false),
                         tutti_param(g, "b1", &TUTTI_SHAPE(NET_CLASSES), &init, false)};
    tutti_value *y[2];
    for (int i = 0; i < 2; i++)
        y[i] = tti_emit(g, "linear", "shared", (tutti_value *[]){x, w, b[i]}, 3, NULL);
    net_finish(g, tutti_add(g, y[0], y[1]));
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_OK(tti_pass_simplify(&g, &net_plain));
    assert_ptr_not_equal(tti_graph_output(g, "grad.b0"), tti_graph_output(g, "grad.b1"));
    tutti_graph_destroy(g);
}

T_CASE(identities_go) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_flatten(g, tutti_flatten(g, net_image(g, 2)));
    tutti_output(g, "y", tutti_tanh(g, tutti_reshape(g, x, &x->type.shape)));
    T_OK(tti_pass_simplify(&g, &net_plain));
    T_EQ(net_count_ops(g, "reshape"), 1); /* the one that changes the shape */
    T_EQ(g->n_nodes, 3);
    tutti_graph_destroy(g);
}

T_CASE(dropout_goes_where_nothing_is_learnt) {
    T_UNUSED;
    tutti_graph *train = net_lenet(true), *eval = net_lenet(false);
    T_OK(tti_pass_simplify(&train, &net_plain));
    T_OK(tti_pass_simplify(&eval, &net_plain));
    T_EQ(net_count_ops(train, "dropout"), 1);
    T_EQ(net_count_ops(eval, "dropout"), 0);
    tutti_graph_destroy(train);
    tutti_graph_destroy(eval);
}

T_CASE(results_stay) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *plain = net_all[i](true), *g = net_all[i](true);
        T_OK(tti_pass_autodiff(&plain, &net_plain));
        T_OK(tti_pass_autodiff(&g, &net_plain));
        T_OK(tti_pass_simplify(&g, &net_plain));
        T_OK(tti_graph_verify(g));
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_nodes_go_and_sources_stay),
        cmocka_unit_test(twins_become_one),
        cmocka_unit_test(dropout_twins_of_other_names_differ),
        cmocka_unit_test(outputs_that_are_sources_become_copies),
        cmocka_unit_test(outputs_are_never_merged),
        cmocka_unit_test(second_outputs_are_never_merged),
        cmocka_unit_test(identities_go),
        cmocka_unit_test(dropout_goes_where_nothing_is_learnt),
        cmocka_unit_test(results_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
