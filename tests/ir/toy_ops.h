/* toy_ops.h - a handful of ops for the tests of ir, which does not know the real ones. */
#ifndef TTI_TESTS_IR_TOY_OPS_H
#define TTI_TESTS_IR_TOY_OPS_H

#include "ir/graph.h"
#include "t.h"

static inline tutti_status toy_source_infer(const tti_node *node, tutti_type *out) {
    const tti_attr *dims = tti_attr_get(node, "dims");
    out[0] = (tutti_type){.dtype = TUTTI_F32, .shape = {.n_dims = dims->n}};
    for (int i = 0; i < dims->n; i++) out[0].shape.dim[i] = dims->v[i];
    return TUTTI_OK;
}

/* All outputs are as input 0, and all inputs must be alike. */
static inline tutti_status toy_same_infer(const tti_node *node, tutti_type *out) {
    for (int i = 1; i < node->n_in; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &node->in[0]->type.shape))
            return tti_node_fail(node, "input %d has another shape", i);
    for (int k = 0; k < node->op->n_out; k++) out[k] = node->in[0]->type;
    return TUTTI_OK;
}

static inline tutti_status toy_square_infer(const tti_node *node, tutti_type *out) {
    out[0] = node->in[0]->type;
    for (int d = 0; d < out[0].shape.n_dims; d++)
        out[0].shape.dim[d] *= node->in[0]->type.shape.dim[d];
    return TUTTI_OK;
}

static const tti_attr_spec toy_source_attrs[] = {{"dims", TTI_ATTR_INTS, 0, "shape"}, {0}};
static const tti_attr_spec toy_knob_attrs[] = {{"n", TTI_ATTR_INT, 3, "an integer"},
                                               {"x", TTI_ATTR_FLOAT, 0.5, "a number"},
                                               {"list", TTI_ATTR_INTS, 0, "integers"},
                                               {0}};

static const tti_op toy_ops[] = {
    {.name = "feed",
     .n_out = 1,
     .attrs = toy_source_attrs,
     .traits = TTI_SOURCE | TTI_INPUT,
     .infer = toy_source_infer},
    {.name = "const",
     .n_out = 1,
     .attrs = toy_source_attrs,
     .traits = TTI_SOURCE | TTI_CONSTANT,
     .infer = toy_source_infer},
    {.name = "join", .n_in_min = 2, .n_in_max = 3, .n_out = 1, .infer = toy_same_infer},
    {.name = "halves", .n_in_min = 1, .n_in_max = 1, .n_out = 2, .infer = toy_same_infer},
    {.name = "squared", .n_in_min = 1, .n_in_max = 1, .n_out = 1, .infer = toy_square_infer},
    {.name = "knob",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = toy_knob_attrs,
     .infer = toy_same_infer},
    {.name = "chain",
     .n_in_min = 1,
     .n_in_max = 2,
     .n_out = 1,
     .traits = TTI_FUSED,
     .infer = toy_same_infer},
};

static inline const tti_op *toy_find(const char *name) {
    for (size_t i = 0; i < TTI_COUNT(toy_ops); i++)
        if (strcmp(toy_ops[i].name, name) == 0) return &toy_ops[i];
    return NULL;
}

static inline tti_node *toy_add(tutti_graph *g, const char *op, const char *name, int n_in,
                                tutti_value *const *in) {
    return tti_graph_add(
        g, &(tti_node_desc){.op = toy_find(op), .name = name, .in = in, .n_in = n_in});
}

/* An input of shape [a,b]. */
static inline tutti_value *toy_feed(tutti_graph *g, const char *name, int64_t a, int64_t b) {
    tti_attr_arg attrs[] = {TTI_INTS("dims", 2, (int64_t[]){a, b}), {0}};
    tti_node *node =
        tti_graph_add(g, &(tti_node_desc){.op = toy_find("feed"), .name = name, .attrs = attrs});
    return node ? node->out[0] : NULL;
}

/* feed x, feed y, halves of x, join(y, second half), outputs "a" and "b". */
static inline tutti_graph *toy_graph(void) {
    tutti_graph *g = tti_graph_new(true, NULL);
    tutti_value *x = toy_feed(g, "x", 2, 3), *y = toy_feed(g, "y", 2, 3);
    tti_node *halves = toy_add(g, "halves", "h", 1, &x);
    tti_node *join = toy_add(g, "join", "", 2, (tutti_value *[]){y, halves->out[1]});
    tutti_output(g, "a", join->out[0]);
    tutti_output(g, "b", halves->out[0]);
    T_OK(tutti_graph_check(g));
    return g;
}

#endif /* TTI_TESTS_IR_TOY_OPS_H */
