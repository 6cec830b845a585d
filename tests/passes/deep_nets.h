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

static const net_fn net_deep[] = {net_mlp, net_lenet, net_knots, net_chain, net_residual};

#endif /* TTI_TESTS_PASSES_DEEP_NETS_H */
