/* unet_test.c - sizes and names are those of milesial's Pytorch-UNet. */
#include "models/models_count.h"

T_CASE(sizes_are_those_of_the_original) {
    T_UNUSED;
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        tutti_model_params params = {.n_classes = 2, .bilinear = bilinear};
        tutti_graph *g = model_build("unet", &params, &TUTTI_SHAPE(2, 3, 64, 96));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, bilinear ? 56 : 64);
        T_EQ(c.n_elems, bilinear ? 17263042 : 31037698);
        T_EQ(c.n_buffers, 36);
        model_expect_type(model_output(g, "logits"), "f32[2,2,64,96]");
        tutti_graph_destroy(g);
    }
}

T_CASE(names_are_those_of_the_original) {
    T_UNUSED;
    static const model_param want[] = {
        {"inc.double_conv.0.weight", "f32[64,3,3,3]"},
        {"inc.double_conv.4.running_var", "f32[64]"},
        {"down4.maxpool_conv.1.double_conv.3.weight", "f32[1024,1024,3,3]"},
        {"up1.up.weight", "f32[1024,512,2,2]"},
        {"up1.up.bias", "f32[512]"},
        {"up4.conv.double_conv.0.weight", "f32[64,128,3,3]"},
        {"outc.conv.weight", "f32[5,64,1,1]"},
        {"outc.conv.bias", "f32[5]"}};
    tutti_model_params params = {.n_classes = 5};
    tutti_graph *g = model_build("unet", &params, &TUTTI_SHAPE(1, 3, 32, 32));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_init(g, "up1.up.bias", TUTTI_INIT_FAN_IN_UNIFORM, 0);
    T_EQ(tti_attr_int(tti_graph_find_source(g, "up1.up.bias"), "fan_in"), 512 * 4);
    model_expect_round_trip(g);
}

T_CASE(any_size_keeps_its_size) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 3, .width = 4, .n_layers = 3, .dropout = 0.2};
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        params.bilinear = bilinear;
        tutti_graph *g = model_build("unet", &params, &TUTTI_SHAPE(1, 1, 29, 50));
        model_expect_type(model_output(g, "logits"), "f32[1,3,29,50]");
        T_EQ(model_count(g, "dropout"), 1);
        T_EQ(model_count(g, "max_pool2d"), 3);
        tutti_graph_destroy(g);
    }
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 2};
    model_expect_refusal("unet", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 15, 40),
                         "15x40 cannot be halved 4 times");
    model_expect_refusal("unet", &params, TUTTI_I32, &TUTTI_SHAPE(2, 12), "needs images");
    params.n_layers = 9;
    model_expect_refusal("unet", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 600, 600), "at most 8");
    params = (tutti_model_params){.n_classes = 2, .width = 5};
    model_expect_refusal("unet", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 32, 32), "must be even");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_original),
        cmocka_unit_test(names_are_those_of_the_original),
        cmocka_unit_test(any_size_keeps_its_size),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
