/* densenet_test.c - sizes, names and initial values are torchvision's. */
#include "models/models_count.h"

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const model_known models[] = {
        {"densenet121", 364, 7978856},
        {"densenet161", 484, 28681000},
        {"densenet169", 508, 14149480},
        {"densenet201", 604, 20013928},
    };
    model_expect_sizes(models, sizeof models / sizeof *models);
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"features.conv0.weight", "f32[96,3,7,7]"},
        {"features.denseblock1.denselayer1.norm1.weight", "f32[96]"},
        {"features.denseblock3.denselayer36.conv2.weight", "f32[48,192,3,3]"},
        {"features.transition3.conv.weight", "f32[1056,2112,1,1]"},
        {"features.norm5.running_var", "f32[2208]"},
        {"classifier.weight", "f32[1000,2208]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("densenet161", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 1e-5, 0.1);
    model_expect_init(g, "features.conv0.weight", TUTTI_INIT_HE_NORMAL, 0);
    T_EQ(tti_attr_int(tti_graph_find_source(g, "features.conv0.weight"), "fan_in"), 0);
    model_expect_init(g, "classifier.weight", TUTTI_INIT_FAN_IN_UNIFORM, 0);
    model_expect_init(g, "classifier.bias", TUTTI_INIT_ZEROS, 0);
    model_expect_round_trip(g);
}

T_CASE(every_layer_may_have_dropout) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .dropout = 0.2};
    tutti_graph *g = model_build("densenet121", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    T_EQ(model_count(g, "dropout"), 58);
    tutti_graph_destroy(g);
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    model_expect_small("densenet121", "features.conv0");
    model_expect_small("densenet121", "features.denseblock1.denselayer1.conv1");
}

T_CASE(width_scales_growth) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .width_multiplier = 0.25};
    tutti_graph *g = model_build("densenet121", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_some(
        g, &(model_param){"features.denseblock1.denselayer2.conv1.weight", "f32[32,24,1,1]"}, 1);
    tutti_graph_destroy(g);
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("densenet121", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12), "features.conv0");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("densenet121")->build(g, NULL, &params));
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_shapes_are_torchvisions),
        cmocka_unit_test(every_layer_may_have_dropout),
        cmocka_unit_test(small_images_keep_their_size_at_first),
        cmocka_unit_test(width_scales_growth),
        cmocka_unit_test(other_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
