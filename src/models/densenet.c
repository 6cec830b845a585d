/* densenet.c - DenseNet-BC (Huang et al. 2017): every layer reads the outputs of all layers before
 * it in its block.  x: [N,C,H,W] -> logits [N,n_classes].
 *
 * Names and initial values are torchvision's. As in torchvision, dropout follows every layer. For
 * small images the first layer is 3x3 without stride, and there is no max-pool. */
#include <stdio.h>

#include "models/conv_layers.h"

/* Names in torchvision's weight files of 2017. */
static const tutti_weight_alias older[] = {{".norm1.", ".norm.1."},
                                           {".norm2.", ".norm.2."},
                                           {".conv1.", ".conv.1."},
                                           {".conv2.", ".conv.2."},
                                           {0}};

const tutti_weight_alias *const tti_densenet_aliases[] = {older, NULL};

enum { N_BLOCKS = 4, BOTTLENECK = 4 };

typedef struct variant {
    int n_layers[N_BLOCKS];
    int64_t growth, first; /* channels that a layer adds, channels of the first layer */
} variant;

typedef struct net {
    int64_t growth, first; /* scaled */
    tutti_graph *g;
    const tutti_model_params *p;
} net;

static tutti_value *conv(const net *m, tutti_value *x, int64_t n_out, int64_t kernel,
                         const char *name) {
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL};
    tutti_conv2d_desc desc = {
        .n_out = n_out, .kernel = kernel, .pad = kernel / 2, .no_bias = true, .init = &he};
    return tutti_conv2d(m->g, x, &desc, name);
}

static tutti_value *norm_relu(const net *m, tutti_value *x, const char *name) {
    return tutti_relu(m->g, tutti_batch_norm2d(m->g, x, NULL, name));
}

/* "features.denseblock1.denselayer1.SUFFIX", numbers from 1. */
static const char *layer_name(char text[TTI_MODEL_NAME], int block, int layer, const char *suffix) {
    snprintf(text, TTI_MODEL_NAME, "features.denseblock%d.denselayer%d.%s", block + 1, layer + 1,
             suffix);
    return text;
}

static tutti_value *dense_layer(const net *m, tutti_value *x, int block, int layer) {
    char name[TTI_MODEL_NAME];
    tutti_value *y = norm_relu(m, x, layer_name(name, block, layer, "norm1"));
    y = conv(m, y, BOTTLENECK * m->growth, 1, layer_name(name, block, layer, "conv1"));
    y = norm_relu(m, y, layer_name(name, block, layer, "norm2"));
    y = conv(m, y, m->growth, 3, layer_name(name, block, layer, "conv2"));
    if (m->p->dropout > 0)
        y = tutti_dropout(m->g, y, m->p->dropout, layer_name(name, block, layer, "drop"));
    return tutti_concat(m->g, (tutti_value *[]){x, y}, 2, 1);
}

/* Halves the channels, the height and the width. */
static tutti_value *transition(const net *m, tutti_value *x, int block) {
    if (!x) return NULL;
    char name[TTI_MODEL_NAME];
    int64_t n_out = tutti_value_type(x).shape.dim[1] / 2;
    snprintf(name, sizeof name, "features.transition%d.norm", block + 1);
    x = norm_relu(m, x, name);
    snprintf(name, sizeof name, "features.transition%d.conv", block + 1);
    return tutti_avg_pool2d(m->g, conv(m, x, n_out, 1, name), 2);
}

static tutti_value *stem(const net *m, tutti_value *x) {
    bool small = m->p->small_images;
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL};
    tutti_conv2d_desc desc = {.n_out = m->first,
                              .kernel = small ? 3 : 7,
                              .stride = small ? 1 : 2,
                              .pad = small ? 1 : 3,
                              .no_bias = true,
                              .init = &he};
    x = norm_relu(m, tutti_conv2d(m->g, x, &desc, "features.conv0"), "features.norm0");
    if (small) return x;
    return tutti_max_pool2d_with(m->g, x, &(tutti_pool2d_desc){.kernel = 3, .stride = 2, .pad = 1});
}

static tutti_value *build(const variant *v, tutti_graph *g, tutti_value *x,
                          const tutti_model_params *params) {
    tutti_init init = {.kind = TUTTI_INIT_FAN_IN_UNIFORM};
    double factor = tti_width_multiplier(params);
    net m = {.growth = tti_round_channels((double)v->growth * factor, 8),
             .first = tti_round_channels((double)v->first * factor, 8),
             .g = g,
             .p = params};
    x = stem(&m, x);
    for (int b = 0; b < N_BLOCKS; b++) {
        for (int i = 0; i < v->n_layers[b]; i++) x = dense_layer(&m, x, b, i);
        if (b < N_BLOCKS - 1) x = transition(&m, x, b);
    }
    x = norm_relu(&m, x, "features.norm5");
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    return tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = m.p->n_classes, .init = &init},
                             "classifier");
}

#define MODEL(name, ...)                                                                      \
    tutti_value *tti_model_densenet##name(tutti_graph *g, tutti_value *x, const void *user) { \
        return build(&(variant){__VA_ARGS__}, g, x, user);                                    \
    }

MODEL(121, {6, 12, 24, 16}, 32, 64)
MODEL(161, {6, 12, 36, 24}, 48, 96)
MODEL(169, {6, 12, 32, 32}, 32, 64)
MODEL(201, {6, 12, 48, 32}, 32, 64)
