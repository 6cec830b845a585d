/* models_check.h - a model by its name, and what its graph must hold. */
#ifndef TTI_TESTS_MODELS_MODELS_CHECK_H
#define TTI_TESTS_MODELS_MODELS_CHECK_H

#include <stdlib.h>

#include "ir/graph.h"
#include "models/models.h"
#include "t.h"

typedef struct model_param {
    const char *name, *type;
} model_param;

/* The graph of a model with the output "logits". */
static inline tutti_graph *model_build(const char *name, const tutti_model_params *params,
                                       const tutti_shape *x_shape) {
    const tutti_model *model = tutti_model_find(name);
    assert_non_null(model);
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "logits", model->build(g, tutti_input(g, "x", TUTTI_F32, x_shape), params));
    T_OK(tutti_graph_check(g));
    T_OK(tti_graph_verify(g));
    return g;
}

static inline void model_expect_type(const tutti_value *value, const char *text) {
    char got[128];
    assert_non_null(value);
    assert_string_equal(tti_type_text(&value->type, got, sizeof got), text);
}

/* Exactly these parameters, in this order, weights with decay and biases without. */
static inline void model_expect_params(const tutti_graph *g, const model_param *want, size_t n_want,
                                       int64_t n_elems) {
    size_t n = 0;
    int64_t total = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & TTI_PARAM)) continue;
        assert_true(n < n_want);
        assert_string_equal(node->name, want[n].name);
        model_expect_type(node->out[0], want[n++].type);
        T_EQ(tti_attr_int(node, "decay"), strstr(node->name, ".weight") != NULL);
        T_EQ(tti_attr_int(node, "init"), TUTTI_INIT_FAN_IN_UNIFORM);
        total += tti_value_n_elems(node->out[0]);
    }
    T_EQ(n, n_want);
    T_EQ(total, n_elems);
}

static inline int model_count(const tutti_graph *g, const char *op) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) n += strcmp(g->nodes[i]->op->name, op) == 0;
    return n;
}

/* g prints, reads back and prints the same; g is destroyed. */
static inline void model_expect_round_trip(tutti_graph *g) {
    char *first = tutti_graph_print(g);
    tutti_graph *back;
    T_OK(tutti_graph_parse(first, "model", &back));
    char *second = tutti_graph_print(back);
    assert_string_equal(first, second);
    free(first);
    free(second);
    tutti_graph_destroy(g);
    tutti_graph_destroy(back);
}

#endif /* TTI_TESTS_MODELS_MODELS_CHECK_H */
