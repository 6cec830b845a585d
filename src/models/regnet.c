/* regnet.c - RegNet X and Y (Radosavovic et al. 2020): four stages of bottlenecks with grouped
 * convolutions; Y adds squeeze and excitation.  x: [N,C,H,W] -> logits [N,n_classes].
 *
 * Names and initial values are torchvision's; the tables contain the widths and depths that its
 * formulas give. For small images the first layer has stride 1. */
#include <stdio.h>

#include "models/conv_layers.h"

/* timm counts the blocks of a stage from 1. */
static const tutti_weight_alias timm[] = {{"^trunk_output.block1.block1-", "s1.b-"},
                                          {"^trunk_output.block2.block2-", "s2.b-"},
                                          {"^trunk_output.block3.block3-", "s3.b-"},
                                          {"^trunk_output.block4.block4-", "s4.b-"},
                                          {"b-0.", "b1."},
                                          {"b-1.", "b2."},
                                          {"b-2.", "b3."},
                                          {"b-3.", "b4."},
                                          {"b-4.", "b5."},
                                          {"b-5.", "b6."},
                                          {"b-6.", "b7."},
                                          {"b-7.", "b8."},
                                          {"b-8.", "b9."},
                                          {"b-9.", "b10."},
                                          {"b-10.", "b11."},
                                          {"b-11.", "b12."},
                                          {"b-12.", "b13."},
                                          {"b-13.", "b14."},
                                          {"b-14.", "b15."},
                                          {"b-15.", "b16."},
                                          {"b-16.", "b17."},
                                          {".f.a.0.", ".conv1.conv."},
                                          {".f.a.1.", ".conv1.bn."},
                                          {".f.b.0.", ".conv2.conv."},
                                          {".f.b.1.", ".conv2.bn."},
                                          {".f.c.0.", ".conv3.conv."},
                                          {".f.c.1.", ".conv3.bn."},
                                          {".f.se.", ".se."},
                                          {".proj.0.", ".downsample.conv."},
                                          {".proj.1.", ".downsample.bn."},
                                          {"^stem.0.", "stem.conv."},
                                          {"^stem.1.", "stem.bn."},
                                          {"^fc.", "head.fc."},
                                          {0}};

const tutti_weight_alias *const tti_regnet_aliases[] = {timm, NULL};

enum { N_STAGES = 4, FIRST = 32 };

typedef struct variant {
    bool squeeze;
    int n_blocks[N_STAGES];
    int64_t width[N_STAGES];
    int64_t group; /* channels of a group, at most the width */
} variant;

typedef struct net {
    const variant *v;
    tutti_graph *g;
    const tutti_model_params *p;
    int n_done, n_all; /* blocks */
} net;

static tutti_value *conv(const net *m, tutti_value *x, tti_conv_norm l, const char *block,
                         const char *suffix) {
    char name[TTI_MODEL_NAME];
    snprintf(name, sizeof name, "%s.%s", block, suffix);
    return tti_conv_norm_build(m->g, x, &l, name);
}

/* 1x1, grouped 3x3, 1x1 */
static tutti_value *branch(const net *m, tutti_value *x, int64_t width, int64_t stride,
                           const char *block) {
    int64_t n_in = tutti_value_type(x).shape.dim[1],
            group = m->v->group < width ? m->v->group : width;
    tti_conv_norm l = {.n_out = width, .kernel = 1, .activation = tutti_relu};
    x = conv(m, x, l, block, "f.a");
    l.kernel = 3;
    l.stride = stride;
    l.groups = width / group;
    x = conv(m, x, l, block, "f.b");
    if (m->v->squeeze) {
        char name[TTI_MODEL_NAME];
        snprintf(name, sizeof name, "%s.f.se", block);
        tti_squeeze squeeze = {n_in / 4, tutti_relu, tutti_sigmoid};
        x = tti_squeeze_build(m->g, x, &squeeze, name);
    }
    l = (tti_conv_norm){.n_out = width, .kernel = 1, .zero = m->p->zero_init_residual};
    return conv(m, x, l, block, "f.c");
}

static tutti_value *residual_block(net *m, tutti_value *x, int64_t width, int64_t stride,
                                   const char *block) {
    tti_conv_norm project = {.n_out = width, .kernel = 1, .stride = stride};
    tutti_value *shortcut = x;
    if (stride != 1 || tutti_value_type(x).shape.dim[1] != width)
        shortcut = conv(m, x, project, block, "proj");
    tutti_value *y = branch(m, x, width, stride, block);
    y = tti_drop_branch(m->g, y, m->p, ++m->n_done, m->n_all, block);
    return tutti_relu(m->g, tutti_add(m->g, shortcut, y));
}

static tutti_value *build(const variant *v, tutti_graph *g, tutti_value *x,
                          const tutti_model_params *params) {
    net m = {.v = v, .g = g, .p = params};
    double factor = tti_width_multiplier(m.p);
    tti_conv_norm first = {.n_out = tti_round_channels(FIRST * factor, 8),
                           .kernel = 3,
                           .stride = m.p->small_images ? 1 : 2,
                           .activation = tutti_relu};
    x = tti_conv_norm_build(g, x, &first, "stem");
    for (int s = 0; s < N_STAGES; s++) m.n_all += v->n_blocks[s];
    for (int s = 0; s < N_STAGES; s++) {
        double width = (double)v->width[s] * factor;
        int64_t step = width < (double)v->group ? 8 : v->group;
        for (int i = 0; i < v->n_blocks[s] && x; i++) {
            char block[TTI_MODEL_NAME];
            snprintf(block, sizeof block, "trunk_output.block%d.block%d-%d", s + 1, s + 1, i);
            x = residual_block(&m, x, tti_round_channels(width, step), i == 0 ? 2 : 1, block);
        }
    }
    x = tti_pool_features(g, x, m.p, "drop");
    return tti_linear_normal(g, x, m.p->n_classes, "fc");
}

#define MODEL(name, ...)                                                                     \
    tutti_value *tti_model_regnet_##name(tutti_graph *g, tutti_value *x, const void *user) { \
        return build(&(variant){__VA_ARGS__}, g, x, user);                                   \
    }

MODEL(x_400mf, 0, {1, 2, 7, 12}, {32, 64, 160, 400}, 16)
MODEL(x_800mf, 0, {1, 3, 7, 5}, {64, 128, 288, 672}, 16)
MODEL(x_1_6gf, 0, {2, 4, 10, 2}, {72, 168, 408, 912}, 24)
MODEL(x_3_2gf, 0, {2, 6, 15, 2}, {96, 192, 432, 1008}, 48)
MODEL(x_8gf, 0, {2, 5, 15, 1}, {80, 240, 720, 1920}, 120)
MODEL(x_16gf, 0, {2, 6, 13, 1}, {256, 512, 896, 2048}, 128)
MODEL(x_32gf, 0, {2, 7, 13, 1}, {336, 672, 1344, 2520}, 168)
MODEL(y_400mf, 1, {1, 3, 6, 6}, {48, 104, 208, 440}, 8)
MODEL(y_800mf, 1, {1, 3, 8, 2}, {64, 144, 320, 784}, 16)
MODEL(y_1_6gf, 1, {2, 6, 17, 2}, {48, 120, 336, 888}, 24)
MODEL(y_3_2gf, 1, {2, 5, 13, 1}, {72, 216, 576, 1512}, 24)
MODEL(y_8gf, 1, {2, 4, 10, 1}, {224, 448, 896, 2016}, 56)
MODEL(y_16gf, 1, {2, 4, 11, 1}, {224, 448, 1232, 3024}, 112)
MODEL(y_32gf, 1, {2, 5, 12, 1}, {232, 696, 1392, 3712}, 232)
MODEL(y_128gf, 1, {2, 7, 17, 1}, {528, 1056, 2904, 7392}, 264)
