/* trade.c - exchanges inside a step, and sums of lists, as the executor asks for them. */
#include "backend/cuda/trade.h"

#include "backend/cuda/device.h"
#include "backend/cuda/norm.h"

tutti_status tti_cuda_peers_trade(void *group, const tti_device_trade *trade, bool beside) {
    size_t n_half, n_bytes = trade->n_rows * trade->part_bytes;
    const tti_peers_view *view = tti_cuda_traders(group, &n_half);
    if (trade->kind == TTI_COLLECTIVE_SCATTER) n_bytes *= (size_t)view->n_ranks;
    TTI_ASSERT(n_bytes <= n_half);
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_TRADE];
    return tti_cuda_check(tti_launch_trade(view, trade, n_half, beside, stream), "peers_trade");
}

/* As all ranks have it. */
static tutti_status launch_norm(void *group, const tti_device_norm *norm, tti_trade_norm *args) {
    size_t n_half;
    const tti_peers_view *view = tti_cuda_traders(group, &n_half);
    args->x = norm->x;
    args->sum = norm->sum;
    args->gamma = norm->gamma;
    args->mean = norm->mean;
    args->rstd = norm->rstd;
    args->n_blocks = norm->n_blocks;
    args->n_rows = norm->n_rows;
    args->width = norm->width;
    TTI_ASSERT(view->n_ranks == TTI_NORM_RANKS);
    for (int r = 0; r < view->n_ranks; r++) {
        args->terms[r] = tti_cuda_traded_source(group, r) + norm->terms;
        args->whole[r] = tti_cuda_traded_source(group, r) + norm->whole;
    }
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_TRADE];
    tutti_dtype dtype = norm->node->in[0]->type.dtype;
    return tti_cuda_check(tti_launch_trade_norm(view, args, dtype, stream), "peers_norm");
}

tutti_status tti_cuda_peers_norm(void *group, const tti_device_norm *norm) {
    tti_trade_norm args = {
        .bias = norm->bias, .beta = norm->beta, .eps = (float)tti_attr_float(norm->node, "eps")};
    return launch_norm(group, norm, &args);
}

tutti_status tti_cuda_peers_norm_grad(void *group, const tti_device_norm *norm) {
    tti_trade_norm args = {.bias = norm->residual, .part = norm->part};
    tutti_dtype dtype = norm->node->in[0]->type.dtype;
    size_t n_rows = norm->n_blocks * norm->n_rows, width = norm->width;
    const tti_cuda_norm_grad columns = {.rows = {n_rows, width, 1, width, 1, true},
                                        .dy = {norm->part, dtype},
                                        .x = {(void *)(uintptr_t)norm->x, dtype},
                                        .mean = norm->mean,
                                        .rstd = norm->rstd,
                                        .gamma = norm->gamma,
                                        .dgamma = norm->dgamma,
                                        .dbeta = norm->dbeta,
                                        .partials = norm->scratch};
    TTI_TRY(launch_norm(group, norm, &args));
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_TRADE];
    return tti_cuda_check(tti_cuda_norm_backward(&columns, stream), "peers_norm_grad");
}

tutti_status tti_cuda_fold(const double *values, const tti_device_lists *lists, double *sums) {
    return tti_cuda_check(tti_launch_fold(values, lists, sums, tti_cuda_stream()), "fold");
}

tutti_status tti_cuda_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                             const double *sums) {
    return tti_cuda_check(tti_launch_unfold(values, n_values, lists, sums, tti_cuda_stream()),
                          "unfold");
}
