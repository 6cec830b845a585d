/* resnet_test.c - sizes, names and initial values are torchvision's. */
#include "models/models_count.h"

typedef struct known {
    const char *name;
    int n_params;
    int64_t n_elems;
} known;

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const known models[] = {{"resnet18", 62, 11689512},
                                   {"resnet34", 110, 21797672},
                                   {"resnet50", 161, 25557032},
                                   {"resnet101", 314, 44549160}};
    tutti_model_params params = {.n_classes = 1000};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tutti_graph *g = model_build(models[i].name, &params, &TUTTI_SHAPE(2, 3, 224, 224));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, models[i].n_params);
        T_EQ(c.n_elems, models[i].n_elems);
        T_EQ(c.n_buffers, (models[i].n_params - 2) / 3 * 2); /* conv, weight, bias for each norm */
        T_EQ(c.n_undecayed, c.n_buffers + 1);
        model_expect_type(model_output(g, "logits"), "f32[2,1000]");
        tutti_graph_destroy(g);
    }
}

T_CASE(names_and_shapes_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {{"conv1.weight", "f32[64,3,7,7]"},
                                       {"bn1.weight", "f32[64]"},
                                       {"bn1.running_var", "f32[64]"},
                                       {"layer1.0.conv1.weight", "f32[64,64,1,1]"},
                                       {"layer1.0.conv3.weight", "f32[256,64,1,1]"},
                                       {"layer1.0.downsample.0.weight", "f32[256,64,1,1]"},
                                       {"layer1.0.downsample.1.running_mean", "f32[256]"},
                                       {"layer3.5.conv2.weight", "f32[256,256,3,3]"},
                                       {"layer4.0.downsample.0.weight", "f32[2048,1024,1,1]"},
                                       {"layer4.2.bn3.bias", "f32[2048]"},
                                       {"fc.weight", "f32[1000,2048]"},
                                       {"fc.bias", "f32[1000]"}};
    tutti_model_params params = {.n_classes = 1000};
    tutti_graph *g = model_build("resnet50", &params, &TUTTI_SHAPE(1, 3, 224, 224));
    model_expect_some(g, want, sizeof want / sizeof *want);
    /* v1.5: the 3x3 halves, not the first 1x1 */
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->name && strcmp(g->nodes[i]->name, "layer2.0.conv1") == 0 &&
            strcmp(g->nodes[i]->op->name, "conv2d") == 0)
            model_expect_type(g->nodes[i]->out[0], "f32[1,128,56,56]");
    model_expect_round_trip(g);
}

T_CASE(initial_values_are_torchvisions) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    for (int zero = 0; zero < 2; zero++) {
        params.zero_init_residual = zero;
        tutti_graph *g = model_build("resnet18", &params, &TUTTI_SHAPE(1, 3, 64, 64));
        model_expect_init(g, "layer2.0.conv1.weight", TUTTI_INIT_HE_NORMAL, 0);
        T_EQ(tti_attr_int(tti_graph_find_source(g, "layer2.0.conv1.weight"), "fan_in"), 128 * 9);
        model_expect_init(g, "fc.weight", TUTTI_INIT_FAN_IN_UNIFORM, 0);
        model_expect_init(g, "layer1.0.bn1.weight", TUTTI_INIT_CONSTANT, 0);
        model_expect_init(g, "layer1.0.bn2.weight", zero ? TUTTI_INIT_ZEROS : TUTTI_INIT_CONSTANT,
                          0);
        tutti_graph_destroy(g);
    }
}

T_CASE(small_images_keep_their_size_at_first) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .small_images = true, .dropout = 0.1};
    tutti_graph *g = model_build("resnet18", &params, &TUTTI_SHAPE(2, 3, 32, 32));
    model_expect_some(g, &(model_param){"conv1.weight", "f32[64,3,3,3]"}, 1);
    T_EQ(model_count(g, "max_pool2d"), 0);
    T_EQ(model_count(g, "dropout"), 1);
    T_EQ(model_counts_of(g).n_elems, 11173962); /* as every CIFAR ResNet-18 of this form */
    tutti_graph_destroy(g);
}

/* Stochastic depth rises to the last block. */
T_CASE(branches_may_be_left_out) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10, .small_images = true, .drop_path = 0.4};
    tutti_graph *g = model_build("resnet18", &params, &TUTTI_SHAPE(2, 3, 32, 32));
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->op->name, "drop_path") != 0) continue;
        T_NEAR(tti_attr_float(g->nodes[i], "p"), 0.4 * ++n / 8, 1e-12);
    }
    T_EQ(n, 8);
    tutti_graph_destroy(g);
}

T_CASE(other_inputs_are_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    model_expect_refusal("resnet18", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12), "conv1");
    model_expect_refusal("resnet50", &params, TUTTI_I32, &TUTTI_SHAPE(2, 12), "conv1");
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find("resnet18")->build(g, NULL, &params));
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_shapes_are_torchvisions),
        cmocka_unit_test(initial_values_are_torchvisions),
        cmocka_unit_test(small_images_keep_their_size_at_first),
        cmocka_unit_test(branches_may_be_left_out),
        cmocka_unit_test(other_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
