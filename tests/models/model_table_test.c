/* model_table_test.c - every built-in model builds, for training and not, and says what is wrong
 * with an input that it cannot take. */
#include <stdlib.h>

#include "t.h"
#include "tutti/models.h"
#include "tutti/ops.h"

static const tutti_model_params params = {
    .n_classes = 7, .n_hidden = 2, .hidden = {12, 5}, .dropout = 0.25};

T_CASE(names_are_found_in_order) {
    T_UNUSED;
    int n = 0;
    for (const tutti_model *m; (m = tutti_model_at(n)); n++) {
        assert_ptr_equal(tutti_model_find(m->name), m);
        assert_true(strlen(m->doc) > 10);
        if (n > 0) assert_true(strcmp(tutti_model_at(n - 1)->name, m->name) < 0);
    }
    assert_true(n >= 2);
    assert_null(tutti_model_at(-1));
    assert_null(tutti_model_find("lenet5"));
}

/* The input of a model of that kind. */
static tutti_value *input_of(tutti_graph *g, const tutti_model *m) {
    if (m->input == TUTTI_MODEL_TOKENS) return tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(3, 16));
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(3, 1, 32, 32));
}

T_CASE(each_gives_logits) {
    T_UNUSED;
    for (int i = 0; tutti_model_at(i); i++)
        for (int training = 0; training < 2; training++) {
            const tutti_model *m = tutti_model_at(i);
            tutti_graph *g = tutti_graph_create(training);
            tutti_value *logits = m->build(g, input_of(g, m), &params);
            T_OK(tutti_graph_check(g));
            tutti_type type = tutti_value_type(logits);
            T_EQ(type.dtype, TUTTI_F32);
            bool by_pixel = strcmp(m->name, "unet") == 0;
            T_EQ(type.shape.n_dims, m->input == TUTTI_MODEL_TOKENS ? 3 : by_pixel ? 4 : 2);
            T_EQ(type.shape.dim[0], 3);
            T_EQ(type.shape.dim[by_pixel ? 1 : type.shape.n_dims - 1], 7);
            tutti_graph_destroy(g);
        }
}

/* The names in the table are what the model takes by itself: the same graph with and without. */
T_CASE(choices_that_are_left_open) {
    T_UNUSED;
    int n_sizes = 0;
    for (int i = 0; tutti_model_at(i); i++) {
        const tutti_model *m = tutti_model_at(i);
        char *text[2];
        for (int named = 0; named < 2; named++) {
            tutti_model_params p = params;
            if (named) p.size = m->size, p.activation = m->activation;
            tutti_graph *g = tutti_graph_create(true);
            (void)m->build(g, input_of(g, m), &p);
            T_OK(tutti_graph_check(g));
            text[named] = tutti_graph_print(g);
            assert_non_null(text[named]);
            tutti_graph_destroy(g);
        }
        assert_string_equal(text[0], text[1]);
        n_sizes += m->size != NULL;
        free(text[0]);
        free(text[1]);
    }
    T_EQ(n_sizes, 6);
}

/* Checkpoints and seeds go by these names. */
T_CASE(parameters_keep_their_names) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 1, 28, 28));
    (void)tutti_model_find("lenet")->build(g, x, &params);
    char *text = tutti_graph_print(g);
    assert_non_null(text);
    const char *names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                           "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(strstr(text, names[i]));
    free(text);
    tutti_graph_destroy(g);
}

T_CASE(too_small_images_are_refused_by_layer) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 1, 2, 2));
    assert_null(tutti_model_find("lenet")->build(g, x, &params));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "max_pool2d");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_in_order),
        cmocka_unit_test(each_gives_logits),
        cmocka_unit_test(choices_that_are_left_open),
        cmocka_unit_test(parameters_keep_their_names),
        cmocka_unit_test(too_small_images_are_refused_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
