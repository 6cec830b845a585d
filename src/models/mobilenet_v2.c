/* mobilenet_v2.c - MobileNetV2 (Sandler et al. 2018): inverted residuals, which expand the
 * channels, apply a depthwise convolution and project without activation. x: [N,C,H,W] -> logits
 * [N,n_classes].
 *
 * Names, rounding of channels and initial values are torchvision's.  For small images the first
 * layer has stride 1. */
#include <stdio.h>

#include "models/conv_layers.h"

static const tutti_weight_alias timm[] = {{"^features.1.conv.0.0.", "blocks.0.0.conv_dw."},
                                          {"^features.1.conv.0.1.", "blocks.0.0.bn1."},
                                          {"^features.1.conv.1.", "blocks.0.0.conv_pw."},
                                          {"^features.1.conv.2.", "blocks.0.0.bn2."},
                                          {"^features.0.0.", "conv_stem."},
                                          {"^features.0.1.", "bn1."},
                                          {"^features.18.0.", "conv_head."},
                                          {"^features.18.1.", "bn2."},
                                          {"^classifier.1.", "classifier."},
                                          {"^features.2.", "blocks.1.0."},
                                          {"^features.3.", "blocks.1.1."},
                                          {"^features.4.", "blocks.2.0."},
                                          {"^features.5.", "blocks.2.1."},
                                          {"^features.6.", "blocks.2.2."},
                                          {"^features.7.", "blocks.3.0."},
                                          {"^features.8.", "blocks.3.1."},
                                          {"^features.9.", "blocks.3.2."},
                                          {"^features.10.", "blocks.3.3."},
                                          {"^features.11.", "blocks.4.0."},
                                          {"^features.12.", "blocks.4.1."},
                                          {"^features.13.", "blocks.4.2."},
                                          {"^features.14.", "blocks.5.0."},
                                          {"^features.15.", "blocks.5.1."},
                                          {"^features.16.", "blocks.5.2."},
                                          {"^features.17.", "blocks.6.0."},
                                          {".conv.0.0.", ".conv_pw."},
                                          {".conv.0.1.", ".bn1."},
                                          {".conv.1.0.", ".conv_dw."},
                                          {".conv.1.1.", ".bn2."},
                                          {".conv.2.", ".conv_pwl."},
                                          {".conv.3.", ".bn3."},
                                          {0}};

const tutti_weight_alias *const tti_mobilenet_v2_aliases[] = {timm, NULL};

enum { FIRST = 32, LAST = 1280 };

typedef struct stage {
    int64_t expand, n_out;
    int n_blocks;
    int64_t stride; /* stride of the first block */
} stage;

static const stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

enum { N_STAGES = sizeof stages / sizeof *stages, N_BLOCKS = 17 };

typedef struct net {
    tutti_graph *g;
    const tutti_model_params *p;
    int at; /* number of the next module in features */
} net;

static tutti_value *inverted_residual(net *m, tutti_value *x, int64_t expand, int64_t n_out,
                                      int64_t stride) {
    if (!x) return NULL;
    char block[32], name[TTI_MODEL_NAME], norm[TTI_MODEL_NAME];
    int64_t n_in = tutti_value_type(x).shape.dim[1], width = n_in * expand;
    int i = 0;
    tutti_value *y = x;
    snprintf(block, sizeof block, "features.%d", m->at);
    if (expand != 1) {
        tti_conv_norm wide = {.n_out = width, .kernel = 1, .activation = tutti_relu6};
        snprintf(name, sizeof name, "%s.conv.%d", block, i++);
        y = tti_conv_norm_build(m->g, y, &wide, name);
    }
    tti_conv_norm depthwise = {
        .n_out = width, .kernel = 3, .stride = stride, .groups = width, .activation = tutti_relu6};
    tti_conv_norm project = {.n_out = n_out, .kernel = 1};
    snprintf(name, sizeof name, "%s.conv.%d", block, i++);
    y = tti_conv_norm_build(m->g, y, &depthwise, name);
    snprintf(name, sizeof name, "%s.conv.%d", block, i);
    snprintf(norm, sizeof norm, "%s.conv.%d", block, i + 1);
    y = tti_conv_norm_named(m->g, y, &project, name, norm);
    if (stride != 1 || n_in != n_out) return y;
    return tutti_add(m->g, x, tti_drop_branch(m->g, y, m->p, m->at, N_BLOCKS, block));
}

tutti_value *tti_model_mobilenet_v2(tutti_graph *g, tutti_value *x, const void *user) {
    net m = {.g = g, .p = user};
    double factor = tti_width_multiplier(m.p);
    tti_conv_norm first = {.n_out = tti_round_channels(FIRST * factor, 8),
                           .kernel = 3,
                           .stride = m.p->small_images ? 1 : 2,
                           .activation = tutti_relu6};
    tti_conv_norm last = {.n_out = tti_round_channels(LAST * (factor > 1 ? factor : 1), 8),
                          .kernel = 1,
                          .activation = tutti_relu6};
    x = tti_conv_norm_build(g, x, &first, "features.0");
    for (int s = 0; s < N_STAGES; s++)
        for (int i = 0; i < stages[s].n_blocks; i++) {
            m.at++;
            x = inverted_residual(&m, x, stages[s].expand,
                                  tti_round_channels((double)stages[s].n_out * factor, 8),
                                  i == 0 ? stages[s].stride : 1);
        }
    x = tti_conv_norm_build(g, x, &last, "features.18");
    x = tti_pool_features(g, x, m.p, "classifier.0");
    return tti_linear_normal(g, x, m.p->n_classes, "classifier.1");
}
