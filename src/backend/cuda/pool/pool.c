/* pool.c - the rows of the kernel table for pooling: pool.cu does the work. */
#include "backend/cuda/pool/pool.h"

#include "backend/cuda/pool/bn_pool.h"
#include "backend/cuda/pool/pool_two.h"
#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static bool can_run(const tti_node *node) {
    if (!tti_cuda_is_float(node->in[0])) return false;
    return tti_cuda_lies_as(node, TTI_PLAIN) || tti_cuda_lies_as(node, TTI_CHANNELS_LAST_BYTES);
}

static void read_pair(const tti_node *node, const char *name, const int32_t *fallback,
                      int32_t out[2]) {
    const tti_attr *list = tti_attr_get(node, name);
    for (int d = 0; d < 2; d++) out[d] = list->n ? (int32_t)list->v[d] : fallback[d];
}

static tti_pool pool_of(const tti_node *node) {
    static const int32_t zeros[2] = {0, 0};
    bool is_grad = tti_attr_has(node, "in_hw");
    const int64_t *x = node->in[0]->type.shape.dim, *y = node->out[0]->type.shape.dim;
    tti_pool p = {.dtype = node->in[0]->type.dtype, .n = (size_t)x[0], .c = (size_t)x[1]};
    for (int d = 0; d < 2; d++) {
        p.in[d] = (int32_t)(is_grad ? y : x)[2 + d];
        p.out[d] = (int32_t)(is_grad ? x : y)[2 + d];
    }
    if (tti_attr_has(node, "kernel")) {
        read_pair(node, "kernel", zeros, p.kernel);
        read_pair(node, "stride", p.kernel, p.stride);
        read_pair(node, "pad", zeros, p.pad);
    }
    p.count_pad = !tti_attr_has(node, "count_pad") || tti_attr_int(node, "count_pad") != 0;
    p.channels_last = !tti_cuda_lies_as(node, TTI_PLAIN);
    return p;
}

static tutti_status max_run(void *state, const tti_kargs *a) {
    tti_pool p = pool_of(a->node);
    (void)state;
    if (tti_pool_is_two(&p))
        return tti_cuda_check(
            tti_launch_max_pool_two(&p, a->in[0], a->out[0], a->out[1], tti_cuda_stream()),
            a->node->op->name);
    return tti_cuda_check(
        tti_launch_max_pool(&p, a->in[0], a->out[0], a->out[1], tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status max_grad_run(void *state, const tti_kargs *a) {
    tti_pool p = pool_of(a->node);
    (void)state;
    if (tti_pool_is_two(&p))
        return tti_cuda_check(
            tti_launch_max_pool_two_grad(&p, a->in[0], a->in[1], a->out[0], tti_cuda_stream()),
            a->node->op->name);
    return tti_cuda_check(
        tti_launch_max_pool_grad(&p, a->in[0], a->in[1], a->out[0], tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status avg_run(void *state, const tti_kargs *a) {
    tti_pool p = pool_of(a->node);
    (void)state;
    return tti_cuda_check(tti_launch_avg_pool(&p, a->in[0], a->out[0], tti_cuda_stream()),
                          a->node->op->name);
}

static tutti_status avg_grad_run(void *state, const tti_kargs *a) {
    tti_pool p = pool_of(a->node);
    (void)state;
    return tti_cuda_check(tti_launch_avg_pool_grad(&p, a->in[0], a->out[0], tti_cuda_stream()),
                          a->node->op->name);
}

/* ---- after batch norm ---- */

/* Windows of 3x3 two apart, with one place around x. */
static tti_pool norm_pool_of(const tutti_value *x, const tutti_value *y, bool last) {
    const int64_t *from = x->type.shape.dim, *to = y->type.shape.dim;
    tti_pool p = {.dtype = x->type.dtype, .n = (size_t)from[0], .c = (size_t)from[1]};
    for (int d = 0; d < 2; d++) {
        p.in[d] = (int32_t)from[2 + d], p.out[d] = (int32_t)to[2 + d];
        p.kernel[d] = 3, p.stride[d] = 2, p.pad[d] = 1;
    }
    p.channels_last = last;
    return p;
}

/* x, stats, gamma, beta */
static tutti_status norm_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    tti_pool p = norm_pool_of(node->in[0], node->out[0], !tti_cuda_lies_as(node, TTI_PLAIN));
    const float *stats = a->in[1];
    tti_cuda_bn_affine norm = {.count = stats, .mean = stats + 1, .m2 = stats + 1 + p.c};
    (void)state;
    norm.gamma = a->in[2], norm.beta = a->in[3];
    norm.eps = tti_attr_float(node, "eps");
    bool three = tti_pool_three_fits(&p) && p.c <= TTI_POOL_CHANNELS;
    return tti_cuda_check((three ? tti_launch_bn_pool_three : tti_launch_bn_pool)(
                              &p, &norm, a->in[0], a->out[0], a->out[1], tti_cuda_stream()),
                          node->op->name);
}

/* dp, where, x, stats first. */
static tti_pool grad_pool_of(const tti_node *node) {
    return norm_pool_of(node->in[2], node->in[0], !tti_cuda_lies_as(node, TTI_PLAIN));
}

static tti_cuda_bn_grad norm_grad_of(const tti_kargs *a, int rows) {
    tti_cuda_bn_grad grad = {.dy = a->in[0], .x = a->in[2], .stats = a->in[3]};
    grad.rows = a->node->n_in > rows ? a->in[rows] : NULL;
    grad.eps = tti_attr_float(a->node, "eps");
    return grad;
}

static size_t norm_sums_bytes(const tti_node *node, const void *state) {
    tti_pool p = grad_pool_of(node);
    (void)state;
    return tti_cuda_bn_pool_scratch(&p);
}

static tutti_status norm_sums_run(void *state, const tti_kargs *a) {
    tti_pool p = grad_pool_of(a->node);
    tti_cuda_bn_grad grad = norm_grad_of(a, 4);
    tti_cuda_bn_sums_out out = {a->out[0], a->out[1], a->out[2]};
    (void)state;
    return tti_cuda_check(
        tti_cuda_bn_pool_sums(&p, &grad, a->in[1], a->scratch, &out, tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status norm_dx_run(void *state, const tti_kargs *a) {
    tti_pool p = grad_pool_of(a->node);
    tti_cuda_bn_grad grad = norm_grad_of(a, 6);
    (void)state;
    grad.gamma = a->in[4], grad.sums = a->in[5];
    return tti_cuda_check(
        tti_cuda_bn_pool_backward(&p, &grad, a->in[1], a->out[0], tti_cuda_stream()),
        a->node->op->name);
}

#define ROW(op_name, fn) \
    { .op = op_name, .name = "cuda", .can_run = can_run, .run = fn }

const tti_kernel tti_cuda_pool_kernels[] = {
    ROW("max_pool2d", max_run),
    ROW("max_pool2d_grad", max_grad_run),
    ROW("avg_pool2d", avg_run),
    ROW("avg_pool2d_grad", avg_grad_run),
    ROW("bn_apply_pool", norm_run),
    ROW("bn_pool_grad_apply", norm_dx_run),
    {.op = "bn_pool_grad_sums",
     .name = "cuda",
     .can_run = can_run,
     .scratch_bytes = norm_sums_bytes,
     .run = norm_sums_run},
    ROW("adaptive_avg_pool2d", avg_run),
    ROW("adaptive_avg_pool2d_grad", avg_grad_run),
    ROW("adaptive_max_pool2d", max_run),
    ROW("adaptive_max_pool2d_grad", max_grad_run),
    {0},
};
