/* lstm_test.c - names and sizes are those of PyTorch's word_language_model. */
#include "models/models_count.h"

T_CASE(names_and_size) {
    T_UNUSED;
    static const model_param want[] = {
        {"encoder.weight", "f32[33,200]"},    {"rnn.weight_ih_l0", "f32[800,200]"},
        {"rnn.weight_hh_l1", "f32[800,200]"}, {"rnn.bias_ih_l1", "f32[800]"},
        {"decoder.weight", "f32[33,200]"},    {"decoder.bias", "f32[33]"}};
    tutti_model_params params = {.n_classes = 33, .dropout = 0.2};
    tutti_graph *g = model_build_tokens("lstm", &params, 3, 12);
    model_expect_some(g, want, sizeof want / sizeof *want);
    T_EQ(model_counts_of(g).n_params, 1 + 2 * 4 + 2);
    T_EQ(model_counts_of(g).n_elems, 2 * 33 * 200 + 33 + 2 * (2 * 800 * 200 + 2 * 800));
    T_EQ(model_count(g, "dropout"), 3);
    model_expect_init(g, "encoder.weight", TUTTI_INIT_UNIFORM, 0);
    model_expect_type(model_output(g, "logits"), "f32[3,12,33]");
    model_expect_round_trip(g);
}

T_CASE(free_sizes) {
    T_UNUSED;
    tutti_model_params params = {.n_classes = 9, .n_layers = 1, .width = 5, .size = "large"};
    tutti_graph *g = model_build_tokens("lstm", &params, 1, 4);
    model_expect_some(g, &(model_param){"rnn.weight_hh_l0", "f32[20,5]"}, 1);
    T_EQ(model_counts_of(g).n_params, 1 + 4 + 2);
    tutti_graph_destroy(g);
    model_expect_refusal("lstm", &params, TUTTI_F32, &TUTTI_SHAPE(2, 8), "lstm: needs tokens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_size),
        cmocka_unit_test(free_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
