/* tensor_shard.c - kernel table rows for dropout of tensor shards and a device's own rows of a
 * table; tensor_shard.cu has the kernels. */
#include "backend/cuda/ops/tensor_shard.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"
#include "ops/random.h"
#include "ops/tensor_shard.h"

/* Wholes are random.c's. */
static bool mask_can_run(const tti_node *node) {
    return tti_tensor_shard_of(node).dim >= 0 && tti_cuda_is_float(node->in[0]) &&
           tti_cuda_all_plain(node);
}

static tutti_status mask_run(void *state, const tti_kargs *a) {
    tti_sample_runs runs = tti_dropout_runs(a->node);
    tti_shard_mask mask = {.dtype = a->node->in[0]->type.dtype,
                           .n_samples = (uint64_t)a->node->in[0]->type.shape.dim[0],
                           .n_runs = runs.n_runs,
                           .n_elems = runs.n_elems,
                           .first = runs.first,
                           .step = runs.step,
                           .key = (uint64_t)tti_attr_int(a->node, "key"),
                           .p = tti_attr_float(a->node, "p")};
    (void)state;
    return tti_cuda_check(
        tti_launch_shard_mask(&mask, a->in[0], a->out[0], a->run, tti_cuda_stream()),
        a->node->op->name);
}

static tutti_status own_rows_run(void *state, const tti_kargs *a) {
    (void)state;
    return tti_cuda_check(tti_launch_own_rows(a->in[0], a->out[0], tti_cuda_n_elems(a->node->in[0]),
                                              tti_attr_int(a->node, "first"),
                                              tti_attr_int(a->node, "n"), tti_cuda_stream()),
                          "own_rows");
}

const tti_kernel tti_cuda_tensor_shard_kernels[] = {
    {.op = "dropout", .name = "tensor_shard", .can_run = mask_can_run, .run = mask_run},
    {.op = "dropout_grad", .name = "tensor_shard", .can_run = mask_can_run, .run = mask_run},
    {.op = "own_rows", .name = "cuda", .can_run = tti_cuda_all_plain, .run = own_rows_run},
    {0},
};
