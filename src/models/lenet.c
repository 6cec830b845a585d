/* lenet.c - a small convolutional classifier like LeNet-5 (LeCun et al. 1998), with 3x3 kernels and
 * relu.  x: [N,C,H,W] -> logits [N,n_classes]; H and W at least 4. */
#include "models/models.h"
#include "tutti/ops.h"

tutti_value *tti_model_lenet(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    tutti_conv2d_desc conv1 = {.n_out = 32, .kernel = 3, .pad = 1};
    tutti_conv2d_desc conv2 = {.n_out = 64, .kernel = 3, .pad = 1};
    x = tutti_relu(g, tutti_conv2d(g, x, &conv1, "conv1"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_conv2d(g, x, &conv2, "conv2"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_linear(g, tutti_flatten(g, x), 128, "fc1"));
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "drop1");
    return tutti_linear(g, x, p->n_classes, "fc2");
}
