/* random.c - rows for dropout, drop_path and their gradients: the same mask twice. */
#include "backend/cuda/ops/random.h"

#include <string.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/loop_nest.h"

/* Tensor shards of a value are tensor_shard.c's. */
static bool can_run(const tti_node *node) {
    bool is_shard = tti_attr_has(node, "cut_dim") && tti_attr_int(node, "cut_dim") >= 0;
    return !is_shard && tti_cuda_same_order(node->in[0], node->out[0]);
}

static tti_dropout_desc desc_of(const tti_node *node) {
    const tutti_shape *shape = &node->out[0]->type.shape;
    tti_dropout_desc desc = {.dtype = node->out[0]->type.dtype,
                             .n_samples = shape->n_dims ? (uint64_t)shape->dim[0] : 1,
                             .per_sample = 1,
                             .key = (uint64_t)tti_attr_int(node, "key")};
    for (int d = 1; d < shape->n_dims; d++) desc.per_sample *= (uint64_t)shape->dim[d];
    if (shape->n_dims == 4 && node->out[0]->layout == TTI_CHANNELS_LAST_BYTES) {
        desc.n_channels = (uint64_t)shape->dim[1];
        desc.n_pixels = (uint64_t)(shape->dim[2] * shape->dim[3]);
    }
    if (desc.n_channels == 1 || desc.n_pixels == 1) desc.n_channels = 0;
    return desc;
}

static tutti_status run_noise(void *state, const tti_kargs *a) {
    tti_dropout_desc desc = desc_of(a->node);
    (void)state;
    bool normal = tti_attr_int(a->node, "normal") != 0;
    return tti_cuda_check(tti_cuda_noise(&desc, normal, a->out[0], a->run, tti_cuda_stream()),
                          a->node->op->name);
}

static tutti_status run_batch_rows(void *state, const tti_kargs *a) {
    (void)state;
    return tti_cuda_check(
        tti_cuda_batch_rows(a->in[0], a->out[0], (size_t)tti_value_n_elems(a->node->out[0]), a->run,
                            tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status run_drop(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    tti_dropout_desc desc = desc_of(node);
    (void)state;
    desc.by_sample = strncmp(node->op->name, "drop_path", 9) == 0;
    desc.p = tti_attr_float(node, "p");
    if (desc.by_sample) desc.n_channels = 0;
    return tti_cuda_check(tti_cuda_dropout(&desc, a->in[0], a->out[0], a->run, tti_cuda_stream()),
                          node->op->name);
}

const tti_kernel tti_cuda_random_kernels[] = {
    {.op = "dropout", .name = "cuda", .can_run = can_run, .run = run_drop},
    {.op = "dropout_grad", .name = "cuda", .can_run = can_run, .run = run_drop},
    {.op = "drop_path", .name = "cuda", .can_run = can_run, .run = run_drop},
    {.op = "drop_path_grad", .name = "cuda", .can_run = can_run, .run = run_drop},
    {.op = "batch_rows", .name = "cuda", .run = run_batch_rows},
    {.op = "noise", .name = "cuda", .can_run = can_run, .run = run_noise},
    {0},
};
