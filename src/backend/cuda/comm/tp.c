/* tp.c - collectives inside a step, and sums of lists, for the executor. */
#include "backend/cuda/comm/tp.h"

#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/device.h"

tutti_status tti_cuda_peers_tp(void *group, const tti_tp_collective *tp, bool overlapped) {
    size_t n_half, n_bytes = tp->n_rows * tp->part_bytes;
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    if (tp->kind == TTI_COLLECTIVE_SCATTER) n_bytes *= (size_t)view->n_ranks;
    TTI_ASSERT(n_bytes <= n_half);
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_PEER);
    return tti_cuda_check(tti_launch_tp(view, tp, n_half, overlapped, stream), "peers_tp");
}

/* The offsets of the inputs and outputs on all ranks. */
static tti_tp_norm places_of(void *group, const tti_peers_view *view, const tti_device_norm *norm) {
    tti_tp_norm args = {.n_blocks = norm->n_blocks,
                        .n_rows = norm->n_rows,
                        .width = norm->width,
                        .pushed = norm->pushed,
                        .kept = norm->kept};
    TTI_ASSERT(view->n_ranks == TTI_NORM_RANKS);
    for (int r = 0; r < view->n_ranks; r++) {
        bool far = norm->pushed && r != view->rank;
        args.terms[r] = far ? tti_cuda_tp_source(group, view->rank) + norm->inbox
                            : tti_cuda_tp_source(group, r) + norm->terms;
        args.whole[r] = tti_cuda_tp_source(group, r) + norm->whole;
    }
    return args;
}

tutti_status tti_cuda_peers_norm(void *group, const tti_device_norm *norm) {
    size_t n_half;
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    tti_tp_norm args = places_of(group, view, norm);
    args.bias = norm->bias;
    args.x = norm->x;
    args.sum = norm->sum;
    args.gamma = norm->gamma;
    args.beta = norm->beta;
    args.mean = norm->mean;
    args.rstd = norm->rstd;
    args.eps = (float)tti_attr_float(norm->node, "eps");
    tutti_dtype dtype = norm->node->in[0]->type.dtype;
    return tti_cuda_check(tti_launch_tp_norm(view, &args, dtype, tti_cuda_stream()), "peers_norm");
}

tutti_status tti_cuda_peers_norm_grad(void *group, const tti_device_norm *norm) {
    size_t n_half, n_rows = norm->n_blocks * norm->n_rows, width = norm->width;
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    tti_tp_norm args = places_of(group, view, norm);
    tutti_dtype dtype = norm->node->in[0]->type.dtype;
    /* Inputs are only read: these structs have one kind of pointer. */
    const tti_cuda_norm_grad grad = {.rows = {n_rows, width, 1, width, 1, true},
                                     .x = {(void *)(uintptr_t)norm->x, dtype},
                                     .residual = {(void *)(uintptr_t)norm->residual, dtype},
                                     .mean = norm->mean,
                                     .rstd = norm->rstd,
                                     .gamma = norm->gamma,
                                     .dx = {norm->sum, dtype},
                                     .dgamma = norm->dgamma,
                                     .dbeta = norm->dbeta,
                                     .dsums = norm->dsums,
                                     .partials = norm->scratch};
    return tti_cuda_check(tti_launch_tp_norm_grad(view, &args, &grad, tti_cuda_stream()),
                          "peers_norm_grad");
}

/* By the copy engines: the rows, then the number of barriers so far, for which the other rank
 * waits.  Neither waits for the other device.  A kernel that waits for the other's rows must not
 * come after the next norm, which increments the count: so there is none if only a product waits
 * for them. */
tutti_status tti_cuda_peers_gather_rows(void *group, const tti_device_norm *norm) {
    size_t n_half, n_bytes = norm->n_rows * norm->width * sizeof(uint16_t);
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    int rank = view->rank, other = 1 - rank;
    size_t at = norm->whole + (size_t)rank * n_bytes;
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_PEER);
    TTI_CUDA(cudaMemcpy2DAsync(tti_cuda_tp_source(group, other) + at, 2 * n_bytes,
                               tti_cuda_tp_source(group, rank) + at, 2 * n_bytes, n_bytes,
                               norm->n_blocks, cudaMemcpyDeviceToDevice, stream));
    TTI_CUDA(cudaMemcpyAsync(&view->arena[other]->rows_arrived, &view->arena[rank]->tp_epochs[0],
                             sizeof(uint64_t), cudaMemcpyDeviceToDevice, stream));
    if (norm->pulled) return TUTTI_OK;
    return tti_cuda_check(tti_launch_tp_rows_arrived(view, stream), "peers_gather_rows");
}

/* ---- products whose rows go to two devices ---- */

/* How wgmma.cu makes a product with parts of so many rows; false: it does not. */
typedef bool (*describe_fn)(const tti_node *product, int64_t n_rows, tti_cuda_wgmma_desc *out);

/* The addresses of its values, and which rows are the own ones. */
static tti_cuda_wgmma_desc product_of(const tti_peers_view *view, const tti_device_push *push,
                                      describe_fn describe) {
    const tti_kargs *args = push->args;
    tti_cuda_wgmma_desc desc;
    bool can = describe(args->node, (int64_t)push->n_rows, &desc);
    TTI_ASSERT(can && view->n_ranks == TTI_NORM_RANKS);
    desc.a = args->in[0], desc.b = args->in[1], desc.d = args->out[0];
    desc.rank = view->rank;
    return desc;
}

bool tti_cuda_can_push(const tti_node *product, size_t n_rows, int n_ranks) {
    tti_cuda_wgmma_desc desc;
    return n_ranks == TTI_NORM_RANKS &&
           tti_cuda_wgmma_describe_push(product, (int64_t)n_rows, &desc);
}

tutti_status tti_cuda_peers_push(void *group, const tti_device_push *push) {
    size_t n_half;
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    tti_cuda_wgmma_desc desc = product_of(view, push, tti_cuda_wgmma_describe_push);
    desc.aux = tti_cuda_tp_source(group, 1 - view->rank) + push->inbox;
    return tti_cuda_check(tti_cuda_wgmma(&desc, tti_cuda_stream()), "peers_push");
}

bool tti_cuda_can_pull(const tti_node *product, size_t n_rows, int n_ranks) {
    tti_cuda_wgmma_desc desc;
    return n_ranks == TTI_NORM_RANKS &&
           tti_cuda_wgmma_describe_pull(product, (int64_t)n_rows, &desc);
}

tutti_status tti_cuda_peers_pull(void *group, const tti_device_push *pull) {
    size_t n_half;
    const tti_peers_view *view = tti_cuda_tp_view(group, &n_half);
    const tti_kargs *args = pull->args;
    tti_cuda_wgmma_desc desc = product_of(view, pull, tti_cuda_wgmma_describe_pull);
    desc.bias = args->node->n_in == 3 ? args->in[2] : NULL;
    if (desc.kind == TTI_WGMMA_GELU) desc.aux = args->out[1];
    desc.rows_arrived = &view->arena[view->rank]->rows_arrived;
    desc.wanted = &view->arena[view->rank]->tp_epochs[0];
    desc.state = view->state, desc.timeout_ns = view->timeout_ns;
    return tti_cuda_check(tti_cuda_wgmma(&desc, tti_cuda_stream()), "peers_pull");
}

tutti_status tti_cuda_fold(const double *values, const tti_device_lists *lists, double *sums) {
    return tti_cuda_check(tti_launch_fold(values, lists, sums, tti_cuda_stream()), "fold");
}

tutti_status tti_cuda_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                             const double *sums) {
    return tti_cuda_check(tti_launch_unfold(values, n_values, lists, sums, tti_cuda_stream()),
                          "unfold");
}
