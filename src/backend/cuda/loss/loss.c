/* loss.c - the rows of the kernel table for losses: loss.cu does the work. */
#include "backend/cuda/loss/loss_small.h"

#include <string.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

/* ---- cross entropy ---- */

static tti_entropy_rows rows_of(const tti_node *node) {
    const tutti_type *x = &node->in[0]->type;
    return (tti_entropy_rows){.dtype = x->dtype,
                              .n_rows = (size_t)x->shape.dim[0],
                              .n_classes = (size_t)x->shape.dim[1],
                              .ignore = tti_attr_int(node, "ignore"),
                              .smoothing = tti_attr_float(node, "smoothing")};
}

static tti_entropy_rows entropy_of(const tti_kargs *a) {
    tti_entropy_rows r = rows_of(a->node);
    r.labels = a->in[1];
    return r;
}

/* A block for each row is the most. */
static bool entropy_can_run(const tti_node *node) {
    return tti_cuda_is_float(node->in[0]) && node->in[0]->type.shape.dim[0] <= INT32_MAX;
}

static size_t entropy_scratch(const tti_node *node, const void *state) {
    (void)state;
    return tti_cross_entropy_scratch((size_t)node->in[0]->type.shape.dim[0]);
}

static tutti_status entropy_run(void *state, const tti_kargs *a) {
    tti_entropy_rows r = entropy_of(a);
    float *const out[4] = {a->out[0], a->out[1], a->out[2], a->out[3]};
    (void)state;
    return tti_cuda_check(
        tti_launch_cross_entropy(&r, a->in[0], out, a->scratch, tti_cuda_stream()),
        "cross_entropy");
}

static tutti_status entropy_grad_run(void *state, const tti_kargs *a) {
    tti_entropy_rows r = entropy_of(a);
    const float *rows = a->node->n_in == 4 ? a->in[3] : NULL;
    (void)state;
    return tti_cuda_check(
        tti_launch_cross_entropy_grad(&r, a->in[0], a->in[2], rows, a->out[0], tti_cuda_stream()),
        "cross_entropy_grad");
}

static size_t entropy_both_scratch(const tti_node *node, const void *state) {
    tti_entropy_rows r = rows_of(node);
    (void)state;
    return tti_entropy_both_scratch(&r, node->op->n_out > 4);
}

static tutti_status entropy_both_run(void *state, const tti_kargs *a) {
    tti_entropy_rows r = entropy_of(a);
    bool sums = a->node->op->n_out > 4;
    float *const out[4] = {a->out[1], a->out[2], a->out[3], sums ? a->out[4] : NULL};
    (void)state;
    if (tti_entropy_is_small(&r) && !sums)
        return tti_cuda_check(
            tti_launch_entropy_small(&r, a->in[0], a->in[2], a->out[0], out, tti_cuda_stream()),
            "cross_entropy_and_grad");
    return tti_cuda_check(tti_launch_entropy_both(&r, a->in[0], a->in[2], a->out[0], out,
                                                  a->scratch, tti_cuda_stream()),
                          "cross_entropy_and_grad");
}

/* ---- pairs: x, target, labels?, and dloss for a gradient ---- */

static bool is_grad(const tti_node *node) { return strstr(node->op->name, "_grad") != NULL; }

/* Element by element: any layout, if it is one. */
static bool pair_can_run(const tti_node *node) {
    tti_layout layout = node->in[0]->layout;
    if (!tti_cuda_is_float(node->in[0]) || node->in[1]->layout != layout) return false;
    return !is_grad(node) || node->out[0]->layout == layout;
}

static tti_pair_rows pairs_of(const tti_kargs *a) {
    const tti_node *node = a->node;
    const char *name = node->op->name;
    bool has_labels = node->n_in == (is_grad(node) ? 4 : 3);
    tti_pair_rows r = {.kind = TTI_PAIR_MSE,
                       .dtype = node->in[0]->type.dtype,
                       .n_rows = (size_t)node->in[0]->type.shape.dim[0],
                       .labels = has_labels ? a->in[2] : NULL,
                       .ignore = tti_attr_int(node, "ignore"),
                       .x = a->in[0],
                       .t = a->in[1]};
    if (strncmp(name, "bce", 3) == 0) r.kind = TTI_PAIR_BCE;
    if (strncmp(name, "kl", 2) == 0) r.kind = TTI_PAIR_KL;
    r.width = r.n_rows ? tti_cuda_n_elems(node->in[0]) / r.n_rows : 0;
    return r;
}

static size_t pair_scratch(const tti_node *node, const void *state) {
    (void)node, (void)state;
    return tti_pair_loss_scratch();
}

static tutti_status pair_run(void *state, const tti_kargs *a) {
    tti_pair_rows r = pairs_of(a);
    (void)state;
    return tti_cuda_check(
        tti_launch_pair_loss(&r, a->out[0], a->out[1], a->scratch, tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status pair_grad_run(void *state, const tti_kargs *a) {
    tti_pair_rows r = pairs_of(a);
    bool of_target = tti_attr_has(a->node, "of_target") && tti_attr_int(a->node, "of_target") != 0;
    (void)state;
    return tti_cuda_check(
        tti_launch_pair_grad(&r, of_target, a->in[a->node->n_in - 1], a->out[0], tti_cuda_stream()),
        a->node->op->name);
}

#define LOSS(op_name)                                                                        \
    {.op = op_name,                                                                          \
     .name = "cuda",                                                                         \
     .can_run = pair_can_run,                                                                \
     .scratch_bytes = pair_scratch,                                                          \
     .run = pair_run},                                                                       \
    {                                                                                        \
        .op = op_name "_grad", .name = "cuda", .can_run = pair_can_run, .run = pair_grad_run \
    }

const tti_kernel tti_cuda_loss_kernels[] = {
    {.op = "cross_entropy",
     .name = "cuda",
     .can_run = entropy_can_run,
     .scratch_bytes = entropy_scratch,
     .run = entropy_run},
    {.op = "cross_entropy_grad",
     .name = "cuda",
     .can_run = entropy_can_run,
     .run = entropy_grad_run},
    {.op = "cross_entropy_and_grad",
     .name = "cuda",
     .can_run = entropy_can_run,
     .scratch_bytes = entropy_both_scratch,
     .run = entropy_both_run},
    {.op = "cross_entropy_and_grad_sums",
     .name = "cuda",
     .can_run = entropy_can_run,
     .scratch_bytes = entropy_both_scratch,
     .run = entropy_both_run},
    LOSS("mse"),
    LOSS("bce_with_logits"),
    LOSS("kl_div"),
    {0},
};
