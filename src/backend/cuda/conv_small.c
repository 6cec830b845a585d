/* conv_small.c - rows of the kernel table for small 3x3 convolutions: conv_small.cu does the work.
 *
 * cuDNN's engines are made for large ones: here the launches around them, to turn weights, pad
 * images and add a bias, take longer than the products. */
#include "backend/cuda/conv_small.h"

#include "backend/cuda/cuda.h"

/* Pixels up to which these kernels are the faster ones. */
static const int64_t max_pixels = 1 << 18;

enum { MAX_SIDE = 64 };

static bool is_all(const tti_node *node, const char *name, int64_t value, int64_t usual) {
    const tti_attr *list = tti_attr_get(node, name);
    for (int d = 0; d < 2; d++)
        if ((list->n > d ? list->v[d] : usual) != value) return false;
    return true;
}

/* One channel lies the same in both layouts. */
static bool lies_last(const tutti_value *value) {
    return value->layout == TTI_CHANNELS_LAST_BYTES || value->type.shape.dim[1] == 1;
}

static tti_small_conv sizes_of(const tutti_value *x, const tutti_value *y) {
    const int64_t *xd = x->type.shape.dim;
    const tti_cuda *cuda = tti_cuda_device();
    return (tti_small_conv){.n = (int)xd[0],
                            .c = (int)xd[1],
                            .h = (int)xd[2],
                            .w = (int)xd[3],
                            .o = (int)y->type.shape.dim[1],
                            .n_sms = cuda->n_sms,
                            .shared_optin = cuda->shared_optin};
}

/* x, y: values of those shapes, w: of the weight or its gradient. */
static bool is_small(const tti_node *node, const tutti_value *x, const tutti_value *y,
                     const tutti_value *w) {
    const int64_t *xd = x->type.shape.dim, *wd = w->type.shape.dim;
    if (!tti_cuda_device() || wd[2] != 3 || wd[3] != 3 || tti_attr_int(node, "groups") != 1)
        return false;
    if (!is_all(node, "stride", 1, 1) || !is_all(node, "pad", 1, 0) ||
        !is_all(node, "dilation", 1, 1))
        return false;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_F32) return false;
    if (!lies_last(x) || !lies_last(y) || xd[0] < 1 || xd[0] > max_pixels) return false;
    if (xd[2] < 1 || xd[3] < 1) return false;
    if (xd[1] > MAX_SIDE || wd[0] > MAX_SIDE || xd[2] > MAX_SIDE || xd[3] > MAX_SIDE) return false;
    return xd[0] * xd[2] * xd[3] <= max_pixels;
}

static bool has_cores(void) { return tti_cuda_device()->desc.tf32; }

static bool can_run_image(const tti_node *node) {
    if (!is_small(node, node->in[0], node->out[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->in[0], node->out[0]);
    return tti_small_conv_is_image(&v);
}

static bool can_run_cores(const tti_node *node) {
    if (!is_small(node, node->in[0], node->out[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->in[0], node->out[0]);
    return has_cores() && tti_small_conv_fits_cores(&v);
}

static bool can_run_grad_x(const tti_node *node) {
    if (!is_small(node, node->out[0], node->in[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->out[0], node->in[0]);
    return has_cores() && tti_small_conv_fits_cores(&v);
}

static bool can_run_grad_w(const tti_node *node) {
    if (!is_small(node, node->in[1], node->in[0], node->out[0])) return false;
    tti_small_conv v = sizes_of(node->in[1], node->in[0]);
    return tti_small_conv_is_image(&v) || (has_cores() && tti_small_conv_fits_cores(&v));
}

static size_t grad_w_bytes(const tti_node *node, const void *state) {
    (void)state;
    tti_small_conv v = sizes_of(node->in[1], node->in[0]);
    return tti_small_conv_grad_w_bytes(&v);
}

static tutti_status run_forward(void *state, const tti_kargs *a) {
    (void)state;
    tti_small_conv v = sizes_of(a->node->in[0], a->node->out[0]);
    const float *bias = a->node->n_in > 2 ? a->in[2] : NULL;
    bool relu = tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU;
    cudaError_t error = tti_small_conv_is_image(&v)
                            ? tti_launch_small_conv_image(&v, a->in[0], a->in[1], bias, relu,
                                                          a->out[0], tti_cuda_stream())
                            : tti_launch_small_conv_cores(&v, a->in[0], a->in[1], bias, relu,
                                                          a->out[0], tti_cuda_stream());
    return tti_cuda_check(error, "small conv2d");
}

static tutti_status run_grad_x(void *state, const tti_kargs *a) {
    (void)state;
    tti_small_conv v = sizes_of(a->node->out[0], a->node->in[0]);
    return tti_cuda_check(
        tti_launch_small_conv_grad_x(&v, a->in[0], a->in[1], a->out[0], tti_cuda_stream()),
        "small conv2d_grad_x");
}

static tutti_status run_grad_w(void *state, const tti_kargs *a) {
    (void)state;
    tti_small_conv v = sizes_of(a->node->in[1], a->node->in[0]);
    return tti_cuda_check(tti_launch_small_conv_grad_w(&v, a->in[0], a->in[1], a->scratch,
                                                       a->out[0], a->out[1], tti_cuda_stream()),
                          "small conv2d_grad_w");
}

const tti_kernel tti_cuda_small_conv_kernels[] = {
    {.op = "conv2d", .name = "image", .can_run = can_run_image, .run = run_forward},
    {.op = "conv2d", .name = "small", .can_run = can_run_cores, .run = run_forward},
    {.op = "conv2d_grad_x", .name = "small", .can_run = can_run_grad_x, .run = run_grad_x},
    {.op = "conv2d_grad_w",
     .name = "small",
     .can_run = can_run_grad_w,
     .scratch_bytes = grad_w_bytes,
     .run = run_grad_w},
    {0},
};
