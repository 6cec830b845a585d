/* resample.c - the rows of the kernel table for larger planes: resample.cu does the work. */
#include "backend/cuda/ops/resample.h"

#include <string.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static bool can_run(const tti_node *node) {
    if (!tti_cuda_is_float(node->in[0])) return false;
    return tti_cuda_lies_as(node, TTI_PLAIN) || tti_cuda_lies_as(node, TTI_CHANNELS_LAST_BYTES);
}

static bool is_grad(const tti_node *node) { return strstr(node->op->name, "_grad") != NULL; }

static tti_resample resample_of(const tti_node *node) {
    const int64_t *here = node->in[0]->type.shape.dim, *there = node->out[0]->type.shape.dim;
    bool nearest = tti_attr_has(node, "scale");
    tti_resample r = {.dtype = node->in[0]->type.dtype,
                      .n = (size_t)here[0],
                      .c = (size_t)here[1],
                      .nearest = nearest,
                      .align = !nearest && tti_attr_int(node, "align") != 0,
                      .channels_last = !tti_cuda_lies_as(node, TTI_PLAIN)};
    for (int d = 0; d < 2; d++) {
        r.in[d] = (int32_t)(is_grad(node) ? there : here)[2 + d];
        r.out[d] = (int32_t)(is_grad(node) ? here : there)[2 + d];
    }
    return r;
}

static tutti_status run_resample(void *state, const tti_kargs *a) {
    tti_resample r = resample_of(a->node);
    cudaStream_t stream = tti_cuda_stream();
    (void)state;
    cudaError_t error = is_grad(a->node) ? tti_launch_resample_grad(&r, a->in[0], a->out[0], stream)
                                         : tti_launch_resample(&r, a->in[0], a->out[0], stream);
    return tti_cuda_check(error, a->node->op->name);
}

#define ROW(op_name) \
    { .op = op_name, .name = "cuda", .can_run = can_run, .run = run_resample }

const tti_kernel tti_cuda_resample_kernels[] = {
    ROW("upsample_nearest2d"),
    ROW("upsample_nearest2d_grad"),
    ROW("upsample_bilinear2d"),
    ROW("upsample_bilinear2d_grad"),
    {0},
};
