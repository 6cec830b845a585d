/* grouped.c - the rows of the kernel table for products by groups of rows: grouped.cu does the
 * work. */
#include "backend/cuda/gemm/grouped.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static bool can_run(const tti_node *node) {
    return tti_cuda_all_plain(node) && tti_cuda_is_float(node->in[0]);
}

/* x, y, w: the rows, what each becomes, and the matrices. */
static tti_grouped grouped_of(const tti_node *node, const tutti_value *x, const tutti_value *y,
                              const tutti_value *w, void *scratch) {
    tti_grouped g = {.dtype = x->type.dtype,
                     .rows = (size_t)x->type.shape.dim[0],
                     .k = (size_t)x->type.shape.dim[1],
                     .n = (size_t)y->type.shape.dim[1],
                     .matrices = (size_t)w->type.shape.dim[0],
                     .trans_b = tti_attr_int(node, "trans_b") != 0};
    g.order = scratch;
    g.start = g.order + g.rows;
    return g;
}

static size_t product_scratch(const tti_node *node, const void *state) {
    (void)state;
    return sizeof(int32_t) * tti_grouped_words((size_t)node->in[0]->type.shape.dim[0],
                                               (size_t)node->in[1]->type.shape.dim[0]);
}

static tutti_status product_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    tti_grouped g = grouped_of(node, node->in[0], node->out[0], node->in[1], a->scratch);
    (void)state;
    return tti_cuda_check(
        tti_launch_grouped_matmul(&g, a->in[0], a->in[1], a->in[2], a->out[0], tti_cuda_stream()),
        node->op->name);
}

static size_t grad_scratch(const tti_node *node, const void *state) {
    (void)state;
    return sizeof(int32_t) * tti_grouped_words((size_t)node->in[0]->type.shape.dim[0],
                                               (size_t)node->out[0]->type.shape.dim[0]);
}

static tutti_status grad_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    tti_grouped g = grouped_of(node, node->in[1], node->in[0], node->out[0], a->scratch);
    (void)state;
    return tti_cuda_check(
        tti_launch_grouped_grad(&g, a->in[0], a->in[1], a->in[2], a->out[0], tti_cuda_stream()),
        node->op->name);
}

const tti_kernel tti_cuda_grouped_kernels[] = {
    {.op = "grouped_matmul",
     .name = "cuda",
     .can_run = can_run,
     .scratch_bytes = product_scratch,
     .run = product_run},
    {.op = "grouped_matmul_grad",
     .name = "cuda",
     .can_run = can_run,
     .scratch_bytes = grad_scratch,
     .run = grad_run},
    {0},
};
