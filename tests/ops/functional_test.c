/* functional_test.c - layers on given weights are the ops that layers with own weights are, and
 * those that only exist here: windows by dimension, transposed convolutions. */
#include "tutti/functional.h"

#include "ops/built.h"
#include "reference_run.h"

static tutti_value *in(tutti_graph *g, const char *name, tutti_shape shape) {
    return tutti_input(g, name, TUTTI_F32, &shape);
}

static const char *op_of(const tutti_value *value) { return value->node->op->name; }

T_CASE(layers_are_the_usual_ops) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = in(g, "x", TUTTI_SHAPE(2, 4)), *w = in(g, "w", TUTTI_SHAPE(3, 4));
    tutti_value *v = in(g, "v", TUTTI_SHAPE(4)), *b = in(g, "b", TUTTI_SHAPE(3));
    expect_shape(tutti_linear_of(g, x, w, b), "f32[2,3]");
    T_EQ(tutti_linear_of(g, x, w, NULL)->node->n_in, 2);
    assert_string_equal(op_of(tutti_layer_norm_of(g, x, v, v, 0)), "layer_norm");
    T_NEAR(tti_attr_float(tutti_layer_norm_of(g, x, v, NULL, 0)->node, "eps"), 1e-5, 0);
    T_NEAR(tti_attr_float(tutti_rms_norm_of(g, x, NULL, 1e-3)->node, "eps"), 1e-3, 0);
    T_EQ(tutti_group_norm_of(g, x, 2, NULL, NULL, 0)->node->n_in, 3);
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

T_CASE(windows_differ_by_dimension) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = in(g, "x", TUTTI_SHAPE(1, 2, 5, 7)), *w = in(g, "w", TUTTI_SHAPE(4, 1, 1, 3));
    const tutti_window conv = {.stride = {1, 2}, .pad = {0, 1}, .groups = 2};
    const tutti_window pool = {.kernel = {2, 3}, .pad = {1, 0}};
    expect_shape(tutti_conv2d_of(g, x, w, NULL, &conv), "f32[1,4,5,4]");
    expect_shape(tutti_max_pool2d_of(g, x, &pool), "f32[1,2,3,2]");
    expect_shape(tutti_avg_pool2d_of(g, x, &pool, true), "f32[1,2,3,2]");
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

/* y[p] = sum over i of x[i] w[p - 2 i]: a stride of 2 scatters x. */
T_CASE(a_transposed_convolution_scatters) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = in(g, "x", TUTTI_SHAPE(1, 1, 1, 2)), *w = in(g, "w", TUTTI_SHAPE(1, 1, 1, 3));
    tutti_value *b = in(g, "b", TUTTI_SHAPE(1));
    const tutti_window window = {.stride = {1, 2}};
    tutti_value *y = tutti_conv_transpose2d_of(g, x, w, b, &window, (int64_t[]){0, 1});
    expect_shape(y, "f32[1,1,1,6]");
    t_reference *r = t_reference_create(g);
    t_reference_of(r, x)[0] = 2, t_reference_of(r, x)[1] = 3;
    for (int i = 0; i < 3; i++) t_reference_of(r, w)[i] = i + 1;
    t_reference_of(r, b)[0] = 10;
    t_reference_run(r, &(tti_run){0});
    const double want[6] = {12, 14, 19, 16, 19, 10};
    for (int i = 0; i < 6; i++) T_NEAR(t_reference_of(r, y)[i], want[i], 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(recurrent_layers_take_missing_tensors) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = in(g, "x", TUTTI_SHAPE(2, 3, 4));
    tutti_recurrent_tensors t = {.weight_ih = in(g, "i", TUTTI_SHAPE(20, 4)),
                                 .weight_hh = in(g, "h", TUTTI_SHAPE(20, 5))};
    expect_shape(tutti_lstm_of(g, x, &t), "f32[2,3,5]");
    T_EQ(tutti_lstm_of(g, x, &t)->node->n_in, 5);
    t.h0 = t.c0 = in(g, "s", TUTTI_SHAPE(2, 5));
    T_EQ(tutti_lstm_of(g, x, &t)->node->n_in, 7);
    t.c0 = NULL;
    tutti_lstm_of(g, x, &t);
    expect_failure(g, "h0 and c0 go together");
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = in(g, "x", TUTTI_SHAPE(1, 2, 3, 3)), *w = in(g, "w", TUTTI_SHAPE(2, 2, 2, 2));
    tutti_conv_transpose2d_of(g, x, w, NULL, NULL, (int64_t[]){1, 0});
    expect_failure(g, "conv_transpose2d: the window does not fit");
    g = tutti_graph_create(true);
    x = in(g, "x", TUTTI_SHAPE(2, 4));
    tutti_batch_norm_of(g, x, &(tutti_batch_norm_tensors){.running_mean = x, .running_var = x},
                        "n");
    expect_failure(g, "must be buffers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_the_usual_ops),
        cmocka_unit_test(windows_differ_by_dimension),
        cmocka_unit_test(a_transposed_convolution_scatters),
        cmocka_unit_test(recurrent_layers_take_missing_tensors),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
