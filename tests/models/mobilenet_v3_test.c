/* mobilenet_v3_test.c - sizes, names and batch norms are torchvision's. */
#include "models/models_count.h"

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const model_known models[] = {
        {"mobilenet_v3_large", 174, 5483032},
        {"mobilenet_v3_small", 142, 2542856},
    };
    model_expect_sizes(models, sizeof models / sizeof *models);
    T_EQ(model_scaled_elems("mobilenet_v3_small", 0.5), 917264);
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"features.0.1.weight", "f32[16]"},
        {"features.1.block.1.fc1.weight", "f32[8,16,1,1]"},
        {"features.4.block.2.fc2.bias", "f32[96]"},
        {"features.11.block.3.0.weight", "f32[96,576,1,1]"},
        {"features.12.0.weight", "f32[576,96,1,1]"},
        {"classifier.0.weight", "f32[1024,576]"},
        {"classifier.3.bias", "f32[1000]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("mobilenet_v3_small", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 0.001, 0.01);
    model_expect_init(g, "features.1.block.1.fc1.bias", TUTTI_INIT_ZEROS, 0);
    model_expect_round_trip(g);
}

T_CASE(branches_may_be_left_out) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .drop_path = 0.4, .dropout = 0.2};
    tutti_graph *g = model_build("mobilenet_v3_small", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_drops(g, 6, 0.4);
    T_EQ(model_count(g, "dropout"), 1);
    tutti_graph_destroy(g);
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    model_expect_small("mobilenet_v3_large", "features.0.0");
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("mobilenet_v3_small", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12),
                         "features.0.0");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("mobilenet_v3_small")->build(g, NULL, &params));
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_shapes_are_torchvisions),
        cmocka_unit_test(branches_may_be_left_out),
        cmocka_unit_test(small_images_keep_their_size_at_first),
        cmocka_unit_test(other_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
