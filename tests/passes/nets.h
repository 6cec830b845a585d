/* nets.h - small networks with data, for the tests of passes and exec. */
#ifndef TTI_TESTS_PASSES_NETS_H
#define TTI_TESTS_PASSES_NETS_H

#include <stdio.h>

#include "base/philox.h"
#include "ops/op_table.h"
#include "passes/plan.h"
#include "passes/rewrite.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { NET_ROWS = 4, NET_CLASSES = 5, NET_SIDE = 8 };

typedef tutti_graph *(*net_fn)(bool training);

/* Adds the input "target" and the outputs of a classifier. */
static inline tutti_graph *net_finish(tutti_graph *g, tutti_value *logits) {
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(NET_ROWS));
    tutti_loss loss = tutti_cross_entropy(g, logits, target, 0.1, -1);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    T_OK(tutti_graph_check(g));
    return g;
}

static inline tutti_value *net_x(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 6));
}

static inline tutti_value *net_image(tutti_graph *g, int64_t n_channels) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, n_channels, NET_SIDE, NET_SIDE));
}

static inline tutti_graph *net_mlp(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 7, "fc1"));
    x = tutti_dropout(g, x, 0.3, "drop");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

static inline tutti_graph *net_lenet_of(bool training, int64_t n_channels) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_conv2d_desc conv1 = {.n_out = 3, .kernel = 3, .pad = 1};
    tutti_conv2d_desc conv2 = {.n_out = 4, .kernel = 3, .pad = 1};
    tutti_value *x = tutti_relu(g, tutti_conv2d(g, net_image(g, n_channels), &conv1, "conv1"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_conv2d(g, x, &conv2, "conv2"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_linear(g, tutti_flatten(g, x), 6, "fc1"));
    x = tutti_dropout(g, x, 0.25, "drop1");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

static inline tutti_graph *net_lenet(bool training) { return net_lenet_of(training, 1); }

/* A value used twice, a parameter used twice, two parameters with one gradient, broadcasting. */
static inline tutti_graph *net_knots(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *a = tutti_param(g, "a", &TUTTI_SHAPE(6), &init, false);
    tutti_value *b = tutti_param(g, "b", &TUTTI_SHAPE(6), &init, false);
    tutti_value *c = tutti_param(g, "c", &TUTTI_SHAPE(1), &init, false);
    tutti_value *x = tutti_tanh(g, tutti_matmul(g, net_x(g), w));
    x = tutti_add(g, tutti_mul(g, x, x), tutti_sigmoid(g, x));
    x = tutti_matmul(g, x, w); /* the same weights */
    x = tutti_add(g, x, tutti_add(g, tutti_add(g, a, b), tutti_tanh(g, b)));
    return net_finish(g, tutti_linear(g, tutti_mul(g, x, c), NET_CLASSES, "out"));
}

/* Three residual blocks, the second with a batch norm in its shortcut. */
static inline tutti_graph *net_blocks_of(int64_t n_channels, bool training, bool sync) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_conv2d_desc conv = {.n_out = n_channels, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_value *x = net_image(g, 2);
    tutti_graph_set_sync_batch_norm(g, sync);
    x = tutti_relu(g, tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv0"), NULL, "bn0"));
    for (int i = 1; i <= 3; i++) {
        char name[3][16];
        const char *const kinds[] = {"conv", "bn", "down"};
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "%s%d", kinds[k], i);
        tutti_value *y = tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, name[0]), NULL, name[1]);
        if (i == 2) x = tutti_batch_norm2d(g, x, NULL, name[2]);
        x = tutti_relu(g, tutti_add(g, y, x));
    }
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static inline tutti_graph *net_blocks(bool training, bool sync) {
    return net_blocks_of(3, training, sync);
}

/* The first node reads a parameter. */
static inline tutti_graph *net_straight(bool training, bool sync) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_conv2d_desc conv = {.n_out = 4, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 1, NET_SIDE, NET_SIDE));
    tutti_graph_set_sync_batch_norm(g, sync);
    x = tutti_relu(g, tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv1"), NULL, "bn1"));
    x = tutti_relu(g, tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv2"), NULL, "bn2"));
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

static const net_fn net_all[] = {net_mlp, net_lenet, net_knots};

/* Every input and parameter of g by its name, so that a rewritten graph gets the same data. */
static inline void net_fill(const t_reference *r) {
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        if (!(node->op->traits & (TTI_INPUT | TTI_PARAM | TTI_BUFFER))) continue;
        double *data = t_reference_of(r, node->out[0]);
        uint64_t key = tti_hash_name(node->name);
        for (int64_t e = 0; e < tti_value_n_elems(node->out[0]); e++) {
            double unit = (double)tti_philox_unit(tti_philox_draw(5, key, (uint64_t)e).v[0]);
            data[e] = strcmp(node->name, "target") == 0 ? (double)(e % NET_CLASSES) : 2 * unit - 1;
            if (node->op->traits & TTI_BUFFER) data[e] = unit + 0.1; /* a variance is positive */
            if (strcmp(node->name, "rows") == 0) data[e] = NET_ROWS - 1; /* the last is padding */
        }
    }
}

static const tti_run net_run = {.seed = 3, .step = 2, .sample0 = 8};

/* The first weights are the last ones too.  dropout 0: none. */
static inline tutti_graph *net_same_ends(bool training, double dropout) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.3};
    tutti_value *w = tutti_param(g, "tied", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *x = tutti_tanh(g, tutti_matmul(g, net_x(g), w));
    x = tutti_relu(g, tutti_linear(g, x, 16, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 12, "fc2"));
    if (dropout > 0) x = tutti_dropout(g, x, dropout, "drop");
    x = tutti_matmul(g, tutti_tanh(g, tutti_linear(g, x, 6, "fc3")), w);
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static inline t_reference *net_evaluate(const tutti_graph *g) {
    t_reference *r = t_reference_create(g);
    net_fill(r);
    t_reference_run(r, &net_run);
    return r;
}

/* g and other have the same outputs with the same values. */
static inline void net_expect_equal(const tutti_graph *g, const tutti_graph *other) {
    t_reference *r = net_evaluate(g), *s = net_evaluate(other);
    T_EQ(g->n_outputs, other->n_outputs);
    for (int i = 0; i < g->n_outputs; i++) {
        const tutti_value *a = g->outputs[i].value;
        const tutti_value *b = tti_graph_output(other, g->outputs[i].name);
        assert_non_null(b);
        assert_true(tti_shape_equal(&a->type.shape, &b->type.shape));
        for (int64_t e = 0; e < tti_value_n_elems(a); e++)
            T_NEAR(t_reference_of(s, b)[e], t_reference_of(r, a)[e], 1e-12);
    }
    t_reference_destroy(r);
    t_reference_destroy(s);
}

static inline int net_count_ops(const tutti_graph *g, const char *op) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) n += strcmp(g->nodes[i]->op->name, op) == 0;
    return n;
}

/* The node of that op and name; NULL if there is none. */
static inline tti_node *net_find(const tutti_graph *g, const char *op, const char *name) {
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, op) == 0 && strcmp(g->nodes[i]->name, name) == 0)
            return g->nodes[i];
    return NULL;
}

static inline bool net_likes_channels_last(const tti_node *node) {
    return (node->op->traits & TTI_CHANNELS_LAST) != 0;
}

static const tti_target net_plain = {0};
static const tti_target net_fast = {.prefers_channels_last = net_likes_channels_last, .fuse = true};

static inline tti_plan *net_plan(net_fn net, const tti_target *target, size_t bucket_bytes) {
    tti_attr_arg attrs[] = {TTI_FLOAT("momentum", 0.9), {0}};
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net(true),
                                          .eval = net(false),
                                          .target = target,
                                          .optimizer = "sgd",
                                          .optimizer_attrs = attrs,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = bucket_bytes},
                         &plan));
    return plan;
}

#endif /* TTI_TESTS_PASSES_NETS_H */
