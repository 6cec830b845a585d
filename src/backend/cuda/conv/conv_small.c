/* conv_small.c - kernel table rows for small 3x3 convolutions, and for those followed by pooling:
 * conv_small.cu has the kernels, conv_pool.cu those for other pooled cases.
 *
 * cuDNN's engines are made for large convolutions: here the launches around them, to convert
 * weights, pad images and add a bias, take longer than the products. */
#include "backend/cuda/conv/conv_small.h"

#include "backend/cuda/conv/conv_pool.h"
#include "backend/cuda/runtime/cuda.h"

/* Pixels up to which these kernels are the faster ones. */
static const int64_t max_pixels = 1 << 18;

/* Shared memory that a block has on every device that these kernels are built for. */
static const size_t least_shared = (size_t)96 << 10;

enum { MAX_SIDE = 64 };

static bool is_all(const tti_node *node, const char *name, int64_t value, int64_t usual) {
    const tti_attr *list = tti_attr_get(node, name);
    for (int d = 0; d < 2; d++)
        if ((list->n > d ? list->v[d] : usual) != value) return false;
    return true;
}

/* A single channel has the same layout in both orders. */
static bool lies_last(const tutti_value *value) {
    return value->layout == TTI_CHANNELS_LAST_BYTES || value->type.shape.dim[1] == 1;
}

static tti_small_conv sizes_of(const tutti_value *x, int64_t n_out) {
    const int64_t *xd = x->type.shape.dim;
    const tti_cuda *cuda = tti_cuda_device();
    return (tti_small_conv){.n = (int)xd[0],
                            .c = (int)xd[1],
                            .h = (int)xd[2],
                            .w = (int)xd[3],
                            .o = (int)n_out,
                            .n_sms = cuda ? cuda->n_sms : 1,
                            .shared_optin = cuda ? cuda->shared_optin : least_shared};
}

/* By the shape and type of x alone. */
static bool is_small_image(const tutti_value *x, int64_t n_out) {
    const int64_t *xd = x->type.shape.dim;
    if (x->type.dtype != TUTTI_F32 || xd[0] < 1 || xd[0] > max_pixels || xd[2] < 1 || xd[3] < 1)
        return false;
    if (xd[1] > MAX_SIDE || n_out > MAX_SIDE || xd[2] > MAX_SIDE || xd[3] > MAX_SIDE) return false;
    return xd[0] * xd[2] * xd[3] <= max_pixels;
}

/* 3x3, one step at a time, a border of one. */
static bool is_usual(const tti_node *node, const tutti_value *w) {
    const int64_t *wd = w->type.shape.dim;
    return wd[2] == 3 && wd[3] == 3 && tti_attr_int(node, "groups") == 1 &&
           is_all(node, "stride", 1, 1) && is_all(node, "pad", 1, 0) &&
           is_all(node, "dilation", 1, 1);
}

/* x, y: values of those shapes, w: of the weight or its gradient. */
static bool is_small(const tti_node *node, const tutti_value *x, const tutti_value *y,
                     const tutti_value *w) {
    if (!tti_cuda_device() || !is_usual(node, w)) return false;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_F32) return false;
    return lies_last(x) && lies_last(y) && is_small_image(x, w->type.shape.dim[0]);
}

static bool has_cores(void) { return tti_cuda_uses_tf32(); }

static bool can_run_image(const tti_node *node) {
    if (!is_small(node, node->in[0], node->out[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->in[0], node->out[0]->type.shape.dim[1]);
    return tti_small_conv_is_image(&v);
}

static bool can_run_cores(const tti_node *node) {
    if (!is_small(node, node->in[0], node->out[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->in[0], node->out[0]->type.shape.dim[1]);
    return has_cores() && tti_small_conv_fits_cores(&v);
}

static bool can_run_grad_x(const tti_node *node) {
    if (!is_small(node, node->out[0], node->in[0], node->in[1])) return false;
    tti_small_conv v = sizes_of(node->out[0], node->in[0]->type.shape.dim[1]);
    return has_cores() && tti_small_conv_fits_cores(&v);
}

static bool can_run_grad_w(const tti_node *node) {
    if (!is_small(node, node->in[1], node->in[0], node->out[0])) return false;
    tti_small_conv v = sizes_of(node->in[1], node->in[0]->type.shape.dim[1]);
    return tti_small_conv_is_image(&v) || (has_cores() && tti_small_conv_fits_cores(&v));
}

static size_t grad_w_bytes(const tti_node *node, const void *state) {
    (void)state;
    tti_small_conv v = sizes_of(node->in[1], node->in[0]->type.shape.dim[1]);
    return tti_small_conv_grad_w_bytes(&v);
}

static bool is_param(const tutti_value *value) {
    return (value->node->op->traits & TTI_PARAM) != 0;
}

static tutti_status run_forward(void *state, const tti_kargs *a) {
    (void)state;
    tti_small_conv v = sizes_of(a->node->in[0], a->node->out[0]->type.shape.dim[1]);
    v.w_is_param = is_param(a->node->in[1]);
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
    tti_small_conv v = sizes_of(a->node->out[0], a->node->in[0]->type.shape.dim[1]);
    v.w_is_param = is_param(a->node->in[1]);
    return tti_cuda_check(
        tti_launch_small_conv_grad_x(&v, a->in[0], NULL, a->in[1], a->out[0], tti_cuda_stream()),
        "small conv2d_grad_x");
}

static tutti_status run_grad_w(void *state, const tti_kargs *a) {
    (void)state;
    tti_small_conv v = sizes_of(a->node->in[1], a->node->in[0]->type.shape.dim[1]);
    return tti_cuda_check(tti_launch_small_conv_grad_w(&v, a->in[0], NULL, a->in[1], a->scratch,
                                                       a->out[0], a->out[1], tti_cuda_stream()),
                          "small conv2d_grad_w");
}

/* ---- followed by pooling ---- */

/* x[n,c,h,w] and y[n,o,h/2,w/2], which is dp for gradients. */
typedef struct ends {
    const tutti_value *x, *y;
} ends;

static ends forward_ends(const tti_node *node) { return (ends){node->in[0], node->out[0]}; }
static ends grad_x_ends(const tti_node *node) { return (ends){node->out[0], node->in[0]}; }
static ends grad_w_ends(const tti_node *node) { return (ends){node->in[2], node->in[0]}; }

static bool is_last(const tutti_value *value) { return value->layout == TTI_CHANNELS_LAST_BYTES; }

static tti_small_pooled pooled_of(ends e, void *values, void *where) {
    return (tti_small_pooled){values, where, is_last(e.y)};
}

static tti_small_conv sizes_of_ends(ends e) { return sizes_of(e.x, e.y->type.shape.dim[1]); }

static bool is_pooled_image(ends e) {
    tti_small_conv v = sizes_of_ends(e);
    return tti_cuda_device() && lies_last(e.x) && is_small_image(e.x, e.y->type.shape.dim[1]) &&
           tti_small_conv_is_image(&v);
}

static bool is_pooled_for_cores(ends e) {
    tti_small_conv v = sizes_of_ends(e);
    return tti_cuda_device() && has_cores() && lies_last(e.x) &&
           is_small_image(e.x, e.y->type.shape.dim[1]) && tti_small_conv_fits_cores(&v);
}

static bool can_pool_image(const tti_node *node) { return is_pooled_image(forward_ends(node)); }
static bool can_pool_cores(const tti_node *node) { return is_pooled_for_cores(forward_ends(node)); }
static bool can_pool_grad_x(const tti_node *node) { return is_pooled_for_cores(grad_x_ends(node)); }

static bool can_pool_grad_w(const tti_node *node) {
    return is_pooled_image(grad_w_ends(node)) || is_pooled_for_cores(grad_w_ends(node));
}

static size_t pool_grad_w_bytes(const tti_node *node, const void *state) {
    (void)state;
    tti_small_conv v = sizes_of_ends(grad_w_ends(node));
    return tti_small_conv_grad_w_bytes(&v);
}

bool tti_cuda_fuses_pool(const tti_node *conv, bool tf32) {
    const tutti_value *x = conv->in[0];
    int64_t n_out = conv->in[1]->type.shape.dim[0];
    if (!is_usual(conv, conv->in[1]) || !is_small_image(x, n_out) || !lies_last(x)) return false;
    tti_small_conv v = sizes_of(x, n_out);
    v.shared_optin = least_shared; /* the same answer before and after a device is open */
    return tti_small_conv_is_image(&v) || (tf32 && tti_small_conv_fits_cores(&v));
}

typedef cudaError_t (*launch_pool_fn)(const tti_small_conv *v, const float *x, const float *w,
                                      const float *bias, const tti_small_pooled *y,
                                      cudaStream_t stream);

static tutti_status pool_by(launch_pool_fn launch, const tti_kargs *a) {
    ends e = forward_ends(a->node);
    tti_small_pooled y = pooled_of(e, a->out[0], a->out[1]);
    tti_small_conv v = sizes_of_ends(e);
    v.w_is_param = is_param(a->node->in[1]);
    return tti_cuda_check(launch(&v, a->in[0], a->in[1], a->in[2], &y, tti_cuda_stream()),
                          "small conv2d_pool");
}

static tutti_status pool_image(void *state, const tti_kargs *a) {
    (void)state;
    return pool_by(tti_launch_small_conv_image_pool, a);
}

static tutti_status pool_cores(void *state, const tti_kargs *a) {
    (void)state;
    return pool_by(tti_launch_small_conv_cores_pool, a);
}

static tutti_status pool_grad_x(void *state, const tti_kargs *a) {
    ends e = grad_x_ends(a->node);
    tti_small_pooled dp = pooled_of(e, a->in[0], a->in[1]);
    tti_small_conv v = sizes_of_ends(e);
    v.w_is_param = is_param(a->node->in[2]);
    (void)state;
    return tti_cuda_check(
        tti_launch_small_conv_grad_x(&v, NULL, &dp, a->in[2], a->out[0], tti_cuda_stream()),
        "small conv2d_pool_grad_x");
}

static tutti_status pool_grad_w(void *state, const tti_kargs *a) {
    ends e = grad_w_ends(a->node);
    tti_small_pooled dp = pooled_of(e, a->in[0], a->in[1]);
    tti_small_conv v = sizes_of_ends(e);
    (void)state;
    return tti_cuda_check(tti_launch_small_conv_grad_w(&v, NULL, &dp, a->in[2], a->scratch,
                                                       a->out[0], a->out[1], tti_cuda_stream()),
                          "small conv2d_pool_grad_w");
}

/* ---- with a pooling, any others ---- */

static tti_conv_pool plain_of(ends e) {
    const int64_t *x = e.x->type.shape.dim, *y = e.y->type.shape.dim;
    return (tti_conv_pool){e.x->type.dtype, x[0],        x[1], y[1], y[2], y[3],
                           is_last(e.x),    is_last(e.y)};
}

static tutti_status run_plain(void *state, const tti_kargs *a) {
    tti_conv_pool v = plain_of(forward_ends(a->node));
    (void)state;
    return tti_cuda_check(tti_launch_conv_pool(&v, a->in[0], a->in[1], a->in[2], a->out[0],
                                               a->out[1], tti_cuda_stream()),
                          "conv2d_pool");
}

static tutti_status run_plain_grad_x(void *state, const tti_kargs *a) {
    tti_conv_pool v = plain_of(grad_x_ends(a->node));
    (void)state;
    return tti_cuda_check(
        tti_launch_conv_pool_grad_x(&v, a->in[0], a->in[1], a->in[2], a->out[0], tti_cuda_stream()),
        "conv2d_pool_grad_x");
}

static tutti_status run_plain_grad_w(void *state, const tti_kargs *a) {
    tti_conv_pool v = plain_of(grad_w_ends(a->node));
    (void)state;
    return tti_cuda_check(tti_launch_conv_pool_grad_w(&v, a->in[0], a->in[1], a->in[2], a->out[0],
                                                      a->out[1], tti_cuda_stream()),
                          "conv2d_pool_grad_w");
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
    {.op = "conv2d_pool", .name = "image", .can_run = can_pool_image, .run = pool_image},
    {.op = "conv2d_pool", .name = "small", .can_run = can_pool_cores, .run = pool_cores},
    {.op = "conv2d_pool", .name = "cuda", .run = run_plain},
    {.op = "conv2d_pool_grad_x", .name = "small", .can_run = can_pool_grad_x, .run = pool_grad_x},
    {.op = "conv2d_pool_grad_x", .name = "cuda", .run = run_plain_grad_x},
    {.op = "conv2d_pool_grad_w",
     .name = "small",
     .can_run = can_pool_grad_w,
     .scratch_bytes = pool_grad_w_bytes,
     .run = pool_grad_w},
    {.op = "conv2d_pool_grad_w", .name = "cuda", .run = run_plain_grad_w},
    {0},
};
