/* bert_test.c - sizes and names are Hugging Face's; padding is found in the tokens. */
#include "models/models_count.h"
#include "reference_run.h"

T_CASE(sizes_are_hugging_faces) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 30522, .context = 512};
    tutti_graph *g = model_build_tokens("bert", &params, 2, 32); /* BertForMaskedLM, base */
    T_EQ(model_counts_of(g).n_elems, 109514298);
    model_expect_type(model_output(g, "logits"), "f32[2,32,30522]");
    tutti_graph_destroy(g);
    params.n_classes = 2, params.vocabulary = 30522, params.classify = true;
    g = model_build_tokens("bert", &params, 2, 32); /* BertForSequenceClassification, base */
    T_EQ(model_counts_of(g).n_elems, 109483778);
    model_expect_type(model_output(g, "logits"), "f32[2,2]");
    tutti_graph_destroy(g);
    params.size = "large";
    g = model_build_tokens("bert", &params, 1, 8);
    T_EQ(model_counts_of(g).n_elems, 335143938);
    tutti_graph_destroy(g);
}

T_CASE(names) {
    T_UNUSED;
    static const model_param want[] = {
        {"bert.embeddings.word_embeddings.weight", "f32[99,128]"},
        {"bert.embeddings.position_embeddings.weight", "f32[16,128]"},
        {"bert.embeddings.token_type_embeddings.weight", "f32[2,128]"},
        {"bert.embeddings.LayerNorm.bias", "f32[128]"},
        {"bert.encoder.layer.0.attention.self.query.weight", "f32[128,128]"},
        {"bert.encoder.layer.1.attention.self.value.bias", "f32[128]"},
        {"bert.encoder.layer.1.attention.output.dense.weight", "f32[128,128]"},
        {"bert.encoder.layer.1.attention.output.LayerNorm.weight", "f32[128]"},
        {"bert.encoder.layer.1.intermediate.dense.weight", "f32[512,128]"},
        {"bert.encoder.layer.1.output.dense.weight", "f32[128,512]"},
        {"bert.encoder.layer.1.output.LayerNorm.bias", "f32[128]"},
        {"cls.predictions.transform.dense.weight", "f32[128,128]"},
        {"cls.predictions.transform.LayerNorm.weight", "f32[128]"},
        {"cls.predictions.bias", "f32[99]"}};
    tutti_model_params params = {.n_classes = 99, .size = "tiny", .dropout = 0.1};
    tutti_graph *g = model_build_tokens("bert", &params, 2, 16);
    model_expect_some(g, want, sizeof want / sizeof *want);
    model_expect_init(g, "bert.encoder.layer.0.output.dense.weight", TUTTI_INIT_NORMAL, 0.02);
    T_EQ(model_counts_of(g).n_params, 5 + 2 * 16 + 5);
    T_EQ(model_count(g, "dropout"), 1 + 2 * 2);
    model_expect_round_trip(g);
    params.classify = true, params.vocabulary = 99, params.n_classes = 3;
    g = model_build_tokens("bert", &params, 2, 16);
    model_expect_some(g, &(model_param){"bert.pooler.dense.weight", "f32[128,128]"}, 1);
    model_expect_some(g, &(model_param){"classifier.weight", "f32[3,128]"}, 1);
    model_expect_round_trip(g);
}

/* The k-th parameter of the model. */
static void fill(const t_reference *run, const tutti_value *value, int k) {
    double *v = t_reference_of(run, value);
    for (int64_t i = 0; i < tti_value_n_elems(value); i++)
        v[i] = 0.5 * sin(1.7 * (double)(i + 1) + k);
}

/* Logits of {5, 6, 7, last}, with or without 9 as padding. */
static void classify(bool padded, double last, double logits[2]) {
    tutti_model_params params = {.n_classes = 2,
                                 .vocabulary = 10,
                                 .n_layers = 1,
                                 .n_heads = 2,
                                 .width = 8,
                                 .classify = true,
                                 .padded = padded,
                                 .pad_token = 9};
    tutti_graph *g = model_build_tokens("bert", &params, 1, 4);
    t_reference *run = t_reference_create(g);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_PARAM) fill(run, g->nodes[i]->out[0], n++);
    double *x = t_reference_of(run, tti_graph_find_source(g, "x")->out[0]);
    memcpy(x, (double[]){5, 6, 7, last}, 4 * sizeof *x);
    t_reference_run(run, &(tti_run){0});
    memcpy(logits, t_reference_of(run, model_output(g, "logits")), 2 * sizeof *logits);
    t_reference_destroy(run);
    tutti_graph_destroy(g);
}

T_CASE(padding_is_not_looked_at) {
    T_UNUSED;
    double a[2], b[2];
    classify(false, 9, a);
    classify(true, 9, b);
    assert_true(fabs(a[0] - b[0]) > 1e-6);
    classify(false, 8, a);
    classify(true, 8, b);
    T_NEAR(a[0], b[0], 1e-12); /* no padding: the same */
    T_NEAR(a[1], b[1], 1e-12);
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 2, .size = "124M"};
    model_expect_refusal("bert", &params, TUTTI_I32, &TUTTI_SHAPE(2, 8),
                         "bert: model.size: no size is called '124M', there are base tiny");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_hugging_faces),
        cmocka_unit_test(names),
        cmocka_unit_test(padding_is_not_looked_at),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
