/* conv_test.c - the reference against PyTorch 1.13 with stride, pad, dilation and groups at once.
 */
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

T_CASE(conv2d_is_that_of_pytorch) {
    T_UNUSED;
    static const double expect[24] = {
        -0.38477811729523004, 0.4232737519639723,   -0.04918750762002316, 0.2243506633924871,
        0.9619363142996274,   1.1232242682738434,   0.00528641570394271,  0.756500915038983,
        0.06901838380342437,  0.27605894693714517,  1.1577568952736301,   1.0970110791386007,
        1.0889654014993881,   0.9208536926042483,   0.34178076505636756,  0.43261887439295177,
        0.884677260063326,    -0.06495272336696611, 1.2766312662167667,   0.8276817248637584,
        0.37438435623966454,  0.4369425570852803,   0.7201658444187483,   -0.15360297701090714};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 2, 5, 4));
    tutti_value *w = tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(4, 1, 3, 2));
    tutti_value *b = tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(4));
    const tti_attr_arg attrs[] = {TTI_INTS("stride", 2, (int64_t[]){2, 1}),
                                  TTI_INTS("pad", 2, (int64_t[]){1, 0}),
                                  TTI_INTS("dilation", 2, (int64_t[]){1, 2}),
                                  TTI_INT("groups", 2),
                                  {0}};
    tutti_value *y = tti_emit(g, "conv2d", "c", (tutti_value *[]){x, w, b}, 3, attrs);
    T_OK(tutti_graph_check(g));
    T_EQ(tti_value_n_elems(y), 24);
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < 40; i++) t_reference_of(r, x)[i] = sin(i);
    for (int i = 0; i < 24; i++) t_reference_of(r, w)[i] = cos(i);
    for (int i = 0; i < 4; i++) t_reference_of(r, b)[i] = 0.1 * (i + 1);
    t_reference_run(r, &(tti_run){0});
    for (int i = 0; i < 24; i++) T_NEAR(t_reference_of(r, y)[i], expect[i], 1e-14);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

/* A chain of rooms of numbers whose product would overflow must be refused, not computed. */
T_CASE(hostile_sizes_do_not_overflow) {
    T_UNUSED;
    const tutti_shape x = TUTTI_SHAPE(1, 1, 1, 1), w = TUTTI_SHAPE(1, 1, 1099511627776, 1);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in[2] = {tutti_input(g, "x", TUTTI_F32, &x), tutti_input(g, "w", TUTTI_F32, &w)};
    const tti_attr_arg attrs[] = {TTI_INTS("dilation", 2, (int64_t[]){1 << 24, 1 << 24}), {0}};
    assert_null(tti_emit(g, "conv2d", "c", in, 2, attrs));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "does not fit");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    in[0] = tutti_input(g, "dy", TUTTI_F32, &x);
    in[1] = tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(1, 1 << 20, 1, 1));
    const tti_attr_arg many[] = {
        TTI_INT("groups", INT64_MAX), TTI_INTS("in_hw", 2, (int64_t[]){1, 1}), {0}};
    assert_null(tti_emit(g, "conv2d_grad_x", "c", in, 2, many));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "groups");
    tutti_graph_destroy(g);
}

/* The backward pass of a layer with relu inside is that of conv2d, then relu. */
T_CASE(unneeded_gradients_are_not_emitted) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 3, 4, 4));
    tutti_value *y =
        tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = 2, .kernel = 3, .no_bias = true}, "c");
    tutti_value *dx[3] = {NULL};
    T_OK(tutti_graph_check(g));
    int before = g->n_nodes;
    T_OK(y->node->op->grad(g, y->node, &y, (bool[]){false, false}, dx));
    T_EQ(g->n_nodes, before);
    T_OK(y->node->op->grad(g, y->node, &y, (bool[]){false, true}, dx));
    T_EQ(g->n_nodes, before + 1); /* no conv2d_grad_x for the first layer */
    assert_null(dx[0]);
    assert_string_equal(dx[1]->node->name, "c");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv2d_is_that_of_pytorch),
        cmocka_unit_test(hostile_sizes_do_not_overflow),
        cmocka_unit_test(unneeded_gradients_are_not_emitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
