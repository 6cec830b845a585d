/* mobilenet_v3.c - MobileNetV3 (Howard et al. 2019): inverted residuals with squeeze and excitation
 * and h-swish.  x: [N,C,H,W] -> logits [N,n_classes].
 *
 * Names, rounding of channels, batch norms (eps 0.001, momentum 0.01) and initial values are
 * torchvision's.  For small images the first layer has stride 1. */
#include <stdio.h>

#include "models/conv_layers.h"

enum { FIRST = 16 };

static const double eps = 0.001, momentum = 0.01;

typedef struct block {
    int64_t kernel, width, n_out; /* width: channels of the depthwise convolution */
    bool squeeze, swish;          /* h-swish instead of relu */
    int64_t stride;
} block;

static const block large[] = {
    {3, 16, 16, 0, 0, 1},   {3, 64, 24, 0, 0, 2},   {3, 72, 24, 0, 0, 1},   {5, 72, 40, 1, 0, 2},
    {5, 120, 40, 1, 0, 1},  {5, 120, 40, 1, 0, 1},  {3, 240, 80, 0, 1, 2},  {3, 200, 80, 0, 1, 1},
    {3, 184, 80, 0, 1, 1},  {3, 184, 80, 0, 1, 1},  {3, 480, 112, 1, 1, 1}, {3, 672, 112, 1, 1, 1},
    {5, 672, 160, 1, 1, 2}, {5, 960, 160, 1, 1, 1}, {5, 960, 160, 1, 1, 1},
};

static const block small[] = {
    {3, 16, 16, 1, 0, 2},  {3, 72, 24, 0, 0, 2},  {3, 88, 24, 0, 0, 1},  {5, 96, 40, 1, 1, 2},
    {5, 240, 40, 1, 1, 1}, {5, 240, 40, 1, 1, 1}, {5, 120, 48, 1, 1, 1}, {5, 144, 48, 1, 1, 1},
    {5, 288, 96, 1, 1, 2}, {5, 576, 96, 1, 1, 1}, {5, 576, 96, 1, 1, 1},
};

typedef struct net {
    tutti_graph *g;
    const tutti_model_params *p;
    int n_blocks;
    double factor;
} net;

static int64_t scaled(const net *m, int64_t n) {
    return tti_round_channels((double)n * m->factor, 8);
}

/* One convolution with its norm, which is module `layer` of block i. */
static tutti_value *conv(const net *m, tutti_value *x, tti_conv_norm l, int i, int layer) {
    char name[TTI_MODEL_NAME];
    l.eps = eps;
    l.momentum = momentum;
    snprintf(name, sizeof name, "features.%d.block.%d", i, layer);
    return tti_conv_norm_build(m->g, x, &l, name);
}

static tutti_value *inverted_residual(const net *m, tutti_value *x, const block *b, int i) {
    if (!x) return NULL;
    char name[TTI_MODEL_NAME];
    int64_t n_in = tutti_value_type(x).shape.dim[1], width = scaled(m, b->width),
            n_out = scaled(m, b->n_out);
    tti_activation activation = b->swish ? tti_hard_swish : tutti_relu;
    int layer = 0;
    tutti_value *y = x;
    if (width != n_in)
        y = conv(m, y, (tti_conv_norm){.n_out = width, .kernel = 1, .activation = activation}, i,
                 layer++);
    y = conv(m, y,
             (tti_conv_norm){.n_out = width,
                             .kernel = b->kernel,
                             .stride = b->stride,
                             .groups = width,
                             .activation = activation},
             i, layer++);
    if (b->squeeze) {
        tti_squeeze squeeze = {tti_round_channels((double)(width / 4), 8), tutti_relu,
                               tti_hard_sigmoid};
        snprintf(name, sizeof name, "features.%d.block.%d", i, layer++);
        y = tti_squeeze_build(m->g, y, &squeeze, name);
    }
    y = conv(m, y, (tti_conv_norm){.n_out = n_out, .kernel = 1}, i, layer);
    if (b->stride != 1 || n_in != n_out) return y;
    snprintf(name, sizeof name, "features.%d", i);
    return tutti_add(m->g, tti_drop_branch(m->g, y, m->p, i, m->n_blocks, name), x);
}

static tutti_value *build(net *m, tutti_value *x, const block *blocks, int64_t n_hidden) {
    char name[TTI_MODEL_NAME];
    tti_conv_norm l = {.kernel = 3,
                       .stride = m->p->small_images ? 1 : 2,
                       .activation = tti_hard_swish,
                       .eps = eps,
                       .momentum = momentum};
    m->factor = tti_width_multiplier(m->p);
    l.n_out = scaled(m, FIRST);
    x = tti_conv_norm_build(m->g, x, &l, "features.0");
    for (int i = 0; i < m->n_blocks; i++) x = inverted_residual(m, x, &blocks[i], i + 1);
    l.kernel = l.stride = 1;
    l.n_out = 6 * scaled(m, blocks[m->n_blocks - 1].n_out);
    snprintf(name, sizeof name, "features.%d", m->n_blocks + 1);
    x = tti_conv_norm_build(m->g, x, &l, name);
    x = tutti_flatten(m->g, tutti_adaptive_avg_pool2d(m->g, x, 1, 1));
    x = tti_linear_normal(m->g, x, scaled(m, n_hidden), "classifier.0");
    x = tti_hard_swish(m->g, x);
    if (m->p->dropout > 0) x = tutti_dropout(m->g, x, m->p->dropout, "classifier.2");
    return tti_linear_normal(m->g, x, m->p->n_classes, "classifier.3");
}

tutti_value *tti_model_mobilenet_v3_large(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .n_blocks = sizeof large / sizeof *large}, x, large,
                 1280);
}

tutti_value *tti_model_mobilenet_v3_small(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .n_blocks = sizeof small / sizeof *small}, x, small,
                 1024);
}
