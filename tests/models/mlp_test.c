/* mlp_test.c - the shapes and parameters of the perceptron. */
#include "models/models_check.h"

T_CASE(parameters_are_those_of_pytorch) {
    T_UNUSED;
    static const model_param want[] = {
        {"fc1.weight", "f32[512,784]"}, {"fc1.bias", "f32[512]"},
        {"fc2.weight", "f32[512,512]"}, {"fc2.bias", "f32[512]"},
        {"out.weight", "f32[10,512]"},  {"out.bias", "f32[10]"},
    };
    tutti_model_params params = {.n_classes = 10, .n_hidden = 2, .hidden = {512, 512}};
    tutti_graph *g = model_build("mlp", &params, &TUTTI_SHAPE(16, 1, 28, 28));
    model_expect_params(g, want, TTI_COUNT(want), 669706);
    model_expect_type(tti_graph_output(g, "logits"), "f32[16,10]");
    T_EQ(model_count(g, "relu"), 2);
    T_EQ(model_count(g, "dropout"), 0);
    model_expect_round_trip(g);
}

T_CASE(hidden_layers_may_be_none_or_many) {
    T_UNUSED;
    static const model_param want[] = {{"out.weight", "f32[3,6]"}, {"out.bias", "f32[3]"}};
    tutti_model_params params = {.n_classes = 3};
    tutti_graph *g = model_build("mlp", &params, &TUTTI_SHAPE(4, 6));
    model_expect_params(g, want, TTI_COUNT(want), 21);
    tutti_graph_destroy(g);
    params.n_hidden = TUTTI_MODEL_MAX_HIDDEN;
    for (int i = 0; i < params.n_hidden; i++) params.hidden[i] = i + 1;
    params.dropout = 0.5;
    g = model_build("mlp", &params, &TUTTI_SHAPE(4, 6));
    T_EQ(model_count(g, "linear"), TUTTI_MODEL_MAX_HIDDEN + 1);
    T_EQ(model_count(g, "dropout"), 1);
    model_expect_type(tti_graph_find_source(g, "fc16.weight")->out[0], "f32[16,15]");
    tutti_graph_destroy(g);
}

T_CASE(a_bad_width_is_named) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 3, .n_hidden = 2, .hidden = {4, 0}};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(4, 6));
    assert_null(tutti_model_find("mlp")->build(g, x, &params));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "linear 'fc2'");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_pytorch),
        cmocka_unit_test(hidden_layers_may_be_none_or_many),
        cmocka_unit_test(a_bad_width_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
