/* models_count.h - how much a model's graph holds, and a few of its tensors by name. */
#ifndef TTI_TESTS_MODELS_MODELS_COUNT_H
#define TTI_TESTS_MODELS_MODELS_COUNT_H

#include "models/models_check.h"

typedef struct model_counts {
    int n_params, n_buffers, n_undecayed;
    int64_t n_elems; /* of the parameters */
} model_counts;

static inline model_counts model_counts_of(const tutti_graph *g) {
    model_counts c = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool param = node->op->traits & TTI_PARAM;
        c.n_buffers += (node->op->traits & TTI_BUFFER) != 0;
        c.n_params += param;
        c.n_undecayed += param && !tti_attr_int(node, "decay");
        if (param) c.n_elems += tti_value_n_elems(node->out[0]);
    }
    return c;
}

static inline const tutti_value *model_output(const tutti_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, name) == 0) return g->outputs[i].value;
    return NULL;
}

/* Each is there, with that type. */
static inline void model_expect_some(const tutti_graph *g, const model_param *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const tti_node *node = tti_graph_find_source(g, want[i].name);
        if (!node) fail_msg("there is no %s", want[i].name);
        model_expect_type(node->out[0], want[i].type);
    }
}

/* Parameter name starts with that kind and, where it is normal, that deviation. */
static inline void model_expect_init(const tutti_graph *g, const char *name, tutti_init_kind kind,
                                     double std) {
    const tti_node *node = tti_graph_find_source(g, name);
    if (!node) fail_msg("there is no %s", name);
    T_EQ(tti_attr_int(node, "init"), kind);
    if (kind == TUTTI_INIT_NORMAL) T_NEAR(tti_attr_float(node, "b"), std, 1e-12);
}

/* The graph of a model for tokens i32[n,t], with the output "logits". */
static inline tutti_graph *model_build_tokens(const char *name, const tutti_model_params *params,
                                              int64_t n, int64_t t) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(n, t));
    const tutti_model *model = tutti_model_find(name);
    assert_non_null(model);
    T_EQ(model->input, TUTTI_MODEL_TOKENS);
    tutti_output(g, "logits", model->build(g, x, params));
    T_OK(tutti_graph_check(g));
    T_OK(tti_graph_verify(g));
    return g;
}

/* The builder refuses x of that dtype and shape, saying text. */
static inline void model_expect_refusal(const char *name, const tutti_model_params *params,
                                        tutti_dtype dtype, const tutti_shape *shape,
                                        const char *text) {
    tutti_graph *g = tutti_graph_create(true);
    assert_null(tutti_model_find(name)->build(g, tutti_input(g, "x", dtype, shape), params));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, text);
    tutti_graph_destroy(g);
}

#endif /* TTI_TESTS_MODELS_MODELS_COUNT_H */
