/* narrow_resnet.h - the parts of the residual networks of src/models, eight and sixteen channels
 * wide: what tests hold about batch norms they hold in a hundredth of the time. */
#ifndef TTI_TESTS_TRAIN_NARROW_RESNET_H
#define TTI_TESTS_TRAIN_NARROW_RESNET_H

#include <stdio.h>

#include "tutti/models.h"
#include "tutti/ops.h"

typedef struct conv_size {
    int64_t n_out, kernel, stride;
} conv_size;

static inline tutti_value *conv_norm(tutti_graph *g, tutti_value *x, conv_size size,
                                     const char *name) {
    char norm[32];
    snprintf(norm, sizeof norm, "%s.bn", name);
    tutti_conv2d_desc conv = {.n_out = size.n_out,
                              .kernel = size.kernel,
                              .stride = size.stride,
                              .pad = size.kernel / 2,
                              .no_bias = true};
    return tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, name), NULL, norm);
}

/* The pooled stem, plain blocks and one that shrinks: 10 convolutions with their norms. */
static inline tutti_value *narrow_resnet(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *params = user;
    x = tutti_relu(g, conv_norm(g, x, (conv_size){8, 3, 1}, "stem"));
    x = tutti_max_pool2d_with(g, x, &(tutti_pool2d_desc){.kernel = 3, .stride = 2, .pad = 1});
    for (int i = 0; i < 4; i++) {
        char name[4][16];
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "block%d.conv%d", i, k);
        snprintf(name[3], sizeof name[3], "block%d.drop", i);
        int64_t stride = i == 2 ? 2 : 1, n_out = i < 2 ? 8 : 16;
        tutti_value *y =
            tutti_relu(g, conv_norm(g, x, (conv_size){n_out, i == 3 ? 1 : 3, stride}, name[0]));
        y = conv_norm(g, y, (conv_size){n_out, i % 2 ? 1 : 3, 1}, name[1]);
        if (stride > 1) x = conv_norm(g, x, (conv_size){n_out, 1, stride}, name[2]);
        if (params->drop_path > 0) y = tutti_drop_path(g, y, params->drop_path, name[3]);
        x = tutti_relu(g, tutti_add(g, y, x));
    }
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    return tutti_linear(g, x, params->n_classes, "fc");
}

#endif /* TTI_TESTS_TRAIN_NARROW_RESNET_H */
