/* mobilenet_v2_test.c - sizes, names and initial values are torchvision's. */
#include "models/models_count.h"

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const model_known models[] = {
        {"mobilenet_v2", 158, 3504872},
    };
    model_expect_sizes(models, sizeof models / sizeof *models);
    T_EQ(model_scaled_elems("mobilenet_v2", 0.35), 1677128);
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"features.0.0.weight", "f32[32,3,3,3]"},
        {"features.1.conv.0.0.weight", "f32[32,1,3,3]"},
        {"features.1.conv.1.weight", "f32[16,32,1,1]"},
        {"features.2.conv.1.0.weight", "f32[96,1,3,3]"},
        {"features.17.conv.3.running_var", "f32[320]"},
        {"features.18.1.bias", "f32[1280]"},
        {"classifier.1.weight", "f32[1000,1280]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("mobilenet_v2", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 1e-5, 0.1);
    model_expect_init(g, "features.2.conv.1.0.weight", TUTTI_INIT_HE_NORMAL, 0);
    T_EQ(tti_attr_int(tti_graph_find_source(g, "features.2.conv.1.0.weight"), "fan_in"), 96 * 9);
    model_expect_init(g, "classifier.1.weight", TUTTI_INIT_NORMAL, 0.01);
    model_expect_init(g, "classifier.1.bias", TUTTI_INIT_ZEROS, 0);
    model_expect_round_trip(g);
}

T_CASE(branches_may_be_left_out) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .drop_path = 0.4, .dropout = 0.2};
    tutti_graph *g = model_build("mobilenet_v2", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_drops(g, 10, 0.4 * 16 / 17);
    T_EQ(model_count(g, "dropout"), 1);
    tutti_graph_destroy(g);
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    model_expect_small("mobilenet_v2", "features.0.0");
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("mobilenet_v2", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12), "features.0.0");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("mobilenet_v2")->build(g, NULL, &params));
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
