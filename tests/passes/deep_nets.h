/* deep_nets.h - networks with many layers, where keeping every activation costs something. */
#ifndef TTI_TESTS_PASSES_DEEP_NETS_H
#define TTI_TESTS_PASSES_DEEP_NETS_H

#include <stdio.h>

#include "passes/nets.h"

enum { DEEP_LAYERS = 16, DEEP_WIDTH = 24 };

/* A chain: linear, tanh, dropout, again and again. */
static inline tutti_graph *net_chain(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), DEEP_WIDTH, "in");
    for (int i = 0; i < DEEP_LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "fc%d", i);
        x = tutti_tanh(g, tutti_linear(g, x, DEEP_WIDTH, name));
        snprintf(name, sizeof name, "drop%d", i);
        x = tutti_dropout(g, x, 0.1, name);
    }
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* x = x + f(x), as in residual networks and transformers, with views and an f that is wider. */
static inline tutti_graph *net_residual(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), DEEP_WIDTH, "in");
    for (int i = 0; i < DEEP_LAYERS / 2; i++) {
        char up[32], down[32];
        snprintf(up, sizeof up, "up%d", i);
        snprintf(down, sizeof down, "down%d", i);
        tutti_value *y = tutti_gelu(g, tutti_linear(g, x, 4 * DEEP_WIDTH, up));
        y = tutti_reshape(g, y, &TUTTI_SHAPE(2 * NET_ROWS, 2 * DEEP_WIDTH));
        y = tutti_tanh(g, tutti_square(g, tutti_sigmoid(g, y))); /* a chain to fuse */
        y = tutti_reshape(g, y, &TUTTI_SHAPE(NET_ROWS, 4 * DEEP_WIDTH));
        x = tutti_add(g, x, tutti_linear(g, y, DEEP_WIDTH, down));
    }
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* Convolutions, batch norm over all shards, and a sum past both. */
static inline tutti_graph *net_resnet(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_conv2d_desc conv = {.n_out = 4, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_batch_norm_desc sync = {.sync = true};
    tutti_value *x = tutti_conv2d(g, net_image(g, 3), &conv, "stem");
    for (int i = 0; i < 4; i++) {
        char name[32], norm[32];
        snprintf(name, sizeof name, "conv%d", i);
        snprintf(norm, sizeof norm, "bn%d", i);
        tutti_value *y = tutti_conv2d(g, x, &conv, name);
        y = tutti_batch_norm2d(g, y, i % 2 ? &sync : NULL, norm);
        x = tutti_relu(g, tutti_add(g, x, y));
    }
    x = tutti_linear(g, tutti_flatten(g, tutti_max_pool2d(g, x, 4)), NET_CLASSES, "out");
    return net_finish(g, x);
}

/* Two blocks of a transformer over the positions of each sample. */
static inline tutti_graph *net_gpt(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_attention_desc heads = {.heads = 2, .causal = true};
    tutti_value *x = tutti_linear(g, net_x(g), 5 * 8, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 5, 8));
    for (int i = 0; i < 3; i++) {
        char name[6][32];
        static const char *const parts[] = {"ln1", "qkv", "proj", "ln2", "up", "down"};
        for (int k = 0; k < 6; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, parts[k]);
        tutti_value *y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[0]), 24, name[1]);
        y = tutti_linear(g, tutti_attention(g, y, NULL, &heads), 8, name[2]);
        x = tutti_add(g, x, tutti_dropout(g, y, 0.1, name[2]));
        y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[3]), 32, name[4]);
        x = tutti_add(g, x, tutti_linear(g, tutti_gelu(g, y), 8, name[5]));
    }
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

static const net_fn net_deep[] = {net_mlp, net_lenet,    net_knots, net_chain,
                                  net_gpt, net_residual, net_resnet};

/* Attention whose queries, keys and values are three layers, as in BERT; biases of width elements,
 * which are whole lines of 16 or not. */
static inline tutti_graph *net_heads_of(bool training, int64_t width) {
    tutti_graph *g = tutti_graph_create(training);
    const int64_t n_positions = 6;
    tutti_value *x = tutti_linear(g, net_x(g), n_positions * width, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, n_positions, width));
    tutti_value *parts[] = {tutti_linear(g, x, width, "q"), tutti_linear(g, x, width, "k"),
                            tutti_linear(g, x, width, "v")};
    tutti_attention_desc heads = {.heads = 2};
    tutti_value *y = tutti_attention(g, tutti_concat(g, parts, 3, 2), NULL, &heads);
    x = tutti_flatten(g, tutti_add(g, x, y));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static inline tutti_graph *net_heads(bool training) { return net_heads_of(training, 16); }

#endif /* TTI_TESTS_PASSES_DEEP_NETS_H */
