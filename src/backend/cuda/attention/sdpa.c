/* sdpa.c - the rows of the kernel table for attention with separate inputs: sdpa_short.cu computes
 * short windows of 16-bit values, sdpa_mma.cu other 16-bit values, sdpa.cu all others. */
#include "backend/cuda/attention/sdpa.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"

/* All but the arrays. */
static tti_cuda_sdpa sizes_of(const tti_node *node) {
    tti_cuda_sdpa a = {.sizes = tti_sdpa_of(node), .dtype = node->in[0]->type.dtype};
    if (a.sizes.saved >= 0) a.n_dbias = tti_cuda_n_elems(node->out[3]);
    for (int d = 0; d < 4 && a.n_dbias > 0; d++)
        a.dbias[d] = (size_t)node->out[3]->type.shape.dim[d];
    return a;
}

static bool can_run(const tti_node *node) {
    const tti_cuda *device = tti_cuda_device();
    if (!tti_cuda_all_plain(node) || !tti_cuda_is_float(node->in[0])) return false;
    tti_cuda_sdpa a = sizes_of(node);
    return tti_sdpa_shared_bytes(&a) + 1024 <= (device ? device->shared_optin : 48 * 1024);
}

static bool can_run_mma(const tti_node *node) {
    if (!tti_cuda_all_plain(node) || !tti_cuda_is_float(node->in[0])) return false;
    tti_cuda_sdpa a = sizes_of(node);
    return tti_sdpa_mma_can(&a);
}

static bool can_run_short(const tti_node *node) {
    if (!can_run_mma(node)) return false;
    tti_cuda_sdpa a = sizes_of(node);
    return tti_sdpa_short_can(&a);
}

static tti_cuda_sdpa arrays_of(const tti_kargs *args) {
    tti_cuda_sdpa a = sizes_of(args->node);
    a.q = args->in[0], a.k = args->in[1], a.v = args->in[2];
    if (a.sizes.bias >= 0) a.bias = args->in[a.sizes.bias];
    if (a.sizes.segments >= 0) {
        a.query_segments = args->in[a.sizes.segments];
        a.key_segments = args->in[a.sizes.segments + 1];
    }
    a.run = args->run;
    return a;
}

static tutti_status run(const tti_kargs *args,
                        cudaError_t (*launch)(const tti_cuda_sdpa *, cudaStream_t)) {
    tti_cuda_sdpa a = arrays_of(args);
    int saved = a.sizes.saved;
    if (saved < 0) {
        a.y = args->out[0], a.max = args->out[1], a.log_sum = args->out[2];
    } else {
        a.y = args->in[saved], a.max = args->in[saved + 1], a.log_sum = args->in[saved + 2];
        a.dy = args->in[saved + 3];
        a.dq = args->out[0], a.dk = args->out[1], a.dv = args->out[2], a.dbias_out = args->out[3];
        a.mean = args->scratch;
    }
    return tti_cuda_check(launch(&a, tti_cuda_stream()), args->node->op->name);
}

static tutti_status sdpa_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa);
}

static tutti_status sdpa_grad_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa_grad);
}

static tutti_status sdpa_mma_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa_mma);
}

static tutti_status sdpa_mma_grad_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa_mma_grad);
}

static tutti_status sdpa_short_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa_short);
}

static tutti_status sdpa_short_grad_run(void *state, const tti_kargs *args) {
    (void)state;
    return run(args, tti_launch_sdpa_short_grad);
}

static size_t grad_scratch(const tti_node *node, const void *state) {
    (void)state;
    tti_sdpa v = tti_sdpa_of(node);
    return v.n_batch * v.heads * v.n_t * sizeof(double);
}

static size_t mma_grad_scratch(const tti_node *node, const void *state) {
    (void)state;
    tti_cuda_sdpa a = sizes_of(node);
    return tti_sdpa_mma_scratch(&a);
}

static size_t short_grad_scratch(const tti_node *node, const void *state) {
    (void)state;
    tti_cuda_sdpa a = sizes_of(node);
    return tti_sdpa_short_scratch(&a);
}

const tti_kernel tti_cuda_sdpa_kernels[] = {
    {.op = "sdpa", .name = "short", .can_run = can_run_short, .run = sdpa_short_run},
    {.op = "sdpa_grad",
     .name = "short",
     .can_run = can_run_short,
     .scratch_bytes = short_grad_scratch,
     .run = sdpa_short_grad_run},
    {.op = "sdpa", .name = "mma", .can_run = can_run_mma, .run = sdpa_mma_run},
    {.op = "sdpa_grad",
     .name = "mma",
     .can_run = can_run_mma,
     .scratch_bytes = mma_grad_scratch,
     .run = sdpa_mma_grad_run},
    {.op = "sdpa", .name = "cuda", .can_run = can_run, .run = sdpa_run},
    {.op = "sdpa_grad",
     .name = "cuda",
     .can_run = can_run,
     .scratch_bytes = grad_scratch,
     .run = sdpa_grad_run},
    {0},
};
