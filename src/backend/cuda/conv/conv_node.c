/* conv_node.c - reads the sizes of a convolution from its node. */
#include "backend/cuda/conv/conv_node.h"

static void read_pair(const tti_node *node, const char *name, int64_t fallback, int64_t out[2]) {
    const tti_attr *attr = tti_attr_get(node, name);
    for (int d = 0; d < 2; d++) out[d] = attr->n > d ? attr->v[d] : fallback;
}

static tti_cuda_conv conv_of(const tti_node *node, const tutti_value *x, const tutti_value *w,
                             const tutti_value *y) {
    const int64_t *xd = x->type.shape.dim, *wd = w->type.shape.dim, *yd = y->type.shape.dim;
    tti_cuda_conv v = {.n = xd[0], .c = xd[1], .h = xd[2], .w = xd[3], .o = yd[1], .p = yd[2]};
    v.q = yd[3], v.r = wd[2], v.s = wd[3];
    v.groups = tti_attr_int(node, "groups");
    read_pair(node, "stride", 1, v.stride);
    read_pair(node, "pad", 0, v.pad);
    read_pair(node, "dilation", 1, v.dilation);
    v.x_last = x->layout == TTI_CHANNELS_LAST_BYTES;
    v.y_last = y->layout == TTI_CHANNELS_LAST_BYTES;
    return v;
}

tti_cuda_conv tti_cuda_conv_read(const tti_node *node, tti_cuda_conv_kind kind) {
    if (kind == TTI_CONV_FORWARD) return conv_of(node, node->in[0], node->in[1], node->out[0]);
    if (kind == TTI_CONV_GRAD_X) return conv_of(node, node->out[0], node->in[1], node->in[0]);
    return conv_of(node, node->in[1], node->out[0], node->in[0]);
}

tti_cuda_planes tti_cuda_conv_y_planes(const tti_cuda_conv *conv) {
    return (tti_cuda_planes){conv->n, conv->o, conv->p * conv->q, conv->y_last};
}
