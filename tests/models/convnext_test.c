/* convnext_test.c - sizes, names and initial values are torchvision's. */
#include "models/models_count.h"

typedef struct known {
    const char *size;
    int n_params;
    int64_t n_elems;
} known;

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const known models[] = {{NULL, 182, 28589128},
                                   {"small", 344, 50223688},
                                   {"base", 344, 88591464},
                                   {"large", 344, 197767336}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tutti_model_params params = {.n_classes = 1000, .size = models[i].size};
        tutti_graph *g = model_build("convnext", &params, &TUTTI_SHAPE(2, 3, 224, 224));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, models[i].n_params);
        T_EQ(c.n_elems, models[i].n_elems);
        model_expect_type(model_output(g, "logits"), "f32[2,1000]");
        tutti_graph_destroy(g);
    }
}

T_CASE(names_and_initial_values_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {{"features.0.0.weight", "f32[96,3,4,4]"},
                                       {"features.0.1.weight", "f32[96]"},
                                       {"features.1.0.block.0.weight", "f32[96,1,7,7]"},
                                       {"features.1.2.block.2.bias", "f32[96]"},
                                       {"features.5.8.block.3.weight", "f32[1536,384]"},
                                       {"features.5.8.block.5.weight", "f32[384,1536]"},
                                       {"features.6.0.weight", "f32[384]"},
                                       {"features.6.1.weight", "f32[768,384,2,2]"},
                                       {"features.7.2.layer_scale", "f32[768,1,1]"},
                                       {"classifier.0.bias", "f32[768]"},
                                       {"classifier.2.weight", "f32[10,768]"}};
    tutti_model_params params = {.n_classes = 10};
    tutti_graph *g = model_build("convnext", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_init(g, "features.1.0.block.0.weight", TUTTI_INIT_NORMAL, 0.02);
    model_expect_init(g, "classifier.2.weight", TUTTI_INIT_NORMAL, 0.02);
    model_expect_init(g, "features.1.0.layer_scale", TUTTI_INIT_CONSTANT, 0);
    T_NEAR(tti_attr_float(tti_graph_find_source(g, "features.1.0.layer_scale"), "a"), 1e-6, 1e-12);
    T_EQ(tti_attr_int(tti_graph_find_source(g, "features.1.0.layer_scale"), "decay"), 0);
    model_expect_round_trip(g);
}

T_CASE(widths_depths_and_branches) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10,
                                 .width = 8,
                                 .n_stages = 4,
                                 .depths = {1, 2, 1, 1},
                                 .dropout = 0.2,
                                 .norm_eps = 1e-3,
                                 .drop_path = 0.4};
    tutti_graph *g = model_build("convnext", &params, &TUTTI_SHAPE(2, 3, 32, 32));
    int n = 0, n_norms = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->op->name, "drop_path") == 0)
            T_NEAR(tti_attr_float(g->nodes[i], "p"), 0.1 * ++n, 1e-12);
        if (strcmp(g->nodes[i]->op->name, "layer_norm") == 0)
            T_NEAR(tti_attr_float(g->nodes[i], "eps"), ++n_norms == 10 ? 1e-3 : 1e-6, 1e-12);
    }
    T_EQ(n, 4);
    T_EQ(n_norms, 10);
    T_EQ(model_count(g, "dropout"), 1);
    model_expect_some(g, &(model_param){"features.7.0.block.3.weight", "f32[256,64]"}, 1);
    tutti_graph_destroy(g);
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_shape images = TUTTI_SHAPE(2, 3, 32, 32);
    tutti_model_params params = {.n_classes = 10, .n_stages = 3, .depths = {1, 1, 1}};
    model_expect_refusal("convnext", &params, TUTTI_F32, &images, "4 numbers are needed");
    params = (tutti_model_params){.n_classes = 10};
    model_expect_refusal("convnext", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 8, 8), "features.4.1");
    model_expect_refusal("convnext", &params, TUTTI_I32, &TUTTI_SHAPE(2, 12), "needs images");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_initial_values_are_torchvisions),
        cmocka_unit_test(widths_depths_and_branches),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
