/* vgg.c - stacks of 3x3 convolutions (Simonyan & Zisserman 2014).  x: [N,C,H,W] -> logits
 * [N,n_classes]; H and W at least 32.
 *
 * Names have the indices of torchvision's nn.Sequential, which also counts relu, pooling and
 * dropout: features.0, features.3, ...; classifier.0, .3, .6. Initial values are torchvision's. */
#include <stdio.h>

#include "models/models.h"
#include "tutti/ops.h"

enum { POOL = -1, END = 0, NAME = 64 };

static const int vgg11[] = {64,  POOL, 128,  POOL, 256, 256,  POOL,
                            512, 512,  POOL, 512,  512, POOL, END};
static const int vgg13[] = {64,   64,  POOL, 128,  128, POOL, 256,  256,
                            POOL, 512, 512,  POOL, 512, 512,  POOL, END};
static const int vgg16[] = {64,  64,  POOL, 128,  128, POOL, 256, 256,  256, POOL,
                            512, 512, 512,  POOL, 512, 512,  512, POOL, END};

static tutti_value *conv_relu(tutti_graph *g, tutti_value *x, const tutti_model_params *p,
                              int n_out, int at) {
    char name[NAME];
    tutti_init he = {.kind = TUTTI_INIT_HE_NORMAL, .fan_in = 9 * n_out};
    tutti_conv2d_desc desc = {.n_out = n_out, .kernel = 3, .pad = 1, .init = &he};
    snprintf(name, sizeof name, "features.%d", at);
    x = tutti_conv2d(g, x, &desc, name);
    snprintf(name, sizeof name, "features.%d", at + 1);
    if (p->batch_norm) x = tutti_batch_norm2d(g, x, NULL, name);
    return tutti_relu(g, x);
}

static tutti_value *classifier(tutti_graph *g, tutti_value *x, const tutti_model_params *p) {
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.01};
    tutti_linear_desc desc = {.n_out = p->small_images ? 512 : 4096, .init = &normal};
    x = tutti_relu(g, tutti_linear_with(g, x, &desc, "classifier.0"));
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "classifier.2");
    x = tutti_relu(g, tutti_linear_with(g, x, &desc, "classifier.3"));
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "classifier.5");
    desc.n_out = p->n_classes;
    return tutti_linear_with(g, x, &desc, "classifier.6");
}

static tutti_value *build(tutti_graph *g, tutti_value *x, const tutti_model_params *p,
                          const int *plan) {
    int at = 0;
    for (; *plan != END; plan++) {
        if (*plan == POOL) {
            x = tutti_max_pool2d(g, x, 2);
            at++;
        } else {
            x = conv_relu(g, x, p, *plan, at);
            at += p->batch_norm ? 3 : 2;
        }
    }
    int64_t side = p->small_images ? 1 : 7;
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, side, side));
    return classifier(g, x, p);
}

tutti_value *tti_model_vgg11(tutti_graph *g, tutti_value *x, const void *user) {
    return build(g, x, user, vgg11);
}

tutti_value *tti_model_vgg13(tutti_graph *g, tutti_value *x, const void *user) {
    return build(g, x, user, vgg13);
}

tutti_value *tti_model_vgg16(tutti_graph *g, tutti_value *x, const void *user) {
    return build(g, x, user, vgg16);
}
