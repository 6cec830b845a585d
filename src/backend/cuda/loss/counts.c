/* counts.c - the rows of the kernel table for the counts and sums of metrics: counts.cu does the
 * work. */
#include "backend/cuda/loss/counts.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static bool can_run(const tti_node *node) { return tti_cuda_all_plain(node); }

static tutti_status class_counts_run(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->in[0]->type.shape;
    (void)state;
    return tti_cuda_check(
        tti_cuda_class_counts(a->node->in[0]->type.dtype, a->in[0], a->in[1], (size_t)shape->dim[0],
                              (int)shape->dim[1], tti_attr_int(a->node, "k"), a->out[0], a->out[1],
                              tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status value_sums_run(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->in[0]->type.shape;
    (void)state;
    return tti_cuda_check(tti_cuda_value_sums(a->node->in[0]->type.dtype, a->in[0], a->in[1],
                                              a->in[2], (size_t)shape->dim[0],
                                              (size_t)shape->dim[1], a->out[0], tti_cuda_stream()),
                          a->node->op->name);
}

const tti_kernel tti_cuda_counts_kernels[] = {
    {.op = "class_counts", .name = "cuda", .can_run = can_run, .run = class_counts_run},
    {.op = "value_sums", .name = "cuda", .can_run = can_run, .run = value_sums_run},
    {0},
};
