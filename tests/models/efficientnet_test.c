/* efficientnet_test.c - sizes, names and batch norms are torchvision's. */
#include "models/models_count.h"

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const model_known models[] = {
        {"efficientnet_b0", 213, 5288548},     {"efficientnet_b1", 301, 7794184},
        {"efficientnet_b2", 301, 9109994},     {"efficientnet_b3", 340, 12233232},
        {"efficientnet_b4", 418, 19341616},    {"efficientnet_b5", 506, 30389784},
        {"efficientnet_b6", 584, 43040704},    {"efficientnet_b7", 711, 66347960},
        {"efficientnet_v2_s", 452, 21458488},  {"efficientnet_v2_m", 649, 54139356},
        {"efficientnet_v2_l", 897, 118515272},
    };
    model_expect_sizes(models, sizeof models / sizeof *models);
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"features.0.0.weight", "f32[40,3,3,3]"},
        {"features.1.0.block.1.fc1.weight", "f32[10,40,1,1]"},
        {"features.2.1.block.2.fc2.weight", "f32[192,8,1,1]"},
        {"features.7.1.block.3.1.running_mean", "f32[384]"},
        {"features.8.0.weight", "f32[1536,384,1,1]"},
        {"classifier.1.weight", "f32[1000,1536]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("efficientnet_b3", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 1e-5, 0.1);
    model_expect_init(g, "classifier.1.weight", TUTTI_INIT_UNIFORM, 0);
    T_NEAR(tti_attr_float(tti_graph_find_source(g, "classifier.1.weight"), "b"), 0.0316227766,
           1e-9);
    model_expect_round_trip(g);
}

T_CASE(version_2_expands_by_full_convolutions) {
    T_UNUSED;
    static const model_param want[] = {
        {"features.1.0.block.0.0.weight", "f32[24,24,3,3]"},
        {"features.2.0.block.0.0.weight", "f32[96,24,3,3]"},
        {"features.2.0.block.1.1.bias", "f32[48]"},
        {"features.4.5.block.2.fc1.weight", "f32[32,512,1,1]"},
        {"features.7.0.weight", "f32[1280,256,1,1]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("efficientnet_v2_s", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 0.001, 0.1);
    model_expect_round_trip(g);
}

T_CASE(large_versions_have_norms_of_their_own) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    tutti_graph *g = model_build("efficientnet_b5", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_norms(g, 0.001, 0.01);
    tutti_graph_destroy(g);
}

T_CASE(branches_may_be_left_out) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .drop_path = 0.2, .dropout = 0.2};
    tutti_graph *g = model_build("efficientnet_b0", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_drops(g, 9, 0.2 * 14 / 16);
    T_EQ(model_count(g, "dropout"), 1);
    tutti_graph_destroy(g);
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    model_expect_small("efficientnet_b0", "features.0.0");
    model_expect_small("efficientnet_v2_s", "features.0.0");
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("efficientnet_b0", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12),
                         "features.0.0");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("efficientnet_b0")->build(g, NULL, &params));
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_shapes_are_torchvisions),
        cmocka_unit_test(version_2_expands_by_full_convolutions),
        cmocka_unit_test(large_versions_have_norms_of_their_own),
        cmocka_unit_test(branches_may_be_left_out),
        cmocka_unit_test(small_images_keep_their_size_at_first),
        cmocka_unit_test(other_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
