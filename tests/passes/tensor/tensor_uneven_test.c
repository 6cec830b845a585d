/* tensor_uneven_test.c - which layers a number of workers cannot divide, how they are named, and
 * which numbers would work. */
#include "passes/nets.h"
#include "passes/tensor/tensor.h"

static void expect(tutti_graph *g, int n, int n_uneven, const char *text) {
    const tti_node *first;
    tti_str reported = {0};
    T_EQ(tti_tensor_uneven(g, n, &first), n_uneven);
    assert_true((first != NULL) == (n_uneven > 0));
    if (first) tti_tensor_layer_text(first, &reported);
    assert_string_equal(tti_str_text(&reported), text);
    tti_str_free(&reported);
}

static void expect_numbers(tutti_graph *g, bool even, const char *text) {
    tti_str reported = {0};
    T_OK(tti_tensor_numbers(g, even, &reported));
    assert_string_equal(tti_str_text(&reported), text);
    tti_str_free(&reported);
}

/* 6 inputs, 10 hidden, NET_CLASSES 5: rows do where columns do not. */
T_CASE(rows_will_do_for_columns) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 10, "fc1"));
    net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
    expect(g, 2, 0, "");
    expect(g, 5, 0, "");
    expect(g, 3, 1, "linear 'fc2' with 5 features from 10"); /* fc1 by its rows */
    expect(g, 7, 2, "linear 'fc1' with 10 features from 6");
    expect_numbers(g, true, "2, 5, 10");
    expect_numbers(g, false, "3, 6");
    tutti_graph_destroy(g);
}

/* Any number of workers may do; but no layer is uneven for what only a large one divides. */
T_CASE(large_numbers) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 34, "fc1"));
    net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
    expect_numbers(g, true, "2, 17, 34");
    expect(g, 17, 0, "");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    x = tutti_relu(g, tutti_linear(g, net_x(g), 17, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 19, "fc2"));
    net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
    expect(g, 2, 1, "linear 'fc3' with 5 features from 19"); /* fc1 by its rows, fc2 by none */
    tutti_graph_destroy(g);
}

T_CASE(channels) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc conv = {.n_out = 6, .kernel = 3, .pad = 1};
    tutti_value *x = tutti_relu(g, tutti_conv2d(g, net_image(g, 1), &conv, "conv1"));
    conv.n_out = 8;
    x = tutti_relu(g, tutti_conv2d(g, x, &conv, "conv2"));
    net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "fc"));
    expect(g, 2, 0, "");
    expect(g, 3, 1, "linear 'fc' with 5 features from 512"); /* conv2 by its 6 channels */
    expect(g, 4, 1, "conv2d 'conv1' with 6 channels from 1");
    tutti_graph_destroy(g);
}

/* A table of 2 x 3 that is added stays whole for four; the layers do not, so nothing is refused. */
T_CASE(a_table_that_is_added_is_no_layer) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.3};
    tutti_value *x = tutti_reshape(g, net_x(g), &TUTTI_SHAPE(NET_ROWS, 2, 3));
    x = tutti_add(g, x, tutti_param(g, "places", &TUTTI_SHAPE(2, 3), &init, true));
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 6));
    net_finish(g, tutti_linear(g, tutti_relu(g, tutti_linear(g, x, 8, "fc1")), NET_CLASSES, "fc2"));
    expect(g, 4, 0, "");
    expect(g, 7, 2, "linear 'fc1' with 8 features from 6");
    tutti_graph_destroy(g);
}

enum { TOKENS = 4, WIDTH = 24, WORDS = 35 };

/* heads, of which kv have keys of their own (0: all). */
static tutti_graph *block(int heads, int kv) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.3};
    tutti_value *table = tutti_param(g, "table", &TUTTI_SHAPE(WORDS, WIDTH), &init, true);
    tutti_value *words = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(NET_ROWS, TOKENS));
    tutti_value *x = tutti_lookup(g, table, words);
    int each = WIDTH / heads, joined = (heads + 2 * (kv ? kv : heads)) * each;
    x = tutti_linear(g, x, joined, "qkv");
    x = tutti_attention(g, x, NULL, &(tutti_attention_desc){.heads = heads, .kv_heads = kv});
    return net_finish(
        g, tutti_linear(g, tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, TOKENS * WIDTH)), NET_CLASSES,
                        "out"));
}

T_CASE(heads_and_tables) {
    T_UNUSED;
    tutti_graph *g = block(6, 0);
    expect(g, 2, 0, "");
    expect(g, 4, 1, "attention after 'qkv' with 6 heads");
    expect(g, 7, 3, "linear 'qkv' with 72 features from 24"); /* the table by its words */
    expect(g, 9, 3, "embedding of 'table' with 35 x 24 weights");
    expect_numbers(g, true, "2, 3, 6");
    tutti_graph_destroy(g);
}

/* tti_tensor_whole_heads reports attention that no number of workers divides. */
T_CASE(what_no_number_divides_is_not_uneven) {
    T_UNUSED;
    tutti_graph *g = block(6, 2);
    expect(g, 4, 0, "");
    T_EQ(tti_tensor_whole_heads(g, 4), 6);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_will_do_for_columns),
        cmocka_unit_test(large_numbers),
        cmocka_unit_test(channels),
        cmocka_unit_test(a_table_that_is_added_is_no_layer),
        cmocka_unit_test(heads_and_tables),
        cmocka_unit_test(what_no_number_divides_is_not_uneven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
