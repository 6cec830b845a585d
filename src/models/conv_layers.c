/* conv_layers.c - layers that convolutional models share: convolution with batch norm and
 * activation, squeeze and excitation, stochastic depth, the head. */
#include "models/conv_layers.h"

#include <stdio.h>

tutti_value *tti_conv_norm_named(tutti_graph *g, tutti_value *x, const tti_conv_norm *layer,
                                 const char *conv, const char *norm) {
    const tti_conv_norm *l = layer;
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL, .fan_in = l->n_out * l->kernel * l->kernel};
    tutti_init zero = {.kind = TUTTI_INIT_ZEROS};
    tutti_conv2d_desc desc = {.n_out = l->n_out,
                              .kernel = l->kernel,
                              .stride = l->stride,
                              .pad = l->kernel / 2,
                              .groups = l->groups,
                              .no_bias = true,
                              .init = &he};
    tutti_batch_norm_desc stats = {
        .eps = l->eps, .momentum = l->momentum, .init = l->zero ? &zero : NULL};
    x = tutti_batch_norm2d(g, tutti_conv2d(g, x, &desc, conv), &stats, norm);
    return l->activation ? l->activation(g, x) : x;
}

tutti_value *tti_conv_norm_build(tutti_graph *g, tutti_value *x, const tti_conv_norm *layer,
                                 const char *name) {
    char conv[TTI_MODEL_NAME], norm[TTI_MODEL_NAME];
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(norm, sizeof norm, "%s.1", name);
    return tti_conv_norm_named(g, x, layer, conv, norm);
}

static tutti_value *conv_1x1(tutti_graph *g, tutti_value *x, int64_t n_out, const char *name,
                             const char *suffix) {
    char text[TTI_MODEL_NAME];
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL, .fan_in = n_out};
    snprintf(text, sizeof text, "%s.%s", name, suffix);
    return tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = n_out, .kernel = 1, .init = &he}, text);
}

tutti_value *tti_squeeze_build(tutti_graph *g, tutti_value *x, const tti_squeeze *layer,
                               const char *name) {
    if (!x) return NULL;
    int64_t n_channels = tutti_value_type(x).shape.dim[1];
    tutti_value *scale = tutti_adaptive_avg_pool2d(g, x, 1, 1);
    scale = layer->activation(g, conv_1x1(g, scale, layer->width, name, "fc1"));
    scale = layer->gate(g, conv_1x1(g, scale, n_channels, name, "fc2"));
    return tutti_mul(g, scale, x);
}

tutti_value *tti_hard_sigmoid(tutti_graph *g, tutti_value *x) {
    return tutti_affine(g, tutti_relu6(g, tutti_affine(g, x, 1, 3)), 1.0 / 6, 0);
}

tutti_value *tti_hard_swish(tutti_graph *g, tutti_value *x) {
    return tutti_mul(g, x, tti_hard_sigmoid(g, x));
}

tutti_value *tti_drop_branch(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                             int i, int n, const char *block) {
    char name[TTI_MODEL_NAME];
    if (params->drop_path <= 0 || i < 1) return x;
    snprintf(name, sizeof name, "%s.drop_path", block);
    return tutti_drop_path(g, x, params->drop_path * i / n, name);
}

tutti_value *tti_pool_features(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                               const char *dropout) {
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    return params->dropout > 0 ? tutti_dropout(g, x, params->dropout, dropout) : x;
}

tutti_value *tti_linear_normal(tutti_graph *g, tutti_value *x, int64_t n_out, const char *name) {
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.01};
    return tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = n_out, .init = &normal}, name);
}

int64_t tti_round_channels(double n, int64_t step) {
    int64_t below = (int64_t)(n + (double)step / 2) / step * step;
    int64_t rounded = below > step ? below : step;
    return (double)rounded < 0.9 * n ? rounded + step : rounded;
}

double tti_width_multiplier(const tutti_model_params *params) {
    return params->width_multiplier > 0 ? params->width_multiplier : 1;
}
