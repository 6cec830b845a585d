/* embed_test.c - builders of lookups, and ids outside the table. */
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

T_CASE(ids_outside_give_zeros_and_get_no_gradient) {
    T_UNUSED;
    static const int ids[4] = {2, -1, 3, 2};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *table = tutti_input(g, "table", TUTTI_F32, &TUTTI_SHAPE(3, 2));
    tutti_value *id = tutti_input(g, "ids", TUTTI_I32, &TUTTI_SHAPE(4));
    tutti_value *dy = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(4, 2), 1), *dx[2] = {NULL};
    tutti_value *y = tutti_lookup(g, table, id);
    T_OK(tutti_graph_check(g));
    T_OK(y->node->op->grad(g, y->node, &dy, (bool[]){true, false}, dx));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < 6; i++) t_reference_of(r, table)[i] = i + 1;
    for (int i = 0; i < 4; i++) t_reference_of(r, id)[i] = ids[i];
    t_reference_run(r, &(tti_run){0});
    const double want[8] = {5, 6, 0, 0, 0, 0, 5, 6}, slopes[6] = {0, 0, 0, 0, 2, 2};
    for (int i = 0; i < 8; i++) T_NEAR(t_reference_of(r, y)[i], want[i], 0);
    for (int i = 0; i < 6; i++) T_NEAR(t_reference_of(r, dx[0])[i], slopes[i], 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(embedding_makes_its_table) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *ids = tutti_input(g, "ids", TUTTI_I32, &TUTTI_SHAPE(2, 7));
    tutti_value *y =
        tutti_embedding(g, ids, &(tutti_embedding_desc){.n_rows = 50, .n_out = 8}, "wte");
    tutti_value *picked = tutti_gather(g, y, tutti_input(g, "at", TUTTI_I32, &TUTTI_SHAPE(3)), 1);
    T_OK(tutti_graph_check(g));
    assert_true(tti_shape_equal(&y->type.shape, &TUTTI_SHAPE(2, 7, 8)));
    assert_true(tti_shape_equal(&picked->type.shape, &TUTTI_SHAPE(2, 3, 8)));
    const tti_node *table = tti_graph_find_source(g, "wte.weight");
    assert_true(tti_shape_equal(&table->out[0]->type.shape, &TUTTI_SHAPE(50, 8)));
    T_EQ(tti_attr_int(table, "init"), TUTTI_INIT_NORMAL);
    T_NEAR(tti_attr_float(table, "b"), 1, 0);
    assert_null(tutti_embedding(g, ids, &(tutti_embedding_desc){.n_rows = 50}, "wpe"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "embedding 'wpe': n_rows 50 and n_out 0");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_outside_give_zeros_and_get_no_gradient),
        cmocka_unit_test(embedding_makes_its_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
