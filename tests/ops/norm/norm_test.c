/* norm_test.c - builders of layer, RMS and group norm, and rows of equal elements. */
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

static tutti_value *input(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 6, 4));
}

static void expect_param(const tutti_graph *g, const char *name, int64_t n, double value) {
    const tti_node *param = tti_graph_find_source(g, name);
    assert_non_null(param);
    assert_true(tti_shape_equal(&param->out[0]->type.shape, &TUTTI_SHAPE(n)));
    T_NEAR(tti_attr_int(param, "init") == TUTTI_INIT_ZEROS ? 0 : tti_attr_float(param, "a"), value,
           0);
    T_EQ(tti_attr_int(param, "decay"), 0);
}

T_CASE(builders_make_parameters) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = input(g);
    tutti_value *y = tutti_layer_norm(g, x, NULL, "ln");
    tutti_layer_norm(g, x, &(tutti_norm_desc){.no_bias = true, .eps = 1e-6}, "bare");
    tutti_rms_norm(g, x, NULL, "rms");
    tutti_group_norm(g, x, 3, NULL, "gn");
    T_OK(tutti_graph_check(g));
    T_NEAR(tti_attr_float(y->node, "eps"), 1e-5, 0);
    expect_param(g, "ln.weight", 4, 1);
    expect_param(g, "ln.bias", 4, 0);
    expect_param(g, "bare.weight", 4, 1);
    assert_null(tti_graph_find_source(g, "bare.bias"));
    expect_param(g, "rms.weight", 4, 1);
    assert_null(tti_graph_find_source(g, "rms.bias"));
    expect_param(g, "gn.weight", 6, 1);
    expect_param(g, "gn.bias", 6, 0);
    tutti_graph_destroy(g);
}

T_CASE(equal_elements_give_the_bias) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = input(g), *y = tutti_layer_norm(g, x, NULL, "ln"), *dx[3] = {NULL};
    T_OK(y->node->op->grad(g, y->node, &x, (bool[]){true, true, true}, dx));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < 48; i++) t_reference_of(r, x)[i] = 7;
    for (int i = 0; i < 4; i++) t_reference_of(r, y->node->in[2])[i] = i;
    t_reference_run(r, &(tti_run){0});
    for (int i = 0; i < 48; i++) {
        T_NEAR(t_reference_of(r, y)[i], i % 4, 0);
        assert_true(isfinite(t_reference_of(r, dx[0])[i]));
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(bad_layers_are_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_group_norm(g, input(g), 4, NULL, "gn1"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "group_norm 'gn1': groups 4 must divide 6");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_value *scalar = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    assert_null(tutti_layer_norm(g, scalar, NULL, "ln2"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "layer_norm 'ln2': input f32[] has no features");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builders_make_parameters),
        cmocka_unit_test(equal_elements_give_the_bias),
        cmocka_unit_test(bad_layers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
