/* trade.c - exchanges inside a step, and sums of lists, as the executor asks for them. */
#include "backend/cuda/trade.h"

#include "backend/cuda/device.h"

tutti_status tti_cuda_peers_trade(void *group, const tti_device_trade *trade, bool beside) {
    size_t n_half, n_bytes = trade->n_rows * trade->part_bytes;
    const tti_peers_view *view = tti_cuda_traders(group, &n_half);
    if (trade->kind == TTI_COLLECTIVE_SCATTER) n_bytes *= (size_t)view->n_ranks;
    TTI_ASSERT(n_bytes <= n_half);
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_TRADE];
    return tti_cuda_check(tti_launch_trade(view, trade, n_half, beside, stream), "peers_trade");
}

tutti_status tti_cuda_fold(const double *values, const tti_device_lists *lists, double *sums) {
    return tti_cuda_check(tti_launch_fold(values, lists, sums, tti_cuda_stream()), "fold");
}

tutti_status tti_cuda_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                             const double *sums) {
    return tti_cuda_check(tti_launch_unfold(values, n_values, lists, sums, tti_cuda_stream()),
                          "unfold");
}
