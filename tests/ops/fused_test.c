/* fused_test.c - a chain node is what its parts are, in types, cost and numbers. */
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

/* y = relu(a + b) as one node, its parts in the form the fuse pass gives them: values of their own
 * with no id in the graph. */
typedef struct chain {
    tutti_graph *g;
    tutti_value *a, *b;
    tti_node *fused, *body[2], parts[2];
    tutti_value made[2];
} chain;

static void make_part(chain *c, int i, tti_node *like, tutti_value **in) {
    c->parts[i] = *like;
    c->made[i] = (tutti_value){.type = like->out[0]->type, .node = &c->parts[i], .id = -1};
    c->parts[i].in = in;
    c->parts[i].out[0] = &c->made[i];
    c->body[i] = &c->parts[i];
}

static void make_chain(chain *c, const tutti_shape *shape_b) {
    c->g = tutti_graph_create(true);
    c->a = tutti_input(c->g, "a", TUTTI_F32, &TUTTI_SHAPE(2, 3));
    c->b = tutti_input(c->g, "b", TUTTI_F32, shape_b);
    tutti_value *sum = tutti_add(c->g, c->a, c->b), *y = tutti_relu(c->g, sum);
    tutti_value *none[2] = {c->a, c->a};
    T_OK(tutti_graph_check(c->g));
    c->fused = tti_graph_add(
        c->g, &(tti_node_desc){.op = tti_op_find("fused"), .name = "f", .in = none, .n_in = 2});
    c->fused->in[1] = c->b;
    make_part(c, 0, sum->node, sum->node->in);
    make_part(c, 1, y->node, c->fused->in); /* its input is set by the caller of make_chain */
    c->fused->body = c->body;
    c->fused->n_body = 2;
}

T_CASE(a_chain_is_its_parts) {
    T_UNUSED;
    chain c;
    make_chain(&c, &TUTTI_SHAPE(2, 3));
    tutti_value *between[1] = {&c.made[0]};
    c.parts[1].in = between;
    tutti_type type;
    T_OK(c.fused->op->infer(c.fused, &type));
    assert_true(tti_shape_equal(&type.shape, &c.a->type.shape));
    tti_cost cost;
    c.fused->op->cost(c.fused, &cost);
    T_NEAR(cost.flops, 12, 0);
    T_NEAR(cost.bytes, 3 * 6 * 4, 0); /* not the value between */
    t_reference *r = t_reference_create(c.g);
    for (int i = 0; i < 6; i++) {
        t_reference_of(r, c.a)[i] = i;
        t_reference_of(r, c.b)[i] = -2.5;
    }
    t_reference_run(r, &(tti_run){0});
    for (int i = 0; i < 6; i++)
        T_NEAR(t_reference_of(r, c.fused->out[0])[i], i < 3 ? 0 : i - 2.5, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(c.g);
}

T_CASE(a_part_that_repeats_an_input_is_refused) {
    T_UNUSED;
    chain c;
    make_chain(&c, &TUTTI_SHAPE(3));
    tutti_type type;
    c.fused->in[1] = c.a;
    T_FAILS(c.fused->op->infer(c.fused, &type), TUTTI_E_INVALID,
            "fused 'f': add cannot be part of a chain");
    tutti_graph_destroy(c.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_its_parts),
        cmocka_unit_test(a_part_that_repeats_an_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
