/* conv_point.c - 1x1 convolutions that also compute the sums of the following batch norm.
 *
 * Large ones on Hopper are one kernel (conv_point.cu): shapes and the kind of device alone decide
 * which, so that exact mode uses them too.  Other cases of conv2d_stats use conv.c; other cases of
 * conv2d_grad_join and conv2d_grad_sums, which exist only where joins_gradient accepts them, use a
 * plain convolution and a second pass. */
#include <string.h>

#include "backend/cuda/conv/conv_direct.h"
#include "backend/cuda/conv/conv_point.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/norm/bn_stats.h"
#include "backend/cuda/runtime/cuda.h"

/* Elements of the result: two tiles for each multiprocessor. */
enum { LEAST_ELEMENTS = 2 * 132 * 128 * 128 };

/* ---- which ---- */

static bool is_last(const tutti_value *value) {
    return value->type.dtype == TUTTI_BF16 && value->type.shape.n_dims == 4 &&
           value->layout == TTI_CHANNELS_LAST_BYTES;
}

/* For a product z[N,n,H,W] of a[N,k,H,W] and a 1x1 weight. */
static bool describe(const tutti_value *a, const tutti_value *w, const tutti_value *z,
                     tti_cuda_point_kind kind, tti_cuda_point_desc *out) {
    const int64_t *in = a->type.shape.dim, *made = z->type.shape.dim, *size = w->type.shape.dim;
    if (!is_last(a) || !is_last(z) || w->type.dtype != TUTTI_BF16 || size[2] != 1 || size[3] != 1 ||
        in[2] != made[2] || in[3] != made[3])
        return false;
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->per_sample = made[2] * made[3];
    out->m = made[0] * out->per_sample, out->n = made[1], out->k = in[1];
    bool fits = out->n % 64 == 0 && out->k % 8 == 0 && out->n > 0 && out->k > 0 &&
                (kind != TTI_POINT_SUMS || out->n <= TTI_POINT_MAX_SUMS);
    bool small = out->m > 0 && out->m < INT32_MAX / 2 && out->n < INT32_MAX / 2 &&
                 out->k < INT32_MAX / 2 && out->m * out->n >= LEAST_ELEMENTS;
    return fits && small && tti_cuda_wgmma_here();
}

/* If positions are those of x: y has the same size without padding; padding with a stride could
 * also give the same size. */
static bool describe_stats(const tti_node *node, tti_cuda_point_desc *out) {
    const tti_attr *pad = tti_attr_get(node, "pad");
    for (int d = 0; d < pad->n; d++)
        if (pad->v[d] != 0) return false;
    return tti_attr_int(node, "groups") == 1 &&
           describe(node->in[0], node->in[1], node->out[0], TTI_POINT_STATS, out);
}

static bool lies_as(const tutti_value *value, const tutti_value *like) {
    return value->layout == like->layout;
}

/* x, mask, stats, dy, w, rows?, more? */
static bool describe_join(const tti_node *node, tti_cuda_point_desc *out) {
    const tutti_value *x = node->in[0];
    for (int i = 5; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_I32 && !lies_as(node->in[i], x)) return false;
    return lies_as(node->in[1], x) && lies_as(node->out[0], x) &&
           describe(node->in[3], node->in[4], x, TTI_POINT_JOIN, out);
}

/* x, stats, gamma, beta, dy, w, rows? */
static bool describe_sums(const tti_node *node, tti_cuda_point_desc *out) {
    const tutti_value *x = node->in[0];
    return lies_as(node->out[0], x) && describe(node->in[4], node->in[5], x, TTI_POINT_SUMS, out);
}

bool tti_cuda_point_joins(const tti_node *grad_x, bool keeps) {
    tti_cuda_point_desc d;
    return describe(grad_x->in[0], grad_x->in[1], grad_x->out[0],
                    keeps ? TTI_POINT_SUMS : TTI_POINT_JOIN, &d);
}

/* ---- running ---- */

static bool can_run_stats(const tti_node *node) {
    tti_cuda_point_desc d;
    return describe_stats(node, &d);
}

static bool can_run_join(const tti_node *node) {
    tti_cuda_point_desc d;
    return describe_join(node, &d);
}

static bool can_run_sums(const tti_node *node) {
    tti_cuda_point_desc d;
    return describe_sums(node, &d);
}

static size_t stats_bytes(const tti_node *node, const void *state) {
    tti_cuda_point_desc d;
    (void)state;
    return describe_stats(node, &d) ? tti_cuda_point_bytes(d.m, d.n) : 0;
}

static size_t join_bytes(const tti_node *node, const void *state) {
    tti_cuda_point_desc d;
    (void)state;
    return describe_join(node, &d) ? tti_cuda_point_bytes(d.m, d.n) : 0;
}

static size_t sums_bytes(const tti_node *node, const void *state) {
    tti_cuda_point_desc d;
    (void)state;
    return describe_sums(node, &d) ? tti_cuda_point_bytes(d.m, d.n) : 0;
}

/* x, w, rows? */
static tutti_status run_stats(void *state, const tti_kargs *a) {
    tti_cuda_point_desc d;
    (void)state;
    TTI_ASSERT(describe_stats(a->node, &d));
    d.a = a->in[0], d.b = a->in[1], d.d = a->out[0], d.out = a->out[1];
    d.rows = a->node->n_in > 2 ? a->in[2] : NULL;
    d.partials = a->scratch;
    TTI_CUDA(tti_cuda_point(&d, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_join(void *state, const tti_kargs *a) {
    tti_cuda_point_desc d;
    int next = 5;
    (void)state;
    TTI_ASSERT(describe_join(a->node, &d));
    d.x = a->in[0], d.mask = a->in[1], d.stats = a->in[2], d.a = a->in[3], d.b = a->in[4];
    if (next < a->node->n_in && a->node->in[next]->type.dtype == TUTTI_I32) d.rows = a->in[next++];
    if (next < a->node->n_in) d.more = a->in[next];
    d.eps = tti_attr_float(a->node, "eps");
    d.d = a->out[0], d.out = a->out[1], d.of_x = a->out[2], d.plain = a->out[3];
    d.partials = a->scratch;
    TTI_CUDA(tti_cuda_point(&d, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_sums(void *state, const tti_kargs *a) {
    tti_cuda_point_desc d;
    (void)state;
    TTI_ASSERT(describe_sums(a->node, &d));
    d.x = a->in[0], d.stats = a->in[1], d.gamma = a->in[2], d.beta = a->in[3];
    d.a = a->in[4], d.b = a->in[5];
    d.rows = a->node->n_in > 6 ? a->in[6] : NULL;
    d.eps = tti_attr_float(a->node, "eps");
    d.d = a->out[0], d.out = a->out[1], d.of_x = a->out[2], d.plain = a->out[3];
    d.partials = a->scratch;
    TTI_CUDA(tti_cuda_point(&d, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- the plain way ---- */

static size_t apart_bytes(const tti_node *node, const void *state) {
    (void)state;
    return tti_cuda_stats_bytes(node->in[0]);
}

/* The product into out[0]: x, and dy, w as inputs `at` and the next. */
static tutti_status run_product(const tti_kargs *a, int at) {
    const tutti_value *x = a->node->in[0], *dy = a->node->in[at];
    const int64_t *dim = x->type.shape.dim;
    tti_cuda_conv v = {
        .n = dim[0], .c = dim[1], .h = dim[2], .w = dim[3], .p = dim[2], .q = dim[3]};
    v.o = dy->type.shape.dim[1], v.r = v.s = v.groups = 1;
    for (int d = 0; d < 2; d++) v.stride[d] = v.dilation[d] = 1;
    v.x_last = x->layout == TTI_CHANNELS_LAST_BYTES;
    v.y_last = dy->layout == TTI_CHANNELS_LAST_BYTES;
    TTI_CUDA(tti_cuda_conv_grad_x(x->type.dtype, &v, a->in[at], a->in[at + 1], a->out[0],
                                  tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_join_apart(void *state, const tti_kargs *a) {
    (void)state;
    TTI_TRY(run_product(a, 3));
    return tti_cuda_join_product(a);
}

static tutti_status run_sums_apart(void *state, const tti_kargs *a) {
    (void)state;
    TTI_TRY(run_product(a, 4));
    return tti_cuda_sum_product(a);
}

const tti_kernel tti_cuda_point_kernels[] = {
    {"conv2d_stats", "point", can_run_stats, NULL, stats_bytes, run_stats, NULL},
    {"conv2d_grad_join", "point", can_run_join, NULL, join_bytes, run_join, NULL},
    {"conv2d_grad_join", "apart", tti_cuda_bn_lies_alike, NULL, apart_bytes, run_join_apart, NULL},
    {"conv2d_grad_sums", "point", can_run_sums, NULL, sums_bytes, run_sums, NULL},
    {"conv2d_grad_sums", "apart", tti_cuda_bn_lies_alike, NULL, apart_bytes, run_sums_apart, NULL},
    {0},
};
