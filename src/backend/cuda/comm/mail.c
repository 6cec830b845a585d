/* mail.c - messages to another device, for the executor. */
#include "backend/cuda/comm/mail.h"

#include "backend/cuda/runtime/device.h"

tutti_status tti_cuda_peers_put(void *group, const tti_device_letter *letter, bool beside) {
    void *piece;
    const tti_peers_view *view = tti_cuda_mail(group, letter->slot, letter->to, &piece);
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_TRADE];
    TTI_ASSERT(letter->place % 16 == 0);
    return tti_cuda_check(
        tti_launch_put(view, letter, (char *)piece + letter->place, beside, stream), "peers_put");
}

tutti_status tti_cuda_peers_take(void *group, int slot) {
    const tti_peers_view *view = tti_cuda_mail(group, slot, 0, NULL);
    return tti_cuda_check(tti_launch_take(view, slot, tti_cuda_stream()), "peers_take");
}

tutti_status tti_cuda_peers_leave(void *group, int slot, int from) {
    const tti_peers_view *view = tti_cuda_mail(group, slot, from, NULL);
    return tti_cuda_check(tti_launch_leave(view, slot, from, tti_cuda_stream()), "peers_leave");
}
