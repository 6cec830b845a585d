/* gpt2_test.c - sizes, names and initial values are Hugging Face's; what it decodes with. */
#include <stdio.h>

#include "models/models_count.h"
#include "reference_run.h"

T_CASE(sizes_are_hugging_faces) {
    T_UNUSED;
    static const struct {
        const char *size;
        int n_params;
        int64_t n_elems;
    } known[] = {{NULL, 148, 124439808},
                 {"124M", 148, 124439808},
                 {"355M", 292, 354823168},
                 {"774M", 436, 774030080},
                 {"1558M", 580, 1557611200}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tutti_model_params params = {.n_classes = 50257, .context = 1024, .size = known[i].size};
        tutti_graph *g = model_build_tokens("gpt2", &params, 2, 64);
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, known[i].n_params);
        T_EQ(c.n_elems, known[i].n_elems);
        model_expect_type(model_output(g, "logits"), "f32[2,64,50257]");
        tutti_graph_destroy(g);
    }
}

T_CASE(names_and_initial_values) {
    T_UNUSED;
    static const model_param want[] = {{"transformer.wte.weight", "f32[65,24]"},
                                       {"transformer.wpe.weight", "f32[32,24]"},
                                       {"transformer.h.0.ln_1.weight", "f32[24]"},
                                       {"transformer.h.0.attn.c_attn.weight", "f32[72,24]"},
                                       {"transformer.h.1.attn.c_proj.bias", "f32[24]"},
                                       {"transformer.h.1.ln_2.bias", "f32[24]"},
                                       {"transformer.h.1.mlp.c_fc.weight", "f32[96,24]"},
                                       {"transformer.h.1.mlp.c_proj.weight", "f32[24,96]"},
                                       {"transformer.ln_f.bias", "f32[24]"}};
    tutti_model_params params = {
        .n_classes = 65, .n_layers = 2, .n_heads = 3, .width = 24, .context = 32, .dropout = 0.1};
    tutti_graph *g = model_build_tokens("gpt2", &params, 2, 16);
    model_expect_some(g, want, sizeof want / sizeof *want);
    T_EQ(model_counts_of(g).n_params, 4 + 2 * 12);
    model_expect_init(g, "transformer.wte.weight", TUTTI_INIT_NORMAL, 0.02);
    model_expect_init(g, "transformer.h.0.attn.c_attn.weight", TUTTI_INIT_NORMAL, 0.02);
    model_expect_init(g, "transformer.h.0.attn.c_proj.weight", TUTTI_INIT_NORMAL, 0.01);
    model_expect_init(g, "transformer.h.1.mlp.c_proj.weight", TUTTI_INIT_NORMAL, 0.01);
    T_EQ(model_count(g, "dropout"), 1 + 2 * 2);
    T_EQ(model_count(g, "attention"), 2);
    model_expect_round_trip(g);
}

/* Every pattern of weights that are stored transposed fits parameters of two dimensions. */
T_CASE(transposed_weights_are_named) {
    T_UNUSED;
    const tutti_model *model = tutti_model_find("gpt2");
    tutti_model_params params = {.n_classes = 65, .n_layers = 1, .n_heads = 3, .width = 24};
    tutti_graph *g = model_build_tokens("gpt2", &params, 1, 8);
    int n = 0;
    for (; model->transposed[n]; n++) {
        char name[128];
        const char *star = strchr(model->transposed[n], '*');
        assert_non_null(star);
        snprintf(name, sizeof name, "%.*s0%s", (int)(star - model->transposed[n]),
                 model->transposed[n], star + 1);
        const tti_node *node = tti_graph_find_source(g, name);
        assert_non_null(node);
        T_EQ(node->out[0]->type.shape.n_dims, 2);
    }
    T_EQ(n, 4);
    tutti_graph_destroy(g);
}

T_CASE(decoding_has_the_parameters_of_training) {
    T_UNUSED;
    tutti_model_params params = {
        .n_classes = 65, .n_layers = 2, .n_heads = 3, .width = 24, .context = 32};
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(2, 1));
    tutti_value *pos = tutti_input(g, "pos", TUTTI_I32, &TUTTI_SHAPE(1));
    tutti_value *logits = tutti_model_find("gpt2")->decode(g, x, pos, &params);
    T_OK(tutti_graph_check(g));
    model_expect_type(logits, "f32[2,1,65]");
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "v_cache.%d", i);
        model_expect_some(g, &(model_param){name, "f32[2,32,24]"}, 1);
        model_expect_type(model_output(g, name), "f32[2,32,24]");
    }
    tutti_graph *whole = model_build_tokens("gpt2", &params, 2, 16);
    T_EQ(model_counts_of(g).n_elems, model_counts_of(whole).n_elems);
    tutti_graph_destroy(whole);
    tutti_graph_destroy(g);
}

static const tutti_model_params small = {
    .n_classes = 7, .n_layers = 2, .n_heads = 2, .width = 8, .context = 6};
static const double text[5] = {3, 0, 6, 6, 1};

/* A run with made-up parameters, the same for graphs of the same model. */
static t_reference *prepare(const tutti_graph *g) {
    t_reference *run = t_reference_create(g);
    int k = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tutti_value *value = g->nodes[i]->out[0];
        if (!(g->nodes[i]->op->traits & TTI_PARAM)) continue;
        for (int64_t e = 0; e < tti_value_n_elems(value); e++)
            t_reference_of(run, value)[e] = 0.5 * sin(1.7 * (double)(e + 1) + k);
        k++;
    }
    return run;
}

static double *input_of(const t_reference *run, const char *name) {
    return t_reference_of(run, tti_graph_find_source(run->g, name)->out[0]);
}

/* The caches as they are at the next position. */
static void keep_caches(const t_reference *run) {
    for (int i = 0; i < run->g->n_outputs; i++) {
        const tutti_value *value = run->g->outputs[i].value;
        size_t n = (size_t)tti_value_n_elems(value);
        memcpy(input_of(run, run->g->outputs[i].name), t_reference_of(run, value), n * 8);
    }
}

/* Token after token gives what all tokens at once give. */
T_CASE(decoding_is_the_same_model) {
    T_UNUSED;
    tutti_graph *whole = model_build_tokens("gpt2", &small, 1, 5);
    t_reference *all = prepare(whole);
    memcpy(input_of(all, "x"), text, sizeof text);
    t_reference_run(all, &(tti_run){0});
    const double *want = t_reference_of(all, model_output(whole, "logits"));

    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(1, 1));
    tutti_value *pos = tutti_input(g, "pos", TUTTI_I32, &TUTTI_SHAPE(1));
    tutti_value *logits = tutti_model_find("gpt2")->decode(g, x, pos, &small);
    T_OK(tutti_graph_check(g));
    t_reference *one = prepare(g);
    for (int t = 0; t < 5; t++) {
        *input_of(one, "x") = text[t];
        *input_of(one, "pos") = t;
        t_reference_run(one, &(tti_run){0});
        for (int c = 0; c < 7; c++) T_NEAR(t_reference_of(one, logits)[c], want[7 * t + c], 1e-9);
        keep_caches(one);
    }
    t_reference_destroy(all);
    t_reference_destroy(one);
    tutti_graph_destroy(whole);
    tutti_graph_destroy(g);
}

T_CASE(what_does_not_fit_is_refused) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 65, .context = 16};
    model_expect_refusal("gpt2", &params, TUTTI_I32, &TUTTI_SHAPE(2, 17),
                         "samples of 17 tokens are longer than model.context, 16");
    model_expect_refusal("gpt2", &params, TUTTI_F32, &TUTTI_SHAPE(2, 8), "needs tokens, i32[N,T]");
    model_expect_refusal("gpt2", &params, TUTTI_I32, &TUTTI_SHAPE(2, 8, 1), "needs tokens");
    params.n_heads = 7;
    model_expect_refusal("gpt2", &params, TUTTI_I32, &TUTTI_SHAPE(2, 8),
                         "model.width, 768, is not a multiple of model.heads, 7");
    params.size = "125M";
    model_expect_refusal("gpt2", &params, TUTTI_I32, &TUTTI_SHAPE(2, 8),
                         "no size is called '125M', there are 124M 355M 774M 1558M");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_hugging_faces),
        cmocka_unit_test(names_and_initial_values),
        cmocka_unit_test(transposed_weights_are_named),
        cmocka_unit_test(decoding_has_the_parameters_of_training),
        cmocka_unit_test(decoding_is_the_same_model),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
