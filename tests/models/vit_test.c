/* vit_test.c - sizes, names and initial values are torchvision's (tiny and small: timm's). */
#include "models/models_count.h"

typedef struct known {
    const char *size;
    int64_t patch;
    int n_params;
    int64_t n_elems;
} known;

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const known models[] = {{NULL, 0, 152, 86567656},      {"base", 32, 152, 88224232},
                                   {"large", 16, 296, 304326632}, {"large", 32, 296, 306535400},
                                   {"tiny", 16, 152, 5717416},    {"small", 32, 152, 22878952}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tutti_model_params params = {
            .n_classes = 1000, .size = models[i].size, .patch = models[i].patch};
        tutti_graph *g = model_build("vit", &params, &TUTTI_SHAPE(2, 3, 224, 224));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, models[i].n_params);
        T_EQ(c.n_elems, models[i].n_elems);
        model_expect_type(model_output(g, "logits"), "f32[2,1000]");
        tutti_graph_destroy(g);
    }
}

T_CASE(names_and_initial_values_are_torchvisions) {
    T_UNUSED;
    static const model_param want[] = {
        {"class_token", "f32[1,1,192]"},
        {"encoder.pos_embedding", "f32[1,17,192]"},
        {"conv_proj.weight", "f32[192,1,8,8]"},
        {"encoder.layers.encoder_layer_0.ln_1.weight", "f32[192]"},
        {"encoder.layers.encoder_layer_11.self_attention.in_proj_weight", "f32[576,192]"},
        {"encoder.layers.encoder_layer_11.self_attention.in_proj_bias", "f32[576]"},
        {"encoder.layers.encoder_layer_11.self_attention.out_proj.weight", "f32[192,192]"},
        {"encoder.layers.encoder_layer_3.mlp.0.weight", "f32[768,192]"},
        {"encoder.layers.encoder_layer_3.mlp.3.bias", "f32[192]"},
        {"encoder.ln.weight", "f32[192]"},
        {"heads.head.weight", "f32[10,192]"}};
    tutti_model_params params = {.n_classes = 10, .size = "tiny", .patch = 8};
    tutti_graph *g = model_build("vit", &params, &TUTTI_SHAPE(2, 1, 32, 32));
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_init(g, "class_token", TUTTI_INIT_ZEROS, 0);
    model_expect_init(g, "encoder.pos_embedding", TUTTI_INIT_NORMAL, 0.02);
    model_expect_init(g, "conv_proj.weight", TUTTI_INIT_NORMAL, 1.0 / 8);
    model_expect_init(g, "encoder.layers.encoder_layer_0.mlp.0.weight", TUTTI_INIT_XAVIER_UNIFORM,
                      0);
    model_expect_init(g, "heads.head.weight", TUTTI_INIT_ZEROS, 0);
    T_EQ(model_counts_of(g).n_undecayed, 2 + 1 + 12 * 8 + 2 + 1);
    model_expect_round_trip(g);
}

T_CASE(branches_and_dropout) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10,
                                 .n_layers = 3,
                                 .n_heads = 2,
                                 .width = 8,
                                 .patch = 4,
                                 .activation = "relu",
                                 .norm_eps = 1e-3,
                                 .dropout = 0.1,
                                 .drop_path = 0.4};
    tutti_graph *g = model_build("vit", &params, &TUTTI_SHAPE(2, 3, 8, 8));
    double p[] = {0.2, 0.2, 0.4, 0.4}; /* of the first block 0 */
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->op->name, "layer_norm") == 0)
            T_NEAR(tti_attr_float(g->nodes[i], "eps"), 1e-3, 1e-12);
        if (strcmp(g->nodes[i]->op->name, "drop_path") == 0)
            T_NEAR(tti_attr_float(g->nodes[i], "p"), p[n++], 1e-12);
    }
    T_EQ(n, 4);
    T_EQ(model_count(g, "dropout"), 1 + 3 * 3);
    T_EQ(model_count(g, "relu"), 3);
    tutti_graph_destroy(g);
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10};
    tutti_shape small = TUTTI_SHAPE(2, 3, 28, 32);
    model_expect_refusal("vit", &params, TUTTI_F32, &small,
                         "28x32 cannot be divided into patches of 16x16; give model.patch");
    model_expect_refusal("vit", &params, TUTTI_F32, &TUTTI_SHAPE(2, 12), "needs images");
    params.n_heads = 5;
    model_expect_refusal("vit", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 32, 32),
                         "768, is not a multiple of model.heads, 5");
    params = (tutti_model_params){.n_classes = 10, .size = "huge"};
    model_expect_refusal("vit", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 32, 32),
                         "there are base tiny small large");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_initial_values_are_torchvisions),
        cmocka_unit_test(branches_and_dropout),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
