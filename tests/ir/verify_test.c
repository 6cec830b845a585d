/* verify_test.c - every invariant is broken once, and named. */
#include "ir/toy_ops.h"

static void expect_broken(tutti_graph *g, const char *text) {
    T_FAILS(tti_graph_verify(g), TUTTI_E_INTERNAL, text);
}

T_CASE(a_good_graph_passes) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(a_failed_graph_is_reported_as_such) {
    T_UNUSED;
    tutti_graph *g = tti_graph_new(true, NULL);
    toy_add(g, "halves", "h", 1, &(tutti_value *){NULL});
    T_FAILS(tti_graph_verify(g), TUTTI_E_INVALID, "halves 'h': input 0 is missing");
    tutti_graph_destroy(g);
}

/* Nodes of toy_graph: 0 feed x, 1 feed y, 2 halves, 3 join(y, half). */
T_CASE(inputs_come_from_earlier_nodes) {
    T_UNUSED;
    tutti_graph *g = toy_graph(), *other = toy_graph();
    tti_node *join = g->nodes[3], *halves = g->nodes[2];
    tutti_value *saved = join->in[1], loose = {0}, fake = *halves->out[1];
    join->in[1] = NULL;
    expect_broken(g, "verify: node 3 join '': an input has no producer");
    join->in[1] = &loose;
    expect_broken(g, "an input has no producer");
    join->in[1] = other->nodes[2]->out[1];
    expect_broken(g, "an input is of another graph");
    join->in[1] = join->out[0];
    expect_broken(g, "an input is produced later");
    join->in[1] = &fake;
    expect_broken(g, "an input is not an output of its producer");
    fake.out = 7;
    expect_broken(g, "an input is not an output of its producer");
    join->in[1] = saved;
    halves->in[0] = saved;
    expect_broken(g, "verify: node 2 halves 'h': an input is produced later");
    halves->in[0] = g->nodes[0]->out[0];
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
    tutti_graph_destroy(other);
}

T_CASE(arity_and_order_hold) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    g->nodes[3]->n_in = 1;
    expect_broken(g, "node 3 join '': wrong number of inputs");
    g->nodes[3]->n_in = 4;
    expect_broken(g, "wrong number of inputs");
    g->nodes[3]->n_in = 2;
    g->nodes[2]->id = 1;
    expect_broken(g, "its id is not its position");
    g->nodes[2]->id = 2;
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(outputs_are_what_infer_says) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    tti_node *halves = g->nodes[2];
    tutti_value *out = halves->out[1];
    halves->out[1] = NULL;
    expect_broken(g, "node 2 halves 'h': an output is astray");
    halves->out[1] = halves->out[0];
    expect_broken(g, "an output is astray");
    halves->out[1] = out;
    out->node = g->nodes[3];
    expect_broken(g, "an output is astray");
    out->node = halves;
    out->id = g->n_values;
    expect_broken(g, "an output id is wild");
    out->id = -1;
    expect_broken(g, "an output id is wild");
    out->id = halves->out[0]->id;
    expect_broken(g, "an output id is used twice");
    out->id = 3;
    out->type.dtype = TUTTI_BF16;
    expect_broken(g, "an output's type is not what infer says");
    out->type.dtype = TUTTI_F32;
    out->type.shape.dim[1] = 4;
    expect_broken(g, "an output's type is not what infer says");
    out->type.shape.dim[1] = 3;
    out->layout = TTI_CHANNELS_LAST_BYTES;
    expect_broken(g, "only 4-D values may be channels last");
    out->layout = TTI_PLAIN;
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(infer_is_asked_again) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    toy_feed(g, "z", 5, 5);
    tti_node *late =
        toy_add(g, "join", "l", 2, (tutti_value *[]){g->nodes[4]->out[0], g->nodes[4]->out[0]});
    late->in[1] = g->nodes[0]->out[0];
    expect_broken(g, "join 'l': join 'l': input 1 has another shape");
    tutti_graph_destroy(g);
}

T_CASE(sources_have_names_of_their_own) {
    T_UNUSED;
    tutti_graph *g = toy_graph();
    g->nodes[1]->name = "x";
    expect_broken(g, "node 1 feed 'x': the name is taken");
    g->nodes[1]->name = "";
    expect_broken(g, "node 1 feed '': a source without a name");
    g->nodes[1]->name = "y";
    toy_add(g, "const", "", 0, NULL); /* constants need none */
    toy_add(g, "const", "", 0, NULL);
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

T_CASE(outputs_are_of_this_graph) {
    T_UNUSED;
    tutti_graph *g = toy_graph(), *other = toy_graph();
    g->outputs[1].value = other->outputs[1].value;
    expect_broken(g, "verify: output 'b' is of another graph");
    g->outputs[1].value = NULL;
    expect_broken(g, "verify: output 'b' is of another graph");
    tutti_graph_destroy(g);
    tutti_graph_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_graph_passes),
        cmocka_unit_test(a_failed_graph_is_reported_as_such),
        cmocka_unit_test(inputs_come_from_earlier_nodes),
        cmocka_unit_test(arity_and_order_hold),
        cmocka_unit_test(outputs_are_what_infer_says),
        cmocka_unit_test(infer_is_asked_again),
        cmocka_unit_test(sources_have_names_of_their_own),
        cmocka_unit_test(outputs_are_of_this_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
