/* embed.c - the rows of the kernel table for lookups and rotary positions: embed.cu does the work.
 */
#include "backend/cuda/ops/embed.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static tutti_status checked(const tti_kargs *a, cudaError_t error) {
    return tti_cuda_check(error, a->node->op->name);
}

static tutti_status one_hot_run(void *state, const tti_kargs *a) {
    (void)state;
    return checked(
        a, tti_launch_one_hot(a->in[0], tti_cuda_n_elems(a->node->in[0]),
                              (size_t)tti_attr_int(a->node, "n"), a->out[0], tti_cuda_stream()));
}

/* ---- lookups: wide, the value [outer,n,inner] around the axis; ids are input 1 ---- */

static tti_lookup lookup_of(const tti_node *node, const tutti_value *wide) {
    const tutti_shape *s = &wide->type.shape;
    int axis = tti_attr_has(node, "axis") ? (int)tti_attr_int(node, "axis") : 0;
    tti_lookup l = {.dtype = wide->type.dtype, .outer = 1, .inner = 1};
    if (axis < 0) axis += s->n_dims;
    for (int d = 0; d < axis; d++) l.outer *= (size_t)s->dim[d];
    for (int d = axis + 1; d < s->n_dims; d++) l.inner *= (size_t)s->dim[d];
    l.n = (size_t)s->dim[axis];
    l.n_ids = tti_cuda_n_elems(node->in[1]);
    return l;
}

static bool lookup_fits(const tti_node *node, const tutti_value *wide) {
    if (!tti_cuda_all_plain(node) || !tti_cuda_is_float(wide)) return false;
    tti_lookup l = lookup_of(node, wide);
    return l.n < INT32_MAX && l.n_ids < INT32_MAX;
}

static bool gather_can_run(const tti_node *node) { return lookup_fits(node, node->in[0]); }
static bool scatter_can_run(const tti_node *node) { return lookup_fits(node, node->out[0]); }

static tutti_status gather_run(void *state, const tti_kargs *a) {
    tti_lookup l = lookup_of(a->node, a->node->in[0]);
    (void)state;
    l.ids = a->in[1];
    return checked(a, tti_launch_gather(&l, a->in[0], a->out[0], tti_cuda_stream()));
}

static size_t scatter_scratch(const tti_node *node, const void *state) {
    tti_lookup l = lookup_of(node, node->out[0]);
    (void)state;
    return tti_scatter_scratch(&l);
}

static tutti_status scatter_run(void *state, const tti_kargs *a) {
    tti_lookup l = lookup_of(a->node, a->node->out[0]);
    (void)state;
    l.ids = a->in[1];
    return checked(a, tti_launch_scatter(&l, a->in[0], a->out[0], a->scratch, tti_cuda_stream()));
}

/* ---- rotary: x[B,T,width], pos? ---- */

static tti_rotation rotation_of(const tti_node *node) {
    const int64_t *d = node->in[0]->type.shape.dim;
    return (tti_rotation){.dtype = node->in[0]->type.dtype,
                          .n_rows = (size_t)(d[0] * d[1]),
                          .n_t = (size_t)d[1],
                          .width = (size_t)d[2],
                          .heads = (size_t)tti_attr_int(node, "heads"),
                          .dim = (size_t)tti_attr_int(node, "dim"),
                          .base = tti_attr_float(node, "base"),
                          .sign = tti_attr_int(node, "inverse") ? -1 : 1,
                          .start = tti_attr_int(node, "start")};
}

static bool rotary_can_run(const tti_node *node) {
    return tti_cuda_is_float(node->in[0]) && node->in[0]->type.shape.dim[1] < INT32_MAX;
}

static size_t rotary_scratch(const tti_node *node, const void *state) {
    tti_rotation r = rotation_of(node);
    (void)state;
    return tti_rotary_scratch(&r);
}

static tutti_status rotary_run(void *state, const tti_kargs *a) {
    tti_rotation r = rotation_of(a->node);
    (void)state;
    r.pos = a->node->n_in == 2 ? a->in[1] : NULL;
    return checked(a, tti_launch_rotary(&r, a->in[0], a->out[0], a->scratch, tti_cuda_stream()));
}

#define GATHER(op_name) \
    { .op = op_name, .name = "cuda", .can_run = gather_can_run, .run = gather_run }
#define SCATTER(op_name)                                           \
    {                                                              \
        .op = op_name, .name = "cuda", .can_run = scatter_can_run, \
        .scratch_bytes = scatter_scratch, .run = scatter_run       \
    }

const tti_kernel tti_cuda_embed_kernels[] = {
    {.op = "one_hot", .name = "cuda", .can_run = tti_cuda_all_plain, .run = one_hot_run},
    GATHER("embedding"),
    GATHER("gather"),
    SCATTER("embedding_grad"),
    SCATTER("scatter_add"),
    {.op = "rotary",
     .name = "cuda",
     .can_run = rotary_can_run,
     .scratch_bytes = rotary_scratch,
     .run = rotary_run},
    {0},
};
