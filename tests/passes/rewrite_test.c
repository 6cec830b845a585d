/* rewrite_test.c - the bookkeeping of passes: uses, maps, outputs that follow. */
#include <stdlib.h>

#include "passes/nets.h"

T_CASE(uses_are_counted) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *y = tutti_tanh(g, x), *z = tutti_mul(g, y, y);
    tutti_output(g, "x", x);
    tutti_output(g, "z", z);
    int *n_uses = tti_count_uses(g);
    T_EQ(n_uses[x->id], 2); /* tanh, the output */
    T_EQ(n_uses[y->id], 2); /* mul reads it twice */
    T_EQ(n_uses[z->id], 1);
    free(n_uses);
    assert_ptr_equal(tti_only_user(g, x), y->node);
    assert_null(tti_only_user(g, y)); /* twice */
    assert_null(tti_only_user(g, z));
    assert_true(tti_is_output(g, x) && tti_is_output(g, z) && !tti_is_output(g, y));
    tutti_graph_destroy(g);
}

T_CASE(a_copy_is_the_same_graph) {
    T_UNUSED;
    tutti_graph *g = net_lenet(true), *before = g, *fresh = net_lenet(true);
    tti_rewrite rw;
    T_OK(tti_rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes; i++) tti_rewrite_copy(&rw, g->nodes[i]);
    T_OK(tti_rewrite_finish(&rw, &g));
    assert_ptr_not_equal(g, before);
    assert_true(g->training);
    T_OK(tti_graph_verify(g));
    net_expect_equal(fresh, g);
    tutti_graph_destroy(fresh);
    tutti_graph_destroy(g);
}

/* The type of a chain depends on its body, which is copied after the node is made. */
T_CASE(a_chain_that_ends_in_another_dtype_is_copied) {
    T_UNUSED;
    static const tti_target target = {.fuse = true, .chains_any_float = true};
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_cast(g, tutti_tanh(g, tutti_square(g, net_x(g))), TUTTI_BF16);
    tutti_output(g, "y", tutti_sum(g, tutti_cast(g, x, TUTTI_F32), &(tutti_axes){0}));
    tutti_output(g, "x", x);
    T_OK(tti_pass_fuse(&g, &target));
    tti_rewrite rw;
    T_OK(tti_rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes; i++) tti_rewrite_copy(&rw, g->nodes[i]);
    T_OK(tti_rewrite_finish(&rw, &g));
    T_EQ(tti_graph_output(g, "x")->node->n_body, 3);
    T_EQ(tti_graph_output(g, "x")->type.dtype, TUTTI_BF16);
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(a_lost_output_is_noticed_and_the_old_graph_stays) {
    T_UNUSED;
    tutti_graph *g = net_mlp(true), *before = g;
    tti_rewrite rw;
    T_OK(tti_rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "cross_entropy") != 0) tti_rewrite_copy(&rw, g->nodes[i]);
    T_FAILS(tti_rewrite_finish(&rw, &g), TUTTI_E_INTERNAL, "a rewrite lost an output");
    assert_ptr_equal(g, before);
    T_OK(tti_graph_verify(g));

    T_OK(tti_rewrite_begin(&rw, g)); /* a node whose input was dropped */
    for (int i = 0; i < g->n_nodes; i++)
        if (!(g->nodes[i]->op->traits & TTI_PARAM)) tti_rewrite_copy(&rw, g->nodes[i]);
    T_FAILS(tti_rewrite_finish(&rw, &g), TUTTI_E_INVALID, "linear 'fc1': input 1 is missing");
    assert_ptr_equal(g, before);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_are_counted),
        cmocka_unit_test(a_copy_is_the_same_graph),
        cmocka_unit_test(a_chain_that_ends_in_another_dtype_is_copied),
        cmocka_unit_test(a_lost_output_is_noticed_and_the_old_graph_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
