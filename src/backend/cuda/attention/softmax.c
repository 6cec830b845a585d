/* softmax.c - the rows of the kernel table for softmax: softmax.cu does the work. */
#include "backend/cuda/attention/softmax.h"

#include <string.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static tti_softmax_rows rows_of(const tti_node *node) {
    const tutti_shape *s = &node->in[0]->type.shape;
    int axis = (int)tti_attr_int(node, "axis");
    tti_softmax_rows r = {.dtype = node->in[0]->type.dtype, .outer = 1, .inner = 1};
    if (axis < 0) axis += s->n_dims;
    for (int d = 0; d < axis; d++) r.outer *= (size_t)s->dim[d];
    for (int d = axis + 1; d < s->n_dims; d++) r.inner *= (size_t)s->dim[d];
    r.n = (size_t)s->dim[axis];
    r.log = strncmp(node->op->name, "log_", 4) == 0;
    return r;
}

/* A block for each row is the most. */
static bool can_run(const tti_node *node) {
    if (!tti_cuda_all_plain(node) || !tti_cuda_is_float(node->in[0])) return false;
    tti_softmax_rows r = rows_of(node);
    return r.outer <= INT32_MAX && r.outer * r.inner / 256 < INT32_MAX;
}

static tutti_status run_softmax(void *state, const tti_kargs *a) {
    tti_softmax_rows r = rows_of(a->node);
    cudaStream_t stream = tti_cuda_stream();
    (void)state;
    if (tti_cuda_n_elems(a->node->in[0]) == 0) return TUTTI_OK;
    cudaError_t error = a->node->n_in == 1
                            ? tti_launch_softmax(&r, a->in[0], a->out[0], stream)
                            : tti_launch_softmax_grad(&r, a->in[0], a->in[1], a->out[0], stream);
    return tti_cuda_check(error, a->node->op->name);
}

const tti_kernel tti_cuda_softmax_kernels[] = {
    {.op = "softmax", .name = "cuda", .can_run = can_run, .run = run_softmax},
    {.op = "softmax_grad", .name = "cuda", .can_run = can_run, .run = run_softmax},
    {.op = "log_softmax", .name = "cuda", .can_run = can_run, .run = run_softmax},
    {.op = "log_softmax_grad", .name = "cuda", .can_run = can_run, .run = run_softmax},
    {0},
};
