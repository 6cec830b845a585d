/* models_count.h - what a model's graph holds: how much, and a few of its tensors by name. */
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

typedef struct model_known {
    const char *name;
    int n_params;
    int64_t n_elems;
} model_known;

/* Every model has that many parameters and elements for 1000 classes, and logits for 2 images of
 * 3 x 64 x 64; biases and norms have no weight decay. */
static inline void model_expect_sizes(const model_known *models, size_t n) {
    tutti_model_params params = {.n_classes = 1000};
    for (size_t i = 0; i < n; i++) {
        tutti_graph *g = model_build(models[i].name, &params, &TUTTI_SHAPE(2, 3, 64, 64));
        model_counts c = model_counts_of(g);
        T_EQ(c.n_params, models[i].n_params);
        T_EQ(c.n_elems, models[i].n_elems);
        for (int k = 0; k < g->n_nodes; k++) {
            const tti_node *node = g->nodes[k];
            if (node->op->traits & TTI_PARAM)
                T_EQ(tti_attr_int(node, "decay"), node->out[0]->type.shape.n_dims > 1);
        }
        tutti_graph_destroy(g);
    }
}

/* All batch norms of g have these values. */
static inline void model_expect_norms(const tutti_graph *g, double eps, double momentum) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool norm = strcmp(node->op->name, "bn_apply") == 0;
        if (norm) T_NEAR(tti_attr_float(node, "eps"), eps, 1e-15);
        if (node->op->traits & TTI_BUFFER)
            T_NEAR(tti_attr_float(node, "momentum"), momentum, 1e-15);
        n += norm;
    }
    assert_true(n > 0);
}

/* The probabilities of stochastic depth of g rise by equal steps to the last one. */
static inline void model_expect_drops(const tutti_graph *g, int n, double last) {
    double before = 0;
    int found = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i]->op->name, "drop_path") != 0) continue;
        assert_true(tti_attr_float(g->nodes[i], "p") > before);
        before = tti_attr_float(g->nodes[i], "p");
        found++;
    }
    T_EQ(found, n);
    T_NEAR(before, last, 1e-12);
}

/* The model without stride in its first layer: 2 images of 3 x 32 x 32 reach the layer `first` with
 * their size. */
static inline void model_expect_small(const char *name, const char *first) {
    tutti_model_params params = {.n_classes = 10, .small_images = true};
    tutti_graph *g = model_build(name, &params, &TUTTI_SHAPE(2, 3, 32, 32));
    bool found = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, "conv2d") != 0 || strcmp(node->name, first) != 0) continue;
        T_EQ(node->out[0]->type.shape.dim[2], 32);
        found = true;
    }
    assert_true(found);
    tutti_graph_destroy(g);
}

/* The number of elements of the parameters, for 1000 classes. */
static inline int64_t model_scaled_elems(const char *name, double width_multiplier) {
    tutti_model_params params = {.n_classes = 1000, .width_multiplier = width_multiplier};
    tutti_graph *g = model_build(name, &params, &TUTTI_SHAPE(2, 3, 64, 64));
    int64_t n = model_counts_of(g).n_elems;
    tutti_graph_destroy(g);
    return n;
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
