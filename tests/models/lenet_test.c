/* lenet_test.c - the shapes and parameters of lenet, name by name as in PyTorch's. */
#include "models/models_check.h"

T_CASE(parameters_are_those_of_pytorch) {
    T_UNUSED;
    static const model_param want[] = {
        {"conv1.weight", "f32[32,1,3,3]"},  {"conv1.bias", "f32[32]"},
        {"conv2.weight", "f32[64,32,3,3]"}, {"conv2.bias", "f32[64]"},
        {"fc1.weight", "f32[128,3136]"},    {"fc1.bias", "f32[128]"},
        {"fc2.weight", "f32[10,128]"},      {"fc2.bias", "f32[10]"},
    };
    tutti_model_params params = {.n_classes = 10, .dropout = 0.5};
    tutti_graph *g = model_build("lenet", &params, &TUTTI_SHAPE(16, 1, 28, 28));
    model_expect_params(g, want, TTI_COUNT(want), 421642);
    model_expect_type(tti_graph_output(g, "logits"), "f32[16,10]");
    tutti_graph_destroy(g);
}

T_CASE(dropout_stands_where_it_is_wanted) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    tutti_graph *g = model_build("lenet", &params, &TUTTI_SHAPE(16, 1, 28, 28));
    T_EQ(model_count(g, "dropout"), 0);
    tutti_graph_destroy(g);
    params.dropout = 0.25;
    g = model_build("lenet", &params, &TUTTI_SHAPE(16, 1, 28, 28));
    T_EQ(model_count(g, "dropout"), 1);
    T_EQ(model_count(g, "conv2d"), 2);
    T_EQ(model_count(g, "max_pool2d"), 2);
    T_EQ(model_count(g, "relu"), 3);
    tutti_graph_destroy(g);
}

T_CASE(other_images_are_taken) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 3};
    tutti_graph *g = model_build("lenet", &params, &TUTTI_SHAPE(2, 3, 32, 20));
    model_expect_type(tti_graph_find_source(g, "conv1.weight")->out[0], "f32[32,3,3,3]");
    model_expect_type(tti_graph_find_source(g, "fc1.weight")->out[0], "f32[128,2560]");
    model_expect_type(tti_graph_output(g, "logits"), "f32[2,3]");
    tutti_graph_destroy(g);
}

T_CASE(too_small_an_image_is_named) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 3};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 1, 2, 2));
    assert_null(tutti_model_find("lenet")->build(g, x, &params));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "max_pool2d");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 784));
    assert_null(tutti_model_find("lenet")->build(g, x, &params));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "conv2d 'conv1'");
    tutti_graph_destroy(g);
}

T_CASE(its_text_reads_back) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .dropout = 0.5};
    model_expect_round_trip(model_build("lenet", &params, &TUTTI_SHAPE(16, 1, 28, 28)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_pytorch),
        cmocka_unit_test(dropout_stands_where_it_is_wanted),
        cmocka_unit_test(other_images_are_taken),
        cmocka_unit_test(too_small_an_image_is_named),
        cmocka_unit_test(its_text_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
