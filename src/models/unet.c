/* unet.c - U-Net (Ronneberger et al. 2015) with batch norm: x [N,C,H,W] -> logits
 * [N,n_classes,H,W].
 *
 * Names and initial values are those of milesial's Pytorch-UNet, whose weights are those of
 * torch.hub's unet_carvana: model.width channels in the first level (64), twice as many in each of
 * model.layers levels below (4). Sizes need not be even: an upsampled value is padded to the size
 * of the value that it is concatenated with. */
#include <inttypes.h>
#include <stdio.h>

#include "models/models.h"
#include "tutti/functional.h"

enum { WIDTH = 64, LEVELS = 4, MAX_LEVELS = 8 };

typedef struct unet {
    tutti_graph *g;
    const tutti_model_params *p;
} unet;

/* Applies a 3x3 convolution, batch norm and relu twice; prefix: "inc.". */
static tutti_value *double_conv(const unet *m, tutti_value *x, int64_t n_middle, int64_t n_out,
                                const char *prefix) {
    char name[TTI_MODEL_NAME];
    for (int i = 0; i < 2; i++) {
        tutti_conv2d_desc desc = {
            .n_out = i == 0 ? n_middle : n_out, .kernel = 3, .pad = 1, .no_bias = true};
        snprintf(name, sizeof name, "%sdouble_conv.%d", prefix, 3 * i);
        x = tutti_conv2d(m->g, x, &desc, name);
        snprintf(name, sizeof name, "%sdouble_conv.%d", prefix, 3 * i + 1);
        x = tutti_relu(m->g, tutti_batch_norm2d(m->g, x, NULL, name));
    }
    return x;
}

static tutti_value *down(const unet *m, tutti_value *x, int64_t n_out, int64_t level) {
    char prefix[TTI_MODEL_NAME];
    snprintf(prefix, sizeof prefix, "down%" PRId64 ".maxpool_conv.1.", level);
    return double_conv(m, tutti_max_pool2d(m->g, x, 2), n_out, n_out, prefix);
}

/* Doubles the size, and halves the channels unless it is bilinear. */
static tutti_value *enlarge(const unet *m, tutti_value *x, int64_t level) {
    static const tutti_init uniform = {.kind = TUTTI_INIT_FAN_IN_UNIFORM};
    char name[TTI_MODEL_NAME];
    tutti_type type = tutti_value_type(x);
    const int64_t *dim = type.shape.dim;
    if (m->p->bilinear) return tutti_upsample_bilinear2d(m->g, x, 2 * dim[2], 2 * dim[3], true);
    snprintf(name, sizeof name, "up%" PRId64 ".up.weight", level);
    tutti_value *w =
        tutti_param(m->g, name, &TUTTI_SHAPE(dim[1], dim[1] / 2, 2, 2), &uniform, true);
    /* PyTorch counts the inputs of a bias along dimension 1 of the weight. */
    tutti_init bias = {.kind = TUTTI_INIT_FAN_IN_UNIFORM, .fan_in = dim[1] / 2 * 4};
    snprintf(name, sizeof name, "up%" PRId64 ".up.bias", level);
    tutti_value *b = tutti_param(m->g, name, &TUTTI_SHAPE(dim[1] / 2), &bias, false);
    return tutti_conv_transpose2d_of(m->g, x, w, b, &(tutti_window){.stride = {2, 2}}, NULL);
}

/* Pads x to the size of `like`, with half of the padding in front. */
static tutti_value *pad_to(const unet *m, tutti_value *x, const tutti_value *like) {
    tutti_type want = tutti_value_type(like);
    for (int axis = 2; axis < 4 && x; axis++) {
        int64_t more = want.shape.dim[axis] - tutti_value_type(x).shape.dim[axis];
        if (more > 0) x = tutti_pad(m->g, x, axis, more / 2, more - more / 2);
    }
    return x;
}

/* Upsamples x[N,n_in,..] of the level below and concatenates it with `skip` of this level. */
static tutti_value *up(const unet *m, tutti_value *x, tutti_value *skip, int64_t n_out,
                       int64_t level) {
    char prefix[TTI_MODEL_NAME];
    tutti_value *both[] = {skip, pad_to(m, enlarge(m, x, level), skip)};
    x = tutti_concat(m->g, both, 2, 1);
    if (!x) return NULL;
    int64_t n_joined = tutti_value_type(x).shape.dim[1];
    snprintf(prefix, sizeof prefix, "up%" PRId64 ".conv.", level);
    return double_conv(m, x, m->p->bilinear ? n_joined / 2 : n_out, n_out, prefix);
}

static bool check(const unet *m, const tutti_value *x, int64_t n_levels, int64_t width) {
    char why[256];
    if (!tti_model_check_images(m->g, "unet", x)) return false;
    tutti_type type = tutti_value_type(x);
    int64_t least = (int64_t)1 << n_levels;
    if (n_levels > MAX_LEVELS)
        snprintf(why, sizeof why, "unet: model.layers: at most %d levels are supported",
                 MAX_LEVELS);
    else if (width % 2 != 0)
        snprintf(why, sizeof why, "unet: model.width, %" PRId64 ", must be even", width);
    else if (type.shape.dim[2] < least || type.shape.dim[3] < least)
        snprintf(why, sizeof why,
                 "unet: images of %" PRId64 "x%" PRId64 " cannot be halved %" PRId64
                 " times; give a larger data.image_size or fewer model.layers",
                 type.shape.dim[2], type.shape.dim[3], n_levels);
    else
        return true;
    (void)tutti_graph_refuse(m->g, why);
    return false;
}

tutti_value *tti_model_unet(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    unet m = {.g = g, .p = p};
    tutti_value *level[MAX_LEVELS + 1];
    int64_t n = p->n_layers > 0 ? p->n_layers : LEVELS, width = p->width > 0 ? p->width : WIDTH;
    int64_t factor = p->bilinear ? 2 : 1;
    if (!check(&m, x, n, width)) return NULL;
    level[0] = double_conv(&m, x, width, width, "inc.");
    for (int64_t i = 1; i <= n; i++)
        level[i] = down(&m, level[i - 1], (width << i) / (i == n ? factor : 1), i);
    x = tti_model_dropout(g, level[n], p, "dropout");
    for (int64_t i = 1; i <= n && x; i++)
        x = up(&m, x, level[n - i], (width << (n - i)) / (i == n ? 1 : factor), i);
    return tutti_conv2d(g, x, &(tutti_conv2d_desc){.n_out = p->n_classes, .kernel = 1},
                        "outc.conv");
}
