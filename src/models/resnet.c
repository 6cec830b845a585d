/* resnet.c - residual networks (He et al. 2015), v1.5: in a bottleneck the 3x3 convolution has the
 * stride. x: [N,C,H,W] -> logits [N,n_classes].
 *
 * Names and initial values are torchvision's (convolutions normal with variance 2 / fan_out, batch
 * norms 1 and 0), so weight files can be exchanged in both directions.  For small images such as
 * CIFAR's, the first layer is 3x3 without stride and there is no max-pool. */
#include <stdio.h>

#include "models/conv_layers.h"
#include "models/models.h"
#include "tutti/ops.h"

enum { N_STAGES = 4, NAME = 64 };

typedef struct net {
    tutti_graph *g;
    const tutti_model_params *p;
    bool bottleneck;
    int n_blocks[N_STAGES];
    int n_done, n_all; /* blocks over all stages */
} net;

typedef struct layer {
    const char *block; /* "layer1.0.", "" */
    const char *conv, *norm;
    int64_t n_out, kernel, stride;
    bool zero; /* the weight of the norm starts at zero */
} layer;

static tutti_value *conv_norm(const net *r, tutti_value *x, const layer *l) {
    char conv[NAME], norm[NAME];
    tti_conv_norm same = {
        .n_out = l->n_out, .kernel = l->kernel, .stride = l->stride, .zero = l->zero};
    snprintf(conv, sizeof conv, "%s%s", l->block, l->conv);
    snprintf(norm, sizeof norm, "%s%s", l->block, l->norm);
    return tti_conv_norm_named(r->g, x, &same, conv, norm);
}

/* The residual branch: two 3x3, or 1x1, 3x3, 1x1 to four times the width. */
static tutti_value *branch(const net *r, tutti_value *x, const char *block, int64_t width,
                           int64_t stride) {
    bool zero = r->p->zero_init_residual;
    if (!r->bottleneck) {
        layer l1 = {block, "conv1", "bn1", width, 3, stride, false};
        layer l2 = {block, "conv2", "bn2", width, 3, 1, zero};
        x = tutti_relu(r->g, conv_norm(r, x, &l1));
        return conv_norm(r, x, &l2);
    }
    layer l1 = {block, "conv1", "bn1", width, 1, 1, false};
    layer l2 = {block, "conv2", "bn2", width, 3, stride, false};
    layer l3 = {block, "conv3", "bn3", 4 * width, 1, 1, zero};
    x = tutti_relu(r->g, conv_norm(r, x, &l1));
    x = tutti_relu(r->g, conv_norm(r, x, &l2));
    return conv_norm(r, x, &l3);
}

/* Stochastic depth (Huang et al. 2016): the probability grows linearly and is highest for the last
 * branch. */
static tutti_value *drop_branch(const net *r, tutti_value *y, const char *block) {
    char name[NAME];
    if (r->p->drop_path <= 0) return y;
    snprintf(name, sizeof name, "%sdrop_path", block);
    return tutti_drop_path(r->g, y, r->p->drop_path * r->n_done / r->n_all, name);
}

static tutti_value *residual_block(const net *r, tutti_value *x, const char *block, int64_t width,
                                   int64_t stride) {
    int64_t n_out = r->bottleneck ? 4 * width : width;
    tutti_value *shortcut = x, *y = branch(r, x, block, width, stride);
    layer down = {block, "downsample.0", "downsample.1", n_out, 1, stride, false};
    if (stride != 1 || tutti_value_type(x).shape.dim[1] != n_out) shortcut = conv_norm(r, x, &down);
    return tutti_relu(r->g, tutti_add(r->g, drop_branch(r, y, block), shortcut));
}

static tutti_value *stem(const net *r, tutti_value *x) {
    bool small = r->p->small_images;
    layer l = {"", "conv1", "bn1", 64, small ? 3 : 7, small ? 1 : 2, false};
    x = tutti_relu(r->g, conv_norm(r, x, &l));
    if (small) return x;
    return tutti_max_pool2d_with(r->g, x, &(tutti_pool2d_desc){.kernel = 3, .stride = 2, .pad = 1});
}

static tutti_value *build(net *r, tutti_value *x) {
    if (!x) return NULL;
    x = stem(r, x);
    for (int s = 0; s < N_STAGES; s++) r->n_all += r->n_blocks[s];
    for (int s = 0; s < N_STAGES; s++)
        for (int i = 0; i < r->n_blocks[s] && x; i++) {
            char block[NAME];
            snprintf(block, sizeof block, "layer%d.%d.", s + 1, i);
            r->n_done++;
            x = residual_block(r, x, block, 64 << s, s > 0 && i == 0 ? 2 : 1);
        }
    x = tutti_flatten(r->g, tutti_adaptive_avg_pool2d(r->g, x, 1, 1));
    if (r->p->dropout > 0) x = tutti_dropout(r->g, x, r->p->dropout, "drop");
    return tutti_linear(r->g, x, r->p->n_classes, "fc");
}

tutti_value *tti_model_resnet18(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .n_blocks = {2, 2, 2, 2}}, x);
}

tutti_value *tti_model_resnet34(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .n_blocks = {3, 4, 6, 3}}, x);
}

tutti_value *tti_model_resnet50(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .bottleneck = true, .n_blocks = {3, 4, 6, 3}}, x);
}

tutti_value *tti_model_resnet101(tutti_graph *g, tutti_value *x, const void *user) {
    return build(&(net){.g = g, .p = user, .bottleneck = true, .n_blocks = {3, 4, 23, 3}}, x);
}
