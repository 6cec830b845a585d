/* efficientnet.c - EfficientNet (Tan & Le 2019) b0 to b7 and EfficientNetV2 (2021) s, m, l:
 * inverted residuals with squeeze and excitation; the first stages of V2 expand by a full
 * convolution. x: [N,C,H,W] -> logits [N,n_classes].
 *
 * Names, rounding, eps and momentum of batch norms, initial values and the probabilities of
 * stochastic depth are torchvision's.  For small images the first layer has stride 1. */
#include <math.h>
#include <stdio.h>

#include "models/conv_layers.h"

/* timm names the parts of a block by function, and its first stage has no expansion. timm's
 * tf_efficientnet_* models pad differently, so init_config.c refuses them. */
static const tutti_weight_alias timm_first[] = {{"^features.1.", "blocks.0."},
                                                {".block.0.0.", ".conv_dw."},
                                                {".block.0.1.", ".bn1."},
                                                {".block.1.fc1.", ".se.conv_reduce."},
                                                {".block.1.fc2.", ".se.conv_expand."},
                                                {".block.2.0.", ".conv_pw."},
                                                {".block.2.1.", ".bn2."},
                                                {0}};

static const tutti_weight_alias timm[] = {{"^features.0.0.", "conv_stem."},
                                          {"^features.0.1.", "bn1."},
                                          {"^features.2.", "blocks.1."},
                                          {"^features.3.", "blocks.2."},
                                          {"^features.4.", "blocks.3."},
                                          {"^features.5.", "blocks.4."},
                                          {"^features.6.", "blocks.5."},
                                          {"^features.7.", "blocks.6."},
                                          {"^features.8.0.", "conv_head."},
                                          {"^features.8.1.", "bn2."},
                                          {"^classifier.1.", "classifier."},
                                          {".block.0.0.", ".conv_pw."},
                                          {".block.0.1.", ".bn1."},
                                          {".block.1.0.", ".conv_dw."},
                                          {".block.1.1.", ".bn2."},
                                          {".block.2.fc1.", ".se.conv_reduce."},
                                          {".block.2.fc2.", ".se.conv_expand."},
                                          {".block.3.0.", ".conv_pwl."},
                                          {".block.3.1.", ".bn3."},
                                          {0}};

const tutti_weight_alias *const tti_efficientnet_aliases[] = {timm_first, timm, NULL};

enum { MAX_STAGES = 7, LAST_V2 = 1280 };

typedef struct stage {
    bool fused; /* one 3x3 convolution expands, and there is no squeeze */
    int64_t expand, kernel, stride, n_out;
    int n_blocks;
} stage;

static const stage v1[MAX_STAGES] = {
    {0, 1, 3, 1, 16, 1},  {0, 6, 3, 2, 24, 2},  {0, 6, 5, 2, 40, 2},  {0, 6, 3, 2, 80, 3},
    {0, 6, 5, 1, 112, 3}, {0, 6, 5, 2, 192, 4}, {0, 6, 3, 1, 320, 1},
};
static const stage v2_s[MAX_STAGES] = {
    {1, 1, 3, 1, 24, 2},  {1, 4, 3, 2, 48, 4},  {1, 4, 3, 2, 64, 4},
    {0, 4, 3, 2, 128, 6}, {0, 6, 3, 1, 160, 9}, {0, 6, 3, 2, 256, 15},
};
static const stage v2_m[MAX_STAGES] = {
    {1, 1, 3, 1, 24, 3},   {1, 4, 3, 2, 48, 5},   {1, 4, 3, 2, 80, 5},  {0, 4, 3, 2, 160, 7},
    {0, 6, 3, 1, 176, 14}, {0, 6, 3, 2, 304, 18}, {0, 6, 3, 1, 512, 5},
};
static const stage v2_l[MAX_STAGES] = {
    {1, 1, 3, 1, 32, 4},   {1, 4, 3, 2, 64, 7},   {1, 4, 3, 2, 96, 7},  {0, 4, 3, 2, 192, 10},
    {0, 6, 3, 1, 224, 19}, {0, 6, 3, 2, 384, 25}, {0, 6, 3, 1, 640, 7},
};

typedef struct variant {
    const stage *stages;
    int64_t first, last;  /* channels of the first layer, and of the last one (0: 4 x those of the
                             last stage) */
    double width, depth;  /* factors */
    double eps, momentum; /* of batch norms; 0: the default */
} variant;

typedef struct net {
    const variant *v;
    double width; /* factor */
    tutti_graph *g;
    const tutti_model_params *p;
    int n_done, n_all; /* blocks */
} net;

static int64_t scaled(const net *m, int64_t n) {
    return tti_round_channels((double)n * m->width, 8);
}

static int n_blocks_of(const net *m, const stage *s) {
    return (int)ceil(s->n_blocks * m->v->depth);
}

static tutti_value *conv(const net *m, tutti_value *x, tti_conv_norm l, const char *name) {
    l.eps = m->v->eps;
    l.momentum = m->v->momentum;
    return tti_conv_norm_build(m->g, x, &l, name);
}

/* Returns "BLOCK.block.LAYER". */
static const char *layer_name(char text[TTI_MODEL_NAME], const char *block, int layer) {
    snprintf(text, TTI_MODEL_NAME, "%s.block.%d", block, layer);
    return text;
}

static tutti_value *branch(const net *m, tutti_value *x, const stage *s, int64_t stride,
                           const char *block) {
    char name[TTI_MODEL_NAME];
    int64_t n_in = tutti_value_type(x).shape.dim[1];
    int64_t width = tti_round_channels((double)(n_in * s->expand), 8), n_out = scaled(m, s->n_out);
    int layer = 0;
    tti_conv_norm wide = {.n_out = width, .kernel = 1, .activation = tutti_silu};
    if (s->fused) {
        wide.kernel = s->kernel;
        wide.stride = stride;
        if (width == n_in) wide.n_out = n_out;
    }
    if (width != n_in || s->fused) x = conv(m, x, wide, layer_name(name, block, layer++));
    if (s->fused && width == n_in) return x;
    if (!s->fused) {
        tti_conv_norm depthwise = {.n_out = width,
                                   .kernel = s->kernel,
                                   .stride = stride,
                                   .groups = width,
                                   .activation = tutti_silu};
        tti_squeeze squeeze = {n_in < 4 ? 1 : n_in / 4, tutti_silu, tutti_sigmoid};
        x = conv(m, x, depthwise, layer_name(name, block, layer++));
        x = tti_squeeze_build(m->g, x, &squeeze, layer_name(name, block, layer++));
    }
    return conv(m, x, (tti_conv_norm){.n_out = n_out, .kernel = 1}, layer_name(name, block, layer));
}

static tutti_value *build_stage(net *m, tutti_value *x, int at) {
    const stage *s = &m->v->stages[at];
    for (int i = 0; i < n_blocks_of(m, s) && x; i++) {
        char block[TTI_MODEL_NAME];
        int64_t stride = i == 0 ? s->stride : 1;
        snprintf(block, sizeof block, "features.%d.%d", at + 1, i);
        tutti_value *y = branch(m, x, s, stride, block);
        bool residual = stride == 1 && tutti_value_type(x).shape.dim[1] == scaled(m, s->n_out);
        if (residual)
            y = tutti_add(m->g, tti_drop_branch(m->g, y, m->p, m->n_done, m->n_all, block), x);
        m->n_done++;
        x = y;
    }
    return x;
}

static tutti_value *head(const net *m, tutti_value *x) {
    tutti_init init = {.kind = TUTTI_INIT_UNIFORM, .b = 1 / sqrt((double)m->p->n_classes)};
    init.a = -init.b;
    x = tti_pool_features(m->g, x, m->p, "classifier.0");
    return tutti_linear_with(m->g, x, &(tutti_linear_desc){.n_out = m->p->n_classes, .init = &init},
                             "classifier.1");
}

static tutti_value *build(const variant *v, tutti_graph *g, tutti_value *x,
                          const tutti_model_params *params) {
    char name[TTI_MODEL_NAME];
    int n_stages = 0;
    net m = {.v = v, .width = v->width * tti_width_multiplier(params), .g = g, .p = params};
    while (n_stages < MAX_STAGES && v->stages[n_stages].n_blocks > 0)
        m.n_all += n_blocks_of(&m, &v->stages[n_stages++]);
    tti_conv_norm first = {.n_out = scaled(&m, v->first),
                           .kernel = 3,
                           .stride = m.p->small_images ? 1 : 2,
                           .activation = tutti_silu};
    tti_conv_norm last = {.n_out = scaled(&m, v->last), .kernel = 1, .activation = tutti_silu};
    if (v->last == 0) last.n_out = 4 * scaled(&m, v->stages[n_stages - 1].n_out);
    x = conv(&m, x, first, "features.0");
    for (int s = 0; s < n_stages; s++) x = build_stage(&m, x, s);
    snprintf(name, sizeof name, "features.%d", n_stages + 1);
    return head(&m, conv(&m, x, last, name));
}

#define MODEL(name, ...)                                                                           \
    tutti_value *tti_model_efficientnet_##name(tutti_graph *g, tutti_value *x, const void *user) { \
        return build(&(variant){__VA_ARGS__}, g, x, user);                                         \
    }

MODEL(b0, v1, 32, 0, 1.0, 1.0, 0, 0)
MODEL(b1, v1, 32, 0, 1.0, 1.1, 0, 0)
MODEL(b2, v1, 32, 0, 1.1, 1.2, 0, 0)
MODEL(b3, v1, 32, 0, 1.2, 1.4, 0, 0)
MODEL(b4, v1, 32, 0, 1.4, 1.8, 0, 0)
MODEL(b5, v1, 32, 0, 1.6, 2.2, 0.001, 0.01)
MODEL(b6, v1, 32, 0, 1.8, 2.6, 0.001, 0.01)
MODEL(b7, v1, 32, 0, 2.0, 3.1, 0.001, 0.01)
MODEL(v2_s, v2_s, 24, LAST_V2, 1, 1, 0.001, 0)
MODEL(v2_m, v2_m, 24, LAST_V2, 1, 1, 0.001, 0)
MODEL(v2_l, v2_l, 32, LAST_V2, 1, 1, 0.001, 0)
