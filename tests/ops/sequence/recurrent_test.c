/* recurrent_test.c - builders: PyTorch's names, layers on layers with dropout between, bad ones. */
#include "ir/graph.h"
#include "t.h"
#include "tutti/ops.h"

static tutti_value *input(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 5, 3));
}

static void expect_shape(const tutti_graph *g, const char *name, const tutti_shape *shape) {
    const tti_node *param = tti_graph_find_source(g, name);
    assert_non_null(param);
    assert_true(tti_shape_equal(&param->out[0]->type.shape, shape));
    T_EQ(tti_attr_int(param, "fan_in"), 4);
    T_EQ(tti_attr_int(param, "init"), TUTTI_INIT_FAN_IN_UNIFORM);
}

T_CASE(parameters_have_the_names_of_pytorch) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    const tutti_recurrent_desc two = {.n_hidden = 4, .n_layers = 2, .dropout = 0.5};
    tutti_value *x = input(g);
    tutti_value *y = tutti_lstm(g, x, &two, "lstm");
    tutti_gru(g, x, &(tutti_recurrent_desc){.n_hidden = 4}, "gru");
    T_OK(tutti_graph_check(g));
    assert_true(tti_shape_equal(&y->type.shape, &TUTTI_SHAPE(2, 5, 4)));
    expect_shape(g, "lstm.weight_ih_l0", &TUTTI_SHAPE(16, 3));
    expect_shape(g, "lstm.weight_hh_l0", &TUTTI_SHAPE(16, 4));
    expect_shape(g, "lstm.bias_ih_l0", &TUTTI_SHAPE(16));
    expect_shape(g, "lstm.weight_ih_l1", &TUTTI_SHAPE(16, 4));
    expect_shape(g, "lstm.bias_hh_l1", &TUTTI_SHAPE(16));
    expect_shape(g, "gru.weight_ih_l0", &TUTTI_SHAPE(12, 3));
    assert_null(tti_graph_find_source(g, "gru.weight_ih_l1"));
    assert_string_equal(y->node->in[0]->node->op->name, "dropout");
    tutti_graph_destroy(g);
}

T_CASE(bad_layers_are_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_lstm(g, input(g), &(tutti_recurrent_desc){0}, "l1"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "lstm 'l1': n_hidden and n_layers must be >= 1");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_value *flat = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 5));
    assert_null(tutti_gru(g, flat, &(tutti_recurrent_desc){.n_hidden = 4}, "g1"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "gru 'g1': input must be [B,T,I], is f32[2,5]");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_names_of_pytorch),
        cmocka_unit_test(bad_layers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
