/* print_test.c - the text form, byte for byte. */
#include "ir/toy_ops.h"

#include <stdlib.h>

static void expect_text(tutti_graph *g, const char *want) {
    char *text = tutti_graph_print(g);
    assert_string_equal(text, want);
    free(text);
    tutti_graph_destroy(g);
}

T_CASE(a_graph_is_a_line_per_node) {
    T_UNUSED;
    expect_text(toy_graph(),
                "graph training\n"
                "%0 = feed \"x\" () {dims=[2,3]} : f32[2,3]\n"
                "%1 = feed \"y\" () {dims=[2,3]} : f32[2,3]\n"
                "%2, %3 = halves \"h\" (%0) {} : f32[2,3], f32[2,3]\n"
                "%4 = join \"\" (%1, %3) {} : f32[2,3]\n"
                "output \"a\" %4\n"
                "output \"b\" %2\n");
    expect_text(tti_graph_new(false, NULL), "graph inference\n");
}

T_CASE(attributes_differ_from_their_defaults) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(false, NULL);
    tutti_value *x = toy_feed(g, "x", 1, 1);
    tti_attr_arg attrs[] = {TTI_INT("n", INT64_MIN),
                            TTI_FLOAT("x", 0.1),
                            TTI_INTS("list", 3, (int64_t[]){-1, 0, INT64_MAX}),
                            {0}};
    tti_graph_add(g, &(tti_node_desc){.op = toy_find("knob"), .in = &x, .n_in = 1, .attrs = attrs});
    attrs[0].value.i = 3; /* the default */
    attrs[1].value.f = -INFINITY;
    attrs[2].value.n = 0;
    tti_graph_add(g, &(tti_node_desc){.op = toy_find("knob"), .in = &x, .n_in = 1, .attrs = attrs});
    expect_text(g,
                "graph inference\n"
                "%0 = feed \"x\" () {dims=[1,1]} : f32[1,1]\n"
                "%1 = knob \"\" (%0) {n=-9223372036854775808 x=0.10000000000000001 "
                "list=[-1,0,9223372036854775807]} : f32[1,1]\n"
                "%2 = knob \"\" (%0) {x=-inf} : f32[1,1]\n");
}

T_CASE(names_are_escaped) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(false, NULL);
    toy_feed(g, "a\"b\\c\n\x7f\x01\xc3\xa9", 1, 1);
    expect_text(g,
                "graph inference\n"
                "%0 = feed \"a\\\"b\\\\c\\x0a\\x7f\\x01\xc3\xa9\" () {dims=[1,1]} : f32[1,1]\n");
}

T_CASE(layouts_and_chains_are_shown) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(false, NULL);
    tti_attr_arg attrs[] = {TTI_INTS("dims", 4, (int64_t[]){1, 2, 3, 4}), {0}};
    tutti_value *x =
        tti_graph_add(g, &(tti_node_desc){.op = toy_find("feed"), .name = "x", .attrs = attrs})
            ->out[0];
    x->layout = TTI_CHANNELS_LAST_BYTES;
    tti_node *chain = toy_add(g, "chain", "", 1, &x);
    tti_node *body[2] = {&(tti_node){.op = toy_find("knob")}, &(tti_node){.op = toy_find("join")}};
    chain->body = body;
    chain->n_body = 2;
    expect_text(g,
                "graph inference\n"
                "%0 = feed \"x\" () {dims=[1,2,3,4]} : f32[1,2,3,4] channels_last\n"
                "%1 = chain \"\" (%0) {} : f32[1,2,3,4] # body: knob join\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_a_line_per_node),
        cmocka_unit_test(attributes_differ_from_their_defaults),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(layouts_and_chains_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
