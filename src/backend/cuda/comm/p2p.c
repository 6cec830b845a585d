/* p2p.c - messages to another device, for the executor. */
#include "backend/cuda/comm/p2p.h"

#include "backend/cuda/runtime/device.h"

tutti_status tti_cuda_peers_send(void *group, const tti_device_message *message, bool overlapped) {
    void *partial;
    const tti_peers_view *view = tti_cuda_p2p_view(group, message->slot, message->to, &partial);
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_PEER);
    TTI_ASSERT(message->place % 16 == 0);
    return tti_cuda_check(
        tti_launch_send(view, message, (char *)partial + message->place, overlapped, stream),
        "peers_send");
}

tutti_status tti_cuda_peers_recv(void *group, int slot) {
    const tti_peers_view *view = tti_cuda_p2p_view(group, slot, 0, NULL);
    return tti_cuda_check(tti_launch_recv(view, slot, tti_cuda_stream()), "peers_recv");
}

tutti_status tti_cuda_peers_release(void *group, int slot, int from) {
    const tti_peers_view *view = tti_cuda_p2p_view(group, slot, from, NULL);
    return tti_cuda_check(tti_launch_release(view, slot, from, tti_cuda_stream()), "peers_release");
}
