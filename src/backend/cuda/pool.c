/* pool.c - the rows of the kernel table for pooling: pool.cu does the work. */
#include "backend/cuda/pool.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/plain.h"
#include "backend/cuda/pool_two.h"

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

#define ROW(op_name, fn) \
    { .op = op_name, .name = "cuda", .can_run = can_run, .run = fn }

const tti_kernel tti_cuda_pool_kernels[] = {
    ROW("max_pool2d", max_run),
    ROW("max_pool2d_grad", max_grad_run),
    ROW("avg_pool2d", avg_run),
    ROW("avg_pool2d_grad", avg_grad_run),
    ROW("adaptive_avg_pool2d", avg_run),
    ROW("adaptive_avg_pool2d_grad", avg_grad_run),
    ROW("adaptive_max_pool2d", max_run),
    ROW("adaptive_max_pool2d_grad", max_grad_run),
    {0},
};
