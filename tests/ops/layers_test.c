/* layers_test.c - the public builders: shapes, parameters, and the first culprit by name. */
#include "base/philox.h"
#include "ops/built.h"
#include "tutti/ops.h"

static tutti_value *image(tutti_graph *g, const char *name) {
    return tutti_input(g, name, TUTTI_F32, &TUTTI_SHAPE(16, 3, 28, 20));
}

T_CASE(lenet_has_its_shapes) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(16, 1, 28, 28));
    x = tutti_relu(
        g, tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = 32, .kernel = 3, .pad = 1}, "conv1"));
    expect_shape(x, "f32[16,32,28,28]");
    x = tutti_max_pool2d(g, x, 2);
    expect_shape(x, "f32[16,32,14,14]");
    x = tutti_relu(
        g, tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = 64, .kernel = 3, .pad = 1}, "conv2"));
    x = tutti_flatten(g, tutti_max_pool2d(g, x, 2));
    expect_shape(x, "f32[16,3136]");
    x = tutti_dropout(g, tutti_relu(g, tutti_linear(g, x, 128, "fc1")), 0.5, "drop");
    x = tutti_linear(g, x, 10, "fc2");
    expect_shape(x, "f32[16,10]");
    T_OK(tutti_graph_check(g));
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(layers_make_their_parameters) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc desc = {.n_out = 6, .kernel = 3, .kernel_w = 5, .stride = 2, .groups = 3};
    expect_shape(tutti_conv2d(g, image(g, "x"), &desc, "conv1"), "f32[16,6,13,8]");
    tti_node *w = tti_graph_find_source(g, "conv1.weight"), *b;
    assert_non_null(w);
    expect_shape(w->out[0], "f32[6,1,3,5]");
    T_EQ(tti_attr_int(w, "init"), TUTTI_INIT_FAN_IN_UNIFORM);
    T_EQ(tti_attr_int(w, "fan_in"), 15);
    T_EQ(tti_attr_int(w, "decay"), 1);
    b = tti_graph_find_source(g, "conv1.bias");
    assert_non_null(b);
    expect_shape(b->out[0], "f32[6]");
    T_EQ(tti_attr_int(b, "fan_in"), 15);
    T_EQ(tti_attr_int(b, "decay"), 0);
    tutti_graph_destroy(g);
}

T_CASE(a_layers_own_init_leaves_the_bias_zero) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_flatten(g, image(g, "x"));
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL};
    x = tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = 4, .init = &he}, "fc1");
    x = tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = 5, .no_bias = true}, "fc2");
    expect_shape(x, "f32[16,5]");
    T_EQ(tti_attr_int(tti_graph_find_source(g, "fc1.weight"), "init"), TUTTI_INIT_HE_NORMAL);
    T_EQ(tti_attr_int(tti_graph_find_source(g, "fc1.bias"), "init"), TUTTI_INIT_ZEROS);
    assert_null(tti_graph_find_source(g, "fc2.bias"));
    tutti_graph_destroy(g);
}

T_CASE(the_first_culprit_is_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 3, 4, 4));
    x = tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = 8, .kernel = 5}, "conv1");
    assert_null(x);
    x = tutti_relu(g, tutti_linear(g, tutti_flatten(g, x), 0, "fc1"));
    assert_null(tutti_add(g, x, x));
    assert_null(tutti_cross_entropy(g, x, x, 0, -1).sum);
    expect_failure(g, "conv2d 'conv1': kernel 5x5 does not fit an input of 4x4");
}

T_CASE(bad_layers_say_what_is_wrong) {
    T_UNUSED;
    static const struct {
        tutti_conv2d_desc desc;
        const char *name, *text;
    } rows[] = {
        {{.n_out = 0, .kernel = 3}, "c", "conv2d 'c': n_out 0 and kernel 3x3 must be >= 1"},
        {{.n_out = 4}, "c", "kernel 0x0 must be >= 1"},
        {{.n_out = 4, .kernel = 3, .groups = 2}, "c", "groups 2 must divide 3 input"},
        {{.n_out = 4, .kernel = 3, .stride = -1}, "c", "stride must be 1 .."},
        {{.n_out = 4, .kernel = 3, .pad = -1}, "c", "pad must be 0 .."},
        {{.n_out = 4, .kernel = 3}, "", "conv2d: the layer needs a name"},
        {{.n_out = INT64_MAX, .kernel = 3}, "c", "2^40"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tutti_graph *g = tutti_graph_create(true);
        assert_null(tutti_conv2d(g, image(g, "x"), &rows[i].desc, rows[i].name));
        expect_failure(g, rows[i].text);
    }
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_conv2d(g, tutti_flatten(g, image(g, "x")),
                             &(tutti_conv2d_desc){.n_out = 1, .kernel = 1}, "c"));
    expect_failure(g, "conv2d 'c': input must be [N,C,H,W], is f32[16,1680]");
    g = tutti_graph_create(true);
    assert_null(tutti_linear(g, NULL, 4, "fc"));
    expect_failure(g, "linear 'fc': the input is missing");
    g = tutti_graph_create(true);
    char name[300] = {0};
    memset(name, 'n', sizeof name - 1);
    assert_null(tutti_linear(g, image(g, "x"), 4, name));
    expect_failure(g, "linear: the name is too long");
}

T_CASE(names_are_used_once) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_flatten(g, image(g, "x"));
    tutti_linear(g, x, 4, "fc");
    tutti_linear(g, x, 4, "fc");
    expect_failure(g, "param 'fc.weight': the name is taken");
    g = tutti_graph_create(true);
    x = image(g, "x");
    tutti_dropout(g, tutti_dropout(g, x, 0.1, "d1"), 0.1, "d1");
    expect_failure(g, "dropout 'd1': the name is taken");
    g = tutti_graph_create(true);
    image(g, "x");
    image(g, "x");
    expect_failure(g, "input 'x': the name is taken");
    g = tutti_graph_create(true);
    tutti_dropout(g, image(g, "x"), 1, "d1");
    expect_failure(g, "dropout 'd1': p must be >= 0 and < 1, is 1");
}

T_CASE(dropout_is_keyed_by_its_name) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *y = tutti_dropout(g, image(g, "x"), 0.25, "drop1");
    T_OK(tutti_graph_check(g));
    assert_true((uint64_t)tti_attr_int(y->node, "key") == tti_hash_name("drop1"));
    T_NEAR(tti_attr_float(y->node, "p"), 0.25, 0);
    tutti_graph_destroy(g);
}

/* Every builder with one input that keeps the shape makes the op of that name. */
T_CASE(builders_make_their_ops) {
    T_UNUSED;
    static const struct {
        tutti_value *(*fn)(tutti_graph *g, tutti_value *x);
        const char *op;
    } maps[] = {
        {tutti_relu, "relu"}, {tutti_sigmoid, "sigmoid"}, {tutti_tanh, "tanh"},
        {tutti_gelu, "gelu"}, {tutti_gelu_tanh, "gelu"},  {tutti_neg, "neg"},
        {tutti_exp, "exp"},   {tutti_log, "log"},         {tutti_sqrt, "sqrt"},
        {tutti_abs, "abs"},   {tutti_square, "square"},   {tutti_sign, "sign"},
    };
    static const struct {
        tutti_value *(*fn)(tutti_graph *g, tutti_value *a, tutti_value *b);
        const char *op;
    } zips[] = {{tutti_add, "add"}, {tutti_sub, "sub"},         {tutti_mul, "mul"},
                {tutti_div, "div"}, {tutti_maximum, "maximum"}, {tutti_minimum, "minimum"}};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = image(g, "x");
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        assert_string_equal(maps[i].fn(g, x)->node->op->name, maps[i].op);
    for (size_t i = 0; i < sizeof zips / sizeof zips[0]; i++)
        assert_string_equal(zips[i].fn(g, x, x)->node->op->name, zips[i].op);
    T_EQ(tti_attr_int(tutti_gelu_tanh(g, x)->node, "approximate"), 1);
    expect_shape(tutti_cast(g, x, TUTTI_BF16), "bf16[16,3,28,20]");
    T_NEAR(tti_attr_float(tutti_affine(g, x, 2, 3)->node, "beta"), 3, 0);
    expect_shape(tutti_softmax(g, x, -1), "f32[16,3,28,20]");
    expect_shape(tutti_log_softmax(g, x, 1), "f32[16,3,28,20]");
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

T_CASE(pools_and_reductions_have_their_shapes) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = image(g, "x"); /* [16,3,28,20] */
    tutti_pool2d_desc desc = {.kernel = 3, .stride = 2, .pad = 1};
    expect_shape(tutti_max_pool2d_with(g, x, &desc), "f32[16,3,14,10]");
    expect_shape(tutti_avg_pool2d_with(g, x, &desc), "f32[16,3,14,10]");
    expect_shape(tutti_avg_pool2d(g, x, 4), "f32[16,3,7,5]");
    expect_shape(tutti_adaptive_avg_pool2d(g, x, 1, 1), "f32[16,3,1,1]");
    expect_shape(tutti_adaptive_max_pool2d(g, x, 5, 7), "f32[16,3,5,7]");
    expect_shape(tutti_sum(g, x, NULL), "f32[]");
    expect_shape(tutti_mean(g, x, &(tutti_axes){.n = 2, .axis = {-1, 2}, .keep = true}),
                 "f32[16,3,1,1]");
    expect_shape(tutti_max(g, x, &(tutti_axes){.n = 1, .axis = {1}}), "f32[16,28,20]");
    expect_shape(tutti_argmax(g, x, 1), "i32[16,28,20]");
    expect_shape(tutti_sum_to(g, x, &TUTTI_SHAPE(3, 1, 1)), "f32[3,1,1]");
    expect_shape(tutti_broadcast_to(g, x, &TUTTI_SHAPE(2, 16, 3, 28, 20)), "f32[2,16,3,28,20]");
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

T_CASE(products_and_losses_have_their_shapes) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *a = tutti_input(g, "a", TUTTI_F32, &TUTTI_SHAPE(4, 6));
    tutti_value *b = tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(8, 6));
    tutti_value *labels = tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(4));
    expect_shape(tutti_matmul_with(g, a, b, false, true), "f32[4,8]");
    expect_shape(tutti_matmul(g, a, tutti_transpose(g, b, 0, 1)), "f32[4,8]");
    tutti_loss entropy = tutti_cross_entropy(g, a, labels, 0.1, -1);
    tutti_loss squares = tutti_mse(g, a, a, NULL, -1), kept = tutti_mse(g, a, a, labels, 2);
    expect_shape(entropy.sum, "f32[]");
    expect_shape(entropy.correct, "f32[]");
    expect_shape(squares.count, "f32[]");
    T_EQ(kept.sum->node->n_in, 3);
    assert_null(squares.correct);
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
}

T_CASE(hostile_sources_are_refused) {
    T_UNUSED;
    tutti_shape wide = {.n_dims = 9}, negative = {.n_dims = -1};
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_input(g, "x", TUTTI_F32, &wide));
    expect_failure(g, "input 'x': a shape of 0 to 8 dimensions");
    g = tutti_graph_create(true);
    assert_null(tutti_param(g, "w", &negative, NULL, true));
    expect_failure(g, "param 'w': a shape of 0 to 8 dimensions");
    g = tutti_graph_create(true);
    assert_null(tutti_constant(g, TUTTI_F32, NULL, 1));
    expect_failure(g, "constant");
    g = tutti_graph_create(true);
    assert_null(tutti_input(g, NULL, TUTTI_F32, &TUTTI_SHAPE(1)));
    expect_failure(g, "input: it needs a name");
    assert_null(tutti_input(NULL, "x", TUTTI_F32, &TUTTI_SHAPE(1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_has_its_shapes),
        cmocka_unit_test(layers_make_their_parameters),
        cmocka_unit_test(a_layers_own_init_leaves_the_bias_zero),
        cmocka_unit_test(the_first_culprit_is_named),
        cmocka_unit_test(bad_layers_say_what_is_wrong),
        cmocka_unit_test(names_are_used_once),
        cmocka_unit_test(dropout_is_keyed_by_its_name),
        cmocka_unit_test(builders_make_their_ops),
        cmocka_unit_test(pools_and_reductions_have_their_shapes),
        cmocka_unit_test(products_and_losses_have_their_shapes),
        cmocka_unit_test(hostile_sources_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
