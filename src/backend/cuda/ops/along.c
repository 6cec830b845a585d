/* along.c - the rows of the kernel table for ops along an axis: along.cu does the work. */
#include "backend/cuda/ops/along.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

/* wide: the value with all elements of the axis. */
static tti_along along_of(const tti_node *node, const tutti_value *wide) {
    const tutti_shape *s = &wide->type.shape;
    int axis = (int)tti_attr_int(node, "axis");
    tti_along v = {.dtype = wide->type.dtype, .outer = 1, .inner = 1};
    if (axis < 0) axis += s->n_dims;
    for (int d = 0; d < axis; d++) v.outer *= (size_t)s->dim[d];
    for (int d = axis + 1; d < s->n_dims; d++) v.inner *= (size_t)s->dim[d];
    v.n = (size_t)s->dim[axis];
    if (node->n_in == 2) v.n_ids = (size_t)node->in[1]->type.shape.dim[axis];
    return v;
}

static bool can_run(const tti_node *node) {
    return tti_cuda_all_plain(node) && tti_cuda_is_float(node->in[0]);
}

static tutti_status cumsum_run(void *state, const tti_kargs *a) {
    tti_along v = along_of(a->node, a->node->in[0]);
    (void)state;
    v.reverse = tti_attr_int(a->node, "reverse") != 0;
    return tti_cuda_check(tti_launch_cumsum(&v, a->in[0], a->out[0], tti_cuda_stream()),
                          a->node->op->name);
}

static tutti_status sort_run(void *state, const tti_kargs *a) {
    tti_along v = along_of(a->node, a->node->in[0]);
    (void)state;
    v.reverse = tti_attr_int(a->node, "descending") != 0;
    return tti_cuda_check(tti_launch_sort(&v, a->in[0], a->out[0], a->out[1], tti_cuda_stream()),
                          a->node->op->name);
}

static tutti_status take_run(void *state, const tti_kargs *a) {
    tti_along v = along_of(a->node, a->node->in[0]);
    (void)state;
    return tti_cuda_check(
        tti_launch_take_along(&v, a->in[0], a->in[1], a->out[0], tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status put_run(void *state, const tti_kargs *a) {
    tti_along v = along_of(a->node, a->node->out[0]);
    (void)state;
    return tti_cuda_check(
        tti_launch_put_along(&v, a->in[0], a->in[1], a->out[0], tti_cuda_stream()),
        a->node->op->name);
}

const tti_kernel tti_cuda_along_kernels[] = {
    {.op = "cumsum", .name = "cuda", .can_run = can_run, .run = cumsum_run},
    {.op = "sort", .name = "cuda", .can_run = can_run, .run = sort_run},
    {.op = "take_along", .name = "cuda", .can_run = can_run, .run = take_run},
    {.op = "put_along", .name = "cuda", .can_run = can_run, .run = put_run},
    {0},
};
