/* vocabulary.c - the rows of the kernel table for losses of classes that are on several devices:
 * vocabulary.cu does the work. */
#include "backend/cuda/loss/vocabulary.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

static tti_class_rows rows_of(const tti_kargs *a, int labels) {
    const tutti_type *x = &a->node->in[0]->type;
    tti_class_rows r = {.dtype = x->dtype,
                        .n_rows = (size_t)x->shape.dim[0],
                        .n_own = (size_t)x->shape.dim[1],
                        .n_classes = (size_t)x->shape.dim[1],
                        .first = tti_attr_int(a->node, "first"),
                        .labels = a->in[labels]};
    if (!tti_attr_has(a->node, "n")) return r;
    r.n_classes *= (size_t)tti_attr_int(a->node, "n");
    r.ignore = tti_attr_int(a->node, "ignore");
    r.smoothing = tti_attr_float(a->node, "smoothing");
    return r;
}

static bool can_run(const tti_node *node) { return tti_cuda_is_float(node->in[0]); }

/* logits, labels */
static tutti_status part_run(void *state, const tti_kargs *a) {
    tti_class_rows r = rows_of(a, 1);
    (void)state;
    return tti_cuda_check(tti_launch_entropy_part(&r, a->in[0], a->out[0], tti_cuda_stream()),
                          "entropy_part");
}

static size_t join_scratch(const tti_node *node, const void *state) {
    (void)state;
    return tti_entropy_join_scratch((size_t)node->in[0]->type.shape.dim[0]);
}

/* logits, parts, labels */
static tutti_status join_run(void *state, const tti_kargs *a) {
    tti_class_rows r = rows_of(a, 2);
    float *const out[4] = {a->out[0], a->out[1], a->out[2], a->out[3]};
    size_t n = (size_t)tti_attr_int(a->node, "n");
    (void)state;
    return tti_cuda_check(
        tti_launch_entropy_join(&r, n, a->in[1], out, a->scratch, tti_cuda_stream()),
        "entropy_join");
}

/* logits, labels, dloss, rows */
static tutti_status join_grad_run(void *state, const tti_kargs *a) {
    tti_class_rows r = rows_of(a, 1);
    (void)state;
    return tti_cuda_check(tti_launch_entropy_join_grad(&r, a->in[0], a->in[2], a->in[3], a->out[0],
                                                       tti_cuda_stream()),
                          "entropy_join_grad");
}

const tti_kernel tti_cuda_vocabulary_kernels[] = {
    {.op = "entropy_part", .name = "cuda", .can_run = can_run, .run = part_run},
    {.op = "entropy_join",
     .name = "cuda",
     .can_run = can_run,
     .scratch_bytes = join_scratch,
     .run = join_run},
    {.op = "entropy_join_grad", .name = "cuda", .can_run = can_run, .run = join_grad_run},
    {0},
};
