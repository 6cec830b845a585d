/* convnext.c - ConvNeXt, convolutional networks structured like transformers (Liu et al. 2022,
 * version 1): x [N,C,H,W] -> logits [N,n_classes].
 *
 * Names and initial values are torchvision's. The lists below map weight names of timm, of Hugging
 * Face's ConvNextForImageClassification and of the authors. Layers of a block after the depthwise
 * convolution compute on [N,H,W,C]. */
#include <inttypes.h>
#include <stdio.h>

#include "models/models.h"

static const tti_model_size sizes[] = {
    {.name = "tiny", .depths = {3, 3, 9, 3}, .width = 96},
    {.name = "small", .depths = {3, 3, 27, 3}, .width = 96},
    {.name = "base", .depths = {3, 3, 27, 3}, .width = 128},
    {.name = "large", .depths = {3, 3, 27, 3}, .width = 192},
    {0},
};

static const tutti_weight_alias timm[] = {{"^features.0.0.", "stem.0."},
                                          {"^features.0.1.", "stem.1."},
                                          {"^features.1.", "stages.0.blocks."},
                                          {"^features.2.", "stages.1.downsample."},
                                          {"^features.3.", "stages.1.blocks."},
                                          {"^features.4.", "stages.2.downsample."},
                                          {"^features.5.", "stages.2.blocks."},
                                          {"^features.6.", "stages.3.downsample."},
                                          {"^features.7.", "stages.3.blocks."},
                                          {"^classifier.0.", "head.norm."},
                                          {"^classifier.2.", "head.fc."},
                                          {".layer_scale", ".gamma"},
                                          {".block.0.", ".conv_dw."},
                                          {".block.2.", ".norm."},
                                          {".block.3.", ".mlp.fc1."},
                                          {".block.5.", ".mlp.fc2."},
                                          {0}};

static const tutti_weight_alias hugging_face[] = {
    {"^features.0.0.", "convnext.embeddings.patch_embeddings."},
    {"^features.0.1.", "convnext.embeddings.layernorm."},
    {"^features.1.", "convnext.encoder.stages.0.layers."},
    {"^features.2.", "convnext.encoder.stages.1.downsampling_layer."},
    {"^features.3.", "convnext.encoder.stages.1.layers."},
    {"^features.4.", "convnext.encoder.stages.2.downsampling_layer."},
    {"^features.5.", "convnext.encoder.stages.2.layers."},
    {"^features.6.", "convnext.encoder.stages.3.downsampling_layer."},
    {"^features.7.", "convnext.encoder.stages.3.layers."},
    {"^classifier.0.", "convnext.layernorm."},
    {"^classifier.2.", "classifier."},
    {".layer_scale", ".layer_scale_parameter"},
    {".block.0.", ".dwconv."},
    {".block.2.", ".layernorm."},
    {".block.3.", ".pwconv1."},
    {".block.5.", ".pwconv2."},
    {0}};

static const tutti_weight_alias authors[] = {{"^features.0.", "downsample_layers.0."},
                                             {"^features.1.", "stages.0."},
                                             {"^features.2.", "downsample_layers.1."},
                                             {"^features.3.", "stages.1."},
                                             {"^features.4.", "downsample_layers.2."},
                                             {"^features.5.", "stages.2."},
                                             {"^features.6.", "downsample_layers.3."},
                                             {"^features.7.", "stages.3."},
                                             {"^classifier.0.", "norm."},
                                             {"^classifier.2.", "head."},
                                             {".layer_scale", ".gamma"},
                                             {".block.0.", ".dwconv."},
                                             {".block.2.", ".norm."},
                                             {".block.3.", ".pwconv1."},
                                             {".block.5.", ".pwconv2."},
                                             {0}};

const tutti_weight_alias *const tti_convnext_aliases[] = {timm, hugging_face, authors, NULL};

static const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02};

typedef struct convnext {
    tutti_graph *g;
    const tutti_model_params *p;
    tti_model_size size;
    tutti_norm_desc norm;  /* all norms but the last one, as in transformers */
    int64_t n_done, n_all; /* number of blocks built, and in all stages */
} convnext;

static tutti_value *to_last(const convnext *m, tutti_value *x) {
    return tutti_permute(m->g, x, (int[]){0, 2, 3, 1}, 4);
}

static tutti_value *to_first(const convnext *m, tutti_value *x) {
    return tutti_permute(m->g, x, (int[]){0, 3, 1, 2}, 4);
}

/* Layer norm over the channels of x[N,C,H,W]. */
static tutti_value *norm2d(const convnext *m, tutti_value *x, const char *name) {
    return to_first(m, tutti_layer_norm(m->g, to_last(m, x), &m->norm, name));
}

/* A convolution of windows that do not overlap. */
static tutti_value *shrink(const convnext *m, tutti_value *x, int64_t n_out, int64_t side,
                           const char *name) {
    tutti_conv2d_desc desc = {.n_out = n_out, .kernel = side, .stride = side, .init = &normal};
    return tutti_conv2d(m->g, x, &desc, name);
}

static tutti_value *block(convnext *m, tutti_value *x, int64_t width, const char *prefix) {
    static const tutti_init small = {.kind = TUTTI_INIT_CONSTANT, .a = 1e-6};
    char text[TTI_MODEL_NAME];
    tutti_conv2d_desc depthwise = {
        .n_out = width, .kernel = 7, .pad = 3, .groups = width, .init = &normal};
    tutti_value *y = tutti_conv2d(m->g, x, &depthwise, tti_model_join(text, prefix, "block.0"));
    y = tutti_layer_norm(m->g, to_last(m, y), &m->norm, tti_model_join(text, prefix, "block.2"));
    y = tti_model_linear(m->g, y, 4 * width, normal.b, tti_model_join(text, prefix, "block.3"));
    y = tti_model_linear(m->g, tutti_gelu(m->g, y), width, normal.b,
                         tti_model_join(text, prefix, "block.5"));
    tutti_value *scale = tutti_param(m->g, tti_model_join(text, prefix, "layer_scale"),
                                     &TUTTI_SHAPE(width, 1, 1), &small, false);
    y = tutti_mul(m->g, y, tutti_reshape(m->g, scale, &TUTTI_SHAPE(width)));
    y = tti_model_drop_path(m->g, to_first(m, y), m->p, m->n_done++, m->n_all,
                            tti_model_join(text, prefix, "stochastic_depth"));
    return tutti_add(m->g, x, y);
}

static tutti_value *stage(convnext *m, tutti_value *x, int s) {
    char name[TTI_MODEL_NAME];
    int64_t width = m->size.width << s;
    if (s > 0) {
        snprintf(name, sizeof name, "features.%d.0", 2 * s);
        x = norm2d(m, x, name);
        snprintf(name, sizeof name, "features.%d.1", 2 * s);
        x = shrink(m, x, width, 2, name);
    }
    for (int64_t i = 0; i < m->size.depths[s] && x; i++) {
        snprintf(name, sizeof name, "features.%d.%" PRId64 ".", 2 * s + 1, i);
        x = block(m, x, width, name);
    }
    return x;
}

tutti_value *tti_model_convnext(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    convnext m = {.g = g, .p = p, .norm = {.eps = 1e-6}};
    tutti_norm_desc last = {.eps = p->norm_eps > 0 ? p->norm_eps : 1e-6};
    if (!tti_model_check_images(g, "convnext", x) ||
        !tti_model_pick_stages(g, "convnext", p, sizes, &m.size))
        return NULL;
    for (int s = 0; s < TTI_MODEL_STAGES; s++) m.n_all += m.size.depths[s];
    x = norm2d(&m, shrink(&m, x, m.size.width, 4, "features.0.0"), "features.0.1");
    for (int s = 0; s < TTI_MODEL_STAGES; s++) x = stage(&m, x, s);
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    x = tutti_layer_norm(g, x, &last, "classifier.0");
    x = tti_model_dropout(g, x, p, "classifier.dropout");
    return tti_model_linear(g, x, p->n_classes, normal.b, "classifier.2");
}
