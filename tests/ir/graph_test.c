/* graph_test.c - building is sticky: the first failure is kept, everything after it is NULL. */
#include "ir/toy_ops.h"

#include <stdio.h>

static void expect_failure(tutti_graph *g, tutti_status status, const char *text) {
    tti_clear_error();
    T_FAILS(tutti_graph_check(g), status, text);
    T_EQ(tutti_graph_check(g), status); /* and it stays */
    tutti_graph_destroy(g);
}

T_CASE(the_first_failure_is_kept) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 2, 3), *y = toy_feed(g, "y", 3, 2);
    T_OK(tutti_graph_check(g));
    assert_null(toy_add(g, "join", "first", 2, (tutti_value *[]){x, y}));
    T_EQ(g->n_nodes, 2);
    T_EQ(g->n_values, 2);
    assert_null(toy_add(g, "join", "second", 1, &x));
    assert_null(toy_add(g, "halves", "fine", 1, &x)); /* a good call does not heal it */
    tutti_output(g, "out", x);
    T_EQ(g->n_outputs, 0);
    expect_failure(g, TUTTI_E_INVALID, "join 'first': input 1 has another shape");
}

T_CASE(a_missing_input_is_named) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 2, 3);
    assert_null(toy_add(g, "join", "j", 2, (tutti_value *[]){x, NULL}));
    expect_failure(g, TUTTI_E_INVALID, "join 'j': input 1 is missing");
}

T_CASE(a_model_may_refuse) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 2, 3);
    assert_null(tutti_graph_refuse(g, "net: the image is 1% too dark"));
    assert_null(tutti_graph_refuse(g, "net: and more"));
    assert_null(toy_add(g, "halves", "fine", 1, &x));
    expect_failure(g, TUTTI_E_INVALID, "net: the image is 1% too dark");
}

T_CASE(arity_is_checked) {
    T_UNUSED;
    for (int n_in = 0; n_in < 6; n_in++) {
        tutti_graph *g = tti_graph_new(true, NULL);
        tutti_value *x = toy_feed(g, "x", 2, 3), *in[6] = {x, x, x, x, x, x};
        bool allowed = n_in == 2 || n_in == 3;
        assert_int_equal(toy_add(g, "join", "j", n_in, in) != NULL, allowed);
        char text[64];
        snprintf(text, sizeof text, "join 'j': %d inputs, 2 to 3 are allowed", n_in);
        if (allowed)
            tutti_graph_destroy(g);
        else
            expect_failure(g, TUTTI_E_INVALID, text);
    }
}

T_CASE(shapes_of_results_are_limited) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 1 << 10, 1 << 10);
    tti_node *big = toy_add(g, "squared", "a", 1, &x); /* 2^40, the most */
    assert_non_null(big);
    assert_null(toy_add(g, "squared", "b", 1, big->out));
    expect_failure(g, TUTTI_E_INVALID, "squared 'b': output 0: shape: over 2^40 elements");
    g = tti_graph_new(true, NULL);
    assert_null(toy_feed(g, "x", 2, -1));
    expect_failure(g, TUTTI_E_INVALID, "feed 'x': output 0: shape: dimension 1 is negative");
}

T_CASE(outputs_have_names_of_their_own) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    T_EQ(g->n_outputs, 2);
    assert_ptr_equal(tti_graph_output(g, "b"), g->nodes[2]->out[0]);
    assert_null(tti_graph_output(g, "c"));
    tutti_output(g, "c", NULL); /* stands for a failed call: nothing */
    T_OK(tutti_graph_check(g));
    tutti_output(g, "a", g->nodes[0]->out[0]);
    expect_failure(g, TUTTI_E_INVALID, "output 'a' is named twice");
}

/* Names go into the outputs "grad.NAME" and must read back from the text form. */
T_CASE(long_names_are_refused) {
    T_UNUSED;
    char name[TTI_MAX_NAME + 2] = {0};
    memset(name, 'n', TTI_MAX_NAME);
    tutti_graph *g = tti_graph_new(true, NULL);
    assert_non_null(toy_feed(g, name, 2, 3));
    name[TTI_MAX_NAME] = 'n';
    assert_null(toy_feed(g, name, 2, 3));
    expect_failure(g, TUTTI_E_INVALID, "the name is too long");
}

T_CASE(sources_are_found_by_name) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    assert_ptr_equal(tti_graph_find_source(g, "y"), g->nodes[1]);
    assert_null(tti_graph_find_source(g, "h")); /* a layer */
    tutti_graph_destroy(g);
}

T_CASE(many_nodes_keep_their_places) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(false, NULL);
    tutti_value *x = toy_feed(g, "x", 1, 1);
    for (int i = 1; i <= 1000; i++) {
        tti_node *node = toy_add(g, "halves", NULL, 1, &x);
        T_EQ(node->id, i);
        T_EQ(node->out[0]->id, 2 * i - 1);
        T_EQ(node->out[1]->id, 2 * i);
        x = node->out[i % 2];
    }
    T_EQ(g->n_values, 2001);
    T_OK(tti_graph_verify(g));
    assert_false(tutti_graph_is_training(g));
    tutti_graph_destroy(g);
}

T_CASE(attributes_have_defaults) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 1, 1);
    tti_node *node = toy_add(g, "knob", "k", 1, &x);
    T_EQ(tti_attr_int(node, "n"), 3);
    T_NEAR(tti_attr_float(node, "x"), 0.5, 0);
    T_EQ(tti_attr_get(node, "list")->n, 0);
    assert_true(tti_attr_has(node, "x") && !tti_attr_has(node, "y"));
    T_EQ(tti_n_attrs(node->op), 3);
    tti_attr_arg attrs[] = {TTI_INT("n", -7),
                            TTI_FLOAT("x", 2),
                            TTI_INTS("list", 3, (int64_t[]){1, 2, 3}),
                            TTI_INT("n", 8),
                            {0}};
    node = tti_graph_add(
        g, &(tti_node_desc){.op = toy_find("knob"), .in = &x, .n_in = 1, .attrs = attrs});
    T_EQ(tti_attr_int(node, "n"), 8); /* later ones win */
    T_NEAR(tti_attr_float(node, "x"), 2, 0);
    T_EQ(tti_attr_get(node, "list")->n, 3);
    T_EQ(tti_attr_get(node, "list")->v[2], 3);
    assert_string_equal(node->name, "");
    tutti_graph_destroy(g);
}

T_CASE(a_clone_is_the_same_on_other_inputs) {
    T_UNUSED;
    tutti_graph *from = tti_graph_new(true, NULL), *to = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(from, "x", 2, 3);
    tti_attr_arg attrs[] = {TTI_INT("n", -7), TTI_INTS("list", 1, (int64_t[]){9}), {0}};
    tti_node *node = tti_graph_add(
        from,
        &(tti_node_desc){.op = toy_find("knob"), .name = "k", .in = &x, .n_in = 1, .attrs = attrs});
    node->out[0]->layout = TTI_CHANNELS_LAST_BYTES;
    toy_feed(to, "other", 1, 1);
    tutti_value *map[2] = {toy_feed(to, "x", 4, 5), NULL};
    tti_node *copy = tti_graph_clone_node(to, node, map);
    assert_ptr_equal(map[1], copy->out[0]);
    assert_ptr_equal(copy->in[0], map[0]);
    T_EQ(copy->id, 2);
    T_EQ(copy->out[0]->type.shape.dim[1], 5);
    T_EQ(copy->out[0]->layout, TTI_CHANNELS_LAST_BYTES);
    T_EQ(tti_attr_int(copy, "n"), -7);
    T_EQ(tti_attr_get(copy, "list")->v[0], 9);
    assert_ptr_not_equal(copy->name, node->name); /* of its own graph */
    tutti_graph_destroy(from);
    assert_string_equal(copy->name, "k");
    map[0] = NULL; /* the producer was lost on the way */
    tti_node orphan = *copy;
    tutti_value none = {.id = 0};
    orphan.in = (tutti_value *[]){&none};
    assert_null(tti_graph_clone_node(to, &orphan, map));
    expect_failure(to, TUTTI_E_INVALID, "input 0 is missing");
}

/* In every node, name and id, and on its own: the first graph is gone when it is looked at. */
T_CASE(a_copy_is_the_whole_graph) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL), *copy;
    tutti_value *x = toy_feed(g, "x", 4, 3);
    tti_node *halves = toy_add(g, "halves", "h", 1, &x);
    halves->stage = 2;
    tti_node *join = toy_add(g, "join", "j", 2, (tutti_value *[]){halves->out[0], halves->out[1]});
    tutti_output(g, "sum", join->out[0]);
    tti_str before = {0}, after = {0};
    tti_graph_print(g, &before);
    T_OK(tti_graph_copy(g, &copy));
    int id = join->out[0]->id;
    tutti_graph_destroy(g);
    T_OK(tti_graph_verify(copy));
    tti_graph_print(copy, &after);
    assert_string_equal(tti_str_text(&before), tti_str_text(&after));
    T_EQ(copy->n_values, 4);
    T_EQ(copy->nodes[1]->stage, 2);
    T_EQ(tti_graph_output(copy, "sum")->id, id);
    assert_true(tutti_graph_is_training(copy));
    assert_non_null(toy_add(copy, "halves", "more", 1, copy->nodes[0]->out)); /* it may grow */
    T_OK(tti_graph_verify(copy));
    tutti_graph_destroy(copy);
    tti_str_free(&before);
    tti_str_free(&after);
}

T_CASE(a_failed_graph_has_no_copy) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL), *copy;
    tutti_graph_refuse(g, "net: too dark");
    T_FAILS(tti_graph_copy(g, &copy), TUTTI_E_INVALID, "net: too dark");
    assert_null(copy);
    tutti_graph_destroy(g);
}

T_CASE(nothing_is_no_graph) {
    T_UNUSED;
    assert_null(toy_add(NULL, "halves", "h", 0, NULL));
    tutti_output(NULL, "a", NULL);
    tutti_graph_destroy(NULL);
    T_EQ(tutti_value_type(NULL).shape.n_dims, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(a_missing_input_is_named),
        cmocka_unit_test(a_model_may_refuse),
        cmocka_unit_test(arity_is_checked),
        cmocka_unit_test(shapes_of_results_are_limited),
        cmocka_unit_test(outputs_have_names_of_their_own),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(sources_are_found_by_name),
        cmocka_unit_test(many_nodes_keep_their_places),
        cmocka_unit_test(attributes_have_defaults),
        cmocka_unit_test(a_clone_is_the_same_on_other_inputs),
        cmocka_unit_test(a_copy_is_the_whole_graph),
        cmocka_unit_test(a_failed_graph_has_no_copy),
        cmocka_unit_test(nothing_is_no_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
