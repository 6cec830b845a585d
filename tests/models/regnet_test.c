/* regnet_test.c - sizes, names and initial values are torchvision's. */
#include "models/models_count.h"

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const model_known models[] = {
        {"regnet_x_16gf", 215, 54278536},  {"regnet_x_1_6gf", 179, 9190136},
        {"regnet_x_32gf", 224, 107811560}, {"regnet_x_3_2gf", 242, 15296552},
        {"regnet_x_400mf", 215, 5495976},  {"regnet_x_800mf", 161, 7259656},
        {"regnet_x_8gf", 224, 39572648},   {"regnet_y_128gf", 368, 644812894},
        {"regnet_y_16gf", 251, 83590140},  {"regnet_y_1_6gf", 368, 11202430},
        {"regnet_y_32gf", 277, 145046770}, {"regnet_y_3_2gf", 290, 19436338},
        {"regnet_y_400mf", 225, 4344144},  {"regnet_y_800mf", 199, 6432512},
        {"regnet_y_8gf", 238, 39381472},
    };
    model_expect_sizes(models, sizeof models / sizeof *models);
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"stem.0.weight", "f32[32,3,3,3]"},
        {"trunk_output.block1.block1-0.proj.0.weight", "f32[48,32,1,1]"},
        {"trunk_output.block1.block1-0.f.b.0.weight", "f32[48,8,3,3]"},
        {"trunk_output.block1.block1-0.f.se.fc1.weight", "f32[8,48,1,1]"},
        {"trunk_output.block4.block4-5.f.c.1.running_mean", "f32[440]"},
        {"fc.weight", "f32[1000,440]"},
    };
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("regnet_y_400mf", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_norms(g, 1e-5, 0.1);
    model_expect_init(g, "fc.weight", TUTTI_INIT_NORMAL, 0.01);
    model_expect_round_trip(g);
}

T_CASE(branches_may_be_left_out) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .drop_path = 0.4, .dropout = 0.2};
    tutti_graph *g = model_build("regnet_x_400mf", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_drops(g, 22, 0.4);
    T_EQ(model_count(g, "dropout"), 1);
    tutti_graph_destroy(g);
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    model_expect_small("regnet_x_800mf", "stem.0");
}

T_CASE(width_keeps_whole_groups) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .width_multiplier = 0.5};
    tutti_graph *g = model_build("regnet_x_1_6gf", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_some(
        g, &(model_param){"trunk_output.block2.block2-0.f.b.0.weight", "f32[96,24,3,3]"}, 1);
    tutti_graph_destroy(g);
}

T_CASE(branches_may_start_at_zero) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .zero_init_residual = true};
    tutti_graph *g = model_build("regnet_x_400mf", &params, &TUTTI_SHAPE(2, 3, 64, 64));
    model_expect_init(g, "trunk_output.block2.block2-1.f.c.1.weight", TUTTI_INIT_ZEROS, 0);
    model_expect_init(g, "trunk_output.block2.block2-1.f.b.1.weight", TUTTI_INIT_CONSTANT, 0);
    tutti_graph_destroy(g);
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("regnet_x_400mf", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12), "stem.0");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("regnet_x_400mf")->build(g, NULL, &params));
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_shapes_are_torchvisions),
        cmocka_unit_test(branches_may_be_left_out),
        cmocka_unit_test(small_images_keep_their_size_at_first),
        cmocka_unit_test(width_keeps_whole_groups),
        cmocka_unit_test(branches_may_start_at_zero),
        cmocka_unit_test(other_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
