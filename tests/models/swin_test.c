/* swin_test.c - sizes, names and initial values are torchvision's; windows, shifts and segments. */
#include "models/models_count.h"

typedef struct known {
    const char *size;
    int n_params;
    int64_t n_elems;
} known;

T_CASE(sizes_are_torchvisions) {
    T_UNUSED;
    static const known models[] = {{NULL, 173, 28288354},
                                   {"small", 329, 49606258},
                                   {"base", 329, 87768224},
                                   {"large", 329, 196532476}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tutti_model_params params = {.n_classes = 1000, .size = models[i].size};
        tutti_graph *g = model_build("swin", &params, &TUTTI_SHAPE(2, 3, 224, 224));
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
        {"features.0.0.weight", "f32[96,3,4,4]"},
        {"features.0.2.weight", "f32[96]"},
        {"features.1.0.norm1.weight", "f32[96]"},
        {"features.1.1.attn.relative_position_bias_table", "f32[169,3]"},
        {"features.1.1.attn.qkv.weight", "f32[288,96]"},
        {"features.2.norm.weight", "f32[384]"},
        {"features.2.reduction.weight", "f32[192,384]"},
        {"features.5.5.mlp.0.weight", "f32[1536,384]"},
        {"features.7.1.attn.relative_position_bias_table", "f32[169,24]"},
        {"norm.bias", "f32[768]"},
        {"head.weight", "f32[10,768]"}};
    const char *table = "features.1.1.attn.relative_position_bias_table";
    tutti_model_params params = {.n_classes = 10};
    tutti_graph *g = model_build("swin", &params, &TUTTI_SHAPE(1, 3, 64, 64));
    model_expect_some(g, want, sizeof want / sizeof *want);
    assert_null(tti_graph_find_source(g, "features.2.reduction.bias"));
    model_expect_init(g, table, TUTTI_INIT_NORMAL, 0.02);
    T_EQ(tti_attr_int(tti_graph_find_source(g, table), "decay"), 0);
    model_expect_init(g, "features.0.0.weight", TUTTI_INIT_FAN_IN_UNIFORM, 0);
    model_expect_init(g, "head.weight", TUTTI_INIT_NORMAL, 0.02);
    model_expect_round_trip(g);
}

/* An attention with a bias has 4 inputs, one with segments too 6. */
static int count_attentions(const tutti_graph *g, int n_in) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += strcmp(g->nodes[i]->op->name, "sdpa") == 0 && g->nodes[i]->n_in == n_in;
    return n;
}

T_CASE(windows_are_shifted_where_there_are_several) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 10,
                                 .width = 8,
                                 .n_heads = 2,
                                 .window = 4,
                                 .n_stages = 4,
                                 .depths = {2, 2, 2, 2},
                                 .dropout = 0.1,
                                 .drop_path = 0.7};
    /* 8x8, 4x4, 2x2 and 1x1 positions: only the first stage has more than one window. */
    tutti_graph *g = model_build("swin", &params, &TUTTI_SHAPE(2, 3, 32, 32));
    T_EQ(count_attentions(g, 6), 1);
    T_EQ(count_attentions(g, 4), 7);
    T_EQ(model_count(g, "dropout"), 8 * 3);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "drop_path") == 0) {
            T_NEAR(tti_attr_float(g->nodes[i], "p"), 0.1 * (1 + n / 2), 1e-12);
            n++;
        }
    T_EQ(n, 14);
    tutti_graph_destroy(g);
    /* Along one axis there is one window. */
    g = model_build("swin", &params, &TUTTI_SHAPE(2, 3, 36, 16));
    T_EQ(count_attentions(g, 6), 2);
    tutti_graph_destroy(g);
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_shape images = TUTTI_SHAPE(2, 3, 32, 32);
    tutti_model_params params = {.n_classes = 10, .n_heads = 5};
    model_expect_refusal("swin", &params, TUTTI_F32, &images, "not a multiple of model.heads, 5");
    params = (tutti_model_params){.n_classes = 10, .window = 65};
    model_expect_refusal("swin", &params, TUTTI_F32, &images, "at most 64");
    params = (tutti_model_params){.n_classes = 10};
    model_expect_refusal("swin", &params, TUTTI_F32, &TUTTI_SHAPE(2, 3, 3, 3), "features.0.0");
    model_expect_refusal("swin", &params, TUTTI_I32, &TUTTI_SHAPE(2, 12), "needs images");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_torchvisions),
        cmocka_unit_test(names_and_initial_values_are_torchvisions),
        cmocka_unit_test(windows_are_shifted_where_there_are_several),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
