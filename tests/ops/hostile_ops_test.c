/* hostile_ops_test.c - nodes with absurd types and attributes, as a damaged graph file would have
 * them: infer says yes or no, and what it accepts can be costed, split, differentiated and run
 * without a fault.  The sanitizer builds are what makes this test sharp. */
#include <stdlib.h>

#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"

enum { N_TRIALS = 1500, MAX_RUN_ELEMS = 2048 };

typedef struct dice {
    uint64_t key, n;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
    return tti_philox_draw(d->key, 77, d->n++).v[0] % sides;
}

static int64_t some_int(dice *d) {
    static const int64_t ints[] = {0,         1,        2,  3,  1,       2,       4,
                                   -1,        -2,       -9, 16, 1 << 24, 1 << 30, INT64_C(1) << 40,
                                   INT64_MAX, INT64_MIN};
    return ints[roll(d, roll(d, 3) ? 7 : TTI_COUNT(ints))];
}

static double some_float(dice *d) {
    static const double floats[] = {0, 0.5, 0.9, 1, -1, 1e300, NAN, INFINITY};
    return floats[roll(d, TTI_COUNT(floats))];
}

static tutti_type some_type(dice *d) {
    static const int64_t dims[] = {2, 3, 1, 2, 4, 0, 5, 1 << 20};
    tutti_type type = {roll(d, 4) ? TUTTI_F32 : (tutti_dtype)roll(d, TUTTI_N_DTYPES),
                       {.n_dims = (int)roll(d, 6)}};
    for (int i = 0; i < type.shape.n_dims; i++)
        type.shape.dim[i] = dims[roll(d, roll(d, 8) ? 5 : TTI_COUNT(dims))];
    return type;
}

/* Any content, and a length that seldom suits the type. */
static tti_attr some_bytes(dice *d) {
    static unsigned char bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)roll(d, 256);
    return (tti_attr){.i = roll(d, sizeof bytes + 1), .bytes = bytes};
}

/* Types and attributes as a good sample has them, with some of them replaced. */
static int mutate(dice *d, const tti_op *op, tutti_type *types, tti_attr_arg *attrs) {
    int n_samples = 0, n_attrs = 0;
    while (op->samples[n_samples].in) n_samples++;
    int n_in = t_parse_sample(op, &op->samples[roll(d, (uint32_t)n_samples)], types, attrs);
    for (int i = 0; i < n_in; i++)
        if (roll(d, 4) == 0) types[i] = i && roll(d, 2) ? types[0] : some_type(d);
    for (int a = 0; op->attrs && op->attrs[a].name; a++) {
        if (roll(d, 3)) continue;
        tti_attr_arg arg = {op->attrs[a].name, {.i = some_int(d), .f = some_float(d)}};
        arg.value.n = (int)roll(d, roll(d, 4) ? 4 : TUTTI_MAX_DIMS + 1);
        for (int v = 0; v < arg.value.n; v++) arg.value.v[v] = some_int(d);
        if (op->attrs[a].kind == TTI_ATTR_BYTES) arg.value = some_bytes(d);
        while (attrs[n_attrs].name) n_attrs++;
        if (n_attrs < TTI_MAX_ATTRS) attrs[n_attrs] = arg, attrs[n_attrs + 1].name = NULL;
    }
    return n_in;
}

static bool is_small(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->op->n_out; k++)
            if (tti_value_n_elems(g->nodes[i]->out[k]) > MAX_RUN_ELEMS) return false;
    return true;
}

static void use_node(dice *d, tutti_graph *g, tti_node *node) {
    tti_cost cost;
    tti_placement in[TTI_MAX_IN], out[TTI_MAX_OUT];
    tutti_value *dx[TTI_MAX_IN] = {NULL}, *dy[TTI_MAX_OUT] = {NULL};
    bool need[TTI_MAX_IN];
    node->op->cost(node, &cost);
    assert_true(cost.flops >= 0 && cost.bytes >= 0);
    for (int i = 0; i < node->n_in; i++) {
        int n_dims = node->in[i]->type.shape.n_dims;
        in[i] = (tti_placement){n_dims ? (tti_placement_kind)roll(d, 3) : TTI_WHOLE, 0};
        if (in[i].kind == TTI_SPLIT) in[i].dim = (int)roll(d, (uint32_t)n_dims);
        need[i] = node->in[i]->type.dtype <= TUTTI_BF16;
    }
    tutti_status st = node->op->shard(node, in, out);
    assert_true(st == TUTTI_OK || st == TUTTI_E_UNSUPPORTED);
    for (int k = 0; st == TUTTI_OK && k < node->op->n_out; k++)
        if (out[k].kind == TTI_SPLIT)
            assert_true(out[k].dim >= 0 && out[k].dim < node->out[k]->type.shape.n_dims);
    for (int k = 0; k < node->op->n_out; k++)
        if (!(node->op->saved_out >> k & 1)) dy[k] = node->out[k];
    if (node->op->grad && node->out[0]->type.dtype <= TUTTI_BF16)
        T_OK(node->op->grad(g, node, dy, need, dx));
    if (!is_small(g)) return;
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < node->n_in; i++)
        for (int64_t e = 0; e < tti_value_n_elems(node->in[i]); e++)
            t_reference_of(r, node->in[i])[e] = (double)roll(d, 300) - 20;
    t_reference_run(r, &(tti_run){0});
    t_reference_destroy(r);
}

T_CASE(hostile_nodes_are_refused_or_work) {
    T_UNUSED;
    const tti_op *op;
    int n_accepted = 0;
    dice d = {.key = 5};
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++)
        for (int trial = 0; op->samples && trial < N_TRIALS; trial++) {
            tutti_type types[TTI_MAX_IN];
            tti_attr_arg attrs[2 * TTI_MAX_ATTRS + 2];
            int n_in = mutate(&d, op, types, attrs);
            tutti_graph *g = tutti_graph_create(true);
            tti_node *node = t_add_node(g, op, types, n_in, attrs);
            if (node && !(op->traits & TTI_SOURCE)) use_node(&d, g, node);
            n_accepted += node != NULL;
            tutti_graph_destroy(g);
        }
    assert_true(n_accepted > 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hostile_nodes_are_refused_or_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
